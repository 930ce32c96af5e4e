//! Confirmation: two arms interleaved in fresh processes, their number fixed before the first (paper section 3).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::stats::{self, MIN_REPETITIONS, Ordered, RunCost};
use crate::domain::text::count;
use crate::domain::types::{
    Bytes, Comparison, Failure, PlannedRun, Settings, Side, Stage, TestSamples, Verdict,
};

use super::goal::{ENERGY, Objective, mean_rate};
use super::schedule::interleaved;
use super::session::{Known, Session, plain_run, probe_if_lost};

/// Failed runs an arm may have: one can be an accident, two are a property of the arm.
pub const FAILURES_BORNE: usize = 1;

/// One metric of a confirmation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricJudgement {
    /// By the confirmation's rule, which knows the run order.
    pub confirmed: Comparison,
    /// Plain Welch beside it.
    pub welch: Comparison,
}

/// Why a faster candidate is not saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rejection {
    /// Its runs failed.
    Failed,
    /// It needs more device memory than there is.
    Memory,
    /// A guarded metric got worse.
    GuardRegressed,
    /// A guarded metric could not be shown to be unharmed.
    GuardUnproven,
}

impl Rejection {
    /// What kept a candidate that may be faster from being saved, as a title.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Failed => "Not saved: runs of the candidate failed",
            Self::Memory => "Not saved: it needs more device memory than is free",
            Self::GuardRegressed => "Not saved: faster in one metric, slower in another",
            Self::GuardUnproven => "Not saved: another metric may be slower",
        }
    }

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Memory => "memory",
            Self::GuardRegressed => "guard regressed",
            Self::GuardUnproven => "guard unproven",
        }
    }
}

/// Device memory of the candidate against its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// llama.cpp's device name.
    pub device: String,
    /// Weights, cache and compute buffers, from the runtime's log.
    pub used: Bytes,
    /// Free memory minus the reserve.
    pub limit: Bytes,
}

/// One counted run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmationRun {
    /// Place in the session.
    pub seq: u32,
    /// Arm.
    pub side: Side,
}

/// A confirmation, judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// Arm B.
    pub settings: Settings,
    /// Arm A.
    pub baseline: Settings,
    /// Name of the goal's metric among `metrics`.
    pub primary: String,
    /// How large it was planned.
    pub size: Size,
    /// Every metric; empty when the candidate was rejected before a counted run.
    pub metrics: BTreeMap<String, MetricJudgement>,
    /// Verdict of the primary metric.
    pub verdict: Verdict,
    /// Why it is not saved although it may be faster.
    pub rejected: Option<Rejection>,
    /// In one sentence.
    pub reason: String,
    /// Memory rule, where buffers and limits are known.
    pub memory: Vec<MemoryUse>,
    /// Counted runs in order, failed ones among them.
    pub runs: Vec<ConfirmationRun>,
    /// Failed runs.
    pub failures: Vec<(Side, Failure)>,
}

impl Confirmation {
    /// What it says for whoever would use arm B: never *improved* where that is rejected.
    pub const fn kept_verdict(&self) -> Verdict {
        match self.rejected {
            None => self.verdict,
            Some(Rejection::GuardRegressed) => Verdict::Regressed,
            Some(Rejection::GuardUnproven | Rejection::Failed) => Verdict::Inconclusive,
            Some(Rejection::Memory) => Verdict::Unchanged,
        }
    }
}

/// A confirmation's size, fixed before its first run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// Processes per arm.
    pub processes: u32,
    /// Repetitions in each.
    pub repetitions: u32,
    /// Smallest effect it can see, percent; `None` without a spread to plan from.
    pub smallest_effect_pct: Option<f64>,
}

impl Size {
    /// Plans from the repetitions of baseline runs; what the user asked for wins.
    pub fn plan(
        baseline: &[Vec<f64>],
        cost: RunCost,
        processes: Option<u32>,
        repetitions: Option<u32>,
    ) -> Self {
        let planned = stats::plan(baseline, cost);
        let size = Self {
            processes: u32::try_from(planned.processes).unwrap_or(u32::MAX),
            repetitions: repetitions.unwrap_or(planned.repetitions),
            smallest_effect_pct: Some(planned.smallest_effect_pct),
        };
        processes.map_or(size, |n| size.resized(n))
    }

    /// What the user asked for, without a spread to plan from.
    pub fn given(processes: u32, repetitions: Option<u32>) -> Self {
        Self {
            processes,
            repetitions: repetitions.unwrap_or(MIN_REPETITIONS),
            smallest_effect_pct: None,
        }
    }

    /// Another number of processes; the smallest effect goes with the root of their number.
    #[must_use]
    pub fn resized(self, processes: u32) -> Self {
        let factor = (f64::from(self.processes) / f64::from(processes.max(1))).sqrt();
        Self {
            processes,
            repetitions: self.repetitions,
            smallest_effect_pct: self.smallest_effect_pct.map(|e| e * factor),
        }
    }
}

