// Streaming copy: every 16 bytes are read once and written once.
struct Args { vectors: u32 }
var<immediate> args: Args;
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> copied: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < args.vectors; i += groups.x * 256u) {
        copied[i] = source[i];
    }
}
