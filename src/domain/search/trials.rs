//! Trying settings: what is known of every candidate, and when one becomes the best so far.

use std::collections::BTreeMap;

use crate::domain::stats::{CONFIDENCE, GUARD_LOSS_PCT, welch};
use crate::domain::text::change;
use crate::domain::types::{Failure, PlannedRun, RunOutcome, Settings, Stage, TestSamples};

use super::baseline::Baseline;
use super::goal::mean_rate;
use super::offer::Refusal;
use super::outcome::{Candidate, CandidateStatus, HARMFUL, StaleCheck};
use super::plan::TunePlan;
use super::session::{Known, Recorded, Session, TuneNote, plain_run, probe_if_lost};

/// A value that was screened and not adopted, and what it was measured on top of.
#[derive(Debug)]
pub(super) struct TriedValue {
    pub dimension: String,
    pub value: String,
    pub candidate: usize,
    /// The best at that time; `None` is the baseline.
    pub base: Option<usize>,
}

/// A candidate's valid run with its place in run order.
type Reading<'h> = (usize, &'h [TestSamples]);

/// What the search knows: the baseline, every candidate, the best so far.
pub(super) struct Search<'p, 'h> {
    pub plan: &'p TunePlan,
    pub baseline: Baseline<'h>,
    pub candidates: Vec<Candidate>,
    readings: Vec<Vec<Reading<'h>>>,
    /// The best so far; `None` is the baseline.
    best: Option<usize>,
    pub tried_values: Vec<TriedValue>,
    pub refused: Vec<Refusal>,
    pub stale: Option<StaleCheck>,
}

impl<'p, 'h> Search<'p, 'h> {
    pub fn new(plan: &'p TunePlan, baseline: Baseline<'h>) -> Self {
        Self {
            plan,
            baseline,
            candidates: Vec::new(),
            readings: Vec::new(),
            best: None,
            tried_values: Vec::new(),
            refused: plan.offer.refused.clone(),
            stale: None,
        }
    }

    pub fn out_of_time(&self, session: &Session<'h>) -> bool {
        self.plan
            .time_limit_secs
            .is_some_and(|limit| session.elapsed_secs >= limit)
    }

    pub fn best_settings(&self) -> Settings {
        self.best.map_or_else(
            || self.baseline.settings.clone(),
            |i| self.candidates[i].settings.clone(),
        )
    }

    pub const fn best(&self) -> Option<usize> {
        self.best
    }

    /// The goal's metric of a candidate as a share of the baseline's at the same time; mean over its runs.
    pub fn ratio(&self, index: usize) -> Option<f64> {
        let ratios = self.ratios(index);
        (!ratios.is_empty()).then(|| ratios.iter().sum::<f64>() / ratios.len() as f64)
    }

