//! A job as the app sees it: a pure reducer over its events.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::search::interleaved;
use crate::domain::stats::{Ordered, confirm};
use crate::domain::types::{Comparison, PlannedRun, Settings, Side, Stage, Timestamp};
use crate::engine::message::{
    CandidateResult, Event, EventKind, JobError, JobId, Outcome, StageInfo,
};
use crate::engine::report::ConfirmationDocument;
use crate::ports::{CancelMode, Notice};

/// A run that is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredLine {
    /// Row id.
    pub id: i64,
    /// Place in the session, from 0.
    pub seq: u32,
    /// What was asked.
    pub planned: PlannedRun,
    /// Mean rate per test.
    pub metrics: BTreeMap<String, f64>,
    /// The goal's metric of every repetition.
    pub scores: Vec<f64>,
    /// Tokens per joule of every test, in words.
    pub energy: Vec<String>,
    /// Why there are no samples.
    pub failure: Option<String>,
    /// Seconds it took.
    pub wall_secs: f64,
}

impl StoredLine {
    /// Mean of the goal's metric; `None` without samples.
    pub fn score(&self) -> Option<f64> {
        let n = self.scores.len();
        (n > 0).then(|| self.scores.iter().sum::<f64>() / n as f64)
    }
}

/// The confirmation under way, or the last one.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveConfirmation {
    /// Arm B.
    pub settings: Settings,
    /// Processes per arm.
    pub processes: u32,
    /// Repetitions in each.
    pub repetitions: u32,
    /// Smallest effect it can see, percent.
    pub smallest_effect_pct: Option<f64>,
    /// Its runs so far, in order; shared with the frame that draws them.
    pub runs: Arc<Vec<StoredLine>>,
    /// Its judgement, once there is one.
    pub judged: Option<Box<ConfirmationDocument>>,
}

impl LiveConfirmation {
    /// As it is announced.
    fn planned(event: EventKind) -> Option<Self> {
        let EventKind::ConfirmationPlanned {
            settings,
            processes,
            repetitions,
            smallest_effect_pct,
        } = event
        else {
            return None;
        };
        Some(Self {
            settings,
            processes,
            repetitions,
            smallest_effect_pct,
            runs: Arc::default(),
            judged: None,
        })
    }

    /// Sides in the order they run.
    pub fn order(&self) -> Vec<Side> {
        interleaved(self.processes).collect()
    }

    /// The goal's metric as the runs so far have it; shown, never judged before the end.
    pub fn so_far(&self) -> Option<Comparison> {
        let arm = |side: Side| -> Vec<Ordered> {
            let of_side = self.runs.iter().zip(1_u32..);
            of_side
                .filter(|(run, _)| run.planned.side == Some(side))
                .filter_map(|(run, place)| {
                    Some(Ordered {
                        position: f64::from(place),
                        value: run.score()?,
                    })
                })
                .collect()
        };
        let (a, b) = (arm(Side::A), arm(Side::B));
        (!a.is_empty() && !b.is_empty()).then(|| confirm(&a, &b))
    }
}

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobView {
    /// Its number.
    pub id: JobId,
    /// `tune`, `ab`, `install`, `synth`, `serve`.
    pub kind: String,
    /// Its stored session.
    pub session: Option<i64>,
    /// Name of the goal's metric.
    pub primary: Option<String>,
    /// Stages in order.
    pub plan: Vec<StageInfo>,
    /// The stage it is in.
    pub stage: Option<String>,
    /// Runs (or bytes) done.
    pub done: u64,
    /// Runs (or bytes) expected.
    pub total: u64,
    /// Seconds left.
    pub eta_secs: Option<f64>,
    /// What is going on.
    pub doing: String,
    /// Runs stored; shared with the frame that draws them.
    pub runs: Arc<Vec<StoredLine>>,
    /// Candidates judged in screening, by id.
    pub candidates: Arc<Vec<CandidateResult>>,
    /// The confirmation.
    pub confirmation: Option<LiveConfirmation>,
    /// Notices.
    pub notices: Vec<Notice>,
    /// Where a server of this job answers.
    pub serving: Option<String>,
    /// The user asked it to stop, and how.
    pub stopping: Option<CancelMode>,
    /// When it began, and when its last event came.
    pub began: Option<Timestamp>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Events taken in, progress not counted.
    changes: u64,
}

