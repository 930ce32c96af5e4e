//! The candidates of the five tiers (paper section 5): hundreds of placements judged by memory and predicted speed, with the
//! micro-batch and the host's share of the experts searched together.

use std::cell::RefCell;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::domain::types::{Bytes, Goal, RequestShape, TestSpec};

use super::devices::Memories;
use super::footprint::Footprint;
use super::layout::{ModelLayout, TensorClass};
use super::memory::{self, Corrections, DeviceMemory};
use super::placement::{ContextParams, Home, HostTensors, Placement, Resolved};
use super::speed::{Constant, Constants, Setting, rate};

/// Micro-batches tried: from where llama.cpp's kernels fill a small card to where larger ones stop to pay.
pub const MICRO_BATCHES: [u64; 5] = [128, 256, 512, 1024, 2048];
/// Layers more in RAM than must be, that are tried too: the first guess of the memory may be on the safe side.
const SPARE_STEPS: [u32; 3] = [0, 1, 2];

/// The paper's five tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// Everything on GPUs.
    GpuResident,
    /// The last layers on GPUs, the first in RAM.
    SplitByLayer,
    /// Attention and KV cache on GPUs, feed-forward weights or experts of some layers in RAM.
    SplitByClass,
    /// Weights in RAM that it does not hold all: the rest is read from the disk for every token.
    GpuRamSsd,
    /// Everything in RAM, multiplied by the CPU.
    CpuOnly,
}

impl Tier {
    /// The tier in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::GpuResident => "GPU-resident",
            Self::SplitByLayer => "split by layer",
            Self::SplitByClass => "split by tensor class",
            Self::GpuRamSsd => "GPU + RAM + SSD",
            Self::CpuOnly => "CPU only",
        }
    }
}

/// What to plan for.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Context, batch and cache types; the micro-batch is searched.
    pub context: ContextParams,
    /// Micro-batches to try.
    pub micro_batches: Vec<u64>,
    /// Further cache types that may be tried, K and V alike: the quality policy allows them (`--allow-kv-quant`).
    pub cache_types: Vec<String>,
    /// What must be fast.
    pub goal: Goal,
    /// The request of the request goal.
    pub request: RequestShape,
    /// The prompt test predicted.
    pub prompt: TestSpec,
    /// The generation test predicted.
    pub generation: TestSpec,
}

/// Predicted speed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// Generated tokens per second.
    pub tg: f64,
    /// Prompt tokens per second.
    pub pp: f64,
}

/// One placement, judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Tier.
    pub tier: Tier,
    /// Placement.
    pub placement: Placement,
    /// Context, with its micro-batch.
    pub context: ContextParams,
    /// Devices in order, then the host.
    pub memory: Vec<DeviceMemory>,
    /// Predicted speed.
    pub predicted: Predicted,
    /// Seconds that what must be fast takes: the order of candidates.
    pub cost: f64,
    /// Weights are read from the disk for every token.
    pub streams: bool,
    /// Why it cannot run, each a sentence.
    pub misfits: Vec<String>,
}

impl Candidate {
    /// Can it run?
    pub fn fits(&self) -> bool {
        self.misfits.is_empty()
    }
}

/// Where compute buffers are alike: simulating one placement stands for all of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Resident,
    Layers,
    Class,
}

/// What a placement takes of one memory, in the quick estimate.
#[derive(Debug, Clone, Copy, Default)]
struct Need {
    weights: f64,
    rest: f64,
}

/// Judges placements of one model on one machine.
pub struct Planner<'a> {
    layout: &'a ModelLayout,
    footprint: Footprint,
    memories: &'a Memories,
    constants: &'a Constants,
    corrections: &'a Corrections,
    compute: RefCell<HashMap<(Kind, ContextParams), Vec<f64>>>,
}

