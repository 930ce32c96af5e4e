//! What runs taught about compute buffers: observed against predicted, per device.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::devices::Memories;
use super::{DeviceMemory, HOST_ID};
use crate::domain::types::{BufferUse, Bytes};

/// Ratios outside of this range are no correction but another run than the one predicted.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 0.25..=4.0;

/// Sums of one device's compute buffers, for a least-squares ratio through zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Σ observed × predicted, in bytes².
    pub cross: f64,
    /// Σ predicted², in bytes².
    pub square: f64,
    /// Runs it comes from.
    pub runs: u32,
}

impl Observed {
    /// Observed ÷ predicted.
    pub fn ratio(&self) -> f64 {
        if self.square > 0.0 {
            self.cross / self.square
        } else {
            1.0
        }
    }
}

/// Corrections of compute buffers, of one fingerprint; weights and caches need none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Corrections {
    /// By device id, [`HOST_ID`] for the host.
    pub compute: BTreeMap<String, Observed>,
}

impl Corrections {
    /// A predicted compute buffer as runs taught to correct it.
    pub fn corrected(&self, id: &str, predicted: Bytes) -> Bytes {
        let ratio = self.compute.get(id).map_or(1.0, Observed::ratio);
        Bytes((predicted.0 as f64 * ratio).round() as u64)
    }

    /// These corrections and what one more run shows. `predicted` is the prediction of that run's placement in `memories`,
    /// made without corrections; `observed` its log's buffers. All buffers that are no device's are the host's.
    #[must_use]
    pub fn with_run(
        &self,
        predicted: &[DeviceMemory],
        memories: &Memories,
        observed: &[BufferUse],
    ) -> Self {
        let mut learned = self.clone();
        for device in predicted {
            let belongs = |b: &&BufferUse| {
                let owner = memories.id_of_buffer(&b.device);
                match device.id.as_str() {
                    HOST_ID => predicted.iter().all(|d| d.id != owner),
                    id => owner == id,
                }
            };
            let seen: u64 = observed.iter().filter(belongs).map(|b| b.compute.0).sum();
            let (seen, expected) = (seen as f64, device.compute.0 as f64);
            if expected > 0.0 && PLAUSIBLE.contains(&(seen / expected)) {
                let sums = learned.compute.entry(device.id.clone()).or_default();
                sums.cross += seen * expected;
                sums.square += expected * expected;
                sums.runs += 1;
            }
        }
        learned
    }
}