    /// The same of each of its runs.
    fn ratios(&self, index: usize) -> Vec<f64> {
        let ratio = |(order, samples): &Reading<'h>| {
            self.plan.objective.run_score(samples) / self.baseline.score_at(*order)
        };
        self.readings[index].iter().map(ratio).collect()
    }

    /// Do the readings of two candidates tell by themselves that the first is faster (Welch's test)? The noise bound pools all
    /// tests, and one that scatters hides what a quiet one shows.
    pub fn is_told_faster(&self, faster: usize, slower: usize) -> bool {
        welch(&self.ratios(slower), &self.ratios(faster))
            .is_some_and(|test| test.t > 0.0 && test.p < 1.0 - CONFIDENCE)
    }

    /// Is a guarded metric beyond its limit by more than noise? Nothing is built on such a candidate.
    pub fn harmed(&self, index: usize) -> bool {
        let limit = GUARD_LOSS_PCT + self.baseline.noise_pct();
        self.candidates[index].guard_pct.is_some_and(|g| g < -limit)
    }

    /// Gives a candidate that is harmful that as its reason.
    pub fn tell_harm(&mut self, index: usize) {
        let is_harmful = self.harmed(index);
        let candidate = &mut self.candidates[index];
        if let Some(guard) = candidate.guard_pct.filter(|_| is_harmful)
            && candidate.status == CandidateStatus::Ok
        {
            let by = change(guard, 1);
            candidate.reason = Some(format!("{HARMFUL}: a guarded metric changed by {by}"));
        }
    }

    /// Measures settings and adopts them when they beat the best by more than noise, twice: a second process must
    /// repeat the gain, so that a lucky reading does not become what all others are measured against. `least_pct` is a
    /// further bar.
    pub fn try_on_top(
        &mut self,
        session: &mut Session<'h>,
        stage: Stage,
        settings: &Settings,
        purpose: &str,
        least_pct: f64,
    ) -> Known<Tried> {
        let index = self.measure(session, stage, settings, purpose)?;
        let first = self.wins(index, least_pct);
        if first {
            self.measure_again(session, index, &format!("{purpose} again"))?;
        }
        if first && self.wins(index, least_pct) && self.is_small(index) {
            self.rerun_best(session)?;
            self.measure_again(session, index, &format!("{purpose} once more"))?;
        }
        let adopted = first && self.wins(index, least_pct);
        let candidate = &mut self.candidates[index];
        candidate.adopted |= adopted;
        if adopted {
            self.best = Some(index);
        } else if candidate.status == CandidateStatus::Ok {
            candidate.reason = first.then(|| "a second process did not repeat the gain".to_owned());
            self.tell_harm(index);
        }
        let candidate = self.candidates[index].clone();
        session.notes.push(TuneNote::Screened { candidate });
        Ok(Tried { index, adopted })
    }

    /// Change against another candidate, or the baseline, percent.
    pub fn gain_over(&self, index: usize, base: Option<usize>) -> Option<f64> {
        let base = base.and_then(|i| self.ratio(i)).unwrap_or(1.0);
        self.ratio(index).map(|r| 100.0 * (r / base - 1.0))
    }

    /// Measures settings once; the index of their candidate.
    pub fn measure(
        &mut self,
        session: &mut Session<'h>,
        stage: Stage,
        settings: &Settings,
        purpose: &str,
    ) -> Known<usize> {
        if let Some(known) = self.candidates.iter().position(|c| c.settings == *settings) {
            return Ok(known);
        }
        let index = self.candidates.len();
        self.candidates.push(Candidate {
            id: u32::try_from(index + 1).unwrap_or(u32::MAX),
            settings: settings.clone(),
            stage,
            metrics: BTreeMap::new(),
            status: CandidateStatus::Ok,
            reason: None,
            change_pct: None,
            guard_pct: None,
            adopted: false,
            runs: Vec::new(),
        });
        self.readings.push(Vec::new());
        self.measure_again(session, index, purpose)?;
        Ok(index)
    }

    /// One more run of a candidate.
    pub fn measure_again(
        &mut self,
        session: &mut Session<'h>,
        index: usize,
        purpose: &str,
    ) -> Known<()> {
        let candidate = &self.candidates[index];
        let planned = PlannedRun {
            early_stop: Some(self.baseline.early_stop()),
            ..plain_run(
                candidate.stage,
                &candidate.settings,
                self.plan.screening_repetitions,
                purpose,
            )
        };
        let order = session.order();
        let recorded = session.run(planned)?;
        self.take(index, order, recorded);
        if let RunOutcome::Failed { failure, .. } = &recorded.run.outcome {
            self.probe_if_lost(session, failure)?;
        }
        Ok(())
    }

    fn take(&mut self, index: usize, order: usize, recorded: &'h Recorded) {
        let candidate = &mut self.candidates[index];
        candidate.runs.push(recorded.seq);
        match &recorded.run.outcome {
            RunOutcome::Valid { tests } => self.readings[index].push((order, tests)),
            RunOutcome::StoppedEarly {
                test,
                repetition_secs,
                limit_secs,
            } => {
                candidate.status = CandidateStatus::StoppedEarly;
                candidate.reason = Some(format!(
                    "hopeless after one repetition: {test} took {repetition_secs:.2} s, the limit was {limit_secs:.2} s"
                ));
                self.readings[index].clear();
            }
            RunOutcome::Failed { failure, .. } => {
                candidate.status = CandidateStatus::Failed;
                candidate.reason = Some(failure.to_string());
                self.readings[index].clear();
            }
            RunOutcome::Cancelled => {}
        }
        self.refresh(index);
    }

    /// Brings a candidate's figures up to what is known of the baseline by now.
    pub fn refresh(&mut self, index: usize) {
        let readings = &self.readings[index];
        let objective = &self.plan.objective;
        let mean = |f: &dyn Fn(&Reading<'h>) -> f64| {
            readings.iter().map(f).sum::<f64>() / readings.len() as f64
        };
        let mut metrics = BTreeMap::new();
        let mut guard_pct: Option<f64> = None;
        if !readings.is_empty() {
            for &test in objective.tests() {
                metrics.insert(test.to_string(), mean(&|(_, s)| mean_rate(s, test)));
            }
            for test in objective.guards() {
                let ratio = mean(&|(at, s)| mean_rate(s, test) / self.baseline.rate_at(*at, test));
                let change = 100.0 * (ratio - 1.0);
                guard_pct = Some(guard_pct.map_or(change, |g| g.min(change)));
            }
        }
        let change_pct = self.ratio(index).map(|r| 100.0 * (r - 1.0));
        let candidate = &mut self.candidates[index];
        candidate.metrics = metrics;
        candidate.guard_pct = guard_pct;
        candidate.change_pct = change_pct;
    }

    pub fn probe_if_lost(&self, session: &mut Session<'h>, failure: &Failure) -> Known<()> {
        probe_if_lost(session, &self.baseline.settings, None, failure)
    }

    /// One more run of the best so far, which also tells of the noise.
    pub fn rerun_best(&mut self, session: &mut Session<'h>) -> Known<()> {
        let Some(best) = self.best else {
            return self.rerun_baseline(session);
        };
        self.measure_again(session, best, "best so far again")?;
        if self.ratio(best).is_none() {
            // It failed: nothing more is built on it.
            self.best = None;
        }
        self.baseline.pool(&self.readings[best]);
        Ok(())
    }

    /// A gain below twice the noise: a slow reading of the best could pass for it.
    fn is_small(&self, index: usize) -> bool {
        let small = 2.0 * self.baseline.noise_pct();
        self.gain_over(index, self.best).is_some_and(|g| g < small)
    }

    /// It beats the best by more than noise and `least_pct`, and no guarded metric is clearly harmed.
    fn wins(&self, index: usize, least_pct: f64) -> bool {
        let least = self.baseline.noise_pct().max(least_pct);
        self.gain_over(index, self.best).is_some_and(|g| g > least) && !self.harmed(index)
    }
}

/// How a candidate on top of the best went.
pub(super) struct Tried {
    pub index: usize,
    pub adopted: bool,
}