impl<'a> Planner<'a> {
    /// A planner for a model on a machine, with what is known of both.
    pub fn new(
        layout: &'a ModelLayout,
        memories: &'a Memories,
        constants: &'a Constants,
        corrections: &'a Corrections,
    ) -> Self {
        Self {
            footprint: Footprint::of(layout),
            layout,
            memories,
            constants,
            corrections,
            compute: RefCell::default(),
        }
    }

    /// Every candidate that can run, the fastest first; hundreds of them.
    pub fn candidates(&self, ask: &Ask) -> Vec<Candidate> {
        let mut found = Vec::new();
        let own = (ask.context.type_k.clone(), ask.context.type_v.clone());
        let also = ask.cache_types.iter().map(|t| (t.clone(), t.clone()));
        for (type_k, type_v) in std::iter::once(own).chain(also) {
            for &micro_batch in &ask.micro_batches {
                let context = ContextParams {
                    micro_batch,
                    batch: ask.context.batch.max(micro_batch),
                    type_k: type_k.clone(),
                    type_v: type_v.clone(),
                    ..ask.context.clone()
                };
                for placement in self.placements(&context) {
                    found.push(self.quick(placement, &context, ask));
                }
            }
        }
        found.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        found
    }

    /// The fastest of each tier, exactly judged; the first is the plan.
    pub fn best(&self, ask: &Ask, of_each: usize) -> Vec<Candidate> {
        let mut counts: HashMap<Tier, usize> = HashMap::new();
        let mut best: Vec<Candidate> = Vec::new();
        for candidate in self.candidates(ask) {
            // Of one placement the fastest micro-batch stands for all.
            let same = |c: &Candidate| {
                c.placement == candidate.placement && c.context.type_k == candidate.context.type_k
            };
            if best.iter().any(same) {
                continue;
            }
            let count = counts.entry(candidate.tier).or_default();
            if *count == of_each {
                continue;
            }
            let exact = self.judge(&candidate.placement, &candidate.context, ask);
            if exact.fits() {
                *count += 1;
                best.push(exact);
            }
        }
        best
    }

    /// One step from a placement: a layer more or less on the devices, a layer's class more or less in RAM, the micro-batch
    /// doubled or halved. Those that fit, the fastest first.
    pub fn neighbours(&self, at: &Placement, context: &ContextParams, ask: &Ask) -> Vec<Candidate> {
        let all = self.footprint.n_layer() + 1;
        let mut steps = Vec::new();
        let mut step = |placement: Placement, micro_batch: u64| {
            let context = ContextParams {
                micro_batch,
                batch: context.batch.max(micro_batch),
                ..context.clone()
            };
            steps.push((placement, context));
        };
        let own = context.micro_batch;
        for micro_batch in [own * 2, own / 2] {
            if ask.micro_batches.contains(&micro_batch) {
                step(at.clone(), micro_batch);
            }
        }
        let offloaded = at.offloaded(all - 1, self.devices());
        let kept: u32 = at.host_tensors.iter().map(|k| k.layers.len() as u32).sum();
        for by in [-2i64, -1, 1, 2] {
            let moved = |n: u32| u32::try_from(i64::from(n) + by).ok().filter(|n| *n <= all);
            if at.n_cpu_moe == 0 && kept == 0 && self.devices() > 0 {
                let kind = Kind::Layers;
                let next = moved(offloaded).filter(|n| *n > 0);
                let spread = next.and_then(|n| self.spread(Placement::layers(n), kind, context));
                spread.into_iter().for_each(|p| step(p, own));
            } else if let Some(n) = moved(at.n_cpu_moe.max(kept)).filter(|n| *n > 0 && *n < all) {
                let split = self.class_split(self.host_class(), n, context);
                split.into_iter().for_each(|p| step(p, own));
            }
        }
        let judged = steps.iter().map(|(p, c)| self.judge(p, c, ask));
        let mut found: Vec<Candidate> = judged.filter(Candidate::fits).collect();
        found.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        found
    }

