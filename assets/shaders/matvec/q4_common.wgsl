// Blocks of 32 weights as in ggml's Q4_0: weight = (nibble - 8) * scale; byte j holds weight j in its low nibble and weight
// j + 16 in its high one. The 16-bit scales lie apart, two in a word, so that 16 bytes of nibbles are one aligned load.
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> scales: array<u32>;

fn scale_of(block: u32) -> f32 {
    return unpack2x16float(scales[block >> 1u])[block & 1u];
}

fn low_nibbles(word: u32) -> vec4<f32> {
    let nibbles = vec4<u32>(word, word >> 8u, word >> 16u, word >> 24u) & vec4<u32>(15u);
    return vec4<f32>(nibbles) - vec4<f32>(8.0);
}

fn high_nibbles(word: u32) -> vec4<f32> {
    return low_nibbles(word >> 4u);
}
