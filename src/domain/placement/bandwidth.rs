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
    /// Copying inside a device's memory; each byte is read and written, both count.
    DeviceCopy,
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
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        }
    }

    /// Slowest and fastest repetition, bytes per second.
    pub fn range(&self) -> (f64, f64) {
        let least = self.samples.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.samples.iter().copied().fold(0.0, f64::max);
        (least, most)
    }
}

/// Reading weights from the disk while they are used: double-buffered reads against a consumer thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Streaming {
    /// Seconds the reader alone took.
    pub read_secs: f64,
    /// Seconds the consumer alone took.
    pub consume_secs: f64,
    /// Seconds both took together.
    pub together_secs: f64,
    /// Bytes streamed.
    pub bytes: u64,
}

impl Streaming {
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
