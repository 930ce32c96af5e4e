//! Random weights as valid blocks of the types that shapes use. Only the values are random: block scales are alike.

use fastrand::Rng;
use half::f16;

use super::tensor_type::TensorType;

/// `Q4_K` and `Q5_K`: scale and minimum multiplier of each of the eight sub-blocks.
const K_STEP: u8 = 8;
/// `Q6_K`: scale multiplier of each of the sixteen sub-blocks.
const Q6_K_STEP: u8 = 2;
const Q6_K_SCALES: std::ops::Range<usize> = 192..208;
/// `MXFP4`: mean square of ggml's sixteen values, twice those of the format: ±0, 1, 2, 3, 4, 6, 8, 12.
const MXFP4_MEAN_SQUARE: f64 = 274.0 / 8.0;
/// `MXFP4`: exponent byte of the scale 1, for values that are twice the format's.
const MXFP4_UNIT: f64 = 128.0;

/// Standard deviation of whole numbers drawn evenly from `count` neighbours.
fn deviation(count: f64) -> f64 {
    ((count * count - 1.0) / 12.0).sqrt()
}

/// Fills whole blocks of `kind` with values of mean 0 and the standard deviation `spread`.
pub(super) fn fill(kind: TensorType, spread: f64, rng: &mut Rng, out: &mut [u8]) {
    match kind {
        TensorType::Q4_K => k_quant::<144>(16.0, spread, rng, out),
        TensorType::Q5_K => k_quant::<176>(32.0, spread, rng, out),
        TensorType::Q6_K => q6_k(spread, rng, out),
        TensorType::Q5_0 => plain::<22>(32.0, spread, rng, out),
        TensorType::Q8_0 => plain::<34>(256.0, spread, rng, out),
        TensorType::MXFP4 => mxfp4(spread, rng, out),
        _ => f32s(spread, rng, out),
    }
}

/// Fills 32-bit floats with one value: norms are all ones.
pub(super) fn fill_with(value: f32, out: &mut [u8]) {
    for place in out.chunks_exact_mut(4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

/// f16 scale, f16 minimum, twelve bytes with 6-bit multipliers, then the bits of 256 values from 0 to `levels` − 1; the
/// minimum takes off their mean.
fn k_quant<const BYTES: usize>(levels: f64, spread: f64, rng: &mut Rng, out: &mut [u8]) {
    rng.fill(out);
    let scale = spread / (deviation(levels) * f64::from(K_STEP));
    let mean = (levels - 1.0) / 2.0;
    let mut head = [K_STEP; 16];
    head[0..2].copy_from_slice(&f16::from_f64(scale).to_le_bytes());
    head[2..4].copy_from_slice(&f16::from_f64(scale * mean).to_le_bytes());
    // Low nibbles of the last four scales, high nibbles of their minimums; their upper bits (0) sit
    // in the top of the eight bytes before.
    head[12..16].fill(K_STEP | K_STEP << 4);
    for block in out.chunks_exact_mut(BYTES) {
        block[..16].copy_from_slice(&head);
    }
}

/// f16 scale, then the bits of 32 values around 0.
fn plain<const BYTES: usize>(levels: f64, spread: f64, rng: &mut Rng, out: &mut [u8]) {
    rng.fill(out);
    let scale = f16::from_f64(spread / deviation(levels));
    for block in out.chunks_exact_mut(BYTES) {
        block[..2].copy_from_slice(&scale.to_le_bytes());
    }
}

/// 17 bytes: exponent of a power of two, sixteen with two values each. Blocks are drawn from two neighbouring powers so
/// that their mean square is the wanted one.
fn mxfp4(spread: f64, rng: &mut Rng, out: &mut [u8]) {
    rng.fill(out);
    let exponent = (spread / MXFP4_MEAN_SQUARE.sqrt()).log2();
    let lower = exponent.floor();
    // Mean square in units of the lower power's: 1 with none doubled, 4 with all.
    let doubled = ((exponent - lower).exp2().powi(2) - 1.0) / 3.0;
    for block in out.chunks_exact_mut(17) {
        let more = if rng.f64() < doubled { 1.0 } else { 0.0 };
        block[0] = (MXFP4_UNIT + lower + more) as u8;
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

    /// As `dequantize_row_q5_K`: bit 2j or 2j + 1 of `qh` is the fifth of sub-block 2j or 2j + 1.
    fn unpack_q5_k(block: &[u8]) -> Vec<f64> {
        let (d, least) = (half_at(block, 0), half_at(block, 2));
        (0..256)
            .map(|i| {
                let (scale, min) = scale_and_min(i / 32, &block[4..16]);
                let byte = block[48 + (i / 64) * 32 + i % 32];
                let low = if i % 64 < 32 { byte & 15 } else { byte >> 4 };
                let high = block[16 + i % 32] >> (i / 32) & 1;
                let q = low | high << 4;
                d * f64::from(scale) * f64::from(q) - least * f64::from(min)
            })
            .collect()
    }

    fn unpack_q5_0(block: &[u8]) -> Vec<f64> {
        let d = half_at(block, 0);
        (0..32)
            .map(|i| {
                let byte = block[6 + i % 16];
                let low = if i < 16 { byte & 15 } else { byte >> 4 };
                let high = block[2 + i / 8] >> (i % 8) & 1;
                d * (f64::from(low | high << 4) - 16.0)
            })
            .collect()
    }

    fn unpack_q8_0(block: &[u8]) -> Vec<f64> {
        let d = half_at(block, 0);
        let values = block[2..].iter().map(|b| f64::from(b.cast_signed()));
        values.map(|q| q * d).collect()
    }

    /// ggml's `kvalues_mxfp4` and `ggml_e8m0_to_fp32_half`.
    fn unpack_mxfp4(block: &[u8]) -> Vec<f64> {
        const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
        let d = 2f64.powi(i32::from(block[0]) - 128);
        let nibbles = block[1..].iter().flat_map(|b| [b & 15, b >> 4]);
        nibbles
            .map(|n| d * f64::from(VALUES[usize::from(n)]))
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

    fn check(values: &[f64], expected: f64) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let spread = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
        assert!(
            (spread / expected - 1.0).abs() < 0.02,
            "{spread} is not {expected}"
        );
        // Half a level of 32 is the most: 0.5 / 9.2.
        assert!(mean.abs() < 0.06 * expected, "mean {mean}");
    }

    #[test]
    fn blocks_of_every_type_have_the_wanted_spread() {
        type Unpack = fn(&[u8]) -> Vec<f64>;
        let cases: [(TensorType, usize, Unpack); 6] = [
            (TensorType::Q4_K, 144, unpack_q4_k),
            (TensorType::Q5_K, 176, unpack_q5_k),
            (TensorType::Q6_K, 210, unpack_q6_k),
            (TensorType::Q5_0, 22, unpack_q5_0),
            (TensorType::Q8_0, 34, unpack_q8_0),
            (TensorType::MXFP4, 17, unpack_mxfp4),
        ];
        for (kind, bytes, unpack) in cases {
            for spread in [2880.0_f64.sqrt().recip(), 15360.0_f64.sqrt().recip(), 9.8] {
                let mut data = vec![0; bytes * 2000];
                fill(kind, spread, &mut Rng::with_seed(1), &mut data);
                let values: Vec<f64> = data.chunks(bytes).flat_map(unpack).collect();
                check(&values, spread);
            }
        }
    }
}
