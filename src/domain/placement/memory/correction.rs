//! What runs taught about compute buffers: observed against predicted, per device.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::devices::Memories;
use super::{DeviceMemory, HOST_ID};
use crate::domain::types::{BufferUse, Bytes};

/// Ratios outside of this range are no correction but another run than the one predicted.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 0.25..=4.0;

/// Share of a device's memory by which a run must differ from its prediction to be told of.
const TOLD_FROM: f64 = 0.02;

/// A device that a run took more or less of than predicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The device's id.
    pub id: String,
    /// Weights, cache and compute buffer as predicted.
    pub predicted: Bytes,
    /// The same of the run's log.
    pub observed: Bytes,
}

impl Difference {
    /// How far apart they are, as a share of the prediction.
    pub fn share(&self) -> f64 {
        self.observed.0.abs_diff(self.predicted.0) as f64 / self.predicted.0.max(1) as f64
    }

    /// The device of a run that differs most, if by more than 2 %. Not the host: a mapped file's buffer line reaches over
    /// tensors that are elsewhere. Arguments as of [`Corrections::with_run`].
    pub fn of(
        predicted: &[DeviceMemory],
        memories: &Memories,
        observed: &[BufferUse],
    ) -> Option<Self> {
        let devices = predicted.iter().filter(|d| d.id != HOST_ID);
        let differences = devices.map(|device| {
            let own = observed
                .iter()
                .filter(|b| memories.id_of_buffer(&b.device) == device.id);
            Self {
                id: device.id.clone(),
                predicted: device.buffers(),
                observed: own.map(BufferUse::total).sum(),
            }
        });
        differences
            .filter(|d| d.observed > Bytes(0) && d.share() > TOLD_FROM)
            .max_by(|a, b| a.share().total_cmp(&b.share()))
    }
}

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
