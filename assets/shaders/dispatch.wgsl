// As little work as a dispatch can be seen to have done: 64 counters of a slot go up by one.
struct Args { slot: u32 }
var<immediate> args: Args;
@group(0) @binding(0) var<storage, read_write> counters: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
    counters[args.slot * 64u + lane] += 1u;
}
