//! Measuring what the machine's memories deliver.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::placement::bandwidth::BandwidthProfile;
use crate::domain::types::{Bytes, Timestamp};

use super::{CancelToken, PortResult};

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BandwidthRequest {
    /// The moment the profile bears.
    pub at: Timestamp,
    /// Model file or folder whose disk is measured. A file that is large enough is read itself; for any other a temporary
    /// file is made in the folder, and removed.
    pub disk: PathBuf,
    /// Folder for the temporary file where that one cannot be written.
    pub scratch: PathBuf,
    /// RAM that is free: at most a quarter of it is used.
    pub ram_available: Bytes,
    /// Most bytes moved in one repetition, less where a path is slow or a memory small.
    pub size: Bytes,
    /// Measure software renderers too: their device memory is RAM.
    pub software: bool,
    /// Seed of the order in which blocks of the disk are read.
    pub seed: u64,
}

impl BandwidthRequest {
    /// Far larger than any cache between a GPU and its memory, and still a fraction of a second on a slow path.
    pub const SIZE: Bytes = Bytes(256 << 20);
}

/// Where a measurement is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BandwidthProgress {
    /// Steps done.
    pub done: u64,
    /// Steps in all.
    pub total: u64,
    /// The step, in a few words.
    pub doing: &'static str,
}

/// Measures bandwidths. What cannot be measured is a notice in the profile.
pub trait BandwidthMeter: Send + Sync {
    /// Measures RAM, the disk and every Vulkan device, in about ten seconds. A cancel is heeded between repetitions; the
    /// temporary file is gone when this returns, whatever the outcome.
    ///
    /// # Errors
    /// Cancelled.
    fn measure(
        &self,
        request: &BandwidthRequest,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(BandwidthProgress),
    ) -> PortResult<BandwidthProfile>;
}
