//! What memories deliver, in words.

use crate::domain::placement::bandwidth::{Path, Streaming};

use super::three_digits;

/// What was measured.
pub const fn path_words(path: Path) -> &'static str {
    match path {
        Path::RamRead => "RAM, read",
        Path::DiskSequential => "Disk, in order",
        Path::DiskRandom => "Disk, at random",
        Path::DiskBuffered => "Disk, through the cache",
        Path::DeviceCopy => "Device memory, read + written",
        Path::DeviceRead => "Device memory, read",
        Path::Upload => "Host to device",
        Path::Download => "Device to host",
    }
}

/// A bandwidth with three significant digits: `19.0 GB/s`, `85.2 MB/s`. As everywhere in the field, units of 1000.
pub fn bandwidth_words(bytes_per_sec: f64) -> String {
    const GIGA: f64 = 1e9;
    const MEGA: f64 = 1e6;
    // Below, gigabytes would show fewer than three digits.
    const GIGA_FROM: f64 = 0.1e9;
    if !bytes_per_sec.is_finite() {
        return "unknown".to_owned();
    }
    if bytes_per_sec >= GIGA_FROM {
        format!("{} GB/s", three_digits(bytes_per_sec / GIGA))
    } else {
        format!("{} MB/s", three_digits(bytes_per_sec / MEGA))
    }
}

/// Can weights be streamed from this disk?
pub fn streaming_words(streaming: &Streaming) -> String {
    const GIB: u64 = 1 << 30;
    let shorter = if streaming.read_secs < streaming.consume_secs {
        "reading"
    } else {
        "computing"
    };
    format!(
        "Weights on this disk: at most {} tokens per second for each GiB that a token reads from it; {:.0} % of the \
         shorter task ({shorter}) is hidden behind the longer one",
        three_digits(streaming.tokens_per_sec_bound(GIB)),
        streaming.hidden() * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_carry_three_digits() {
        for (rate, words) in [
            (19.0e9, "19.0 GB/s"),
            (1_650e9, "1650 GB/s"),
            (0.52e9, "0.52 GB/s"),
            (85.16e6, "85.2 MB/s"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(bandwidth_words(rate), words);
        }
    }

    /// A SATA drive of 0.52 GB/s: 0.52e9 ÷ 2³⁰ = 0.484 times a second; of the second that computing takes, 0.88 s
    /// cost nothing.
    #[test]
    fn streaming_is_a_bound_and_an_overlap() {
        let streaming = Streaming::of(1_102_400_000, vec![[2.0, 1.0, 2.12]]);
        assert_eq!(
            streaming_words(&streaming),
            "Weights on this disk: at most 0.48 tokens per second for each GiB that a token reads from it; 88 % of the \
             shorter task (computing) is hidden behind the longer one"
        );
    }
}
