//! The speed model (design section 8): seconds per token = Σ bytes touched on a memory ÷ its bandwidth + hand-offs × cost
//! + fixed cost; a prompt adds operations ÷ compute rate and the upload of weights that stay in RAM.
//!
//! Everything is linear in the [`Constant`]s: a prediction is [`Work`] × constants, and the same work fits them
//! ([`super::fit`]). There is no other number in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::types::{Backend, TestSpec};

use super::assignment::{ContextParams, Home, Resolved};
use super::devices::{Memories, OffloadDevice};
use super::footprint::Footprint;
use super::layout::TensorClass;

/// Tokens of a micro-batch from which llama.cpp multiplies weights that stay in RAM on the GPU instead of the CPU
/// (`GGML_OP_OFFLOAD_MIN_BATCH`).
const OP_OFFLOAD_MIN_BATCH: f64 = 32.0;

/// What a machine's speed depends on; devices by their position. Each is seconds per unit of [`Work`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Constant {
    /// Reading weights and cache in RAM, seconds per byte.
    HostRead,
    /// Reading weights and cache in a device's memory, seconds per byte.
    DeviceRead(usize),
    /// Handing activations from one device to another, the CPU among them, seconds each.
    HandOff,
    /// Handing activations to a device behind a network, seconds each.
    RemoteHandOff(usize),
    /// What a token costs whatever is read, seconds.
    TokenFixed,
    /// Reading weights that RAM does not hold from the disk, seconds per byte.
    DiskRead,
    /// Multiplying on a device, seconds per floating-point operation.
    DeviceCompute(usize),
    /// Copying weights and cache from RAM to a device for a micro-batch, seconds per byte.
    Upload,
    /// What a micro-batch costs whatever is in it, seconds: its launches, and its share of a cold first repetition.
    MicroBatch,
    /// Multiplying on the CPU, seconds per floating-point operation.
    HostCompute,
    /// How independently the tokens of a micro-batch choose experts, an exponent and no time: see
    /// [`Footprint::experts_touched`]. It is the model's, not the machine's.
    ExpertSpread,
}

impl Constant {
    /// Does generation alone show it? The others need prompts.
    pub const fn is_decode(self) -> bool {
        !matches!(
            self,
            Self::DeviceCompute(_) | Self::HostCompute | Self::Upload | Self::MicroBatch
        )
    }

    /// Does every device have one of its kind, and are both of that kind?
    pub fn of_each_device(self, other: Self) -> bool {
        matches!(self, Self::DeviceRead(_) | Self::DeviceCompute(_))
            && std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// Stable name, with the device's id where it has one.
    pub fn name(self, memories: &Memories) -> String {
        let of = |i: usize| memories.devices.get(i).map_or("", |d| d.id.as_str());
        match self {
            Self::HostRead => "cpu_bandwidth".to_owned(),
            Self::DeviceRead(i) => format!("gpu_bandwidth[{}]", of(i)),
            Self::HandOff => "handoff".to_owned(),
            Self::RemoteHandOff(i) => format!("network_handoff[{}]", of(i)),
            Self::TokenFixed => "fixed_per_token".to_owned(),
            Self::DiskRead => "disk_bandwidth".to_owned(),
            Self::DeviceCompute(i) => format!("gpu_compute[{}]", of(i)),
            Self::HostCompute => "cpu_compute".to_owned(),
            Self::Upload => "upload_bandwidth".to_owned(),
            Self::MicroBatch => "fixed_per_micro_batch".to_owned(),
            Self::ExpertSpread => "expert_spread".to_owned(),
        }
    }

    /// The unit people know it in.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::HostRead | Self::DeviceRead(_) | Self::DiskRead | Self::Upload => "GB/s",
            Self::DeviceCompute(_) | Self::HostCompute => "TFLOP/s",
            Self::HandOff | Self::RemoteHandOff(_) | Self::TokenFixed | Self::MicroBatch => "ms",
            Self::ExpertSpread => "exponent",
        }
    }

    /// Seconds per unit of work as a number in [`Self::unit`]; a rate without limit is infinite.
    pub fn shown(self, seconds: f64) -> f64 {
        match self.unit() {
            "GB/s" => 1e-9 / seconds,
            "TFLOP/s" => 1e-12 / seconds,
            "exponent" => seconds,
            _ => seconds * 1e3,
        }
    }

    /// The inverse of [`Self::shown`].
    pub fn seconds(self, shown: f64) -> f64 {
        match self.unit() {
            "GB/s" => 1e-9 / shown,
            "TFLOP/s" => 1e-12 / shown,
            "exponent" => shown,
            _ => shown * 1e-3,
        }
    }
}

/// How a constant is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Neither measured nor fitted.
    Assumed,
    /// From the machine's bandwidth profile.
    Measured,
    /// From benchmarks of this fingerprint.
    Fitted,
}

