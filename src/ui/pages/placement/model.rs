//! What is known of a model on this machine, and what is computed of it: candidates, exact memory, speed at other contexts.

use crate::chart::{GrowthStep, ScatterDot};
use crate::domain::placement::assignment::{ContextParams, Placement};
use crate::domain::placement::devices::Memories;
use crate::domain::placement::edit::Hand;
use crate::domain::placement::footprint::Footprint;
use crate::domain::placement::memory::repacked_bytes;
use crate::domain::placement::planner::{Ask, Candidate, Planner, Predicted};
use crate::domain::placement::speed::{Setting, rate};
use crate::domain::placement::words as words_of;
use crate::domain::stats::{Summary, upper_quantile};
use crate::domain::types::Bytes;
use crate::engine::Ports;
use crate::engine::message::JobError;
use crate::engine::plan::{self, MeasuredPlacement, PlanBase, PlanRequest};
use crate::engine::settings::PLACEMENT;

use super::words;

/// Candidates of each tier in the table.
const OF_EACH_TIER: usize = 2;
/// Confidence of the measured means' intervals.
const CONFIDENCE: f64 = 0.95;
/// Shortest context of the growth chart, tokens.
const SHORTEST: u64 = 2048;
/// Longest, tokens: beyond it few machines go, and each one costs a simulated allocation.
const LONGEST: u64 = 131_072;

/// What of the machine may be used.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// Most device memory, of each device.
    pub vram: Option<Bytes>,
    /// Most RAM.
    pub ram: Option<Bytes>,
    /// Caches of reduced precision may be used.
    pub allow_kv_quant: bool,
}

/// A placement with its context.
#[derive(Debug, Clone, PartialEq)]
pub struct Looked {
    /// Where everything goes.
    pub placement: Placement,
    /// Context, micro-batch, cache types.
    pub context: ContextParams,
}

/// What an answer was given for.
pub type Key = (Looked, Limits);

/// The base of a plan, with what is added up once.
#[derive(Debug)]
pub struct Model {
    /// What the plan rests on.
    pub base: PlanBase,
    /// The model by layer and class.
    pub footprint: Footprint,
    /// How a placement of it is changed.
    pub hand: Hand,
    /// Placements that stored profiles of this model on this machine apply: each won its confirmation.
    pub confirmed: Vec<Looked>,
}

/// One row of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// The candidate, exactly judged.
    pub candidate: Candidate,
    /// Measured generation.
    pub measured: Option<Measured>,
    /// It won a confirmation here.
    pub confirmed: bool,
    /// What a user without Flux gets, where it does not fit.
    pub stock: bool,
}

/// Measured generation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Mean over runs, tokens per second.
    pub mean: f64,
    /// Half of its 95 % interval; `None` of a single run.
    pub half_width: Option<f64>,
    /// Runs.
    pub runs: usize,
}

/// The table, and the points of predicted against measured.
#[derive(Debug, Default)]
pub struct Rows {
    /// The fastest first.
    pub rows: Vec<Row>,
    /// Measured placements of this model.
    pub dots: Vec<ScatterDot>,
}

impl Model {
    /// Reads it for a request.
    ///
    /// # Errors
    /// As [`plan::base`]; the store cannot be read.
    pub fn read(request: &PlanRequest, ports: &Ports) -> Result<Self, JobError> {
        let base = plan::base(request, ports)?;
        let profiles = ports.store.profiles()?.into_iter();
        let own = profiles.filter(|p| {
            p.model_digest == base.layout.info.digest && p.fingerprint == base.fingerprint.hash
        });
        let confirmed = own
            .filter_map(|p| words_of::parse(p.settings.0.get(PLACEMENT)?, &base.ask.context).ok())
            .map(|w| Looked {
                placement: w.placement,
                context: w.context,
            });
        Ok(Self {
            footprint: Footprint::of(&base.layout).with_spread(&base.fit.constants),
            hand: Hand::of(&base.layout, base.memories.devices.len()),
            confirmed: confirmed.collect(),
            base,
        })
    }

