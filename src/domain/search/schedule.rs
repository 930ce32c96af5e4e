//! The interleaved order A-B-B-A B-A-A-B: drift and background load fall evenly on both arms (paper section 3, rule 3).

use crate::domain::types::Side;

/// Two blocks that mirror each other; every pair of runs holds one of each arm, so any number per arm is balanced.
const BLOCKS: [Side; 8] = [
    Side::A,
    Side::B,
    Side::B,
    Side::A,
    Side::B,
    Side::A,
    Side::A,
    Side::B,
];

/// Sides of `2 × processes` runs, in order.
pub fn interleaved(processes: u32) -> impl Iterator<Item = Side> {
    BLOCKS.into_iter().cycle().take(2 * processes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(processes: u32) -> String {
        let letter = |side| if side == Side::A { 'A' } else { 'B' };
        interleaved(processes).map(letter).collect()
    }

    #[test]
    fn blocks_mirror_each_other() {
        assert_eq!(word(4), "ABBABAAB");
        assert_eq!(word(8), "ABBABAABABBABAAB");
    }

    #[test]
    fn every_length_is_balanced() {
        for n in 1..=12 {
            assert_eq!(word(n).matches('A').count(), n as usize);
            assert_eq!(word(n).matches('B').count(), n as usize);
        }
    }
}
