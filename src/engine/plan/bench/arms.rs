//! What a benchmark measures beside stock: llama.cpp's own fitting, the best predictions, the neighbours of the fastest.

use crate::domain::placement::planner::{Candidate, Tier};
use crate::domain::placement::words::{FIT, fitting};
use crate::domain::search::Tool;
use crate::domain::types::Settings;
use crate::engine::message::JobError;
use crate::engine::plan::document::{MORE_ROOM, args, why_nothing};
use crate::engine::plan::{PlanBase, PlanRequest};
use crate::engine::settings::PLACEMENT;

use super::arm::ArmResult;

/// Predictions measured before the neighbours: one of each tier at most.
pub(super) const FIRST: usize = 4;
/// Neighbours of the fastest that are measured.
pub(super) const NEIGHBOURS: usize = 3;
/// A tier whose best is predicted this many times slower than the plan is not worth its time.
const TOO_SLOW: f64 = 8.0;

/// llama.cpp's fitting, with as much left free as the forced budget leaves of the smallest device.
pub(super) fn fit_within(request: &PlanRequest, base: &PlanBase) -> String {
    let least = base.memories.devices.iter().map(|d| d.total).min();
    match request.vram_limit.zip(least) {
        Some((limit, total)) => {
            let margin = total.saturating_sub(limit).as_mib().ceil();
            format!("{FIT}={margin:.0}")
        }
        None => FIT.to_owned(),
    }
}

/// The words of a placement of ours; `None` of stock and of llama.cpp's own fitting.
pub(super) fn own_words(settings: &Settings) -> Option<&str> {
    let words = settings.0.get(PLACEMENT)?;
    fitting(words).is_none().then_some(words)
}

/// The settings that are a placement.
pub(super) fn placed(text: &str) -> Settings {
    Settings::stock().with(PLACEMENT, text)
}

/// The best of each tier that is worth measuring, the plan first.
///
/// # Errors
/// None fits; this build's llama-bench can run none of them.
pub(super) fn first(base: &PlanBase) -> Result<Vec<Candidate>, JobError> {
    let mut tiers: Vec<Tier> = Vec::new();
    let mut chosen: Vec<Candidate> = Vec::new();
    let mut unable = None;
    for candidate in base.best() {
        if let Err(error) = args(&candidate, base, Tool::Bench) {
            unable = unable.or(Some(error));
            continue;
        }
        let slow = chosen
            .first()
            .is_some_and(|best| candidate.cost > best.cost * TOO_SLOW);
        if tiers.contains(&candidate.tier) || slow || chosen.len() == FIRST {
            continue;
        }
        tiers.push(candidate.tier);
        chosen.push(candidate);
    }
    match unable {
        Some(error) if chosen.is_empty() => Err(error),
        None if chosen.is_empty() => Err(nothing_fits(base)),
        _ => Ok(chosen),
    }
}

fn nothing_fits(base: &PlanBase) -> JobError {
    let why = why_nothing(base, true).join("; ");
    let told = "no placement of this model fits the memory that may be used";
    JobError::new(
        "nothing-fits",
        format!("{told}: with everything in RAM {why}"),
    )
    .hint(MORE_ROOM)
}

/// Candidates one step from the fastest that are not measured yet, by what the recalibrated model says.
pub(super) fn neighbours(
    base: &PlanBase,
    best: &ArmResult,
    measured: &[ArmResult],
) -> Vec<Candidate> {
    let Some(text) = best.settings.0.get(PLACEMENT) else {
        return Vec::new();
    };
    let Ok(at) = base.predict(text) else {
        return Vec::new();
    };
    let planner = base.planner();
    let mut near = planner.neighbours(&at.placement, &at.context, &base.ask);
    let texts = measured.iter().filter_map(|m| m.settings.0.get(PLACEMENT));
    let ran: Vec<Candidate> = texts.filter_map(|t| base.predict(t).ok()).collect();
    // Micro-batches that hold the whole prompt do the same work (case C43).
    let prompt = u64::from(base.ask.prompt.n_prompt);
    let work = |c: &Candidate| c.context.micro_batch.min(prompt);
    let known = |c: &Candidate| {
        ran.iter()
            .any(|r| r.placement == c.placement && work(r) == work(c))
    };
    near.retain(|c| !known(c));
    near.truncate(NEIGHBOURS);
    near
}
