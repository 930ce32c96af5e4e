//! The candidates of the five tiers (paper section 5): hundreds of placements judged by memory and predicted speed, with the
//! micro-batch and the host's share of the experts searched together.

mod search;

use std::cell::RefCell;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::domain::types::{Bytes, Goal, RequestShape, TestSpec};

use super::assignment::{ContextParams, Home, Placement, Resolved};
use super::devices::Memories;
use super::footprint::Footprint;
use super::layout::ModelLayout;
use super::memory::{self, Corrections, DeviceMemory};
use super::speed::{Constants, Setting, rate};
use search::Kind;

/// Micro-batches tried: from where llama.cpp's kernels fill a small card to where larger ones stop to pay.
pub const MICRO_BATCHES: [u64; 5] = [128, 256, 512, 1024, 2048];

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

impl Ask {
    /// Is this micro-batch smaller than stock's where generation counts? It leaves room for a layer more and costs more of
    /// the prompt speed than the goal's guard allows: on an H200, 128 instead of 512 read prompts at a quarter of the speed.
    fn harms_prompts(&self, micro_batch: u64) -> bool {
        let generates = matches!(self.goal, Goal::Generation | Goal::Energy);
        generates && micro_batch < self.context.micro_batch
    }
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
            footprint: Footprint::of(layout).with_spread(constants),
            layout,
            memories,
            constants,
            corrections,
            compute: RefCell::default(),
        }
    }

    /// Every candidate that can run, the fastest first; hundreds of them.
    pub fn candidates(&self, ask: &Ask) -> Vec<Candidate> {
        sparing_prompts(|small| self.listed(ask, small))
    }

    /// The fastest of each tier, exactly judged; the first is the plan.
    pub fn best(&self, ask: &Ask, of_each: usize) -> Vec<Candidate> {
        sparing_prompts(|small| self.best_of(self.listed(ask, small), ask, of_each))
    }

    /// Candidates of every cache type and micro-batch asked for, those that harm prompts only if `small`.
    fn listed(&self, ask: &Ask, small: bool) -> Vec<Candidate> {
        let mut found = Vec::new();
        let own = (ask.context.type_k.clone(), ask.context.type_v.clone());
        let also = ask.cache_types.iter().map(|t| (t.clone(), t.clone()));
        for (type_k, type_v) in std::iter::once(own).chain(also) {
            let sizes = ask.micro_batches.iter().copied();
            for micro_batch in sizes.filter(|n| small || !ask.harms_prompts(*n)) {
                let context = ContextParams {
                    type_k: type_k.clone(),
                    type_v: type_v.clone(),
                    micro_batch,
                    batch: ask.context.batch.max(micro_batch),
                    ..ask.context.clone()
                };
                let placements = self.placements(&context).into_iter();
                found.extend(placements.map(|p| self.quick(p, &context, ask, self.memories)));
            }
        }
        found.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        found
    }

    fn best_of(&self, among: Vec<Candidate>, ask: &Ask, of_each: usize) -> Vec<Candidate> {
        let mut counts: HashMap<Tier, usize> = HashMap::new();
        let mut best: Vec<Candidate> = Vec::new();
        for candidate in among {
            // Of one placement the fastest micro-batch stands for all, and weights are repacked where they can be.
            let repacking = |p: &Placement| Placement {
                no_repack: false,
                ..p.clone()
            };
            let same = |c: &Candidate| {
                repacking(&c.placement) == repacking(&candidate.placement)
                    && c.context.type_k == candidate.context.type_k
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
        // What exactly stays for weights in RAM may slow a candidate down.
        best.sort_by(|a, b| a.cost.total_cmp(&b.cost));
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
            let is_better = micro_batch > own || !ask.harms_prompts(micro_batch);
            if ask.micro_batches.contains(&micro_batch) && is_better {
                step(at.clone(), micro_batch);
            }
        }
        let offloaded = at.offloaded(all - 1, self.devices());
        let kept: u32 = at.host_tensors.iter().map(|k| k.layers.len() as u32).sum();
        // Without a device there is nowhere to move a layer to.
        let moves: &[i64] = if self.devices() > 0 {
            &[-2, -1, 1, 2]
        } else {
            &[]
        };
        for by in moves {
            let moved = |n: u32| u32::try_from(i64::from(n) + by).ok().filter(|n| *n <= all);
            if at.n_cpu_moe == 0 && kept == 0 {
                let kind = Kind::Layers;
                let next = moved(offloaded).filter(|n| *n > 0);
                let spread = next.and_then(|n| self.spread(Placement::layers(n), kind, context));
                if let Some(placement) = spread {
                    step(placement, own);
                }
            } else if let Some(n) = moved(at.n_cpu_moe.max(kept)).filter(|n| *n > 0 && *n < all) {
                let split = self.class_split(self.host_class(), n, context);
                if let Some(placement) = split {
                    step(placement, own);
                }
            }
        }
        // A step may be too small to move a layer of any device.
        let mut seen: Vec<(Placement, ContextParams)> = Vec::new();
        steps.retain(|step| {
            let is_new = (&step.0, &step.1) != (at, context) && !seen.contains(step);
            seen.extend(is_new.then(|| step.clone()));
            is_new
        });
        let judged = steps.iter().map(|(p, c)| self.judge(p, c, ask));
        let mut found: Vec<Candidate> = judged.filter(Candidate::fits).collect();
        found.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        found
    }

    /// One placement, exactly judged, whether it fits or not.
    pub fn judge(&self, placement: &Placement, context: &ContextParams, ask: &Ask) -> Candidate {
        let memory = memory::memory(
            self.layout,
            placement,
            context,
            self.memories,
            self.corrections,
        );
        // Weights have the room in RAM that cache and buffers leave: only they can be read again from the disk.
        let mut left = self.memories.clone();
        for host in memory.iter().filter(|m| m.id == memory::HOST_ID) {
            let rest = host.total().saturating_sub(host.model());
            left.host.usable = left.host.usable.saturating_sub(rest);
        }
        let mut candidate = self.quick(placement.clone(), context, ask, &left);
        candidate.memory = memory;
        candidate.misfits = Self::misfits(&candidate);
        // Weights that a device cannot take are in RAM too: what does not fit there is read from the disk, or is a misfit.
        let mut hosts = candidate.memory.iter().filter(|m| m.id == memory::HOST_ID);
        candidate.streams |= candidate.misfits.is_empty() && hosts.any(|m| m.excess() > Bytes(0));
        candidate
    }

    /// Weights that RAM does not hold come from the disk, but for repacked ones; all else must fit.
    fn misfits(candidate: &Candidate) -> Vec<String> {
        let streamed = |m: &&DeviceMemory| {
            let rest = m.total().saturating_sub(m.model());
            m.id == memory::HOST_ID && Bytes(rest.0 + m.repacked.0) <= m.usable
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

    /// By the speed alone, with the room of these memories.
    fn quick(
        &self,
        placement: Placement,
        context: &ContextParams,
        ask: &Ask,
        memories: &Memories,
    ) -> Candidate {
        let homes = self.resolve(&placement);
        let setting = Setting {
            model: &self.footprint,
            homes: &homes,
            context,
            memories,
            repacked: memory::repacked_bytes(self.layout, &placement, memories) as f64,
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
            tier: Self::tier(&homes, streams),
            placement,
            context: context.clone(),
            memory: Vec::new(),
            predicted,
            cost,
            streams,
            misfits: Vec::new(),
        }
    }

    fn tier(homes: &Resolved, streams: bool) -> Tier {
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
}

/// What is found without micro-batches that harm prompts. Where that leaves no device in use, since buffers of stock's size
/// take its room or since there is none, slow prompts are the price of generating faster.
fn sparing_prompts(found: impl Fn(bool) -> Vec<Candidate>) -> Vec<Candidate> {
    let sparing = found(false);
    if sparing.iter().any(|c| c.tier != Tier::CpuOnly) {
        sparing
    } else {
        found(true)
    }
}

/// What of a machine's memory a plan may use: at most `limit`, and `reserve` less than is free.
pub fn usable(free: Bytes, reserve: Bytes, limit: Option<Bytes>) -> Bytes {
    let room = free.saturating_sub(reserve);
    limit.map_or(room, |limit| room.min(limit))
}
