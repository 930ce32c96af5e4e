// A sub-group per row: no shared memory, no barrier.
@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) lanes: u32,
) {
    for (var row = group.x * subgroups + subgroup; row < args.rows; row += groups.x * subgroups) {
        var sum = 0.0;
        for (var chunk = lane; chunk < args.chunks; chunk += lanes) {
            sum += product(row, chunk, input_of(chunk));
        }
        let total = subgroupAdd(sum);
        if lane == 0u {
            y[row] = total;
        }
    }
}