    /// Did this placement win a confirmation, whatever the context was?
    fn is_confirmed(&self, looked: &Looked) -> bool {
        let (n, devices) = (self.hand.n_layer, self.hand.devices);
        self.confirmed.iter().any(|c| {
            c.placement.resolve(n, devices) == looked.placement.resolve(n, devices)
                && c.context.micro_batch == looked.context.micro_batch
                && c.context.type_k == looked.context.type_k
        })
    }

    /// The machine's memories with no more than `limits` of them.
    pub fn memories(&self, limits: &Limits) -> Memories {
        let mut memories = self.base.memories.clone();
        let least = |usable: Bytes, limit: Option<Bytes>| limit.map_or(usable, |l| l.min(usable));
        for device in &mut memories.devices {
            device.usable = least(device.usable, limits.vram);
        }
        memories.host.usable = least(memories.host.usable, limits.ram);
        memories
    }

    /// Predicted speed: a sum over layers and classes, quick enough for a frame.
    pub fn predicted(&self, (looked, limits): &Key) -> Predicted {
        let memories = self.memories(limits);
        self.rates(looked, &memories, 0)
    }

    fn rates(&self, looked: &Looked, memories: &Memories, depth: u32) -> Predicted {
        let (n, devices) = (self.footprint.n_layer(), memories.devices.len());
        let homes = looked.placement.resolve(n, devices);
        let setting = Setting {
            model: &self.footprint,
            homes: &homes,
            context: &looked.context,
            memories,
            repacked: repacked_bytes(&self.base.layout, &looked.placement, memories) as f64,
        };
        let of = |test| rate(setting, test, &self.base.fit.constants).unwrap_or(0.0);
        Predicted {
            tg: of(self.base.ask.generation.at_depth(depth)),
            pp: of(self.base.ask.prompt.at_depth(depth)),
        }
    }

    fn planner<'a>(&'a self, memories: &'a Memories) -> Planner<'a> {
        let base = &self.base;
        Planner::new(
            &base.layout,
            memories,
            &base.fit.constants,
            &base.corrections,
        )
    }

    /// Exactly judged.
    pub fn judge(&self, (looked, limits): &Key) -> Candidate {
        let memories = self.memories(limits);
        self.planner(&memories)
            .judge(&looked.placement, &looked.context, &self.base.ask)
    }

    /// What was measured of a placement.
    pub fn measured(&self, looked: &Looked) -> Option<Measured> {
        let found = self.base.measured_of(&looked.placement, &looked.context)?;
        Measured::of(&found.tg)
    }

    /// The best of each tier, then what else was measured, then stock where it does not fit.
    /// The table of candidates.
    pub fn rows(&self, ask: &Ask, limits: &Limits) -> Rows {
        let memories = self.memories(limits);
        let planner = self.planner(&memories);
        let mut found = planner.best(ask, OF_EACH_TIER);
        for m in &self.base.measured {
            let known = |c: &Candidate| m.is(&c.placement, &c.context, &self.base.layout);
            if !m.tg.is_empty() && !found.iter().any(known) {
                found.push(planner.judge(&m.placement, &at_context(m, ask), ask));
            }
        }
        let mut rows: Vec<Row> = found
            .into_iter()
            .map(|candidate| {
                let looked = Looked {
                    placement: candidate.placement.clone(),
                    context: candidate.context.clone(),
                };
                Row {
                    measured: self.measured(&looked),
                    confirmed: self.is_confirmed(&looked),
                    candidate,
                    stock: false,
                }
            })
            .collect();
        rows.sort_by(|a, b| a.candidate.cost.total_cmp(&b.candidate.cost));
        let stock = planner.judge(&Placement::default(), &ask.context, ask);
        if !stock.fits() {
            rows.push(Row {
                candidate: stock,
                measured: None,
                confirmed: false,
                stock: true,
            });
        }
        Rows {
            rows,
            dots: self.dots(&memories, ask),
        }
    }

    fn dots(&self, memories: &Memories, ask: &Ask) -> Vec<ScatterDot> {
        let dot = |m: &MeasuredPlacement| {
            let measured = Measured::of(&m.tg)?;
            let looked = Looked {
                placement: m.placement.clone(),
                context: at_context(m, ask),
            };
            Some(ScatterDot {
                label: words::placed(self, &looked),
                predicted: self.rates(&looked, memories, 0).tg,
                measured: measured.mean,
                half_width: measured.half_width,
            })
        };
        self.base.measured.iter().filter_map(dot).collect()
    }

