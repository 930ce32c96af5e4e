//! Readings of one series packed into a block: exact to the last bit, and small.
//!
//! Times and values that follow each other differ little: of times the steps are kept, of values the bits that changed,
//! ordered by byte so that bytes that never change stand together; LZ4 does the rest, which unpacks ten times as fast as
//! DEFLATE. Slow sensors cost a byte or two a reading, ones whose every bit is noise nine.

use lz4_flex::block::{DecompressError, compress, decompress};

/// A block holds readings of one stretch of so many milliseconds: long enough for numbers beside it to weigh little, short
/// enough for a narrow window to unpack little.
pub(super) const STRETCH_MS: i64 = 128_000;
/// Lowest and highest values are kept of stretches of this many milliseconds; 32 make a block. Windows of up to 40
/// minutes have 600 narrower columns, and are unpacked.
pub(super) const PART_MS: i64 = 4_000;
/// Bytes of one part: its number, its lowest and its highest value.
const PART_BYTES: usize = 1 + 8 + 8;
/// Bytes of a value.
const VALUE_BYTES: usize = 8;
/// A time of a block counts from the begin of its stretch, and fits into so many bytes.
const TIME_BYTES: usize = 4;

/// A reading: milliseconds since the epoch, and its value.
pub(super) type Point = (i64, f64);

/// The stretch a moment lies in.
pub(super) const fn stretch(at: i64) -> i64 {
    at.div_euclid(STRETCH_MS)
}

/// Packs readings of one stretch, in the order of their times.
pub(super) fn pack(points: &[Point]) -> Vec<u8> {
    let (mut times, mut values) = (Vec::new(), Vec::new());
    let (mut time, mut bits) = (0_u32, 0_u64);
    for &(at, value) in points {
        let here = at.rem_euclid(STRETCH_MS) as u32;
        times.push((here.wrapping_sub(time)).to_le_bytes());
        values.push((value.to_bits() ^ bits).to_le_bytes());
        (time, bits) = (here, value.to_bits());
    }
    let mut bytes = by_byte(&times);
    bytes.extend(by_byte(&values));
    compress(&bytes)
}

fn by_byte<const N: usize>(words: &[[u8; N]]) -> Vec<u8> {
    (0..N)
        .flat_map(|i| words.iter().map(move |word| word[i]))
        .collect()
}

/// The `n` readings of a block of the stretch that `from` lies in.
///
/// # Errors
/// The bytes are no such block.
pub(super) fn unpack(packed: &[u8], n: usize, from: i64) -> Result<Vec<Point>, DecompressError> {
    let length = n.saturating_mul(TIME_BYTES + VALUE_BYTES);
    let bytes = decompress(packed, length)?;
    if bytes.len() != length {
        return Err(DecompressError::ExpectedAnotherByte);
    }
    let begin = stretch(from) * STRETCH_MS;
    let (times, values) = bytes.split_at(n * TIME_BYTES);
    let (mut time, mut bits) = (0_u32, 0_u64);
    let point = |i| {
        time = time.wrapping_add(u32::from_le_bytes(word(times, n, i)));
        bits ^= u64::from_le_bytes(word(values, n, i));
        (begin + i64::from(time), f64::from_bits(bits))
    };
    Ok((0..n).map(point).collect())
}

fn word<const N: usize>(planes: &[u8], n: usize, i: usize) -> [u8; N] {
    std::array::from_fn(|byte| planes[byte * n + i])
}

/// Lowest and highest value of every part that has readings; in the order of their times.
pub(super) fn parts(points: &[Point]) -> Vec<u8> {
    let mut parts: Vec<(u8, f64, f64)> = Vec::new();
    for &(at, value) in points {
        let number = (at.rem_euclid(STRETCH_MS) / PART_MS) as u8;
        match parts.last_mut() {
            Some((last, lowest, highest)) if *last == number => {
                (*lowest, *highest) = (lowest.min(value), highest.max(value));
            }
            _ => parts.push((number, value, value)),
        }
    }
    let bytes = |(number, lowest, highest): (u8, f64, f64)| {
        let ends = [lowest.to_le_bytes(), highest.to_le_bytes()];
        std::iter::once(number).chain(ends.into_iter().flatten())
    };
    parts.into_iter().flat_map(bytes).collect()
}

/// The parts of a block: begin in milliseconds, lowest and highest value.
pub(super) fn parts_of(bytes: &[u8], from: i64) -> impl Iterator<Item = (i64, f64, f64)> + '_ {
    let begin = stretch(from) * STRETCH_MS;
    let value = |bytes: &[u8]| f64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
    bytes.chunks_exact(PART_BYTES).map(move |part| {
        let at = begin + i64::from(part[0]) * PART_MS;
        (at, value(&part[1..9]), value(&part[9..17]))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::FileFailurePersistence;

    use super::*;

    #[test]
    fn a_sensor_that_stands_still_costs_next_to_nothing_and_noise_no_more_than_itself() {
        let points = |value: fn(u32) -> f64| -> Vec<Point> {
            (0..512_u32)
                .map(|i| (i64::from(i * 250 + i % 3), value(i)))
                .collect()
        };
        let still = pack(&points(|_| 1284.0)).len();
        assert!(still < 700, "{still}");
        // An irrational step: every bit of the fraction changes.
        let noise = pack(&points(|i| (f64::from(i) * 2_f64.sqrt()).fract())).len();
        assert!(noise < 512 * 10, "{noise}");
    }

    #[test]
    fn parts_are_of_four_seconds_and_of_readings_alone() {
        let points = [
            (128_000, 5.0),
            (131_999, 3.0),
            (132_000, 9.0),
            (255_999, 1.0),
        ];
        let parts = parts(&points);
        let found: Vec<_> = parts_of(&parts, 131_000).collect();
        let expected = [
            (128_000, 3.0, 5.0),
            (132_000, 9.0, 9.0),
            (252_000, 1.0, 1.0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let packed = pack(&[(0, 1.0), (250, 2.0)]);
        assert!(unpack(&packed, 2, 0).is_ok());
        for n in [0, 1, 3, usize::MAX] {
            assert!(unpack(&packed, n.min(1 << 20), 0).is_err(), "{n}");
        }
        assert!(unpack(&packed[..packed.len() / 2], 2, 0).is_err());
        assert!(unpack(b"junk", 2, 0).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_failure_persistence(FileFailurePersistence::WithSource("seeds")))]

        #[test]
        fn every_bit_comes_back(
            stretch in -1_000_000..20_000_000_i64,
            mut points in prop::collection::vec((0..STRETCH_MS, any::<f64>()), 0..600),
        ) {
            points.sort_by_key(|p| p.0);
            for point in &mut points {
                point.0 += stretch * STRETCH_MS;
            }
            let back = unpack(&pack(&points), points.len(), stretch * STRETCH_MS + 1).unwrap();
            let bits = |points: &[Point]| -> Vec<(i64, u64)> {
                points.iter().map(|(at, v)| (*at, v.to_bits())).collect()
            };
            prop_assert_eq!(bits(&back), bits(&points));
        }
    }
}