    /// One placement, exactly judged, whether it fits or not.
    pub fn judge(&self, placement: &Placement, context: &ContextParams, ask: &Ask) -> Candidate {
        let mut candidate = self.quick(placement.clone(), context, ask);
        candidate.memory = memory::memory(
            self.layout,
            placement,
            context,
            self.memories,
            self.corrections,
        );
        candidate.misfits = self.misfits(&candidate);
        candidate
    }

    /// Weights that RAM does not hold come from the disk; all else must fit.
    fn misfits(&self, candidate: &Candidate) -> Vec<String> {
        let streamed = |m: &&DeviceMemory| {
            let rest = m.total().saturating_sub(m.model());
            m.id == memory::HOST_ID && rest <= m.usable
        };
        let all = candidate.memory.iter().enumerate();
        all.filter(|(_, m)| !streamed(m))
            .filter_map(|(i, m)| m.misfit(i))
            .collect()
    }

    fn devices(&self) -> usize {
        self.memories.devices.len()
    }

    fn resolve(&self, placement: &Placement) -> Resolved {
        placement.resolve(self.footprint.n_layer(), self.devices())
    }

    fn quick(&self, placement: Placement, context: &ContextParams, ask: &Ask) -> Candidate {
        let homes = self.resolve(&placement);
        let setting = Setting {
            model: &self.footprint,
            homes: &homes,
            context,
            memories: self.memories,
        };
        let predict = |test| rate(setting, test, self.constants).unwrap_or(0.0);
        let predicted = Predicted {
            tg: predict(ask.generation),
            pp: predict(ask.prompt),
        };
        let cost = match ask.goal {
            Goal::Prompt => 1.0 / predicted.pp,
            Goal::Request => {
                let prompt = TestSpec::prompt(ask.request.prompt_tokens);
                f64::from(prompt.n_prompt) / predict(prompt)
                    + f64::from(ask.request.generated_tokens) / predicted.tg
            }
            Goal::Generation | Goal::Energy => 1.0 / predicted.tg,
        };
        let streams = setting.missing_share() > 0.0;
        Candidate {
            tier: self.tier(&homes, streams),
            placement,
            context: context.clone(),
            memory: Vec::new(),
            predicted,
            cost,
            streams,
            misfits: Vec::new(),
        }
    }

    fn tier(&self, homes: &Resolved, streams: bool) -> Tier {
        let on_host = |all: &[Home]| all.contains(&Home::Host);
        let on_device = |all: &[Home]| all.iter().any(|h| *h != Home::Host);
        if !on_device(&homes.layers) && homes.output == Home::Host {
            Tier::CpuOnly
        } else if streams {
            Tier::GpuRamSsd
        } else if on_host(&homes.layers) {
            Tier::SplitByLayer
        } else if on_host(&homes.feed_forward) || on_host(&homes.experts) || on_host(&homes.cache) {
            Tier::SplitByClass
        } else {
            Tier::GpuResident
        }
    }

    /// Placements that fit by the quick estimate, for one context.
    fn placements(&self, context: &ContextParams) -> Vec<Placement> {
        let mut found = vec![Placement::cpu_only()];
        if self.devices() == 0 {
            return found;
        }
        let all = self.footprint.n_layer() + 1;
        for layers in 1..=all {
            let kind = if layers == all {
                Kind::Resident
            } else {
                Kind::Layers
            };
            let placement = self.spread(Placement::layers(layers), kind, context);
            found.extend(placement);
        }
        let class = self.host_class();
        let most = self.footprint.n_layer();
        let fits = |kept: &u32| self.class_split(class, *kept, context).is_some();
        // Fewer layers in RAM need more of the device: what fits first is where the search begins.
        if let Some(least) = (1..=most).find(fits) {
            let steps = SPARE_STEPS.iter().map(|step| (least + step).min(most));
            let kept: std::collections::BTreeSet<u32> = steps.chain([most]).collect();
            found.extend(
                kept.iter()
                    .filter_map(|k| self.class_split(class, *k, context)),
            );
        }
        found
    }

