//! Baseline first: the stock runtime, re-run through screening so that drift is measured (paper section 3, rule 1).

use std::collections::BTreeMap;

use crate::domain::stats::{MAX_CV_PCT, Summary, upper_quantile};
use crate::domain::types::{
    EarlyStop, Failure, RunOutcome, Settings, Stage, TestSamples, TestSpec,
};

use super::goal::{Objective, mean_rate};
use super::outcome::BaselineSummary;
use super::plan::TunePlan;
use super::session::{Halt, Known, Recorded, Session, plain_run, warm_up};

/// A candidate below this share of the baseline's speed is hopeless: no setting seen makes up for a loss of 40 %.
pub const HOPELESS_RATIO: f64 = 0.6;
/// No repetition is stopped sooner, seconds: less is not worth stopping for, and the times are those of log lines as
/// they arrive, which a busy machine delays by milliseconds.
const SOONEST_STOP_SECS: f64 = 2.0;
/// One neutral reading in forty exceeds the screening noise upwards.
const NOISE_TAIL: f64 = 0.025;
/// Smallest standard deviation between processes believed, percent: two runs can agree by chance.
const NOISE_FLOOR_PCT: f64 = 0.5;
/// Baseline runs before the first candidate.
const AT_START: usize = 2;
/// Baseline runs of a whole screening: two at the start, one in the middle, one at the end.
const IN_ALL: usize = 4;

/// Rates of one baseline run as shares of each test's mean, with its place in run order.
type Shares = (f64, Vec<f64>);

/// The linear trend of the baseline in run order, all tests together; `None` unless it is told from noise.
fn trend(runs: &[Shares]) -> Option<Trend> {
    let mean = |shares: &Vec<f64>| shares.iter().sum::<f64>() / shares.len() as f64;
    let points: Vec<(f64, f64)> = runs.iter().map(|(x, shares)| (*x, mean(shares))).collect();
    Trend::fit(&points)
}

/// `t · √2 · s`, percent, with `s` the spread of run means around the trend within each configuration that was measured
/// more than once, pooled over configurations and tests since a few runs of one test say little.
fn noise_pct(configurations: &[Vec<Shares>], trend: Option<&Trend>) -> f64 {
    let level = |x: f64| trend.map_or(1.0, |t| t.level(x as usize));
    let mut squares = 0.0;
    let mut freedom = -f64::from(u8::from(trend.is_some()));
    for runs in configurations.iter().filter(|runs| !runs.is_empty()) {
        let n = runs.len() as f64;
        let middle = runs.iter().map(|(x, _)| level(*x)).sum::<f64>() / n;
        for (x, shares) in runs {
            let residual = |share: &f64| (share - level(*x) / middle).powi(2);
            squares += shares.iter().map(residual).sum::<f64>();
        }
        freedom += (n - 1.0) * runs.first().map_or(0, |r| r.1.len()) as f64;
    }
    let deviation_pct = 100.0 * (squares / freedom).sqrt();
    // One run has no spread: nothing exceeds it.
    match upper_quantile(1.0 - NOISE_TAIL, freedom) {
        Some(t) => t * std::f64::consts::SQRT_2 * deviation_pct.max(NOISE_FLOOR_PCT),
        None => f64::INFINITY,
    }
}

/// A straight line through the baseline's level in run order, relative to its mean.
struct Trend {
    slope: f64,
    middle: f64,
    first: f64,
    last: f64,
}

impl Trend {
    /// Least squares; `None` unless the slope differs from zero at 95 % (`t = b / (s / √Sxx)`, n − 2 degrees).
    fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let n = points.len() as f64;
        let middle = points.iter().map(|p| p.0).sum::<f64>() / n;
        let mean = points.iter().map(|p| p.1).sum::<f64>() / n;
        let sxx: f64 = points.iter().map(|p| (p.0 - middle).powi(2)).sum();
        let sxy: f64 = points.iter().map(|p| (p.0 - middle) * (p.1 - mean)).sum();
        let slope = sxy / sxx;
        let residual = |p: &(f64, f64)| (p.1 - mean - slope * (p.0 - middle)).powi(2);
        let deviation = (points.iter().map(residual).sum::<f64>() / (n - 2.0)).sqrt();
        let t = upper_quantile(1.0 - NOISE_TAIL, n - 2.0)?;
        (slope.abs() > t * deviation / sxx.sqrt()).then_some(Self {
            slope,
            middle,
            first: points.first()?.0,
            last: points.last()?.0,
        })
    }

    /// The level at a place, as a share of the mean; beyond the last baseline run it stays where it was.
    fn level(&self, order: usize) -> f64 {
        let x = (order as f64).clamp(self.first, self.last);
        1.0 + self.slope * (x - self.middle)
    }
}

