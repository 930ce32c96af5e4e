// A work group per row; its partial sums meet in shared memory.
var<workgroup> parts: array<f32, 128>;

@compute @workgroup_size(128)
fn main(
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    for (var row = group.x; row < args.rows; row += groups.x) {
        var sum = 0.0;
        for (var chunk = lane; chunk < args.chunks; chunk += 128u) {
            sum += product(row, chunk, input_of(chunk));
        }
        parts[lane] = sum;
        workgroupBarrier();
        for (var half = 64u; half > 0u; half >>= 1u) {
            if lane < half {
                parts[lane] += parts[lane + half];
            }
            workgroupBarrier();
        }
        if lane == 0u {
            y[row] = parts[0];
        }
        workgroupBarrier();
    }
}