    /// The class that goes to RAM in a split by class.
    fn host_class(&self) -> TensorClass {
        if self.layout.experts.is_some() {
            TensorClass::Experts
        } else {
            TensorClass::FeedForward
        }
    }

    /// Everything offloaded but a class of `kept` layers; with several devices of as many layers of each as its share.
    fn class_split(
        &self,
        class: TensorClass,
        kept: u32,
        context: &ContextParams,
    ) -> Option<Placement> {
        let n = self.footprint.n_layer();
        let mut placement = Placement::layers(n + 1);
        if class == TensorClass::Experts && self.devices() == 1 {
            placement.n_cpu_moe = kept;
        } else if self.devices() == 1 {
            let layers = (0..kept).collect();
            placement.host_tensors = vec![HostTensors { class, layers }];
        } else {
            return self.class_split_over(class, kept, context);
        }
        self.fits(&placement, Kind::Class, context)
            .then_some(placement)
    }

    /// Several devices (case C36): layers by the room each device has, and of each its own first layers' class in RAM.
    fn class_split_over(
        &self,
        class: TensorClass,
        kept: u32,
        context: &ContextParams,
    ) -> Option<Placement> {
        let n = self.footprint.n_layer();
        let rooms: Vec<f64> = self
            .memories
            .devices
            .iter()
            .map(|d| d.usable.0 as f64)
            .collect();
        let mut placement = Placement::layers(n + 1);
        placement.tensor_split = shares(&rooms, n + 1);
        let homes = self.resolve(&placement);
        let mut layers = Vec::new();
        for device in 0..self.devices() {
            let own: Vec<u32> = (0..n)
                .filter(|l| homes.layers[*l as usize] == Home::Device(device))
                .collect();
            let part = (own.len() as f64 * f64::from(kept) / f64::from(n)).ceil() as usize;
            layers.extend(own.into_iter().take(part));
        }
        placement.host_tensors = vec![HostTensors { class, layers }];
        self.fits(&placement, Kind::Class, context)
            .then_some(placement)
    }

    /// The same number of layers spread over the devices so that each has room, the fastest filled first.
    fn spread(
        &self,
        mut placement: Placement,
        kind: Kind,
        context: &ContextParams,
    ) -> Option<Placement> {
        if self.devices() == 1 {
            return self.fits(&placement, kind, context).then_some(placement);
        }
        let layers = placement.offloaded(self.footprint.n_layer(), self.devices());
        let mut counts = self.fill(&placement, kind, context, layers)?;
        for _ in 0..=layers {
            placement.tensor_split = counts.iter().map(|c| f64::from(*c)).collect();
            let over = self.over(&placement, kind, context);
            let Some(full) = over.iter().position(|o| *o > 0.0) else {
                return Some(placement);
            };
            // What is too much moves to where most room is left.
            let free = (0..counts.len()).min_by(|a, b| over[*a].total_cmp(&over[*b]))?;
            if over[free] > 0.0 || counts[full] == 0 {
                return None;
            }
            counts[full] -= 1;
            counts[free] += 1;
        }
        None
    }

    /// Layers per device, by the mean size of the offloaded ones: the fastest devices first.
    fn fill(
        &self,
        placement: &Placement,
        kind: Kind,
        context: &ContextParams,
        layers: u32,
    ) -> Option<Vec<u32>> {
        let needs = self.needs(placement, kind, context);
        let (host, devices) = needs.split_last()?;
        let _ = host;
        let all: f64 = devices.iter().map(|n| n.weights).sum();
        let each = (all / f64::from(layers)).max(1.0);
        let compute = self.compute_of(kind, context);
        let mut order: Vec<usize> = (0..self.devices()).collect();
        let secs = |i: &usize| {
            self.constants
                .get(&Constant::DeviceRead(*i))
                .map_or(0.0, |k| k.seconds)
        };
        order.sort_by(|a, b| secs(a).total_cmp(&secs(b)));
        let mut counts = vec![0; self.devices()];
        let mut left = layers;
        for i in order {
            let room =
                self.memories.devices[i].usable.0 as f64 - compute.get(i).copied().unwrap_or(0.0);
            let take = ((room / each).floor().max(0.0) as u32).min(left);
            counts[i] = take;
            left -= take;
        }
        (left == 0).then_some(counts)
    }

