//! Random weights as valid blocks of F32, `Q4_K` and `Q6_K`, with a spread of 1/√(row length) so that activations
//! keep their size from layer to layer. Only the values are random: block scales are alike.

use fastrand::Rng;
use half::f16;

use super::tensor_type::TensorType;

/// `Q4_K`: scale and minimum multiplier of each of the eight sub-blocks.
const Q4_K_STEP: u8 = 8;
/// `Q4_K`: values are 0 to 15; the minimum takes off their mean.
const Q4_K_MEAN: f64 = 7.5;
/// `Q6_K`: scale multiplier of each of the sixteen sub-blocks.
const Q6_K_STEP: u8 = 2;
const Q6_K_SCALES: std::ops::Range<usize> = 192..208;

/// Standard deviation of whole numbers drawn evenly from `count` neighbours.
fn deviation(count: f64) -> f64 {
    ((count * count - 1.0) / 12.0).sqrt()
}

/// Fills whole blocks of `kind` for rows of `row` values.
pub(super) fn fill(kind: TensorType, row: u64, rng: &mut Rng, out: &mut [u8]) {
    let spread = 1.0 / (row as f64).sqrt();
    match kind {
        TensorType::Q4_K => q4_k(spread, rng, out),
        TensorType::Q6_K => q6_k(spread, rng, out),
        _ => f32s(spread, rng, out),
    }
}

/// Norms are all ones.
pub(super) fn fill_ones(out: &mut [u8]) {
    for value in out.chunks_exact_mut(4) {
        value.copy_from_slice(&1.0_f32.to_le_bytes());
    }
}

/// 144 bytes: f16 scale, f16 minimum, twelve bytes with 6-bit multipliers, 128 bytes with two values each.
fn q4_k(spread: f64, rng: &mut Rng, out: &mut [u8]) {
    rng.fill(out);
    let scale = spread / (deviation(16.0) * f64::from(Q4_K_STEP));
    let mut head = [Q4_K_STEP; 16];
    head[0..2].copy_from_slice(&f16::from_f64(scale).to_le_bytes());
    head[2..4].copy_from_slice(&f16::from_f64(scale * Q4_K_MEAN).to_le_bytes());
    // Low nibbles of the last four scales, high nibbles of their minimums; their upper bits (0) sit
    // in the top of the eight bytes before.
    head[12..16].fill(Q4_K_STEP | Q4_K_STEP << 4);
    for block in out.chunks_exact_mut(144) {
        block[..16].copy_from_slice(&head);
    }
}

/// 210 bytes: 128 with low bits, 64 with high bits, sixteen i8 multipliers, f16 scale.
fn q6_k(spread: f64, rng: &mut Rng, out: &mut [u8]) {
    rng.fill(out);
    let scale = f16::from_f64(spread / (deviation(64.0) * f64::from(Q6_K_STEP)));
    for block in out.chunks_exact_mut(210) {
        block[Q6_K_SCALES].fill(Q6_K_STEP);
        block[208..].copy_from_slice(&scale.to_le_bytes());
    }
}

fn f32s(spread: f64, rng: &mut Rng, out: &mut [u8]) {
    // An even spread over ±w has the deviation w/√3.
    let width = spread * 3.0_f64.sqrt();
    for value in out.chunks_exact_mut(4) {
        let drawn = (rng.f64() * 2.0 - 1.0) * width;
        value.copy_from_slice(&(drawn as f32).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half_at(block: &[u8], at: usize) -> f64 {
        f16::from_le_bytes([block[at], block[at + 1]]).to_f64()
    }

    /// ggml's `get_scale_min_k4`, written from its layout.
    fn scale_and_min(j: usize, q: &[u8]) -> (u8, u8) {
        if j < 4 {
            (q[j] & 63, q[j + 4] & 63)
        } else {
            (
                (q[j + 4] & 15) | ((q[j - 4] >> 6) << 4),
                (q[j + 4] >> 4) | ((q[j] >> 6) << 4),
            )
        }
    }

    fn unpack_q4_k(block: &[u8]) -> Vec<f64> {
        let (d, least) = (half_at(block, 0), half_at(block, 2));
        (0..256)
            .map(|i| {
                let (scale, min) = scale_and_min(i / 32, &block[4..16]);
                let byte = block[16 + (i / 64) * 32 + i % 32];
                let q = if i % 64 < 32 { byte & 15 } else { byte >> 4 };
                d * f64::from(scale) * f64::from(q) - least * f64::from(min)
            })
            .collect()
    }

    fn unpack_q6_k(block: &[u8]) -> Vec<f64> {
        let d = half_at(block, 208);
        (0..256)
            .map(|i| {
                let (half, l) = (i / 128, i % 32);
                let part = i % 128 / 32;
                let low = block[half * 64 + (part % 2) * 32 + l] >> (4 * (part / 2));
                let high = block[128 + half * 32 + l] >> (2 * part);
                let q = i32::from((low & 15) | ((high & 3) << 4)) - 32;
                d * f64::from(block[192 + i / 16]) * f64::from(q)
            })
            .collect()
    }

    fn check(values: &[f64], row: f64) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let spread = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
        let expected = 1.0 / row.sqrt();
        assert!(
            (spread / expected - 1.0).abs() < 0.02,
            "{spread} is not {expected}"
        );
        assert!(mean.abs() < 0.05 * expected, "mean {mean}");
    }

    #[test]
    fn q4_k_blocks_have_the_wanted_spread() {
        let mut data = vec![0; 144 * 200];
        fill(TensorType::Q4_K, 15360, &mut Rng::with_seed(1), &mut data);
        let values: Vec<f64> = data.chunks(144).flat_map(unpack_q4_k).collect();
        check(&values, 15360.0);
    }

    #[test]
    fn q6_k_blocks_have_the_wanted_spread() {
        let mut data = vec![0; 210 * 200];
        fill(TensorType::Q6_K, 15360, &mut Rng::with_seed(1), &mut data);
        let values: Vec<f64> = data.chunks(210).flat_map(unpack_q6_k).collect();
        check(&values, 15360.0);
    }
}
