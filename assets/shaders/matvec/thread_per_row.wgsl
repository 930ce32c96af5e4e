// One invocation walks through a whole row.
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var row = id.x; row < args.rows; row += groups.x * 64u) {
        var sum = 0.0;
        for (var chunk = 0u; chunk < args.chunks; chunk += 1u) {
            sum += product(row, chunk, input_of(chunk));
        }
        y[row] = sum;
    }
}