    /// Speed at the end of longer and shorter contexts; where the placement does not fit, of the nearest that does.
    pub fn growth(&self, (looked, limits): &Key) -> Vec<GrowthStep> {
        let memories = self.memories(limits);
        let planner = self.planner(&memories);
        let mut more = 0;
        let mut steps = Vec::new();
        for context in self.contexts(looked.context.context) {
            let now = context == looked.context.context;
            let at = |less: u32| Looked {
                placement: self.hand.with_less_on_devices(&looked.placement, less),
                context: ContextParams {
                    context,
                    ..looked.context.clone()
                },
            };
            let fits = |less: u32| {
                let at = at(less);
                planner
                    .judge(&at.placement, &at.context, &self.base.ask)
                    .fits()
            };
            let most = self.hand.blocks(&looked.placement);
            let Some(least) = first_that(more, most, fits) else {
                break;
            };
            more = least;
            let at = at(more);
            let depth = u32::try_from(context)
                .unwrap_or(u32::MAX)
                .saturating_sub(self.base.ask.generation.n_gen);
            steps.push(GrowthStep {
                context,
                rate: self.rates(&at, &memories, depth).tg,
                note: (more > 0).then(|| words::must_move(self, looked, more)),
                now,
            });
        }
        steps
    }

    /// Doublings up to what the model was made for, with the one in use among them.
    fn contexts(&self, now: u64) -> Vec<u64> {
        let longest = self
            .base
            .layout
            .info
            .context_length
            .unwrap_or(LONGEST)
            .min(LONGEST);
        let doublings = std::iter::successors(Some(SHORTEST), |c| Some(c * 2));
        let mut all: Vec<u64> = doublings
            .take_while(|c| *c <= longest)
            .chain([now])
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// A record does not tell the context that was allocated: what is asked for stands in.
fn at_context(measured: &MeasuredPlacement, ask: &Ask) -> ContextParams {
    ContextParams {
        context: ask.context.context,
        ..measured.context.clone()
    }
}

/// The least of `from..=to` that passes, where all after it pass too.
fn first_that(from: u32, to: u32, passes: impl Fn(u32) -> bool) -> Option<u32> {
    if passes(from) {
        return Some(from);
    }
    if from >= to || !passes(to) {
        return None;
    }
    let (mut fails, mut passed) = (from, to);
    while passed - fails > 1 {
        let middle = fails.midpoint(passed);
        if passes(middle) {
            passed = middle;
        } else {
            fails = middle;
        }
    }
    Some(passed)
}

impl Measured {
    fn of(rates: &[f64]) -> Option<Self> {
        if rates.is_empty() {
            return None;
        }
        let summary = Summary::of(rates);
        let quantile = || upper_quantile(f64::midpoint(1.0, CONFIDENCE), (summary.n - 1) as f64);
        let half_width = summary
            .sd
            .and_then(|sd| Some(sd / (summary.n as f64).sqrt() * quantile()?));
        Some(Self {
            mean: summary.mean,
            half_width,
            runs: summary.n,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_fits_is_found() {
        assert_eq!(first_that(0, 40, |n| n >= 17), Some(17));
        assert_eq!(first_that(20, 40, |n| n >= 17), Some(20));
        assert_eq!(first_that(0, 10, |n| n >= 10), Some(10));
        assert_eq!(first_that(0, 10, |_| false), None);
        assert_eq!(first_that(3, 3, |_| false), None);
    }

    #[test]
    fn a_mean_has_students_interval() {
        // t(0.975, 2) = 4.303; sd of 7, 8, 9 is 1: 4.303 / √3 = 2.484.
        let measured = Measured::of(&[7.0, 8.0, 9.0]).unwrap();
        assert!((measured.half_width.unwrap() - 2.484).abs() < 1e-3);
        assert_eq!(Measured::of(&[7.0]).unwrap().half_width, None);
        assert_eq!(Measured::of(&[]), None);
    }
}
