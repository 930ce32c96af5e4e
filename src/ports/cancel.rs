//! One flag between whoever cancels and whoever works.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::sync::{AtomicU8, Ordering};

/// When a cancelled job stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelMode {
    /// When the run in progress has ended: nothing measured is thrown away.
    AfterSample,
    /// At once: the run in progress is ended and its child reaped.
    Now,
}

/// Shared between threads; asking twice for a gentler stop never softens a harder one.
#[derive(Debug, Clone)]
pub struct CancelToken(Arc<AtomicU8>);

const AFTER_SAMPLE: u8 = 1;
const NOW: u8 = 2;

impl CancelToken {
    /// A token nobody has cancelled.
    pub fn new() -> Self {
        Self(Arc::new(AtomicU8::new(0)))
    }

    /// Asks the job to stop.
    pub fn cancel(&self, mode: CancelMode) {
        let level = match mode {
            CancelMode::AfterSample => AFTER_SAMPLE,
            CancelMode::Now => NOW,
        };
        self.0.fetch_max(level, Ordering::SeqCst);
    }

    /// The run in progress must end at once.
    pub fn is_now(&self) -> bool {
        self.0.load(Ordering::SeqCst) >= NOW
    }

    /// No further run may start.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst) >= AFTER_SAMPLE
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}
