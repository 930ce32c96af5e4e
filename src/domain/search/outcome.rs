//! What a search found, and what it tried on the way. Rejected candidates stay: they are results too (paper section 6).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::types::{Failure, Settings, Stage, Verdict};

use super::confirmation::Confirmation;
use super::offer::Refusal;
use super::session::Remark;

/// What became of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CandidateStatus {
    /// Measured.
    Ok,
    /// Its run failed.
    Failed,
    /// Hopeless after one repetition.
    StoppedEarly,
}

impl CandidateStatus {
    /// The status as JSON has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::StoppedEarly => "stopped-early",
        }
    }
}

/// One set of settings that was measured outside of a confirmation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// From 1, in the order tried.
    pub id: u32,
    /// Everything that was set.
    pub settings: Settings,
    /// Stage.
    pub stage: Stage,
    /// Mean rate per test label; empty without samples.
    pub metrics: BTreeMap<String, f64>,
    /// What became of it.
    pub status: CandidateStatus,
    /// Why, where there is a reason to give.
    pub reason: Option<String>,
    /// Change of the goal's metric against the baseline at that time, percent.
    pub change_pct: Option<f64>,
    /// Largest loss among the guarded metrics, percent (negative is slower); `None` without guards.
    pub guard_pct: Option<f64>,
    /// It became the best so far.
    pub adopted: bool,
    /// Places of its runs in the session: one, or two where a gain had to be repeated.
    pub runs: Vec<u32>,
}

/// The baseline, and how it came to be it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BaselineSummary {
    /// Stock is empty.
    pub settings: Settings,
    /// Mean rate per test label over its runs.
    pub metrics: BTreeMap<String, f64>,
    /// Number of runs.
    pub runs: u32,
    /// Screening noise, percent: what a single reading must exceed.
    pub noise_pct: f64,
    /// Change from the first to the last baseline run, percent; `None` where no drift is told from noise.
    pub drift_pct: Option<f64>,
    /// Its own runs vary by more than can be judged.
    #[serde(default)]
    pub too_noisy: bool,
    /// Why stock is not the baseline.
    pub stock_failure: Option<Failure>,
}

/// What the reason of a candidate begins with that harms a guarded metric beyond noise.
pub const HARMFUL: &str = "nothing is built on it";

/// What became of a stale profile's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StaleCheck {
    /// The settings.
    pub settings: Settings,
    /// They beat the baseline again in screening.
    pub reproduced: bool,
    /// In one sentence.
    pub text: String,
}

/// How a search ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneOutcome {
    /// The verdict. A finalist rejected by its guard is `regressed`, by the memory rule `unchanged`: never `improved`
    /// without a winner. `None` when the search failed.
    pub verdict: Option<Verdict>,
    /// Why, in one sentence.
    pub reason: String,
    /// Why the search failed.
    pub failure: Option<Failure>,
    /// The baseline; `None` when nothing worked.
    pub baseline: Option<BaselineSummary>,
    /// Everything tried, in order.
    pub candidates: Vec<Candidate>,
    /// Not tried, and why.
    pub refused: Vec<Refusal>,
    /// Confirmations, in order.
    pub confirmations: Vec<Confirmation>,
    /// What is saved: confirmed exactly as it is.
    pub winner: Option<Settings>,
    /// For each dimension of the winner the place of the run that introduced it.
    pub introduced_by: Vec<(String, u32)>,
    /// What became of a stale profile.
    pub stale: Option<StaleCheck>,
    /// Notices.
    pub notices: Vec<Remark>,
    /// Seconds inside llama.cpp processes.
    pub run_secs: f64,
}
