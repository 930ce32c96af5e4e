//! The method is a plain procedure over the runs recorded so far: where they end, the run it asks for is the next step.
//!
//! Re-running the procedure after every run is what makes a resumed session equal an unbroken one: there is no other state.

use serde::{Deserialize, Serialize};

use crate::domain::types::{
    Failure, FailureClass, PlannedRun, Run, RunOutcome, Settings, Side, Stage, TestSamples,
};

use super::confirmation::Confirmation;
use super::outcome::Candidate;

/// Something worth telling while a session goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "kebab-case")]
pub enum TuneNote {
    /// A stage began.
    Stage {
        /// Which.
        stage: Stage,
    },
    /// A candidate was judged in screening, pairs or the drop-one check.
    Screened {
        /// The candidate.
        candidate: Candidate,
    },
    /// A confirmation was planned, before its first run.
    ConfirmationPlanned {
        /// The finalist.
        settings: Settings,
        /// Processes per arm.
        processes: u32,
        /// Repetitions in each.
        repetitions: u32,
        /// Smallest effect it can see, percent; `None` where there is no spread to plan from.
        smallest_effect_pct: Option<f64>,
    },
    /// A confirmation ended.
    Judged {
        /// The judgement.
        confirmation: Box<Confirmation>,
    },
    /// Something odd.
    Notice(Remark),
}

/// A notice of the method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// It may spoil the measurement.
    pub warning: bool,
    /// Stable kebab-case code.
    pub code: String,
    /// One sentence for people.
    pub text: String,
}

/// A stage with the runs expected in it and done so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageProgress {
    /// Which.
    pub stage: Stage,
    /// Runs expected; an estimate until the stage has begun.
    pub expected: u32,
    /// Runs done.
    pub done: u32,
}

/// Where a session is.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The stage it is in.
    pub stage: Stage,
    /// Every stage, in order.
    pub stages: Vec<StageProgress>,
    /// Runs done.
    pub done: u32,
    /// Runs expected in all.
    pub total: u32,
    /// Seconds left, from the median of the runs so far.
    pub eta_secs: Option<f64>,
}

/// A recorded run, without what the method does not need (raw output, records).
#[derive(Debug, Clone)]
pub(super) struct Recorded {
    /// Place in the session, from 0, as stored.
    pub seq: u32,
    pub run: Run,
}

impl Recorded {
    pub fn new(seq: u32, run: &Run) -> Self {
        let outcome = match &run.outcome {
            RunOutcome::Valid { tests } => RunOutcome::Valid {
                tests: tests.iter().map(without_record).collect(),
            },
            RunOutcome::Failed { failure, .. } => RunOutcome::Failed {
                failure: failure.clone(),
                salvaged: Vec::new(),
            },
            other => other.clone(),
        };
        Self {
            seq,
            run: Run {
                started_at: run.started_at,
                wall_secs: run.wall_secs,
                outcome,
                buffers: run.buffers.clone(),
                raw: crate::domain::types::RawOutput::default(),
                telemetry: None,
            },
        }
    }

    /// The samples, where the run is valid.
    pub fn samples(&self) -> Result<&[TestSamples], Failure> {
        match &self.run.outcome {
            RunOutcome::Valid { tests } => Ok(tests),
            RunOutcome::Failed { failure, .. } => Err(failure.clone()),
            RunOutcome::StoppedEarly { test, .. } => Err(Failure::new(
                FailureClass::TimedOut,
                format!("{test} was stopped early"),
            )),
            RunOutcome::Cancelled => Err(Failure::new(FailureClass::NoResults, "cancelled")),
        }
    }
}

fn without_record(samples: &TestSamples) -> TestSamples {
    TestSamples {
        test: samples.test,
        samples_ns: samples.samples_ns.clone(),
        record: serde_json::Value::Null,
        energy: samples.energy.clone(),
    }
}

/// Why the procedure does not go on by itself.
#[derive(Debug)]
pub(super) enum Halt {
    /// This run comes next.
    Needs(Box<PlannedRun>),
    /// The session cannot go on; the reason in one sentence.
    Stops(Failure, String),
}

/// A result, or the run needed to know it.
pub(super) type Known<T> = Result<T, Halt>;

/// The procedure's view of one session.
pub(super) struct Session<'h> {
    history: &'h [Recorded],
    at: usize,
    stage: Stage,
    max_processes: u32,
    pub elapsed_secs: f64,
    pub notes: Vec<TuneNote>,
    pub remarks: Vec<Remark>,
    pub stages: Vec<StageProgress>,
}

