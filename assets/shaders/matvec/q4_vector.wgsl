// A whole block per load.
@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
alias Input = array<vec4<f32>, 8>;

fn input_of(chunk: u32) -> Input {
    let at = chunk * 8u;
    return Input(x[at], x[at + 1u], x[at + 2u], x[at + 3u], x[at + 4u], x[at + 5u], x[at + 6u], x[at + 7u]);
}

fn product(row: u32, chunk: u32, input: Input) -> f32 {
    let at = row * args.chunks + chunk;
    let words = weights[at];
    var sum = dot(low_nibbles(words.x), input[0]) + dot(high_nibbles(words.x), input[4]);
    sum += dot(low_nibbles(words.y), input[1]) + dot(high_nibbles(words.y), input[5]);
    sum += dot(low_nibbles(words.z), input[2]) + dot(high_nibbles(words.z), input[6]);
    sum += dot(low_nibbles(words.w), input[3]) + dot(high_nibbles(words.w), input[7]);
    return sum * scale_of(at);
}
