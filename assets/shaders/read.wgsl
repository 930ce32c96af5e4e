// Reading alone: the sum of word i times 2i + 1, modulo 2^32. It changes when any word does or when two change places, so it
// also checks what the other kernels wrote. One partial sum per work group.
struct Args { vectors: u32 }
var<immediate> args: Args;
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;
var<workgroup> parts: array<u32, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    var sum = 0u;
    for (var i = id.x; i < args.vectors; i += groups.x * 256u) {
        let factors = vec4<u32>(8u * i) + vec4<u32>(1u, 3u, 5u, 7u);
        let products = source[i] * factors;
        sum += products.x + products.y + products.z + products.w;
    }
    parts[lane] = sum;
    workgroupBarrier();
    for (var half = 128u; half > 0u; half >>= 1u) {
        if lane < half {
            parts[lane] += parts[lane + half];
        }
        workgroupBarrier();
    }
    if lane == 0u {
        sums[group.x] = parts[0];
    }
}