impl<'h> Session<'h> {
    /// A session from its recorded runs, with the runs expected per stage.
    pub fn new(history: &'h [Recorded], max_processes: u32, expected: &[(Stage, u32)]) -> Self {
        let stages = expected.iter().map(|&(stage, expected)| StageProgress {
            stage,
            expected,
            done: 0,
        });
        Self {
            history,
            at: 0,
            stage: expected.first().map_or(Stage::Baseline, |e| e.0),
            max_processes,
            elapsed_secs: 0.0,
            notes: Vec::new(),
            remarks: Vec::new(),
            stages: stages.collect(),
        }
    }

    /// Runs done so far: the run order that drift is measured in.
    pub const fn order(&self) -> usize {
        self.at
    }

    /// Processes left.
    pub fn left(&self) -> u32 {
        self.max_processes
            .saturating_sub(u32::try_from(self.at).unwrap_or(u32::MAX))
    }

    /// Begins a stage; earlier ones are then known to be over.
    pub fn enter(&mut self, stage: Stage) {
        let earlier = self.stages.iter_mut().take_while(|s| s.stage != stage);
        earlier.for_each(|s| s.expected = s.done);
        self.stage = stage;
        self.notes.push(TuneNote::Stage { stage });
    }

    /// `more` runs are expected in this stage from here on.
    pub fn expect(&mut self, more: u32) {
        if let Some(s) = self.current() {
            s.expected = s.done + more;
        }
    }

    /// The recorded run, or a halt that asks for it.
    pub fn run(&mut self, planned: PlannedRun) -> Known<&'h Recorded> {
        let Some(recorded) = self.history.get(self.at) else {
            if self.left() == 0 {
                return Err(Halt::Stops(
                    Failure::new(FailureClass::TimedOut, "the process budget is used up"),
                    format!(
                        "all {} processes of the session are used",
                        self.max_processes
                    ),
                ));
            }
            return Err(Halt::Needs(Box::new(planned)));
        };
        self.at += 1;
        self.elapsed_secs += recorded.run.wall_secs;
        if let Some(s) = self.current() {
            s.done += 1;
            s.expected = s.expected.max(s.done);
        }
        Ok(recorded)
    }

    fn current(&mut self) -> Option<&mut StageProgress> {
        let stage = self.stage;
        self.stages.iter_mut().find(|s| s.stage == stage)
    }

    /// Nothing more is expected.
    pub fn finish(&mut self) {
        self.stages.iter_mut().for_each(|s| s.expected = s.done);
    }

    /// A notice.
    pub fn remark(&mut self, warning: bool, code: &str, text: impl Into<String>) {
        let remark = Remark {
            warning,
            code: code.to_owned(),
            text: text.into(),
        };
        self.remarks.push(remark.clone());
        self.notes.push(TuneNote::Notice(remark));
    }

    /// Where it is.
    pub fn progress(&self) -> Progress {
        let expected = self.stages.iter().map(|s| s.expected).sum::<u32>();
        let total = expected.min(self.max_processes);
        let done = self.stages.iter().map(|s| s.done).sum::<u32>();
        let mut secs: Vec<f64> = self.history.iter().map(|r| r.run.wall_secs).collect();
        secs.sort_by(f64::total_cmp);
        let median = secs.get(secs.len() / 2);
        Progress {
            stage: self.stage,
            stages: self.stages.clone(),
            done,
            total,
            eta_secs: median.map(|secs| secs * f64::from(total.saturating_sub(done))),
        }
    }
}

/// A run that nothing special is asked of.
pub(super) fn plain_run(
    stage: Stage,
    settings: &Settings,
    repetitions: u32,
    purpose: impl Into<String>,
) -> PlannedRun {
    PlannedRun {
        stage,
        side: None,
        settings: settings.clone(),
        repetitions,
        early_stop: None,
        log_buffers: false,
        clients: 1,
        purpose: purpose.into(),
    }
}

/// The discarded process that fills caches before a configuration's first counted run (case C41), and logs its buffers.
pub(super) fn warm_up(settings: &Settings) -> PlannedRun {
    PlannedRun {
        log_buffers: true,
        ..plain_run(Stage::WarmUp, settings, 1, format!("warm-up of {settings}"))
    }
}

/// After a lost device a tiny known-good run must work before anything else is tried (case C14).
pub(super) fn probe_if_lost(
    session: &mut Session<'_>,
    known_good: &Settings,
    side: Option<Side>,
    failure: &Failure,
) -> Known<()> {
    let lost = matches!(
        failure.class,
        FailureClass::DeviceLost | FailureClass::DeviceLostTimeout | FailureClass::MemoryOverCommit
    );
    if !lost {
        return Ok(());
    }
    let planned = PlannedRun {
        side,
        ..plain_run(
            Stage::Baseline,
            known_good,
            1,
            "re-probe after a lost device",
        )
    };
    match session.run(planned)?.samples() {
        Ok(_) => Ok(()),
        Err(after) => {
            let reason = format!(
                "the device was lost ({failure}) and did not come back ({after}): the session stops"
            );
            Err(Halt::Stops(after, reason))
        }
    }
}
