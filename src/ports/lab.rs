//! Measuring what a card can do by itself.

use serde::{Deserialize, Serialize};

use crate::domain::lab::{BEYOND_CACHES, LabEvent};
use crate::domain::types::Bytes;

use super::{CancelToken, PortResult};

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabRequest {
    /// The card: its number in Vulkan's order, or a part of its name; `None` takes the first discrete card, else the first
    /// that is no software renderer.
    pub device: Option<String>,
    /// Fewer sizes and repetitions.
    pub quick: bool,
    /// Most bytes of one buffer.
    pub largest: Bytes,
    /// Seed of the random data.
    pub seed: u64,
}

impl Default for LabRequest {
    fn default() -> Self {
        Self {
            device: None,
            quick: false,
            largest: BEYOND_CACHES,
            seed: 0,
        }
    }
}

/// The kernel lab.
pub trait Lab: Send + Sync {
    /// Measures one card and tells what it finds as it finds it; a card that fails is told too. Returns at the next
    /// repetition once cancelled.
    ///
    /// # Errors
    /// No Vulkan, or no such card.
    fn measure(
        &self,
        request: &LabRequest,
        cancel: &CancelToken,
        tell: &mut dyn FnMut(LabEvent),
    ) -> PortResult<()>;
}
