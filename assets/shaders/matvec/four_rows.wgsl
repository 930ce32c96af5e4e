// A work group for four rows: each part of x is loaded once for all of them.
var<workgroup> parts: array<vec4<f32>, 128>;

@compute @workgroup_size(128)
fn main(
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let last = args.rows - 1u;
    for (var row = 4u * group.x; row < args.rows; row += 4u * groups.x) {
        var sum = vec4<f32>(0.0);
        for (var chunk = lane; chunk < args.chunks; chunk += 128u) {
            let input = input_of(chunk);
            sum += vec4<f32>(
                product(row, chunk, input),
                product(min(row + 1u, last), chunk, input),
                product(min(row + 2u, last), chunk, input),
                product(min(row + 3u, last), chunk, input),
            );
        }
        parts[lane] = sum;
        workgroupBarrier();
        for (var half = 64u; half > 0u; half >>= 1u) {
            if lane < half {
                parts[lane] += parts[lane + half];
            }
            workgroupBarrier();
        }
        if lane < 4u && row + lane < args.rows {
            y[row + lane] = parts[0][lane];
        }
        workgroupBarrier();
    }
}
