//! What the machine's memories were measured to deliver: the planner's first guess (paper section 5).

use serde::{Deserialize, Serialize};

use crate::domain::types::Timestamp;

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Reading RAM with all threads.
    RamRead,
    /// Reading the model's disk in order, past the page cache.
    DiskSequential,
    /// Reading blocks of the model's disk at random, past the page cache.
    DiskRandom,
    /// Reading the model's disk through the page cache with all threads, each its part of every matrix: as llama.cpp reads
    /// a mapped model that RAM does not hold.
    DiskBuffered,
    /// Copying inside a device's memory; each byte is read and written, both count.
    DeviceCopy,
    /// Reading a device's memory by the kernel lab's fastest kernel: what decoding can get at best.
    DeviceRead,
    /// Host to device.
    Upload,
    /// Device to host.
    Download,
}

/// One measured bandwidth with its spread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// What.
    pub path: Path,
    /// Device it belongs to by its Vulkan name or the runtime's id; `None` for RAM and disks.
    pub device: Option<String>,
    /// Bytes per second of every repetition, in order; none is dropped.
    pub samples: Vec<f64>,
    /// Bytes moved in one repetition.
    pub bytes: u64,
    /// Threads that moved them.
    pub threads: u32,
}

impl Bandwidth {
    /// Median of the repetitions, bytes per second: one hiccup of the system does not move it.
    pub fn median(&self) -> f64 {
        median(self.samples.iter().copied())
    }

    /// Slowest and fastest repetition, bytes per second.
    pub fn range(&self) -> (f64, f64) {
        let least = self.samples.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.samples.iter().copied().fold(0.0, f64::max);
        (least, most)
    }
}

/// NaN without values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Reading weights from the disk while they are used: double-buffered reads against a consumer thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Streaming {
    /// Seconds the reader alone took, the median of the repetitions as the two below.
    pub read_secs: f64,
    /// Seconds the consumer alone took.
    pub consume_secs: f64,
    /// Seconds both took together.
    pub together_secs: f64,
    /// Bytes streamed.
    pub bytes: u64,
    /// The three times of every repetition, in that order; none is dropped.
    #[serde(default)]
    pub samples: Vec<[f64; 3]>,
}

impl Streaming {
    /// The medians of repetitions that streamed `bytes` each.
    pub fn of(bytes: u64, samples: Vec<[f64; 3]>) -> Self {
        let at = |which: usize| median(samples.iter().map(|s| s[which]));
        Self {
            read_secs: at(0),
            consume_secs: at(1),
            together_secs: at(2),
            bytes,
            samples,
        }
    }

    /// Share of the shorter of the two that ran hidden behind the other: 1 is perfect overlap, 0 none.
    pub fn hidden(&self) -> f64 {
        let shorter = self.read_secs.min(self.consume_secs);
        if shorter <= 0.0 {
            return 0.0;
        }
        ((self.read_secs + self.consume_secs - self.together_secs) / shorter).clamp(0.0, 1.0)
    }

    /// Bytes per second that reached the consumer.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.together_secs
    }

    /// Most tokens per second when every token needs `bytes` of streamed weights.
    pub fn tokens_per_sec_bound(&self, bytes: u64) -> f64 {
        self.rate() / bytes as f64
    }
}

/// Everything measured of one machine, stored with its fingerprint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BandwidthProfile {
    /// When.
    pub measured_at: Timestamp,
    /// One entry per path and device.
    pub paths: Vec<Bandwidth>,
    /// The streaming experiment, where a disk was measured.
    pub streaming: Option<Streaming>,
    /// What could not be measured and why, each a sentence.
    pub notices: Vec<String>,
}

impl BandwidthProfile {
    /// The measurement of a path, of a device where it has one.
    pub fn get(&self, path: Path, device: Option<&str>) -> Option<&Bandwidth> {
        let of = |b: &&Bandwidth| b.path == path && b.device.as_deref() == device;
        self.paths.iter().find(of)
    }
}

#[cfg(test)]
#[allow(
    clippy::float_cmp,
    reason = "medians are values that went in, shares are cut to their bounds"
)]
mod tests {
    use super::*;

    fn bandwidth(samples: &[f64]) -> Bandwidth {
        Bandwidth {
            path: Path::RamRead,
            device: None,
            samples: samples.to_vec(),
            bytes: 1,
            threads: 2,
        }
    }

    #[test]
    fn the_median_is_the_middle_and_the_range_the_ends() {
        let odd = bandwidth(&[19.0, 3.0, 20.0]);
        assert_eq!((odd.median(), odd.range()), (19.0, (3.0, 20.0)));
        assert_eq!(bandwidth(&[19.0, 3.0, 20.0, 18.0]).median(), 18.5);
        assert!(bandwidth(&[]).median().is_nan());
    }

    /// 1.04 GB that take 2 s to read at 0.52 GB/s and 1 s to use: of that second 88 % ran behind the reader when both
    /// took 2 + 1 − 0.88 = 2.12 s together.
    #[test]
    fn hidden_is_the_share_of_the_shorter_task_that_cost_nothing() {
        let streaming = |together| Streaming::of(1_040_000_000, vec![[2.0, 1.0, together]]);
        assert!((streaming(2.12).hidden() - 0.88).abs() < 1e-12);
        assert_eq!(streaming(2.0).hidden(), 1.0);
        assert_eq!(streaming(3.0).hidden(), 0.0);
        // Worse than one after the other is no overlap, and better than the longer one alone is noise.
        assert_eq!(streaming(3.5).hidden(), 0.0);
        assert_eq!(streaming(1.9).hidden(), 1.0);
        // Half a gigabyte per token, one of 1.04 GB in 2 s.
        assert!((streaming(2.0).tokens_per_sec_bound(520_000_000) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_repetition_that_stumbled_does_not_move_the_streaming() {
        let streaming = Streaming::of(10, vec![[1.0, 0.5, 1.1], [9.0, 0.4, 1.0], [1.2, 7.0, 8.0]]);
        let medians = [
            streaming.read_secs,
            streaming.consume_secs,
            streaming.together_secs,
        ];
        assert_eq!(medians, [1.2, 0.5, 1.1]);
        assert_eq!(streaming.samples.len(), 3);
    }
}
