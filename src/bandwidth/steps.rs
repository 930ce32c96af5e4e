//! Where a measurement is, and whether it shall go on.

use crate::ports::{BandwidthProgress, CancelToken};

/// RAM twice, the disk four times and once more where it can be read through an empty cache, the devices.
const STEPS: u64 = if cfg!(target_os = "linux") { 8 } else { 7 };

/// The measurement was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stop;

/// Says each step as it begins.
pub(super) struct Steps<'a> {
    cancel: &'a CancelToken,
    progress: &'a mut dyn FnMut(BandwidthProgress),
    begun: u64,
}

impl<'a> Steps<'a> {
    pub(super) fn new(
        cancel: &'a CancelToken,
        progress: &'a mut dyn FnMut(BandwidthProgress),
    ) -> Self {
        Self {
            cancel,
            progress,
            begun: 0,
        }
    }

    /// Begins a step.
    pub(super) fn begin(&mut self, doing: &'static str) -> Result<(), Stop> {
        (self.progress)(BandwidthProgress {
            done: self.begun,
            total: STEPS,
            doing,
        });
        self.begun += 1;
        self.check()
    }

    /// Between repetitions: is somebody still waiting for the result?
    pub(super) fn check(&self) -> Result<(), Stop> {
        if self.cancel.is_cancelled() {
            Err(Stop)
        } else {
            Ok(())
        }
    }

    /// For work that looks at it itself.
    pub(super) const fn cancel(&self) -> &CancelToken {
        self.cancel
    }
}
