//! What CUDA's captured graphs take of a device, beside every buffer llama.cpp names.
//!
//! A prompt is multiplied on the device with weights in RAM too: each is copied there, and its operation becomes a graph of
//! its own, which CUDA captures and keeps. On an H200 (driver 580.159, llama.cpp b11149) 25 layers of a 0.6B in RAM took
//! 32 MiB, and none with `GGML_CUDA_DISABLE_GRAPHS=1` or `--no-op-offload`; `tests/placement_budgets.rs` holds the figures
//! below to what NVML read of every placement recorded there.

use super::compute::OFFLOAD_MIN_BATCH;
use super::weights;
use crate::domain::placement::assignment::{ContextParams, Home, Placement};
use crate::domain::placement::devices::Memories;
use crate::domain::placement::layout::{ModelLayout, TensorClass};
use crate::domain::types::Bytes;

/// Device memory of a tensor's graph where no prompt is longer than a micro-batch, KiB.
const SHORT_KIB: u64 = 113;
/// The same where prompts are: the first micro-batch and the later ones are captured apart, KiB.
const LONG_KIB: u64 = 266;
/// Bytes of a KiB.
const KIB: u64 = 1024;

/// How long prompts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prompts {
    /// None is longer than a micro-batch.
    Short,
    /// Some are, as a server's.
    Long,
}

impl Prompts {
    /// Those of up to `tokens` tokens.
    pub const fn of(tokens: u64, context: &ContextParams) -> Self {
        if tokens > context.micro_batch {
            Self::Long
        } else {
            Self::Short
        }
    }
}

/// Bytes that captured graphs take of the first device, to which ggml offers every operation with weights in RAM first.
/// Zero where none are captured and for micro-batches that stay on the CPU.
pub fn captured_graphs(
    layout: &ModelLayout,
    placement: &Placement,
    context: &ContextParams,
    memories: &Memories,
    prompts: Prompts,
) -> Bytes {
    if !captures(context, memories) {
        return Bytes(0);
    }
    let homes = weights::homes(layout, placement, memories);
    captured(layout, &homes, context, memories, prompts)
}

/// Are there graphs to keep, whatever the placement?
fn captures(context: &ContextParams, memories: &Memories) -> bool {
    let first = memories.devices.first();
    first.is_some_and(|d| d.captures_graphs) && context.micro_batch >= OFFLOAD_MIN_BATCH
}

pub(super) fn captured(
    layout: &ModelLayout,
    homes: &weights::Homes,
    context: &ContextParams,
    memories: &Memories,
    prompts: Prompts,
) -> Bytes {
    if !captures(context, memories) {
        return Bytes(0);
    }
    let each = match prompts {
        Prompts::Short => SHORT_KIB,
        Prompts::Long => LONG_KIB,
    };
    let tensors = layout.tensors.iter().zip(&homes.of);
    let copied = tensors.filter(|(t, home)| {
        // Embeddings are looked up where they are, and of the output few rows are multiplied.
        **home == Home::Host && !matches!(t.class, TensorClass::Embedding | TensorClass::Output)
    });
    Bytes(copied.count() as u64 * each * KIB)
}
