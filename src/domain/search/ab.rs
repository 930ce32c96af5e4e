//! `flux ab`: the confirmation alone, for any two arms. A pilot of arm A gives the spread it is planned from.

use serde::{Deserialize, Serialize};

use crate::domain::server::MIN_GENERATED;
use crate::domain::stats::{MAX_PROCESSES, RunCost};
use crate::domain::types::{
    Failure, Goal, PlannedRun, RequestShape, Settings, Side, Stage, TestSamples, Verdict,
};

use super::confirmation::{Arms, Confirmation, Size};
use super::goal::Objective;
use super::guard;
use super::plan::{PlanError, SCREENING_REPETITIONS, workload};
use super::session::{Halt, Known, Remark, Session, TuneNote, plain_run, warm_up};
use super::tuner::{Driver, Method, Walk, Walked};

/// Pilot runs: the fewest whose spread says anything.
const PILOT_RUNS: u32 = 3;

/// A comparison of two arms as it is planned. Where the arms are two builds, both settings may be the same: the side
/// of a planned run tells them apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AbPlan {
    /// The goal and what it is judged by.
    pub objective: Objective,
    /// Arm A.
    pub a: Settings,
    /// Arm B.
    pub b: Settings,
    /// Repetitions in a process, instead of the planned number.
    pub repetitions: Option<u32>,
    /// Processes per arm, instead of the planned number.
    pub processes: Option<u32>,
    /// A faster arm B is to be used: it is rejected where it harms another metric (paper section 3, rule 5).
    #[serde(default)]
    pub guarded: bool,
}

impl AbPlan {
    /// A comparison with llama-bench's kind of workload; `long` adds the longer prompt.
    ///
    /// # Errors
    /// The energy goal, or a zero where a number is needed.
    pub fn new(
        goal: Goal,
        a: Settings,
        b: Settings,
        prompt: u32,
        generated: u32,
        depth: u32,
        long: bool,
    ) -> Result<Self, PlanError> {
        if prompt == 0 {
            return Err(PlanError::Zero("the prompt length"));
        }
        if generated == 0 {
            return Err(PlanError::Zero("the number of generated tokens"));
        }
        let tests = workload(prompt, generated, depth, long);
        Ok(Self {
            objective: Objective::new(goal, RequestShape::default(), tests)?,
            a,
            b,
            repetitions: None,
            processes: None,
            guarded: false,
        })
    }

    /// A comparison through a live server, by requests of this shape.
    ///
    /// # Errors
    /// A zero, or fewer generated tokens than a rate needs.
    pub fn live(
        goal: Goal,
        a: Settings,
        b: Settings,
        request: RequestShape,
    ) -> Result<Self, PlanError> {
        check_live(request)?;
        Ok(Self {
            objective: Objective::live(goal, request),
            a,
            b,
            repetitions: None,
            processes: None,
            guarded: false,
        })
    }

    fn compare(&self, session: &mut Session<'_>) -> Known<Confirmation> {
        let arms = Arms {
            a: &self.a,
            b: &self.b,
        };
        session.enter(Stage::Baseline);
        for side in [Side::A, Side::B] {
            let planned = PlannedRun {
                side: Some(side),
                ..warm_up(arms.settings(side))
            };
            samples(session, planned, side)?;
        }
        let size = match self.processes {
            Some(processes) => Size::given(processes, self.repetitions),
            None => self.pilot(session)?,
        };
        session.enter(Stage::Confirmation);
        session.notes.push(TuneNote::ConfirmationPlanned {
            settings: self.b.clone(),
            processes: size.processes,
            repetitions: size.repetitions,
            smallest_effect_pct: size.smallest_effect_pct,
        });
        let mut confirmation = arms.confirm(session, &self.objective, size)?;
        if self.guarded {
            guard::apply_guards(&mut confirmation, &self.objective);
        }
        session.notes.push(TuneNote::Judged {
            confirmation: Box::new(confirmation.clone()),
        });
        Ok(confirmation)
    }

