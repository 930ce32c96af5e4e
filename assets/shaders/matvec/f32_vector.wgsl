@group(0) @binding(0) var<storage, read> weights: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
alias Input = vec4<f32>;

fn input_of(chunk: u32) -> Input {
    return x[chunk];
}

fn product(row: u32, chunk: u32, input: Input) -> f32 {
    return dot(weights[row * args.chunks + chunk], input);
}