/// The two arms of a confirmation.
pub(super) struct Arms<'a> {
    pub a: &'a Settings,
    pub b: &'a Settings,
}

impl Arms<'_> {
    pub const fn settings(&self, side: Side) -> &Settings {
        match side {
            Side::A => self.a,
            Side::B => self.b,
        }
    }

    /// A judgement without a counted run.
    pub fn without_runs(
        &self,
        objective: &Objective,
        size: Size,
        why: Rejection,
        reason: String,
    ) -> Confirmation {
        Confirmation {
            settings: self.b.clone(),
            baseline: self.a.clone(),
            primary: objective.primary(),
            size,
            metrics: BTreeMap::new(),
            verdict: Verdict::Unchanged,
            rejected: Some(why),
            reason,
            memory: Vec::new(),
            runs: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Runs the interleaved order and judges every metric. No look at the figures decides when it ends; an arm that
    /// fails twice ends it.
    pub fn confirm(
        &self,
        session: &mut Session<'_>,
        objective: &Objective,
        size: Size,
    ) -> Known<Confirmation> {
        let mut valid: [Vec<(f64, &[TestSamples])>; 2] = [Vec::new(), Vec::new()];
        let (mut runs, mut failures) = (Vec::new(), Vec::new());
        let mut started = [0_u32; 2];
        for (i, side) in interleaved(size.processes).enumerate() {
            session.expect(2 * size.processes - u32::try_from(i).unwrap_or(0));
            started[side as usize] += 1;
            let purpose = format!("{side:?} {} of {}", started[side as usize], size.processes);
            let planned = PlannedRun {
                side: Some(side),
                ..plain_run(
                    Stage::Confirmation,
                    self.settings(side),
                    size.repetitions,
                    purpose,
                )
            };
            let recorded = session.run(planned)?;
            runs.push(ConfirmationRun {
                seq: recorded.seq,
                side,
            });
            match recorded.samples() {
                Ok(samples) => valid[side as usize].push((i as f64 + 1.0, samples)),
                Err(failure) => {
                    failures.push((side, failure.clone()));
                    if failures.iter().filter(|(s, _)| *s == side).count() > FAILURES_BORNE {
                        break;
                    }
                    probe_if_lost(session, self.a, Some(Side::A), &failure)?;
                }
            }
        }
        Ok(self.judge(objective, size, &valid, runs, failures))
    }

    fn judge(
        &self,
        objective: &Objective,
        size: Size,
        valid: &[Vec<(f64, &[TestSamples])>; 2],
        runs: Vec<ConfirmationRun>,
        failures: Vec<(Side, Failure)>,
    ) -> Confirmation {
        let judged = |metric: &dyn Fn(&[TestSamples]) -> f64| {
            let arm = |side: Side| -> Vec<Ordered> {
                let of_run = |(position, samples): &(f64, &[TestSamples])| Ordered {
                    position: *position,
                    value: metric(samples),
                };
                valid[side as usize].iter().map(of_run).collect()
            };
            let (a, b) = (arm(Side::A), arm(Side::B));
            let values = |arm: &[Ordered]| arm.iter().map(|o| o.value).collect::<Vec<f64>>();
            MetricJudgement {
                confirmed: stats::confirm(&a, &b),
                welch: stats::compare(&values(&a), &values(&b)),
            }
        };
        let primary = objective.primary();
        let mut metrics: BTreeMap<String, MetricJudgement> = objective
            .metrics()
            .into_iter()
            .map(|(label, test, unit)| (label, judged(&|samples| mean_rate(samples, test) / unit)))
            .collect();
        let tells_energy = |(_, samples): &(f64, &[TestSamples])| objective.has_energy(samples);
        if objective.is_live() && valid.iter().flatten().all(tells_energy) {
            let per_joule = judged(&|samples| objective.tokens_per_joule(samples));
            metrics.insert(ENERGY.to_owned(), per_joule);
        }
        let of_goal = judged(&|samples| objective.run_score(samples));
        let mut verdict = of_goal.confirmed.verdict;
        let mut reason = of_goal.confirmed.reason.clone();
        let mut rejected = None;
        metrics.insert(primary.clone(), of_goal);
        for side in [Side::A, Side::B] {
            let of_side = || failures.iter().filter(|(s, _)| *s == side);
            if let (true, Some((_, failure))) =
                (of_side().count() > FAILURES_BORNE, of_side().next_back())
            {
                let arm = self.settings(side);
                verdict = Verdict::Inconclusive;
                reason = format!(
                    "{arm} failed {} ({failure})",
                    count(of_side().count() as u64, "time")
                );
                rejected = (side == Side::B).then_some(Rejection::Failed);
            }
        }
        Confirmation {
            settings: self.b.clone(),
            baseline: self.a.clone(),
            primary,
            size,
            metrics,
            verdict,
            rejected,
            reason,
            memory: Vec::new(),
            runs,
            failures,
        }
    }
}
