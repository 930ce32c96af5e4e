//! Compute buffers: the graph of a full micro-batch, scheduled and allocated as ggml does it.

use super::allocate::{Arena, peaks};
use super::cache;
use super::net::{Index, Net};
use super::schedule::{Backend, PIPELINE_COPIES, plan};
use super::weights::{self, Homes};
use crate::domain::placement::assignment::{ContextParams, Placement};
use crate::domain::placement::devices::{Memories, OffloadDevice};
use crate::domain::placement::layout::ModelLayout;
use crate::domain::types::{Backend as Kind, Bytes};

/// Tokens from which weights in RAM are worth copying to a device (`GGML_OP_OFFLOAD_MIN_BATCH`'s default).
const OFFLOAD_MIN_BATCH: u64 = 32;
/// Vulkan allocates compute buffers in chunks of at most this (`suballocation_block_size`).
const VULKAN_CHUNK: u64 = 1 << 30;
/// Bytes of an f32.
const F32: u64 = 4;
/// No limit on a chunk.
const WHOLE: u64 = u64::MAX / 2;

/// Bytes of each device's compute buffer, then of the host's.
pub(super) fn buffers(
    layout: &ModelLayout,
    placement: &Placement,
    context: &ContextParams,
    memories: &Memories,
    homes: &Homes,
) -> Vec<u64> {
    let index = Index::new(layout);
    let net = Net::new(
        layout,
        placement,
        context,
        memories.devices.len(),
        &index,
        homes,
    );
    let mut graph = net.build();
    let backends = backends(memories);
    let copies = if pipelines(layout, placement, memories) {
        PIPELINE_COPIES
    } else {
        1
    };
    let plan = plan(&mut graph, &backends, copies);
    let arenas: Vec<Arena> = backends.iter().map(|b| b.arena).collect();
    let mut peaks = peaks(&graph, &plan, &arenas);
    if copies > 1 {
        for later in &mut peaks[1..memories.devices.len()] {
            *later += copies as u64 * handed_over(layout, context);
        }
    }
    peaks
}

/// Bytes of the residual stream one device hands to the next. With pipeline parallelism every device after the first takes
/// its copies once more than this simulation explains: measured with llama-fit-params, two and three devices, 2560 and 4096
/// wide, 128 to 1024 tokens, to the MiB.
fn handed_over(layout: &ModelLayout, context: &ContextParams) -> u64 {
    layout.embedding * cache::micro_batch(context) * F32
}

fn backends(memories: &Memories) -> Vec<Backend> {
    let devices = memories.devices.iter().enumerate();
    let mut all: Vec<Backend> = devices.map(|(i, d)| device(memories, i, d)).collect();
    // The CPU computes in the first device's host memory, whose chunks are limited like the device's own.
    let host = all.first().map_or(WHOLE, |b| b.arena.max_chunk);
    all.push(Backend {
        kind: Kind::Cpu,
        arena: Arena {
            alignment: weights::alignment(Kind::Cpu),
            max_chunk: host,
            with_extra: false,
        },
        max_tensor: None,
        offload_min_batch: None,
    });
    all
}

/// Bytes beyond which a memory's buffers are split into several.
pub(super) fn chunk(memories: &Memories, i: usize) -> Bytes {
    let whole = Bytes(WHOLE);
    memories
        .devices
        .get(i)
        .map_or(whole, |d| Bytes(device(memories, i, d).arena.max_chunk))
}

fn device(memories: &Memories, i: usize, device: &OffloadDevice) -> Backend {
    let vulkan = device.backend == Kind::Vulkan;
    let largest = device
        .max_buffer
        .map_or(VULKAN_CHUNK, |b| b.0.min(VULKAN_CHUNK));
    Backend {
        kind: device.backend,
        arena: Arena {
            alignment: weights::alignment(device.backend),
            max_chunk: if vulkan { largest } else { WHOLE },
            with_extra: matches!(device.backend, Kind::Cuda | Kind::Hip),
        },
        max_tensor: weights::limit(memories, i),
        offload_min_batch: (device.backend != Kind::Rpc).then_some(OFFLOAD_MIN_BATCH),
    }
}

/// Does llama.cpp work on several micro-batches at once (`pipeline_parallel`)? Only with several devices, everything offloaded and no tensor taken off.
fn pipelines(layout: &ModelLayout, placement: &Placement, memories: &Memories) -> bool {
    let n = memories.devices.len();
    let all = placement.offloaded(layout.n_layer(), n) > layout.n_layer();
    let whole = placement.n_cpu_moe == 0 && placement.host_tensors.is_empty();
    n > 1 && all && whole && !placement.kv_on_host
}