impl JobView {
    /// A job of this kind, just started.
    pub fn new(id: JobId, kind: &str) -> Self {
        Self {
            id,
            kind: kind.to_owned(),
            session: None,
            primary: None,
            plan: Vec::new(),
            stage: None,
            done: 0,
            total: 0,
            eta_secs: None,
            doing: String::new(),
            runs: Arc::default(),
            candidates: Arc::default(),
            confirmation: None,
            notices: Vec::new(),
            serving: None,
            stopping: None,
            began: None,
            outcome: None,
            changes: 0,
        }
    }

    /// It still runs.
    pub const fn is_running(&self) -> bool {
        self.outcome.is_none()
    }

    /// It starts llama-bench.
    pub fn measures(&self) -> bool {
        matches!(self.kind.as_str(), "tune" | "ab" | "serve-check")
    }

    /// Why this job failed, if it is of this kind and did.
    pub fn failed_as(&self, kind: &str) -> Option<&JobError> {
        match &self.outcome {
            Some(Outcome::Failed { error }) if self.kind == kind => Some(error),
            _ => None,
        }
    }

    /// Rises with every event that a figure may show; progress is none.
    pub fn version(&self) -> u64 {
        (self.id.0 << 32) | self.changes
    }

    /// Share done.
    pub fn share(&self) -> f32 {
        if self.total == 0 {
            return 0.0;
        }
        (self.done as f64 / self.total as f64) as f32
    }

    /// It is confirming, or past it.
    pub const fn is_confirming(&self) -> bool {
        self.confirmation.is_some()
    }

    /// Takes an event of this job in; events of another are ignored.
    pub fn apply(&mut self, event: Event) {
        if event.job != self.id || self.outcome.is_some() {
            return;
        }
        self.began.get_or_insert(event.at);
        self.apply_kind(event.kind);
    }

    fn apply_kind(&mut self, kind: EventKind) {
        self.changes += u64::from(!matches!(kind, EventKind::Progress { .. }));
        match kind {
            EventKind::Started {
                job_kind,
                session,
                plan,
                primary,
                ..
            } => {
                self.kind = job_kind;
                self.session = session;
                self.plan = plan;
                self.primary = primary;
            }
            EventKind::Stage { name } => self.stage = Some(name),
            EventKind::Progress {
                done,
                total,
                eta_secs,
                doing,
            } => {
                (self.done, self.total) = (done, total);
                self.eta_secs = eta_secs;
                self.doing = doing;
            }
            EventKind::RunStored {
                run,
                seq,
                planned,
                metrics,
                scores,
                energy,
                failure,
                wall_secs,
            } => self.stored(StoredLine {
                id: run,
                seq,
                planned: *planned,
                metrics,
                scores,
                energy,
                failure,
                wall_secs,
            }),
            EventKind::Screened(candidate) => {
                let candidates = Arc::make_mut(&mut self.candidates);
                candidates.retain(|known| known.id != candidate.id);
                candidates.push(candidate);
            }
            planned @ EventKind::ConfirmationPlanned { .. } => {
                self.confirmation = LiveConfirmation::planned(planned);
            }
            EventKind::Verdict { confirmation, .. } => self.judged(confirmation),
            EventKind::Earlier(earlier) => self.apply_kind(*earlier),
            EventKind::Serving { url, .. } => self.serving = Some(url),
            EventKind::Notice(notice) => self.notices.push(notice),
            EventKind::Finished(outcome) => self.outcome = Some(outcome),
        }
    }

    fn stored(&mut self, line: StoredLine) {
        if let (Stage::Confirmation, Some(live)) = (line.planned.stage, &mut self.confirmation)
            && live.judged.is_none()
        {
            Arc::make_mut(&mut live.runs).push(line.clone());
        }
        self.done = self.done.max(u64::from(line.seq) + 1);
        Arc::make_mut(&mut self.runs).push(line);
    }

    fn judged(&mut self, confirmation: serde_json::Value) {
        // The event carries the stored form; what cannot be read is shown when the document comes.
        let judged = serde_json::from_value(confirmation).ok();
        if let (Some(live), Some(judged)) = (&mut self.confirmation, judged) {
            live.judged = Some(Box::new(judged));
        }
    }
}
