//! Compute buffers: the graph of a full micro-batch, scheduled and allocated as ggml does it.

use super::allocate::{Arena, peaks};
use super::net::Net;
use super::schedule::{Backend, PIPELINE_COPIES, plan};
use super::weights;
use crate::domain::placement::devices::{Memories, OffloadDevice};
use crate::domain::types::{Backend as Kind, Bytes};

/// Tokens from which weights in RAM are worth copying to a device (`GGML_OP_OFFLOAD_MIN_BATCH`'s default).
pub(super) const OFFLOAD_MIN_BATCH: u64 = 32;
/// Vulkan allocates compute buffers in chunks of at most this (`suballocation_block_size`).
const VULKAN_CHUNK: u64 = 1 << 30;
/// No limit on a chunk.
const WHOLE: u64 = u64::MAX / 2;

/// Bytes of each device's compute buffer, then of the host's.
pub(super) fn buffers(net: Net<'_>, memories: &Memories) -> Vec<u64> {
    let n_layer = net.layout.n_layer();
    let pipelined = net.placement.is_pipelined(n_layer, net.devices);
    let mut graph = net.build();
    let backends = backends(memories);
    let copies = if pipelined { PIPELINE_COPIES } else { 1 };
    let plan = plan(&mut graph, &backends, copies);
    let arenas: Vec<Arena> = backends.iter().map(|b| b.arena).collect();
    peaks(&graph, &plan, &arenas)
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
