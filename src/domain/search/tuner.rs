//! The search as a state machine: `next` says which run to make, `record` takes what came of it (design section 1).

use std::collections::BTreeMap;

use crate::domain::types::{Failure, PlannedRun, Run, RunOutcome, Settings, Stage};

use super::baseline::Baseline;
use super::finalists::{self, Decision};
use super::outcome::{Candidate, TuneOutcome};
use super::pairs;
use super::plan::{CONFIRMATION_RESERVE, TunePlan};
use super::session::{Halt, Known, Progress, Recorded, Session, TuneNote};
use super::trials::Search;

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step<O> {
    /// Make this run and record it.
    Run(Box<PlannedRun>),
    /// Nothing more.
    Done(Box<O>),
}

/// A method over runs: a search, or a comparison of two arms.
pub trait Method {
    /// What it ends with.
    type Outcome: Clone;

    /// Stages with the runs expected in each.
    fn stages(&self) -> Vec<(Stage, u32)>;

    /// Most processes it may use.
    fn max_processes(&self) -> u32;

    /// Walks as far as the recorded runs reach.
    #[doc(hidden)]
    fn walk(&self, walk: Walk<'_, '_>) -> Walked<Self::Outcome>;
}

/// The recorded runs a method walks over; opaque outside of this module.
pub struct Walk<'w, 'h>(pub(super) &'w mut Session<'h>);

/// How far a walk came; opaque outside of this module.
pub struct Walked<O>(pub(super) Known<O>);

/// Runs a method step by step. All its state is the plan and the recorded runs.
#[derive(Debug)]
pub struct Driver<M: Method> {
    plan: M,
    history: Vec<Recorded>,
    recorded: u32,
    notes: Vec<TuneNote>,
    progress: Progress,
    step: Step<M::Outcome>,
}

/// A search, step by step.
pub type Tuner = Driver<TunePlan>;

/// A stored run that is not the one the method asks for at that point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "run {seq} of the session does not fit its plan: planned {planned}, stored {stored}; it was recorded by another version of Flux, start a new session"
)]
pub struct ReplayError {
    /// Place of the run.
    pub seq: u32,
    /// What the method asks for.
    pub planned: String,
    /// What is stored.
    pub stored: String,
}

impl<M: Method> Driver<M> {
    /// A session that begins.
    pub fn new(plan: M) -> Self {
        let (step, notes, progress) = evaluate(&plan, &[]);
        Self {
            plan,
            history: Vec::new(),
            recorded: 0,
            notes,
            progress,
            step,
        }
    }

    /// The same where so many runs of its session were made before it began.
    #[must_use]
    pub fn after(mut self, runs: u32) -> Self {
        self.recorded = runs;
        self
    }

    /// A session that goes on: the stored runs are replayed, so that it ends as it would have ended unbroken.
    ///
    /// # Errors
    /// A stored run is not the one the method asks for.
    pub fn resume<'r>(
        plan: M,
        stored: impl IntoIterator<Item = (&'r PlannedRun, &'r Run)>,
    ) -> Result<Self, ReplayError> {
        let mut driver = Self::new(plan);
        for (planned, run) in stored {
            let wanted = match &driver.step {
                Step::Run(wanted) => Some(wanted.as_ref()),
                Step::Done(_) => None,
            };
            if !wanted.is_some_and(|w| same_run(w, planned)) {
                return Err(ReplayError {
                    seq: driver.recorded,
                    planned: wanted
                        .map_or_else(|| "nothing more".to_owned(), |w| w.purpose.clone()),
                    stored: planned.purpose.clone(),
                });
            }
            driver.record(run);
        }
        Ok(driver)
    }

    /// What comes next; the same until a run is recorded.
    pub fn next(&self) -> Step<M::Outcome> {
        self.step.clone()
    }

    /// Takes what came of the run that `next` asked for; returns what is worth telling. A cancelled run is not counted:
    /// the same run is asked for again. After the end nothing is taken.
    pub fn record(&mut self, run: &Run) -> Vec<TuneNote> {
        if matches!(self.step, Step::Done(_)) {
            return Vec::new();
        }
        let seq = self.recorded;
        self.recorded += 1;
        if run.outcome == RunOutcome::Cancelled {
            return Vec::new();
        }
        self.history.push(Recorded::new(seq, run));
        let (step, notes, progress) = evaluate(&self.plan, &self.history);
        let fresh = notes[self.notes.len()..].to_vec();
        self.notes = notes;
        self.step = step;
        self.progress = progress;
        fresh
    }

    /// Where the session is.
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Everything told so far, in order.
    pub fn notes(&self) -> &[TuneNote] {
        &self.notes
    }

    /// The plan.
    pub const fn plan(&self) -> &M {
        &self.plan
    }

    /// Candidates judged so far, the fastest first, those without a reading last.
    pub fn ranking(&self) -> Vec<Candidate> {
        let mut latest: BTreeMap<u32, &Candidate> = BTreeMap::new();
        for note in &self.notes {
            if let TuneNote::Screened { candidate } = note {
                latest.insert(candidate.id, candidate);
            }
        }
        let mut ranking: Vec<Candidate> = latest.into_values().cloned().collect();
        let change = |c: &Candidate| c.change_pct.unwrap_or(f64::NEG_INFINITY);
        ranking.sort_by(|a, b| change(b).total_cmp(&change(a)));
        ranking
    }
}

