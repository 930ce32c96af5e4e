//! Result documents: what `--json` prints, what the app shows, what is stored with a session's end (design section 2).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::domain::search::{Candidate, Confirmation, SearchSpace, Tool, TuneOutcome};
use crate::domain::types::{Comparison, Profile};

use super::job::Ended;
use super::measure::notice_of;
use super::message::JobError;
use super::prepare::{TuneConfig, Workplace};

/// Where a job's time went.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Overhead {
    /// Seconds from the command to its result.
    pub wall_secs: f64,
    /// Seconds of it inside llama.cpp's processes, from start to reaped.
    pub run_secs: f64,
    /// Seconds of Flux itself.
    pub flux_secs: f64,
    /// Flux's share of the whole, percent.
    pub flux_pct: f64,
}

impl Overhead {
    /// From the wall time and the part inside llama.cpp.
    pub fn new(wall: Duration, run_secs: f64) -> Self {
        let wall_secs = wall.as_secs_f64();
        let flux_secs = (wall_secs - run_secs).max(0.0);
        let flux_pct = if wall_secs > 0.0 {
            100.0 * flux_secs / wall_secs
        } else {
            0.0
        };
        Self {
            wall_secs,
            run_secs,
            flux_secs,
            flux_pct,
        }
    }
}

/// The document of `flux tune --json`.
pub(super) fn tune_document(
    session: i64,
    place: &Workplace,
    config: &TuneConfig,
    outcome: &TuneOutcome,
    profile: Option<&Profile>,
    run_ids: &[i64],
    overhead: &Overhead,
) -> Result<Value, Ended> {
    let space = &*place.space;
    let candidates = outcome
        .candidates
        .iter()
        .map(|c| candidate_document(c, run_ids, space))
        .collect::<Result<Vec<_>, _>>()?;
    let settings_text = outcome
        .winner
        .as_ref()
        .map(|w| w.0.keys().map(|d| space.describe(d)).collect::<Vec<_>>());
    Ok(json!({
        "schema": 1,
        "session": session,
        "fingerprint": place.fingerprint.hash,
        "simulated": place.machine.simulated,
        "model": { "name": place.model.name, "path": place.model.path, "digest": place.model.digest },
        "runtime": {
            "name": place.runtime.name,
            "version": place.runtime.version_text,
            "digest": place.runtime.digest,
            "backend": place.target.backend,
            "device": place.target.device,
        },
        "goal": config.request.goal,
        "primary": config.plan.objective.primary(),
        "baseline": outcome.baseline,
        "candidates": candidates,
        "refused": outcome.refused,
        "confirmation": outcome.confirmations.last().map(confirmation_document),
        "confirmations": outcome.confirmations.iter().map(confirmation_document).collect::<Vec<_>>(),
        "verdict": outcome.verdict,
        "reason": outcome.reason,
        "stale_profile": outcome.stale,
        "profile": profile.map(|p| json!({
            "id": p.id,
            "settings": p.settings,
            "descriptions": settings_text,
            "args": p.server.args,
            "bench_args": p.bench.args,
            "env": p.server.env,
            "introduced_by": introductions(outcome, run_ids),
        })),
        "notices": outcome.notices.iter().map(notice_of).collect::<Vec<_>>(),
        "overhead": overhead,
    }))
}

fn introductions(outcome: &TuneOutcome, run_ids: &[i64]) -> BTreeMap<String, i64> {
    let with_id = |(d, seq): &(String, u32)| Some((d.clone(), *run_ids.get(*seq as usize)?));
    outcome.introduced_by.iter().filter_map(with_id).collect()
}

fn candidate_document(
    candidate: &Candidate,
    run_ids: &[i64],
    space: &SearchSpace,
) -> Result<Value, JobError> {
    let launch = space
        .launch(&candidate.settings, Tool::Bench)
        .map_err(|e| JobError::new("settings", e.to_string()))?;
    let runs: Vec<i64> = candidate
        .runs
        .iter()
        .filter_map(|seq| run_ids.get(*seq as usize).copied())
        .collect();
    Ok(json!({
        "id": candidate.id,
        "settings": candidate.settings,
        "args": launch.args,
        "env": launch.env,
        "metrics": candidate.metrics,
        "status": candidate.status,
        "reason": candidate.reason,
        "stage": candidate.stage,
        "change_pct": candidate.change_pct,
        "adopted": candidate.adopted,
        "runs": runs,
    }))
}

/// A confirmation in the shape of `flux compare`, plain Welch beside it.
pub fn confirmation_document(confirmation: &Confirmation) -> Value {
    let by = |f: fn(&crate::domain::search::MetricJudgement) -> &Comparison| {
        let metrics = confirmation.metrics.iter();
        metrics
            .map(|(name, m)| (name.clone(), f(m).clone()))
            .collect::<BTreeMap<_, _>>()
    };
    json!({
        "schema": 1,
        "settings": confirmation.settings,
        "baseline": confirmation.baseline,
        "primary": confirmation.primary,
        "size": confirmation.size,
        "metrics": by(|m| &m.confirmed),
        "plain_welch": by(|m| &m.welch),
        "verdict": confirmation.verdict,
        "rejected": confirmation.rejected,
        "reason": confirmation.reason,
        "memory": confirmation.memory,
        "runs": confirmation.runs,
        "failures": confirmation.failures,
    })
}
