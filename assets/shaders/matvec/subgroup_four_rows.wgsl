// A sub-group for four rows.
@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) lanes: u32,
) {
    let last = args.rows - 1u;
    let step = 4u * groups.x * subgroups;
    for (var row = 4u * (group.x * subgroups + subgroup); row < args.rows; row += step) {
        var sum = vec4<f32>(0.0);
        for (var chunk = lane; chunk < args.chunks; chunk += lanes) {
            let input = input_of(chunk);
            sum += vec4<f32>(
                product(row, chunk, input),
                product(min(row + 1u, last), chunk, input),
                product(min(row + 2u, last), chunk, input),
                product(min(row + 3u, last), chunk, input),
            );
        }
        let total = vec4<f32>(
            subgroupAdd(sum.x),
            subgroupAdd(sum.y),
            subgroupAdd(sum.z),
            subgroupAdd(sum.w),
        );
        if lane == 0u {
            for (var i = 0u; i < 4u && row + i < args.rows; i += 1u) {
                y[row + i] = total[i];
            }
        }
    }
}
