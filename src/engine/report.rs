//! Result documents: what `--json` prints, what the app shows, what is stored with a session's end (design section 2).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::search::{Candidate, Confirmation, SearchSpace, Tool, TuneOutcome};
use crate::domain::text::measured_span;
use crate::domain::types::{Comparison, Profile};

use super::announce::notice_of;
use super::measure::Bench;
use super::message::JobError;
use super::prepare::TuneConfig;
use super::settings::describe;

mod documents;
mod dry_run;

pub use documents::{
    AbDocument, ArmDocument, CandidateDocument, ConfirmationDocument, LiveDocument, ModelDocument,
    ProfileDocument, RuntimeDocument, TuneDocument,
};
pub use dry_run::{DryCandidate, DryRun};

/// Version of every document; it rises when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// Where a job's time went.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Seconds from the command to its result.
    pub wall_secs: f64,
    /// Seconds of it inside llama.cpp's processes, from start to reaped.
    pub run_secs: f64,
    /// Seconds of it in which the machine's bandwidths were measured, once for all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bandwidth_secs: f64,
    /// Seconds of Flux itself: the rest.
    pub flux_secs: f64,
    /// Flux's share of the whole, percent.
    pub flux_pct: f64,
    /// Seconds inside llama.cpp's processes of earlier commands, where this one went on with their session: not in the above.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub earlier_run_secs: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(seconds: &f64) -> bool {
    *seconds <= 0.0
}

impl Overhead {
    /// From the wall time and the part inside llama.cpp.
    pub fn new(wall: Duration, run_secs: f64) -> Self {
        Self::measuring_too(wall, run_secs, Duration::ZERO)
    }

    /// The same where bandwidths were measured as well.
    pub fn measuring_too(wall: Duration, run_secs: f64, bandwidth: Duration) -> Self {
        let (wall_secs, bandwidth_secs) = (wall.as_secs_f64(), bandwidth.as_secs_f64());
        let flux_secs = (wall_secs - run_secs - bandwidth_secs).max(0.0);
        let flux_pct = if wall_secs > 0.0 {
            100.0 * flux_secs / wall_secs
        } else {
            0.0
        };
        Self {
            wall_secs,
            run_secs,
            bandwidth_secs,
            flux_secs,
            flux_pct,
            earlier_run_secs: 0.0,
        }
    }

    /// The same of a command that went on with a session.
    #[must_use]
    pub fn after(self, earlier_run_secs: f64) -> Self {
        Self {
            earlier_run_secs,
            ..self
        }
    }

    /// Name and value of every part, in words.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let goes_on = self.earlier_run_secs > 0.0;
        let all = if goes_on {
            "Since it went on"
        } else {
            "In all"
        };
        let part = |name, secs| (secs > 0.0).then(|| (name, measured_span(secs)));
        let rows = [
            part("Runs until it broke off", self.earlier_run_secs),
            Some((all, measured_span(self.wall_secs))),
            Some(("In llama.cpp", measured_span(self.run_secs))),
            part("Bandwidths measured", self.bandwidth_secs),
            Some(("Flux itself", measured_span(self.flux_secs))),
            Some(("Flux itself, share", format!("{:.2} %", self.flux_pct))),
        ];
        rows.into_iter().flatten().collect()
    }
}

