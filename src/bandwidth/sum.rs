//! Reading memory as a matrix–vector product does, and nothing else: every byte once, into a sum.

/// Sums added in parallel: enough for the widest vector registers and to hide the latency of an addition.
const LANES: usize = 32;
const WORD: usize = size_of::<u64>();

/// The sum of all whole words of `bytes`, so that reading them cannot be left out.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let mut lanes = [0u64; LANES];
    let chunks = bytes.chunks_exact(LANES * WORD);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(WORD)) {
            *lane = lane.wrapping_add(number(word));
        }
    }
    let tail = rest.chunks_exact(WORD).map(number);
    lanes.into_iter().chain(tail).fold(0, u64::wrapping_add)
}

fn number(word: &[u8]) -> u64 {
    word.try_into().map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_counts_once() {
        // 1 + 2 + … + 100, more than one round of the lanes and a rest.
        let words: Vec<u8> = (1..=100u64).flat_map(u64::to_ne_bytes).collect();
        assert_eq!(sum(&words), 5050);
        assert_eq!(sum(&words[..8]), 1);
        assert_eq!(sum(&[]), 0);
    }
}
