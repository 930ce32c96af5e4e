//! Which memory holds each weight, and how much it takes there (`llama-model-loader.cpp`, `create_tensor`).

use crate::domain::placement::assignment::{Home, Placement};
use crate::domain::placement::devices::{CpuLayout, Memories};
use crate::domain::placement::layout::{ModelLayout, TensorClass, TensorEntry};
use crate::domain::types::Backend;

/// Tokens llama.cpp tries a weight's operation with before it gives the weight to a device (`weight_buft_supported`).
const TRIAL_TOKENS: u64 = 512;
/// CUDA pads rows of quantised tensors to this many values (`MATRIX_ROW_PADDING`).
const CUDA_ROW: u64 = 512;
/// The embeddings, which may be the output matrix too.
pub(super) const EMBEDDINGS: &str = "token_embd.weight";
/// Bytes of an f32, which operands and results are.
const F32: u64 = 4;

/// Where a model's weights are.
#[derive(Debug)]
pub(super) struct Homes {
    /// Home of each tensor, in the layout's order.
    pub of: Vec<Home>,
    /// Home of the second copy of tied embeddings, used as the output matrix; `None` where the first serves.
    pub tied: Option<Home>,
}

/// Largest tensor an operation of a device may touch; `None` without a limit.
pub(super) fn limit(memories: &Memories, device: usize) -> Option<u64> {
    let device = memories.devices.get(device)?;
    let vulkan = device.backend == Backend::Vulkan;
    let limits = [device.max_tensor, device.max_buffer];
    limits
        .into_iter()
        .flatten()
        .map(|b| b.0)
        .min()
        .filter(|_| vulkan)
}

/// Places every weight: where the placement wants it, unless its device cannot compute with a tensor of that size.
pub(super) fn homes(layout: &ModelLayout, placement: &Placement, memories: &Memories) -> Homes {
    let n = memories.devices.len();
    let settle = |wanted: Home, tensor: &TensorEntry, class| match wanted {
        Home::Device(i)
            if limit(memories, i).is_some_and(|max| trial(layout, tensor, class) > max) =>
        {
            Home::Host
        }
        home => home,
    };
    let of = layout.tensors.iter();
    let of = of
        .map(|t| settle(placement.home(t, layout, n), t, t.class))
        .collect();
    let matrix = layout.tensors.iter().find(|t| t.name == EMBEDDINGS);
    let tied = matrix.filter(|_| layout.tied_embeddings).map(|t| {
        let n_layer = layout.n_layer();
        settle(
            placement.layer_home(n_layer, n_layer, n),
            t,
            TensorClass::Output,
        )
    });
    // In RAM one copy serves both uses, unless only one of them is possible on the first device: then the embeddings are in
    // memory that device can reach, the output matrix in plain memory. Repacked, the copy serves the output alone.
    let split = matrix.zip(limit(memories, 0)).is_some_and(|(t, max)| {
        let looked_up = t.bytes.0 <= max;
        looked_up != (trial(layout, t, TensorClass::Output) <= max)
    }) || matrix.is_some_and(|t| repacked(t, TensorClass::Output, placement, memories));
    Homes {
        of,
        tied: tied.filter(|home| *home != Home::Host || split),
    }
}

/// Does the CPU backend copy a weight into a layout of its own? Only what is multiplied with: of embeddings rows are looked
/// up.
pub(super) fn repacked(
    tensor: &TensorEntry,
    class: TensorClass,
    placement: &Placement,
    memories: &Memories,
) -> bool {
    let rows = tensor.dims[1];
    let multiplied = class != TensorClass::Embedding && rows > 1;
    let repacks = memories.host.layout.repacks(&tensor.kind, rows);
    multiplied && repacks && !placement.no_repack
}

/// Bytes of all weights that the CPU backend copies into a layout of its own under a placement.
pub fn repacked_bytes(layout: &ModelLayout, placement: &Placement, memories: &Memories) -> u64 {
    if memories.host.layout == CpuLayout::File || placement.no_repack {
        return 0;
    }
    let homes = homes(layout, placement, memories);
    let mut bytes = 0;
    for (tensor, home) in layout.tensors.iter().zip(&homes.of) {
        let tied = homes.tied.filter(|_| tensor.name == EMBEDDINGS);
        for (home, class) in [(Some(*home), tensor.class), (tied, TensorClass::Output)] {
            if home == Some(Home::Host) && repacked(tensor, class, placement, memories) {
                bytes += tensor.bytes.0;
            }
        }
    }
    bytes
}

/// Bytes of the largest tensor in the operation a weight is tried with.
fn trial(layout: &ModelLayout, tensor: &TensorEntry, class: TensorClass) -> u64 {
    let used = layout.experts.map_or(1, |e| e.used);
    let [columns, rows, ..] = tensor.dims;
    let vector = tensor.dims[1..].iter().product::<u64>() == 1;
    let operands = match class {
        _ if vector => 0,
        TensorClass::Experts => columns.max(rows) * used * TRIAL_TOKENS,
        _ => columns.max(rows) * TRIAL_TOKENS,
    };
    tensor.bytes.0.max(operands * F32)
}

/// Bytes a tensor takes in the memory of a backend.
pub(super) fn allocated(tensor: &TensorEntry, backend: Backend) -> u64 {
    let [columns, ..] = tensor.dims;
    let cuda = matches!(backend, Backend::Cuda | Backend::Hip);
    let over = columns % CUDA_ROW;
    let plain = ["F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64"];
    let pads = cuda && over != 0 && !plain.iter().any(|p| p.eq_ignore_ascii_case(&tensor.kind));
    let rows = (tensor.elements() / columns.max(1)).max(1);
    let row = tensor.bytes.0 / rows;
    let padding = if pads {
        (CUDA_ROW - over) * row / columns.max(1)
    } else {
        0
    };
    (tensor.bytes.0 + padding).next_multiple_of(alignment(backend))
}

/// Bytes each allocation is a multiple of: CUDA's 128, the CPU's 32; Vulkan devices say it themselves
/// (`minStorageBufferOffsetAlignment`, 16 to 256), the common value is taken.
pub(super) fn alignment(backend: Backend) -> u64 {
    match backend {
        Backend::Cuda | Backend::Hip => 128,
        Backend::Vulkan => 64,
        _ => 32,
    }
}
