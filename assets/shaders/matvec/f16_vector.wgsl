// Eight halves in one load of 16 bytes, unpacked: needs no 16-bit types.
@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
struct Input { low: vec4<f32>, high: vec4<f32> }

fn input_of(chunk: u32) -> Input {
    return Input(x[2u * chunk], x[2u * chunk + 1u]);
}

fn product(row: u32, chunk: u32, input: Input) -> f32 {
    let packed = weights[row * args.chunks + chunk];
    let low = vec4<f32>(unpack2x16float(packed.x), unpack2x16float(packed.y));
    let high = vec4<f32>(unpack2x16float(packed.z), unpack2x16float(packed.w));
    return dot(low, input.low) + dot(high, input.high);
}