/// A constant's value and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// Seconds per unit of work.
    pub seconds: f64,
    /// How it is known.
    pub status: Status,
    /// Where from, in a sentence.
    pub origin: String,
}

/// The machine's constants.
pub type Constants = BTreeMap<Constant, Known>;

/// How much of each constant something takes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Work(pub BTreeMap<Constant, f64>);

impl Work {
    fn add(&mut self, constant: Constant, amount: f64) {
        if amount > 0.0 {
            *self.0.entry(constant).or_insert(0.0) += amount;
        }
    }

    /// Seconds it takes with these constants; one that is missing costs nothing.
    pub fn seconds(&self, constants: &Constants) -> f64 {
        let cost =
            |(c, amount): (&Constant, &f64)| constants.get(c).map_or(0.0, |k| k.seconds * amount);
        self.0.iter().map(cost).sum()
    }
}

/// Everything a prediction is made for.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// The model.
    pub model: &'a Footprint,
    /// Where everything is.
    pub homes: &'a Resolved,
    /// The context.
    pub context: &'a ContextParams,
    /// The machine's memories.
    pub memories: &'a Memories,
    /// Bytes of weights in RAM that the process holds a repacked copy of.
    pub repacked: f64,
}

/// Tokens per second predicted for `test`; `None` where nothing is known of what it takes.
pub fn rate(setting: Setting<'_>, test: TestSpec, constants: &Constants) -> Option<f64> {
    let seconds = work(setting, test).seconds(constants);
    (seconds > 0.0).then(|| f64::from(test.tokens()) / seconds)
}

/// What one repetition of `test` takes.
pub fn work(setting: Setting<'_>, test: TestSpec) -> Work {
    let mut work = Work::default();
    let depth = f64::from(test.n_depth);
    let prompt = f64::from(test.n_prompt);
    if prompt > 0.0 {
        setting.prompt(&mut work, prompt, depth);
    }
    let generated = f64::from(test.n_gen);
    if generated > 0.0 {
        // The mean over tokens that each see one more before them.
        setting.decode(&mut work, generated, depth + prompt + generated / 2.0);
    }
    work
}

/// Amounts by memory, before they become [`Work`].
struct Sums {
    host: f64,
    devices: Vec<f64>,
}

impl Sums {
    fn new(devices: usize) -> Self {
        Self {
            host: 0.0,
            devices: vec![0.0; devices],
        }
    }

    fn add(&mut self, home: Home, amount: f64) {
        match home {
            Home::Host => self.host += amount,
            Home::Device(i) => self.devices[i] += amount,
        }
    }

    fn into_work(self, work: &mut Work, host: Constant, device: fn(usize) -> Constant) {
        work.add(host, self.host);
        for (i, amount) in self.devices.into_iter().enumerate() {
            work.add(device(i), amount);
        }
    }
}

