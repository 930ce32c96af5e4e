//! What a placement takes of each memory: weights and caches exactly, compute buffers by building the graph of a full
//! micro-batch and allocating it as ggml does (design section 8, cases C12, C32, C36).

mod allocate;
mod attention;
mod cache;
mod captured;
mod compute;
mod correction;
mod feed_forward;
mod graph;
mod latent;
mod model;
mod net;
mod recurrent;
mod reorder;
mod schedule;
mod weights;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(super) use cache::layer_parts;
pub(super) use cache::row_bytes;
pub use captured::{Prompts, captured_graphs};
pub use correction::{Corrections, Difference, Observed};
use net::Net;
pub use weights::repacked_bytes;

use super::assignment::{ContextParams, Home, Placement};
use super::devices::Memories;
use super::layout::{ModelLayout, TensorClass};
use crate::domain::types::{Backend, Bytes};

/// Id of the host in [`DeviceMemory::id`], as llama-fit-params names it.
pub const HOST_ID: &str = "Host";
/// Bytes of a logit, f32.
const LOGIT: u64 = 4;

/// How far a number can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// llama.cpp's own arithmetic.
    Exact,
    /// llama.cpp's allocation, simulated for a graph known to be this architecture's.
    Simulated,
    /// The same, corrected by what runs of this fingerprint showed.
    Corrected,
    /// Simulated for a graph that may not be this architecture's.
    Guessed,
}

/// What a placement takes of one memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// The device's id, or [`HOST_ID`].
    pub id: String,
    /// Weights by class; classes without any are absent. Exact.
    pub weights: BTreeMap<TensorClass, Bytes>,
    /// Of the weights, what the process holds a copy of: unlike a mapped file's it cannot be dropped and read again.
    #[serde(default)]
    pub repacked: Bytes,
    /// KV cache and recurrent state.
    pub kv: Bytes,
    /// How far [`Self::kv`] can be trusted.
    pub kv_basis: Basis,
    /// Compute buffer of a full micro-batch.
    pub compute: Bytes,
    /// How far [`Self::compute`] can be trusted.
    pub compute_basis: Basis,
    /// Logits kept for the program, in the host's memory; llama-fit-params leaves them out.
    pub output: Bytes,
    /// Graphs that CUDA captures of prompts' operations with weights in RAM; in no buffer that llama.cpp names.
    #[serde(default)]
    pub graphs: Bytes,
    /// What a plan may use of this memory.
    pub usable: Bytes,
    /// The largest buffer it must be possible to allocate: all weights, or where the backend splits them its largest part.
    pub largest_buffer: Bytes,
    /// Largest buffer the device can allocate, where it says so.
    pub max_buffer: Option<Bytes>,
}

impl DeviceMemory {
    /// All weights.
    pub fn model(&self) -> Bytes {
        self.weights.values().copied().sum()
    }

    /// All of it.
    pub fn total(&self) -> Bytes {
        Bytes(self.buffers().0 + self.graphs.0)
    }

    /// The buffers that llama.cpp allocates and its log names.
    pub fn buffers(&self) -> Bytes {
        Bytes(self.model().0 + self.kv.0 + self.compute.0 + self.output.0)
    }

    /// What computing takes: the compute buffer, the logits and captured graphs.
    pub fn working(&self) -> Bytes {
        Bytes(self.compute.0 + self.output.0 + self.graphs.0)
    }

    /// By how much it does not fit; zero where it does.
    pub fn excess(&self) -> Bytes {
        Bytes(self.total().0.saturating_sub(self.usable.0))
    }

    /// Is there room for all of it, in buffers the device can allocate (case C12)?
    pub fn fits(&self) -> bool {
        self.excess() == Bytes(0) && !self.buffer_too_large()
    }

    fn buffer_too_large(&self) -> bool {
        self.max_buffer.is_some_and(|max| self.largest_buffer > max)
    }

    /// Why it does not fit, naming the memory by its place in the list (case C36); `None` where it does.
    pub fn misfit(&self, position: usize) -> Option<String> {
        let host = self.id == HOST_ID;
        let what = if host {
            "the host".to_owned()
        } else {
            format!("device {position}")
        };
        if self.excess() > Bytes(0) {
            let (need, have) = (self.total(), self.usable);
            let repacked = match self.repacked {
                Bytes(0) => String::new(),
                bytes => format!(
                    ", {bytes} of it repacked weights, which are not read from the file again"
                ),
            };
            return Some(format!("{what} would need {need} of {have}{repacked}"));
        }
        let max = self.max_buffer.filter(|_| self.buffer_too_large())?;
        let largest = self.largest_buffer;
        Some(format!(
            "{what} would need one buffer of {largest}, and allocates at most {max}"
        ))
    }
}

/// Does everything fit?
pub fn fits(memory: &[DeviceMemory]) -> bool {
    memory.iter().all(DeviceMemory::fits)
}

/// Why a placement does not fit, one sentence a memory.
pub fn misfits(memory: &[DeviceMemory]) -> Vec<String> {
    let sentence = |(i, m): (usize, &DeviceMemory)| m.misfit(i);
    memory.iter().enumerate().filter_map(sentence).collect()
}

