// A work group per row; each sub-group sums up by itself, and only their sums meet in shared memory.
var<workgroup> parts: array<f32, 128>;

@compute @workgroup_size(128)
fn main(
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    for (var row = group.x; row < args.rows; row += groups.x) {
        var sum = 0.0;
        for (var chunk = index; chunk < args.chunks; chunk += 128u) {
            sum += product(row, chunk, input_of(chunk));
        }
        let part = subgroupAdd(sum);
        if lane == 0u {
            parts[subgroup] = part;
        }
        workgroupBarrier();
        if index == 0u {
            var total = 0.0;
            for (var i = 0u; i < subgroups; i += 1u) {
                total += parts[i];
            }
            y[row] = total;
        }
        workgroupBarrier();
    }
}