    fn pilot(&self, session: &mut Session<'_>) -> Known<Size> {
        let repetitions = self.repetitions.unwrap_or(SCREENING_REPETITIONS);
        let mut scores = Vec::new();
        let mut repetition_secs = 0.0;
        let begun = session.elapsed_secs;
        for i in 1..=PILOT_RUNS {
            let planned = PlannedRun {
                side: Some(Side::A),
                ..plain_run(
                    Stage::Baseline,
                    &self.a,
                    repetitions,
                    format!("pilot {i} of {PILOT_RUNS}"),
                )
            };
            let samples = samples(session, planned, Side::A)?;
            scores.push(self.objective.repetition_scores(samples));
            let ns: u64 = samples.iter().flat_map(|t| &t.samples_ns).sum();
            repetition_secs += ns as f64 / 1e9 / f64::from(repetitions * PILOT_RUNS);
        }
        let process_secs = (session.elapsed_secs - begun) / f64::from(PILOT_RUNS);
        let cost = RunCost {
            load_secs: (process_secs - repetition_secs * f64::from(repetitions)).max(0.0),
            repetition_secs,
        };
        Ok(Size::plan(&scores, cost, None, self.repetitions))
    }
}

/// Can live requests of this shape be measured?
pub(super) fn check_live(request: RequestShape) -> Result<(), PlanError> {
    match request {
        RequestShape {
            prompt_tokens: 0, ..
        } => Err(PlanError::Zero("the prompt length")),
        RequestShape {
            generated_tokens, ..
        } if generated_tokens < MIN_GENERATED => Err(PlanError::TooFewGenerated(generated_tokens)),
        _ => Ok(()),
    }
}

/// The samples of a run that must work.
fn samples<'h>(
    session: &mut Session<'h>,
    planned: PlannedRun,
    side: Side,
) -> Known<&'h [TestSamples]> {
    let arm = planned.settings.clone();
    session.run(planned)?.samples().map_err(|failure| {
        let reason = format!("arm {side:?} ({arm}) does not run here ({failure})");
        Halt::Stops(failure, reason)
    })
}

/// How a comparison ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AbOutcome {
    /// The verdict of the primary metric; `None` when it failed.
    pub verdict: Option<Verdict>,
    /// Why, in one sentence.
    pub reason: String,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// The judgement.
    pub confirmation: Option<Confirmation>,
    /// Notices.
    pub notices: Vec<Remark>,
    /// Seconds inside llama.cpp processes.
    pub run_secs: f64,
}

/// A comparison, step by step.
pub type Ab = Driver<AbPlan>;

impl Method for AbPlan {
    type Outcome = AbOutcome;

    fn stages(&self) -> Vec<(Stage, u32)> {
        let pilot = if self.processes.is_some() {
            0
        } else {
            PILOT_RUNS
        };
        let most = u32::try_from(MAX_PROCESSES).unwrap_or(u32::MAX);
        vec![
            (Stage::Baseline, 2 + pilot),
            (Stage::Confirmation, 2 * self.processes.unwrap_or(most)),
        ]
    }

    fn max_processes(&self) -> u32 {
        // Re-probes after a lost device come on top of the plan; arms end after two failures.
        self.stages().iter().map(|s| s.1).sum::<u32>() + 4
    }

    fn walk(&self, Walk(session): Walk<'_, '_>) -> Walked<AbOutcome> {
        let compared = self.compare(session);
        let end = |verdict, reason, failure, confirmation| AbOutcome {
            verdict,
            reason,
            failure,
            confirmation,
            notices: session.remarks.clone(),
            run_secs: session.elapsed_secs,
        };
        Walked(match compared {
            Ok(c) => Ok(end(Some(c.kept_verdict()), c.reason.clone(), None, Some(c))),
            Err(Halt::Stops(failure, reason)) => Ok(end(None, reason, Some(failure), None)),
            Err(needs) => Err(needs),
        })
    }
}