/// The baseline's runs, with their place in run order.
pub(super) struct Baseline<'h> {
    pub settings: Settings,
    pub stock_failure: Option<Failure>,
    objective: Objective,
    runs: Vec<(usize, &'h Recorded)>,
    /// Runs of the best candidate, which tell of the noise as well.
    best_runs: Vec<(usize, &'h [TestSamples])>,
    trend: Option<Trend>,
    noise_pct: f64,
}

impl<'h> Baseline<'h> {
    /// Warms up and measures what the search starts from; where that fails, the fallbacks in order.
    pub fn establish(session: &mut Session<'h>, plan: &TunePlan) -> Known<Self> {
        session.enter(Stage::Baseline);
        let mut stock_failure: Option<Failure> = None;
        for settings in std::iter::once(&plan.start).chain(&plan.fallbacks) {
            match Self::try_settings(session, plan, settings)? {
                Ok(mut baseline) => {
                    if let Some(failure) = &stock_failure {
                        session.remark(
                            true,
                            "stock-failed",
                            format!(
                                "{} failed ({failure}); the baseline is {settings}",
                                plan.start
                            ),
                        );
                    }
                    baseline.stock_failure = stock_failure;
                    return Ok(baseline);
                }
                Err(failure) => stock_failure = stock_failure.or(Some(failure)),
            }
        }
        let failure = stock_failure.unwrap_or_else(|| unreachable!("the start was tried"));
        let reason = format!("no baseline runs here: {} failed ({failure})", plan.start);
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
            best_runs: Vec::new(),
            trend: None,
            noise_pct: f64::INFINITY,
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
        let purpose = if self.runs.len() < IN_ALL {
            format!("baseline {} of {IN_ALL}", self.runs.len() + 1)
        } else {
            "baseline again".to_owned()
        };
        let order = session.order();
        let planned = plain_run(Stage::Baseline, &self.settings, repetitions, purpose);
        let recorded = session.run(planned)?;
        if let Err(failure) = recorded.samples() {
            return Ok(Err(failure));
        }
        self.runs.push((order, recorded));
        self.update();
        Ok(Ok(()))
    }

    /// Takes the runs of the best candidate into the noise.
    pub fn pool(&mut self, best_runs: &[(usize, &'h [TestSamples])]) {
        self.best_runs = best_runs.to_vec();
        self.update();
    }

    fn update(&mut self) {
        let runs: Vec<_> = self.valid().collect();
        let own = self.shares(&runs);
        self.trend = trend(&own);
        let configurations = [own, self.shares(&self.best_runs)];
        self.noise_pct = noise_pct(&configurations, self.trend.as_ref());
    }

    fn valid(&self) -> impl Iterator<Item = (usize, &'h [TestSamples])> {
        self.runs
            .iter()
            .filter_map(|(order, r)| match &r.run.outcome {
                RunOutcome::Valid { tests } => Some((*order, tests.as_slice())),
                _ => None,
            })
    }

    /// A metric of the baseline at a place in run order: the mean of its runs, on the common trend where there is one.
    fn at(&self, order: usize, metric: impl Fn(&[TestSamples]) -> f64) -> f64 {
        let (mut sum, mut n) = (0.0, 0.0);
        for (_, samples) in self.valid() {
            sum += metric(samples);
            n += 1.0;
        }
        sum / n * self.trend.as_ref().map_or(1.0, |trend| trend.level(order))
    }

    /// The goal's metric there.
    pub fn score_at(&self, order: usize) -> f64 {
        self.at(order, |samples| self.objective.run_score(samples))
    }

    /// A test's rate there.
    pub fn rate_at(&self, order: usize, test: TestSpec) -> f64 {
        self.at(order, |samples| mean_rate(samples, test))
    }

    /// The rates of a configuration's runs as shares of their tests' means.
    fn shares(&self, runs: &[(usize, &'h [TestSamples])]) -> Vec<Shares> {
        let tests = self.objective.tests();
        let mean = |test: &TestSpec| {
            runs.iter().map(|(_, s)| mean_rate(s, *test)).sum::<f64>() / runs.len() as f64
        };
        let means: Vec<f64> = tests.iter().map(mean).collect();
        let of_run = |(order, samples): &(usize, &[TestSamples])| {
            let shares = tests.iter().zip(&means);
            let shares = shares.map(|(test, mean)| mean_rate(samples, *test) / mean);
            (*order as f64, shares.collect())
        };
        runs.iter().map(of_run).collect()
    }

    /// What a difference of two readings must exceed, percent.
    pub const fn noise_pct(&self) -> f64 {
        self.noise_pct
    }

    /// Spread of the goal's metric between its runs around their common trend, percent; `None` below two runs.
    pub fn cv_pct(&self) -> Option<f64> {
        let level = |order: usize| self.trend.as_ref().map_or(1.0, |t| t.level(order));
        let scores = self
            .valid()
            .map(|(order, s)| self.objective.run_score(s) / level(order));
        Summary::of(&scores.collect::<Vec<f64>>()).cv_pct
    }

    /// No confirmation against it could be judged: the verdict's own bound on the spread, met before it starts.
    pub fn is_too_noisy(&self) -> bool {
        self.cv_pct().is_some_and(|cv| cv > MAX_CV_PCT)
    }

    /// Change from the first to the last run on the trend, percent; `None` where no drift is told from noise.
    pub fn drift_pct(&self) -> Option<f64> {
        let trend = self.trend.as_ref()?;
        Some(100.0 * (trend.level(trend.last as usize) / trend.level(0) - 1.0))
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
            let limit = self
                .valid()
                .filter_map(of_test)
                .fold(SOONEST_STOP_SECS, f64::max);
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

    /// Place of its first run in the session.
    pub fn first_seq(&self) -> Option<u32> {
        self.runs.first().map(|(_, recorded)| recorded.seq)
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
            noise_pct: self.noise_pct,
            drift_pct: self.drift_pct(),
            too_noisy: self.is_too_noisy(),
            stock_failure: self.stock_failure.clone(),
        }
    }
}
