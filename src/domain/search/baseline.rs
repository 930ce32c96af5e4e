//! Baseline first: the stock runtime, re-run through screening so that drift is measured (paper section 3, rule 1).

use std::collections::BTreeMap;

use crate::domain::types::{
    EarlyStop, Failure, RunOutcome, Settings, Stage, TestSamples, TestSpec,
};

use super::goal::{Objective, mean_rate};
use super::outcome::BaselineSummary;
use super::plan::TunePlan;
use super::session::{Halt, Known, Recorded, Session, plain_run, warm_up};

/// A candidate below this share of the baseline's speed is hopeless: no setting seen makes up for a loss of 40 %.
pub const HOPELESS_RATIO: f64 = 0.6;
/// Screening noise is this many standard deviations of a difference of two runs: one in forty neutral ones exceeds it.
const NOISE_DEVIATIONS: f64 = 2.0;
/// Smallest standard deviation between processes believed, percent: two runs can agree by chance.
const NOISE_FLOOR_PCT: f64 = 0.5;
/// Baseline runs before the first candidate.
const AT_START: usize = 2;
/// Baseline runs of a whole screening: two at the start, one in the middle, one at the end.
const IN_ALL: usize = 4;

/// The baseline's runs, with their place in run order.
pub(super) struct Baseline<'h> {
    pub settings: Settings,
    pub stock_failure: Option<Failure>,
    objective: Objective,
    runs: Vec<(usize, &'h Recorded)>,
}

impl<'h> Baseline<'h> {
    /// Warms up and measures stock; where that fails, the fallbacks in order.
    pub fn establish(session: &mut Session<'h>, plan: &TunePlan) -> Known<Self> {
        session.enter(Stage::Baseline);
        let mut stock_failure: Option<Failure> = None;
        for settings in std::iter::once(&Settings::stock()).chain(&plan.fallbacks) {
            match Self::try_settings(session, plan, settings)? {
                Ok(mut baseline) => {
                    if let Some(failure) = &stock_failure {
                        session.remark(
                            true,
                            "stock-failed",
                            format!("stock failed ({failure}); the baseline is {settings}"),
                        );
                    }
                    baseline.stock_failure = stock_failure;
                    return Ok(baseline);
                }
                Err(failure) => stock_failure = stock_failure.or(Some(failure)),
            }
        }
        let failure = stock_failure.unwrap_or_else(|| unreachable!("stock was tried"));
        let reason = format!("no baseline runs here: stock failed ({failure})");
        Err(Halt::Stops(failure, reason))
    }

    fn try_settings(
        session: &mut Session<'h>,
        plan: &TunePlan,
        settings: &Settings,
    ) -> Known<Result<Self, Failure>> {
        if let Err(failure) = session.run(warm_up(settings))?.samples() {
            return Ok(Err(failure));
        }
        let mut baseline = Self {
            settings: settings.clone(),
            stock_failure: None,
            objective: plan.objective.clone(),
            runs: Vec::new(),
        };
        for _ in 0..AT_START {
            if let Err(failure) = baseline.rerun(session, plan.screening_repetitions)? {
                return Ok(Err(failure));
            }
        }
        Ok(Ok(baseline))
    }

    /// One more baseline run.
    pub fn rerun(
        &mut self,
        session: &mut Session<'h>,
        repetitions: u32,
    ) -> Known<Result<(), Failure>> {
        let purpose = format!("baseline {} of {IN_ALL}", self.runs.len() + 1);
        let order = session.order();
        let planned = plain_run(Stage::Baseline, &self.settings, repetitions, purpose);
        let recorded = session.run(planned)?;
        Ok(recorded
            .samples()
            .map(|_| self.runs.push((order, recorded))))
    }

    fn valid(&self) -> impl Iterator<Item = (usize, &'h [TestSamples])> {
        self.runs
            .iter()
            .filter_map(|(order, r)| match &r.run.outcome {
                RunOutcome::Valid { tests } => Some((*order, tests.as_slice())),
                _ => None,
            })
    }

    /// A metric of the baseline at a place in run order: linear between the start, the middle and the end.
    fn at(&self, order: usize, metric: impl Fn(&[TestSamples]) -> f64) -> f64 {
        let readings: Vec<(f64, f64)> = self
            .valid()
            .map(|(order, samples)| (order as f64, metric(samples)))
            .collect();
        let (start, later) = readings.split_at(readings.len().min(AT_START));
        let n = start.len() as f64;
        let mut left = (
            start.iter().map(|r| r.0).sum::<f64>() / n,
            start.iter().map(|r| r.1).sum::<f64>() / n,
        );
        let x = order as f64;
        for &right in later {
            if x <= right.0 {
                let share = ((x - left.0) / (right.0 - left.0)).max(0.0);
                return left.1 + share * (right.1 - left.1);
            }
            left = right;
        }
        left.1
    }