    fn fits(&self, placement: &Placement, kind: Kind, context: &ContextParams) -> bool {
        self.over(placement, kind, context)
            .iter()
            .all(|o| *o <= 0.0)
    }

    /// Bytes each device lacks (or has left, negative).
    fn over(&self, placement: &Placement, kind: Kind, context: &ContextParams) -> Vec<f64> {
        let needs = self.needs(placement, kind, context);
        let devices = self.memories.devices.iter();
        devices
            .zip(needs)
            .map(|(d, need)| need.weights + need.rest - d.usable.0 as f64)
            .collect()
    }

    /// Devices, then the host.
    fn needs(&self, placement: &Placement, kind: Kind, context: &ContextParams) -> Vec<Need> {
        let homes = self.resolve(placement);
        let n = self.devices();
        let at = |home: Home| match home {
            Home::Device(i) => i,
            Home::Host => n,
        };
        let mut needs = vec![Need::default(); n + 1];
        for (home, _, part) in self.footprint.parts(&homes) {
            needs[at(home)].weights += part.bytes;
        }
        for (shape, home) in self.layout.layers.iter().zip(&homes.cache) {
            let parts = memory::layer_parts(context, shape);
            needs[at(*home)].rest += parts.iter().sum::<u64>() as f64;
        }
        for (need, compute) in needs.iter_mut().zip(self.compute_of(kind, context)) {
            need.rest += compute;
        }
        needs
    }

    /// Compute buffers of a kind of placement, simulated once per context.
    fn compute_of(&self, kind: Kind, context: &ContextParams) -> Vec<f64> {
        let key = (kind, context.clone());
        if let Some(known) = self.compute.borrow().get(&key) {
            return known.clone();
        }
        let n = self.footprint.n_layer();
        let half = n.div_ceil(2);
        let mut placement = match kind {
            Kind::Resident => Placement::layers(n + 1),
            Kind::Layers => Placement::layers(half),
            Kind::Class => Placement {
                host_tensors: vec![HostTensors {
                    class: self.host_class(),
                    layers: (0..half).collect(),
                }],
                ..Placement::layers(n + 1)
            },
        };
        if self.devices() > 1 {
            placement.tensor_split = vec![1.0; self.devices()];
        }
        let memory = memory::memory(
            self.layout,
            &placement,
            context,
            self.memories,
            self.corrections,
        );
        let compute: Vec<f64> = memory
            .iter()
            .map(|m| (m.compute.0 + m.output.0) as f64)
            .collect();
        self.compute.borrow_mut().insert(key, compute.clone());
        compute
    }
}

/// `total` layers in proportion to `rooms`, whole, the remainder to the largest.
fn shares(rooms: &[f64], total: u32) -> Vec<f64> {
    let sum: f64 = rooms.iter().sum();
    let mut counts: Vec<f64> = rooms
        .iter()
        .map(|r| (r / sum * f64::from(total)).floor())
        .collect();
    let given: f64 = counts.iter().sum();
    if let Some(largest) = (0..rooms.len()).max_by(|a, b| rooms[*a].total_cmp(&rooms[*b])) {
        counts[largest] += f64::from(total) - given;
    }
    counts
}

/// What of a machine's memory a plan may use: at most `limit`, and `reserve` less than is free.
pub fn usable(free: Bytes, reserve: Bytes, limit: Option<Bytes>) -> Bytes {
    let room = free.saturating_sub(reserve);
    limit.map_or(room, |limit| room.min(limit))
}
