//! Random data, and what the processor makes of it. A matrix repeats a tile of a prime number of rows: the processor's part
//! stays small whatever the size, and a kernel that takes a wrong row, most likely a power of two away, is found out.

use fastrand::Rng;
use half::f16;

use crate::domain::lab::Format;

/// Weights in a row, as a small model's: a multiple of every format's block.
pub(super) const COLUMNS: u64 = 4096;
/// Rows of the tile.
const TILE_ROWS: usize = 61;
/// Weights that share a scale.
const BLOCK: usize = 32;
/// Unit round-off of 32-bit floats.
const UNIT: f64 = 1.0 / (1u64 << 24) as f64;
/// Roundings of a row beyond those of its sum: product, scale, and their like.
const MORE_ROUNDINGS: u64 = 8;

/// A tile of a matrix with the processor's answer.
pub(super) struct Tile {
    /// Its rows as the kernels read them.
    pub(super) weights: Vec<u8>,
    /// Scales of its blocks; empty for floats.
    pub(super) scales: Vec<u8>,
    /// Every row times the vector, in 64 bits.
    expected: Vec<f64>,
    /// Most by which any order of summing in 32 bits may differ: γₙ Σ|w x| with γₙ = n u/(1 − n u) (N. Higham, *Accuracy and
    /// Stability of Numerical Algorithms*, section 3.1).
    bound: Vec<f64>,
}

/// The vector.
pub(super) fn vector(rng: &mut Rng) -> Vec<f32> {
    (0..COLUMNS).map(|_| uniform(rng)).collect()
}

/// Between −1 and 1; never so small that a kernel could flush it to zero.
fn uniform(rng: &mut Rng) -> f32 {
    const LEAST: f32 = 1.0 / 1024.0;
    let size = LEAST + rng.f32() * (1.0 - LEAST);
    if rng.bool() { size } else { -size }
}

impl Tile {
    /// A random tile and its product with `x`.
    pub(super) fn new(format: Format, x: &[f32], rng: &mut Rng) -> Self {
        let mut tile = Self {
            weights: Vec::new(),
            scales: Vec::new(),
            expected: Vec::new(),
            bound: Vec::new(),
        };
        for _ in 0..TILE_ROWS {
            let row = tile.row(format, x.len(), rng);
            let products = row
                .iter()
                .zip(x)
                .map(|(w, x)| f64::from(*w) * f64::from(*x));
            let (sum, size) = products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
            let roundings = (x.len() as u64 + MORE_ROUNDINGS) as f64 * UNIT;
            tile.expected.push(sum);
            tile.bound.push(roundings / (1.0 - roundings) * size);
        }
        tile
    }

    /// Appends a row; its weights as the processor sees them.
    fn row(&mut self, format: Format, columns: usize, rng: &mut Rng) -> Vec<f32> {
        let mut row = Vec::with_capacity(columns);
        match format {
            Format::F32 => {
                row.extend((0..columns).map(|_| uniform(rng)));
                self.weights
                    .extend(row.iter().flat_map(|w| w.to_le_bytes()));
            }
            Format::F16 => {
                for _ in 0..columns {
                    let weight = f16::from_f32(uniform(rng));
                    self.weights.extend(weight.to_le_bytes());
                    row.push(weight.to_f32());
                }
            }
            Format::Q4 => {
                for _ in 0..columns / BLOCK {
                    row.extend(self.block(rng));
                }
            }
        }
        row
    }

    /// Appends a block of ggml's `Q4_0`: byte j holds weight j below and weight j + 16 above.
    fn block(&mut self, rng: &mut Rng) -> [f32; BLOCK] {
        let scale = f16::from_f32(uniform(rng));
        self.scales.extend(scale.to_le_bytes());
        let mut block = [0.0; BLOCK];
        for j in 0..BLOCK / 2 {
            let byte = rng.u8(..);
            self.weights.push(byte);
            for (at, nibble) in [(j, byte & 15), (j + BLOCK / 2, byte >> 4)] {
                block[at] = (f32::from(nibble) - 8.0) * scale.to_f32();
            }
        }
        block
    }