impl Setting<'_> {
    fn sums(&self) -> Sums {
        Sums::new(self.memories.devices.len())
    }

    /// `tokens` tokens one after the other, with `depth` tokens before each.
    fn decode(&self, work: &mut Work, tokens: f64, depth: f64) {
        let mut reads = self.sums();
        for (home, _, part) in self.model.parts(self.homes) {
            reads.add(home, part.read * tokens);
        }
        work.add(Constant::DiskRead, reads.host * self.missing_share());
        for (layer, home) in self.model.layers.iter().zip(&self.homes.cache) {
            reads.add(*home, layer.cache_read(depth, self.context) * tokens);
        }
        reads.into_work(work, Constant::HostRead, Constant::DeviceRead);
        self.hand_offs(work, tokens);
        work.add(Constant::TokenFixed, tokens);
    }

    /// A prompt in micro-batches, the last of which may be shorter. Only its last token becomes logits
    /// (`llama_batch_get_one`): the output matrix is used once, for one token.
    fn prompt(&self, work: &mut Work, prompt: f64, depth: f64) {
        let full = (self.context.micro_batch.max(1) as f64).min(prompt);
        let batches = (prompt / full).floor();
        let rest = prompt - batches * full;
        self.weights(work, full, batches);
        if rest > 0.0 {
            self.weights(work, rest, 1.0);
        }
        let (mut reads, mut flops) = (self.sums(), self.sums());
        let output = self.model.output;
        reads.add(self.homes.output, output.bytes);
        flops.add(self.homes.output, output.flops);
        let mut uploaded = 0.0;
        let mut done = 0.0;
        while done < prompt {
            let tokens = full.min(prompt - done);
            // The mean over the tokens of the micro-batch, that each see one more before them.
            let seen = depth + done + tokens / 2.0;
            let helper = self.helper(tokens);
            for (layer, home) in self.model.layers.iter().zip(&self.homes.cache) {
                let bytes = layer.cache_read(seen, self.context);
                let operations = layer.attention_flops(seen) * tokens;
                if let (Home::Host, Some(device)) = (home, helper) {
                    uploaded += bytes;
                    flops.add(device, operations);
                } else {
                    reads.add(*home, bytes);
                    flops.add(*home, operations);
                }
            }
            done += tokens;
        }
        work.add(Constant::Upload, uploaded);
        reads.into_work(work, Constant::HostRead, Constant::DeviceRead);
        flops.into_work(work, Constant::HostCompute, Constant::DeviceCompute);
        let count = batches + f64::from(u8::from(rest > 0.0));
        self.hand_offs(work, count);
        work.add(Constant::MicroBatch, count);
    }

    /// The device that multiplies for the CPU when micro-batches are this large: llama.cpp takes the first that can, and RPC
    /// servers cannot.
    fn helper(&self, tokens: f64) -> Option<Home> {
        let local = |d: &OffloadDevice| d.backend != Backend::Rpc;
        let first = self.memories.devices.iter().position(local);
        first
            .filter(|_| tokens >= OP_OFFLOAD_MIN_BATCH)
            .map(Home::Device)
    }

    /// The blocks' weights in `times` micro-batches of `tokens` tokens. What is in RAM is copied to the helper for each, of
    /// experts only those that are used, one copy after the other (`ggml_backend_sched_compute_splits`).
    fn weights(&self, work: &mut Work, tokens: f64, times: f64) {
        let helper = self.helper(tokens);
        let (mut reads, mut flops) = (self.sums(), self.sums());
        let (mut upload, mut on_host) = (0.0, 0.0);
        let touched = self.model.experts_touched(tokens);
        for (layer, shape) in self.model.layers.iter().enumerate() {
            for (class, part) in shape.parts() {
                let home = self.homes.home(layer, class);
                let share = match class {
                    TensorClass::Experts => touched(layer),
                    _ => 1.0,
                };
                let bytes = part.bytes * share * times;
                let operations = part.flops * tokens * times;
                if home == Home::Host {
                    on_host += bytes;
                }
                match (home, helper) {
                    // Only matrices are moved: what has no operations to count is too small to.
                    (Home::Host, Some(device)) if operations > 0.0 => {
                        upload += bytes;
                        flops.add(device, operations);
                    }
                    _ => {
                        reads.add(home, bytes);
                        flops.add(home, operations);
                    }
                }
            }
        }
        work.add(Constant::Upload, upload);
        work.add(Constant::DiskRead, on_host * self.missing_share());
        reads.into_work(work, Constant::HostRead, Constant::DeviceRead);
        flops.into_work(work, Constant::HostCompute, Constant::DeviceCompute);
    }

    /// Changes of device on the way through the blocks, `times` over: attention, then feed-forward, layer by layer. Reading
    /// the embedding and fetching the result happen in every placement and are part of the fixed cost, unless they go
    /// through a network.
    fn hand_offs(&self, work: &mut Work, times: f64) {
        let ends = self
            .homes
            .layers
            .first()
            .into_iter()
            .chain([&self.homes.output]);
        for end in ends {
            let crossing = self.crossing(Home::Host, *end);
            if matches!(crossing, Constant::RemoteHandOff(_)) {
                work.add(crossing, times);
            }
        }
        let mut now = None;
        let mut step = |to: Home| {
            if let Some(from) = now.replace(to)
                && from != to
            {
                work.add(self.crossing(from, to), times);
            }
        };
        for (i, layer) in self.model.layers.iter().enumerate() {
            let device = self.homes.layers[i];
            step(device);
            // A cache in RAM takes attention itself to the CPU.
            step(self.homes.cache[i]);
            step(device);
            let experts = layer.part(TensorClass::Experts).bytes > 0.0;
            step(if experts {
                self.homes.experts[i]
            } else {
                self.homes.feed_forward[i]
            });
        }
        step(self.homes.output);
    }

    fn crossing(&self, from: Home, to: Home) -> Constant {
        let remote = [from, to].into_iter().find_map(|home| match home {
            Home::Device(i) => {
                let rpc = self.memories.devices.get(i)?.backend == Backend::Rpc;
                rpc.then_some(i)
            }
            Home::Host => None,
        });
        remote.map_or(Constant::HandOff, Constant::RemoteHandOff)
    }

    /// Share of the weights in RAM that must come from the disk each time, because RAM does not hold them all: pages are
    /// dropped in the order they will be needed again, so that a dense model is read anew for every token (case C38); of
    /// experts, which are drawn at random, what RAM holds is spared. Repacked weights stay where they are.
    pub fn missing_share(&self) -> f64 {
        let all = self.model.host_bytes(self.homes);
        let bytes = all - self.repacked;
        let room = (self.memories.host.usable.0 as f64 - self.repacked).max(0.0);
        if bytes <= room {
            0.0
        } else if self.model.expert_share < 1.0 {
            (bytes - room) / all
        } else {
            bytes / all
        }
    }
}
