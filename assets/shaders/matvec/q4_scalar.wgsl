// A word, a quarter of a block, per load.
@group(0) @binding(0) var<storage, read> weights: array<u32>;
struct Input { low: vec4<f32>, high: vec4<f32> }

fn input_of(chunk: u32) -> Input {
    let at = (chunk >> 2u) * 8u + (chunk & 3u);
    return Input(x[at], x[at + 4u]);
}

fn product(row: u32, chunk: u32, input: Input) -> f32 {
    let at = row * args.chunks + chunk;
    let word = weights[at];
    let sum = dot(low_nibbles(word), input.low) + dot(high_nibbles(word), input.high);
    return sum * scale_of(at >> 2u);
}
