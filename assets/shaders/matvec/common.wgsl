// Matrix times vector, y = W x. A format file says how a row's weights are loaded and multiplied, chunk by chunk; a layout
// file says which invocation takes which chunk of which row.
struct Args { rows: u32, chunks: u32 }
var<immediate> args: Args;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
