//! Everything measured on a machine in one fit (paper section 5): the machine's constants from the runs of all models, then
//! those of the model that is asked for, which pull the constants it can tell towards itself.

use crate::domain::text::count;
use crate::domain::types::{Bytes, TestSamples};

use super::devices::Memories;
use super::fit::{Fit, Observation, fit};
use super::footprint::{Footprint, INDEPENDENT};
use super::layout::ModelLayout;
use super::learn::{is_of, model_of, observations, usual_threads};
use super::speed::{Constant, Constants, Known, Status};

/// Values of [`Constant::ExpertSpread`] that are tried, besides independent choice.
const SPREADS: std::ops::RangeInclusive<u32> = 1..=9;
/// … each in this many parts of one.
const SPREAD_PARTS: f64 = 10.0;
/// A spread is told from independent choice when it leaves at most this share of the squared errors of the model's prompts:
/// what it explains must outweigh what stays unexplained.
const SPREAD_LEAVES: f64 = 0.5;
/// … and by this many prompts, so that it is not one run's error.
const SPREAD_RUNS: usize = 3;

/// Models smaller than this fit in the last-level caches of large processors and cards.
const SMALLEST_TOLD: Bytes = Bytes::mib(128);
/// Runs of another model that a fit of their own leaves further apart than this, percent, were disturbed.
const MOST_APART_PCT: f64 = 30.0;

/// A fit to everything measured on a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Pooled {
    /// Constants for the model asked for, with residuals of its own runs.
    pub fit: Fit,
    /// Benchmarks it rests on, by model, the one asked for first.
    pub runs: Vec<(String, usize)>,
    /// Why records were left out, each a sentence, each once.
    pub left_out: Vec<String>,
}

/// One model with its records.
struct Measured<'a> {
    layout: &'a ModelLayout,
    records: Vec<TestSamples>,
    footprint: Footprint,
    observations: Vec<Observation>,
}

impl Measured<'_> {
    /// Reads the records again, with another spread; returns why some are left out.
    fn read(&mut self, spread: f64, threads: Option<u64>, memories: &Memories) -> Vec<String> {
        self.footprint.spread = spread;
        let learned = observations(
            &self.records,
            threads,
            self.layout,
            &self.footprint,
            memories,
        );
        self.observations = learned.observations;
        learned.left_out
    }
}

/// Fits the constants of a machine to `records` for `own`; `others` are further models that records may be of.
pub fn pooled(
    records: &[TestSamples],
    own: &ModelLayout,
    others: &[ModelLayout],
    memories: &Memories,
    priors: &Constants,
) -> Pooled {
    let mut left_out = unknown(records, own, others);
    let of = |layout| -> Vec<TestSamples> {
        let known = records.iter().filter(|r| is_of(&r.record, layout));
        known.cloned().collect()
    };
    let own_records = of(own);
    let threads = usual_threads(if own_records.is_empty() {
        records
    } else {
        &own_records
    });
    let mut models: Vec<Measured> = std::iter::once(own)
        .chain(others)
        .map(|layout| Measured {
            layout,
            records: of(layout),
            footprint: Footprint::of(layout),
            observations: Vec::new(),
        })
        .collect();
    for model in &mut models {
        for why in model.read(INDEPENDENT, threads, memories) {
            if !left_out.contains(&why) {
                left_out.push(why);
            }
        }
    }
    for model in &mut models[1..] {
        if let Some(why) = silent(model, priors) {
            model.observations.clear();
            left_out.push(why);
        }
    }
    for index in 0..models.len() {
        spread(&mut models, index, threads, memories, priors);
    }
    let mut fit = judged(&models, priors);
    let own = &models[0];
    if own.footprint.expert_share < 1.0 {
        fit.constants.insert(
            Constant::ExpertSpread,
            told(&own.footprint, own.observations.len()),
        );
    }
    let runs = models.iter().filter(|m| !m.observations.is_empty());
    Pooled {
        runs: runs
            .map(|m| (m.layout.info.name.clone(), m.observations.len()))
            .collect(),
        fit,
        left_out,
    }
}

/// Why another model's runs say nothing of this machine's memories; `None` where they do, or where there are none.
fn silent(model: &Measured, priors: &Constants) -> Option<String> {
    if model.observations.is_empty() {
        return None;
    }
    let name = &model.layout.info.name;
    if model.layout.info.file_bytes < SMALLEST_TOLD {
        return Some(format!(
            "runs of {name} are left out: caches hold a model of less than {SMALLEST_TOLD}, so it tells nothing of memory"
        ));
    }
    let apart = fit(&model.observations, priors).mean_abs_error_pct(false)?;
    (apart > MOST_APART_PCT).then(|| {
        format!("runs of {name} are left out: they are {apart:.0} % apart from any one speed of this machine")
    })
}

/// The fit to all runs, and to the first model's with what all said as what is known.
fn judged(models: &[Measured], priors: &Constants) -> Fit {
    let (own, others) = (&models[0].observations, &models[1..]);
    if others.iter().all(|m| m.observations.is_empty()) {
        return fit(own, priors);
    }
    fit(own, &all(models, priors).constants)
}

fn all(models: &[Measured], priors: &Constants) -> Fit {
    let observations: Vec<Observation> = models
        .iter()
        .flat_map(|m| m.observations.iter().cloned())
        .collect();
    fit(&observations, priors)
}

/// Chooses a model's spread by how well its prompts are then predicted, and leaves its observations as they are with it.
fn spread(
    models: &mut [Measured],
    index: usize,
    threads: Option<u64>,
    memories: &Memories,
    priors: &Constants,
) {
    let model = &models[index];
    let prompts = model.observations.iter().filter(|o| o.prompt).count();
    if model.footprint.expert_share >= 1.0 || prompts < SPREAD_RUNS {
        return;
    }
    let mut errors = |spread| {
        models[index].read(spread, threads, memories);
        let constants = all(models, priors).constants;
        let own = models[index].observations.iter().filter(|o| o.prompt);
        own.map(|o| (o.seconds / o.work.seconds(&constants) - 1.0).powi(2))
            .sum::<f64>()
    };
    let independent = errors(INDEPENDENT);
    let best = SPREADS
        .map(|part| f64::from(part) / SPREAD_PARTS)
        .map(|spread| (spread, errors(spread)))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    let found = best.filter(|(_, left)| *left < independent * SPREAD_LEAVES);
    let spread = found.map_or(INDEPENDENT, |(spread, _)| spread);
    models[index].read(spread, threads, memories);
}

/// How a model's spread is known.
fn told(footprint: &Footprint, runs: usize) -> Known {
    let independent = footprint.spread >= INDEPENDENT;
    Known {
        seconds: footprint.spread,
        status: if independent {
            Status::Assumed
        } else {
            Status::Fitted
        },
        origin: if independent {
            "assumed: tokens choose experts by themselves".to_owned()
        } else {
            format!("fitted to {} of this model", count(runs as u64, "run"))
        },
    }
}

/// Records of models that are not here.
fn unknown(records: &[TestSamples], own: &ModelLayout, others: &[ModelLayout]) -> Vec<String> {
    let mut found = Vec::new();
    for samples in records {
        let known = std::iter::once(own).chain(others);
        if known.into_iter().any(|l| is_of(&samples.record, l)) {
            continue;
        }
        let model = model_of(&samples.record);
        let why = format!("records of {model} are left out: no file of that model is known here");
        if !found.contains(&why) {
            found.push(why);
        }
    }
    found
}