/// The document of `flux tune --json`.
pub(super) fn tune_document(
    bench: &Bench<'_>,
    config: &TuneConfig,
    outcome: &TuneOutcome,
    profile: Option<&Profile>,
    overhead: &Overhead,
) -> Result<TuneDocument, JobError> {
    let (place, run_ids) = (bench.place, &bench.run_ids);
    let candidates = outcome
        .candidates
        .iter()
        .map(|c| candidate_document(c, bench))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(TuneDocument {
        schema: SCHEMA,
        session: Some(bench.session),
        fingerprint: place.fingerprint.hash.clone(),
        simulated: place.machine.simulated,
        model: ModelDocument {
            name: place.model.name.clone(),
            path: place.model.path.clone(),
            digest: Some(place.model.digest.clone()),
        },
        runtime: RuntimeDocument {
            name: place.runtime.name.clone(),
            version: place.runtime.version_text.clone(),
            digest: place.runtime.digest.clone(),
            backend: Some(place.target.backend),
            device: place.target.device.clone(),
        },
        goal: Some(config.request.goal),
        primary: config.plan.objective.primary(),
        baseline: outcome.baseline.clone(),
        candidates,
        refused: outcome.refused.clone(),
        confirmation: outcome.confirmations.last().map(confirmation_document),
        confirmations: outcome
            .confirmations
            .iter()
            .map(confirmation_document)
            .collect(),
        verdict: outcome.verdict,
        reason: outcome.reason.clone(),
        stale_profile: outcome.stale.clone(),
        profile: profile.map(|p| profile_document(p, outcome, run_ids, &place.space)),
        saveable: outcome.winner.is_some() && profile.is_none() && config.start_confirmed,
        output: None,
        notices: outcome.notices.iter().map(notice_of).collect(),
        overhead: Some(*overhead),
    })
}

/// A saved winner, as its search's document has it.
pub(super) fn profile_document(
    profile: &Profile,
    outcome: &TuneOutcome,
    run_ids: &[i64],
    space: &SearchSpace,
) -> ProfileDocument {
    let described = profile.settings.0.keys();
    let descriptions = described.map(|d| describe(d, space).to_owned()).collect();
    ProfileDocument {
        id: profile.id,
        settings: profile.settings.clone(),
        descriptions: Some(descriptions),
        args: profile.server.args.clone(),
        bench_args: profile.bench.args.clone(),
        env: profile.server.env.clone(),
        introduced_by: introductions(outcome, run_ids),
    }
}

fn introductions(outcome: &TuneOutcome, run_ids: &[i64]) -> BTreeMap<String, i64> {
    let with_id = |(d, seq): &(String, u32)| Some((d.clone(), *run_ids.get(*seq as usize)?));
    outcome.introduced_by.iter().filter_map(with_id).collect()
}

fn candidate_document(
    candidate: &Candidate,
    bench: &Bench<'_>,
) -> Result<CandidateDocument, JobError> {
    let launch = bench
        .place
        .own_launch(&candidate.settings, Tool::Bench, bench.ports)?;
    let runs = candidate
        .runs
        .iter()
        .filter_map(|seq| bench.run_ids.get(*seq as usize).copied())
        .collect();
    Ok(CandidateDocument {
        id: candidate.id,
        settings: candidate.settings.clone(),
        args: launch.args,
        env: launch.env,
        metrics: candidate.metrics.clone(),
        status: candidate.status.name().to_owned(),
        reason: candidate.reason.clone(),
        stage: Some(candidate.stage),
        change_pct: candidate.change_pct,
        adopted: candidate.adopted,
        runs,
    })
}

/// A confirmation in the shape of `flux compare`, plain Welch beside it.
pub fn confirmation_document(confirmation: &Confirmation) -> ConfirmationDocument {
    let by = |f: fn(&crate::domain::search::MetricJudgement) -> &Comparison| {
        let metrics = confirmation.metrics.iter();
        metrics
            .map(|(name, m)| (name.clone(), f(m).clone()))
            .collect::<BTreeMap<_, _>>()
    };
    ConfirmationDocument {
        schema: SCHEMA,
        settings: confirmation.settings.clone(),
        baseline: confirmation.baseline.clone(),
        primary: confirmation.primary.clone(),
        size: Some(confirmation.size),
        metrics: by(|m| &m.confirmed),
        plain_welch: by(|m| &m.welch),
        verdict: Some(confirmation.verdict),
        rejected: confirmation.rejected,
        reason: confirmation.reason.clone(),
        memory: confirmation.memory.clone(),
        runs: confirmation.runs.clone(),
        failures: confirmation.failures.clone(),
    }
}
