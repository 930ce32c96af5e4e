@group(0) @binding(0) var<storage, read> weights: array<f16>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
alias Input = f32;

fn input_of(chunk: u32) -> Input {
    return x[chunk];
}

fn product(row: u32, chunk: u32, input: Input) -> f32 {
    return f32(weights[row * args.chunks + chunk]) * input;
}