/// Is a stored run the one asked for? Its early-stop limits follow from the runs before it.
fn same_run(wanted: &PlannedRun, stored: &PlannedRun) -> bool {
    let key = |p: &PlannedRun| (p.stage, p.side, p.repetitions, p.log_buffers, p.clients);
    key(wanted) == key(stored)
        && wanted.settings == stored.settings
        && wanted.purpose == stored.purpose
}

fn evaluate<M: Method>(
    plan: &M,
    history: &[Recorded],
) -> (Step<M::Outcome>, Vec<TuneNote>, Progress) {
    let mut session = Session::new(history, plan.max_processes(), &plan.stages());
    let step = match plan.walk(Walk(&mut session)).0 {
        Ok(outcome) => {
            session.finish();
            Step::Done(Box::new(outcome))
        }
        Err(Halt::Needs(planned)) => Step::Run(planned),
        Err(Halt::Stops(_, reason)) => {
            unreachable!("a method turns its stops into outcomes: {reason}")
        }
    };
    let progress = session.progress();
    (step, session.notes, progress)
}

impl Method for TunePlan {
    type Outcome = TuneOutcome;

    fn stages(&self) -> Vec<(Stage, u32)> {
        let values = self
            .offer
            .dimensions
            .iter()
            .map(|d| d.values.len())
            .sum::<usize>();
        let values = u32::try_from(values).unwrap_or(u32::MAX);
        let stale = u32::from(self.first_candidate.is_some());
        // Two runs of the best and three unions, where there is anything to pair.
        let pairs = if self.offer.dimensions.len() > 1 {
            5
        } else {
            0
        };
        // A warm-up and both arms.
        let confirmation = self.processes.map_or(CONFIRMATION_RESERVE, |n| 2 * n + 1);
        vec![
            (Stage::Baseline, 3),
            (Stage::Screening, values + stale + 2),
            (Stage::Pairs, pairs),
            (Stage::DropOne, 0),
            (Stage::Confirmation, confirmation),
        ]
    }

    fn max_processes(&self) -> u32 {
        self.max_processes
    }

    fn walk(&self, Walk(session): Walk<'_, '_>) -> Walked<TuneOutcome> {
        let baseline = match Baseline::establish(session, self) {
            Ok(baseline) => baseline,
            Err(Halt::Stops(failure, reason)) => {
                return Walked(Ok(self.failed(session, None, failure, reason)));
            }
            Err(needs) => return Walked(Err(needs)),
        };
        let mut search = Search::new(self, baseline);
        Walked(match stages(&mut search, session) {
            Ok(decision) => Ok(Self::ended(session, search, decision)),
            Err(Halt::Stops(failure, reason)) => {
                Ok(self.failed(session, Some(search), failure, reason))
            }
            Err(needs) => Err(needs),
        })
    }
}

/// The method, stage by stage.
fn stages<'h>(search: &mut Search<'_, 'h>, session: &mut Session<'h>) -> Known<Decision> {
    search.screen(session)?;
    pairs::try_pairs(search, session)?;
    finalists::decide(search, session)
}

impl TunePlan {
    fn ended(session: &Session<'_>, search: Search<'_, '_>, decision: Decision) -> TuneOutcome {
        let introduced_by = decision.winner.as_ref().map(|w| introductions(w, &search));
        let reason = match &search.baseline.stock_failure {
            Some(failure) => format!(
                "{} failed ({failure}); the baseline is {}; {}",
                search.plan.start, search.baseline.settings, decision.reason
            ),
            None => decision.reason,
        };
        TuneOutcome {
            verdict: Some(decision.verdict),
            reason,
            failure: None,
            baseline: Some(search.baseline.summary()),
            candidates: search.candidates,
            refused: search.refused,
            confirmations: decision.confirmations,
            winner: decision.winner,
            introduced_by: introduced_by.unwrap_or_default(),
            stale: search.stale,
            notices: session.remarks.clone(),
            run_secs: session.elapsed_secs,
        }
    }

    fn failed(
        &self,
        session: &Session<'_>,
        search: Option<Search<'_, '_>>,
        failure: Failure,
        reason: String,
    ) -> TuneOutcome {
        let baseline = search.as_ref().map(|s| s.baseline.summary());
        let (candidates, refused, stale) = search.map_or_else(
            || (Vec::new(), self.offer.refused.clone(), None),
            |s| (s.candidates, s.refused, s.stale),
        );
        TuneOutcome {
            verdict: None,
            reason,
            failure: Some(failure),
            baseline,
            candidates,
            refused,
            confirmations: Vec::new(),
            winner: None,
            introduced_by: Vec::new(),
            stale,
            notices: session.remarks.clone(),
            run_secs: session.elapsed_secs,
        }
    }
}

/// For each setting the run that brought it in: the baseline's first, where stock failed and the baseline has it; else
/// that of the first adopted candidate that has it, or of the first one.
fn introductions(winner: &Settings, search: &Search<'_, '_>) -> Vec<(String, u32)> {
    let first = |dimension: &String, value: &String, adopted: bool| {
        let mut having = search
            .candidates
            .iter()
            .filter(|c| c.adopted || !adopted)
            .filter(|c| c.settings.0.get(dimension) == Some(value));
        having.find_map(|c| c.runs.first().copied())
    };
    let introduced = winner.0.iter().filter_map(|(d, v)| {
        let seq = if search.baseline.settings.0.get(d) == Some(v) {
            search.baseline.first_seq()
        } else {
            first(d, v, true).or_else(|| first(d, v, false))
        };
        Some((d.clone(), seq?))
    });
    introduced.collect()
}