    /// The first row in which a kernel's result is not the processor's.
    pub(super) fn check(&self, y: &[u8]) -> Result<(), String> {
        for (row, bytes) in y.as_chunks::<4>().0.iter().enumerate() {
            let value = f64::from(f32::from_le_bytes(*bytes));
            let (expected, bound) = (self.expected[row % TILE_ROWS], self.bound[row % TILE_ROWS]);
            // A NaN is not within anything.
            if (value - expected).abs() > bound || value.is_nan() {
                return Err(format!(
                    "row {row} is {value}, the processor's {expected} ± {bound:.1e}"
                ));
            }
        }
        Ok(())
    }
}

/// What the reading kernel makes of `words` 32-bit words that repeat a tile: Σ word i · (2i + 1), modulo 2³². A word at j
/// of a tile of T words that is repeated k times counts Σ (2(j + T r) + 1) over r < k, which is k (2j + 1) + T k (k − 1).
pub(super) fn weighted_sum(tile: &[u8], words: u64) -> u32 {
    let length = tile.len() as u64 / 4;
    let mut sum = 0u32;
    for (j, bytes) in (0u64..).zip(tile.as_chunks::<4>().0) {
        let times = words.saturating_sub(j).div_ceil(length);
        if times == 0 {
            break;
        }
        let factor = (times * (2 * j + 1)).wrapping_add((length * times).wrapping_mul(times - 1));
        sum = sum.wrapping_add(u32::from_le_bytes(*bytes).wrapping_mul(factor as u32));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 5·1 + 7·3 + 5·5 + 7·7 + 5·9 = 145.
    #[test]
    fn the_weighted_sum_of_a_repeated_tile_is_that_of_its_words() {
        let tile: Vec<u8> = [5u32, 7].iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(weighted_sum(&tile, 5), 145);
        assert_eq!(weighted_sum(&tile, 1), 5);
        // The first n odd numbers add up to n².
        assert_eq!(weighted_sum(&3u32.to_le_bytes(), 1 << 15), 3 << 30);
    }

    /// Byte 0x1f: weight 0 is (15 − 8)·scale, weight 16 is (1 − 8)·scale.
    #[test]
    fn a_block_has_its_low_nibbles_first() {
        let mut tile = Tile::new(Format::Q4, &[0.0; BLOCK], &mut Rng::with_seed(1));
        let block = tile.block(&mut Rng::with_seed(2));
        let (byte, scale) = (tile.weights[16 * TILE_ROWS], &tile.scales[2 * TILE_ROWS..]);
        let scale = f16::from_le_bytes([scale[0], scale[1]]).to_f32();
        let weight = |nibble: u8| (f32::from(nibble) - 8.0) * scale;
        assert!((block[0] - weight(byte & 15)).abs() < 1e-9);
        assert!((block[16] - weight(byte >> 4)).abs() < 1e-9);
    }

    #[test]
    fn a_wrong_row_is_found_and_named() {
        let mut rng = Rng::with_seed(3);
        let x = vector(&mut rng);
        let tile = Tile::new(Format::F32, &x, &mut rng);
        let right: Vec<f32> = (0..130)
            .map(|r| tile.expected[r % TILE_ROWS] as f32)
            .collect();
        let bytes = |y: &[f32]| -> Vec<u8> { y.iter().flat_map(|v| v.to_le_bytes()).collect() };
        assert_eq!(tile.check(&bytes(&right)), Ok(()));
        for wrong in [right[64] + 1.0, f32::NAN] {
            let mut y = right.clone();
            y[64] = wrong;
            let found = tile.check(&bytes(&y)).unwrap_err();
            assert!(found.starts_with("row 64 is "), "{found}");
        }
    }
}
