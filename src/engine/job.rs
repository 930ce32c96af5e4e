//! One job's side of the protocol: numbering, never dropping, exactly one end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::ports::sync::{AtomicBool, Ordering, SendTimeoutError, Sender};
use crate::ports::{CancelMode, CancelToken, Clock, Notice, NoticeLevel, PortError};

use super::message::{Event, EventKind, JobError, JobId, Outcome, StageInfo};
use super::watch::Watch;

/// Progress is sent at most this often: a reader cannot use more, and events must not pile up.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// How often a job that waits for a slow reader looks whether the engine is being dropped.
const CLOSING_POLL: Duration = Duration::from_millis(50);

/// Why a job ended before its result.
#[derive(Debug)]
pub enum Ended {
    /// Cancelled, with what was kept.
    Cancelled {
        /// Runs kept in the store.
        kept_runs: u32,
        /// Session to resume.
        session: Option<i64>,
    },
    /// Failed.
    Failed(JobError),
}

impl From<JobError> for Ended {
    fn from(error: JobError) -> Self {
        Self::Failed(error)
    }
}

impl From<PortError> for Ended {
    fn from(error: PortError) -> Self {
        Self::Failed(error.into())
    }
}

/// What a job sees of the engine.
pub struct JobContext {
    job: JobId,
    events: Sender<Event>,
    closing: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
    /// The sensors of this measurement; of a job that measures nothing, none.
    pub(super) watch: Watch,
    /// Asked to stop.
    pub cancel: CancelToken,
    seq: u64,
    last_progress: Option<Duration>,
}

impl JobContext {
    pub(super) fn new(
        job: JobId,
        events: Sender<Event>,
        closing: Arc<AtomicBool>,
        over: Arc<AtomicBool>,
        clock: Arc<dyn Clock>,
        watch: Watch,
        cancel: CancelToken,
    ) -> Self {
        Self {
            job,
            events,
            closing,
            over,
            clock,
            watch,
            cancel,
            seq: 0,
            last_progress: None,
        }
    }

    /// Sends an event, waiting for a slow reader. A reader that is gone, or an engine that is, ends the job quietly.
    pub fn emit(&mut self, kind: EventKind) {
        let mut event = self.event(kind);
        self.seq += 1;
        loop {
            match self.events.send_timeout(event, CLOSING_POLL) {
                Ok(()) => return,
                Err(SendTimeoutError::Timeout(back)) if !self.closing.load(Ordering::SeqCst) => {
                    event = back;
                }
                Err(_) => return self.cancel.cancel(CancelMode::Now),
            }
        }
    }

    /// Says what kind of job this is.
    pub fn started(
        &mut self,
        job_kind: &str,
        session: Option<i64>,
        plan: Vec<StageInfo>,
        primary: Option<String>,
    ) {
        self.started_or_gone_on(job_kind, (session, false), plan, primary);
    }

    /// The same, of a session that may have been begun before: `(session, it was)`.
    pub fn started_or_gone_on(
        &mut self,
        job_kind: &str,
        (session, goes_on): (Option<i64>, bool),
        plan: Vec<StageInfo>,
        primary: Option<String>,
    ) {
        if let Some(session) = session {
            self.watch.begin(session);
        }
        self.emit(EventKind::Started {
            job_kind: job_kind.to_owned(),
            session,
            goes_on,
            plan,
            primary,
        });
    }

    /// Sends progress, at most ten times a second and never waiting: the latest counts, older ones may be lost.
    pub fn progress(&mut self, done: u64, total: u64, eta_secs: Option<f64>, doing: &str) {
        let now = self.clock.elapsed();
        if self
            .last_progress
            .is_some_and(|last| now.saturating_sub(last) < PROGRESS_INTERVAL)
        {
            return;
        }
        self.last_progress = Some(now);
        let doing = doing.to_owned();
        let event = self.event(EventKind::Progress {
            done,
            total,
            eta_secs,
            doing,
        });
        if self.events.try_send(event).is_ok() {
            self.seq += 1;
        }
    }

    /// Sends a notice.
    pub fn notice(&mut self, level: NoticeLevel, code: &str, text: impl Into<String>) -> Notice {
        let notice = Notice {
            level,
            code: code.to_owned(),
            text: text.into(),
        };
        self.emit(EventKind::Notice(notice.clone()));
        notice
    }

    fn event(&self, kind: EventKind) -> Event {
        Event {
            job: self.job,
            seq: self.seq,
            at: self.clock.now(),
            kind,
        }
    }

    /// Runs `work` and sends the one `Finished`; a panic becomes a failed job.
    pub(super) fn perform(
        mut self,
        work: impl FnOnce(&mut Self) -> Result<serde_json::Value, Ended>,
    ) {
        let result = catch_unwind(AssertUnwindSafe(|| work(&mut self)));
        let outcome = match result {
            Ok(Ok(result)) => Outcome::Done { result },
            Ok(Err(Ended::Cancelled { kept_runs, session })) => {
                Outcome::Cancelled { kept_runs, session }
            }
            Ok(Err(Ended::Failed(error))) => Outcome::Failed { error },
            Err(panic) => Outcome::Failed {
                error: JobError::panicked("Flux hit a bug in this job", &*panic),
            },
        };
        self.watch.end();
        // A reader that has seen the end may ask for the next measurement at once.
        self.over.store(true, Ordering::SeqCst);
        self.emit(EventKind::Finished(outcome));
    }
}