/// What a placement takes: the devices in order, then the host.
///
/// Buffers a device shares with RAM are counted on the device only. Not in it: a backend's own overhead (CUDA context,
/// shader pipelines, scratch memory of single operations), which the reserve covers; captured graphs are.
pub fn memory(
    layout: &ModelLayout,
    placement: &Placement,
    context: &ContextParams,
    memories: &Memories,
    corrections: &Corrections,
) -> Vec<DeviceMemory> {
    let homes = weights::homes(layout, placement, memories);
    let net = Net::new(layout, placement, context, memories.devices.len(), &homes);
    taken(net, memories, corrections)
}

/// As [`memory`] in a fraction of the time: of layers alike only the first few are simulated. Of 1,313 recorded rows 5 are
/// off by more than a hundredth then, the worst by 18 % of its compute buffer.
pub fn sketch(
    layout: &ModelLayout,
    placement: &Placement,
    context: &ContextParams,
    memories: &Memories,
    corrections: &Corrections,
) -> Vec<DeviceMemory> {
    let homes = weights::homes(layout, placement, memories);
    let net = Net::new(layout, placement, context, memories.devices.len(), &homes);
    taken(net.shortened(), memories, corrections)
}

fn taken(net: Net<'_>, memories: &Memories, corrections: &Corrections) -> Vec<DeviceMemory> {
    let (layout, placement, context) = (net.layout, net.placement, net.context);
    let mut all = empty(memories);
    let host = all.len() - 1;
    place_weights(&mut all, layout, placement, memories, net.homes);
    all[0].graphs = captured::captured(layout, net.homes, context, memories, Prompts::Long);
    place_caches(&mut all, layout, placement, context);
    let known = model::is_known(&layout.info.architecture);
    for (i, (device, bytes)) in all
        .iter_mut()
        .zip(compute::buffers(net, memories))
        .enumerate()
    {
        device.compute = corrections.corrected(&device.id, Bytes(bytes));
        device.compute_basis = match corrections.compute.contains_key(&device.id) {
            true => Basis::Corrected,
            false if known => Basis::Simulated,
            false => Basis::Guessed,
        };
        let whole = device.compute.max(device.kv).max(device.model());
        let part = compute::chunk(memories, i);
        device.largest_buffer = device.largest_buffer.max(whole.min(part));
    }
    all[host].output = Bytes(layout.vocabulary * LOGIT * context.sequences.max(1));
    all
}

/// Position of a home among devices and host.
fn slot(all: &[DeviceMemory], home: Home) -> usize {
    let host = all.len() - 1;
    match home {
        Home::Device(i) => i.min(host),
        Home::Host => host,
    }
}

fn place_weights(
    all: &mut [DeviceMemory],
    layout: &ModelLayout,
    placement: &Placement,
    memories: &Memories,
    homes: &weights::Homes,
) {
    let host = all.len() - 1;
    for (tensor, home) in layout.tensors.iter().zip(&homes.of) {
        let tied = homes.tied.filter(|_| tensor.name == weights::EMBEDDINGS);
        let copies = [(Some(*home), tensor.class), (tied, TensorClass::Output)];
        for (home, class) in copies {
            let Some(i) = home.map(|home| slot(all, home)) else {
                continue;
            };
            let backend = memories.devices.get(i).map_or(Backend::Cpu, |d| d.backend);
            let bytes = weights::allocated(tensor, backend);
            all[i].weights.entry(class).or_default().0 += bytes;
            if i == host && weights::repacked(tensor, class, placement, memories) {
                all[i].repacked.0 += bytes;
            }
            all[i].largest_buffer.0 = all[i].largest_buffer.0.max(bytes);
        }
    }
}

fn place_caches(
    all: &mut [DeviceMemory],
    layout: &ModelLayout,
    placement: &Placement,
    context: &ContextParams,
) {
    let exact = cache::is_known(&context.type_k) && cache::is_known(&context.type_v);
    let n = all.len() - 1;
    for (layer, shape) in layout.layers.iter().enumerate() {
        let i = slot(all, placement.cache_home(layer as u32, layout.n_layer(), n));
        let parts = cache::layer_parts(context, shape);
        all[i].kv.0 += parts.iter().sum::<u64>();
        let largest = parts.into_iter().max().unwrap_or(0);
        all[i].largest_buffer.0 = all[i].largest_buffer.0.max(largest);
    }
    for device in all {
        device.kv_basis = if exact { Basis::Exact } else { Basis::Guessed };
    }
}

fn empty(memories: &Memories) -> Vec<DeviceMemory> {
    let devices = memories
        .devices
        .iter()
        .map(|d| (d.id.as_str(), d.usable, d.max_buffer));
    let host = std::iter::once((HOST_ID, memories.host.usable, None));
    let blank = |(id, usable, max_buffer): (&str, Bytes, Option<Bytes>)| DeviceMemory {
        id: id.to_owned(),
        weights: BTreeMap::new(),
        repacked: Bytes(0),
        kv: Bytes(0),
        kv_basis: Basis::Exact,
        compute: Bytes(0),
        compute_basis: Basis::Simulated,
        output: Bytes(0),
        graphs: Bytes(0),
        usable,
        largest_buffer: Bytes(0),
        max_buffer,
    };
    devices.chain(host).map(blank).collect()
}