    /// The goal's metric there.
    pub fn score_at(&self, order: usize) -> f64 {
        self.at(order, |samples| self.objective.run_score(samples))
    }

    /// A test's rate there.
    pub fn rate_at(&self, order: usize, test: TestSpec) -> f64 {
        self.at(order, |samples| mean_rate(samples, test))
    }

    /// What a difference of two readings must exceed, percent: from the spread of the baseline's run means, pooled over
    /// the tests, since two to four runs of one test say little.
    pub fn noise_pct(&self) -> f64 {
        let (mut squares, mut freedom) = (0.0, 0.0);
        for test in self.objective.tests() {
            let rates: Vec<f64> = self.valid().map(|(_, s)| mean_rate(s, *test)).collect();
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            squares += rates.iter().map(|r| (r / mean - 1.0).powi(2)).sum::<f64>();
            freedom += rates.len() as f64 - 1.0;
        }
        let deviation_pct = 100.0 * (squares / freedom).sqrt();
        NOISE_DEVIATIONS * std::f64::consts::SQRT_2 * deviation_pct.max(NOISE_FLOOR_PCT)
    }

    /// Change from the start to the last run, percent; `None` before there is a later run.
    pub fn drift_pct(&self) -> Option<f64> {
        let last = self.valid().skip(AT_START).last()?.0;
        Some(100.0 * (self.score_at(last) / self.score_at(0) - 1.0))
    }

    /// The limits of a hopeless candidate: its repetition takes 1/0.6 of the baseline's slowest of the same test. The
    /// slowest, since the first repetition of a process is cold (case C40).
    pub fn early_stop(&self) -> EarlyStop {
        let limits = self.objective.tests().iter().filter_map(|test| {
            let of_test = |(_, samples): (usize, &'h [TestSamples])| {
                let found = samples.iter().find(|s| s.test == *test)?;
                let slowest = *found.samples_ns.iter().max()? as f64 / 1e9;
                let least = 1.0 / HOPELESS_RATIO;
                Some(slowest * self.objective.hopeless_factor(*test, samples, least))
            };
            let limit = self.valid().filter_map(of_test).fold(0.0, f64::max);
            limit.is_finite().then_some((*test, limit))
        });
        EarlyStop {
            max_repetition_secs: limits.collect(),
        }
    }

    /// The goal's metric of every repetition of every run: what a confirmation is planned from.
    pub fn repetitions(&self) -> Vec<Vec<f64>> {
        self.valid()
            .map(|(_, samples)| self.objective.repetition_scores(samples))
            .collect()
    }

    /// Seconds of a process outside its repetitions, and of one repetition of every test; means over the runs.
    pub fn cost_secs(&self) -> (f64, f64) {
        let n = self.runs.len().max(1) as f64;
        let (mut load, mut repetition) = (0.0, 0.0);
        for (_, recorded) in &self.runs {
            if let RunOutcome::Valid { tests } = &recorded.run.outcome {
                let ns: u64 = tests.iter().flat_map(|t| &t.samples_ns).sum();
                let count = tests.iter().map(|t| t.samples_ns.len()).max().unwrap_or(1);
                let secs = ns as f64 / 1e9;
                load += (recorded.run.wall_secs - secs).max(0.0) / n;
                repetition += secs / count.max(1) as f64 / n;
            }
        }
        (load, repetition)
    }

    /// For the outcome.
    pub fn summary(&self) -> BaselineSummary {
        let runs = self.valid().count();
        let mean = |test: TestSpec| {
            self.valid().map(|(_, s)| mean_rate(s, test)).sum::<f64>() / runs as f64
        };
        let metrics: BTreeMap<String, f64> = self
            .objective
            .tests()
            .iter()
            .map(|t| (t.to_string(), mean(*t)))
            .collect();
        BaselineSummary {
            settings: self.settings.clone(),
            metrics,
            runs: u32::try_from(runs).unwrap_or(u32::MAX),
            noise_pct: self.noise_pct(),
            drift_pct: self.drift_pct(),
            stock_failure: self.stock_failure.clone(),
        }
    }
}
