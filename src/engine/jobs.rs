//! The jobs of an engine: each on a thread of its own, one measurement at a time, every one ended and waited for at last.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ports::sync::{AtomicBool, Builder, JoinHandle, Ordering, Receiver, Sender, bounded};
use crate::ports::{CancelMode, CancelToken, Clock};

use super::job::{Ended, JobContext};
use super::message::{Event, JobError, JobId, Occupies};
use super::watch::Watch;

/// Events waiting for a slow reader; a job that is ahead by so many waits, it never drops one.
const EVENT_CAPACITY: usize = 256;

struct Running {
    cancel: CancelToken,
    thread: JoinHandle<()>,
    occupies: Occupies,
    /// Set before the last event, when nothing is measured any more.
    over: Arc<AtomicBool>,
}

/// Owns the jobs. Dropping it ends every job at once and waits until the last child is reaped.
pub struct Jobs {
    events: Sender<Event>,
    closing: Arc<AtomicBool>,
    last: u64,
    running: HashMap<JobId, Running>,
}

impl Jobs {
    /// None yet, and the one stream of their events.
    pub fn new() -> (Self, Receiver<Event>) {
        Self::telling(EVENT_CAPACITY)
    }

    /// The same with so many events waiting for a slow reader.
    pub fn telling(capacity: usize) -> (Self, Receiver<Event>) {
        let (events, receiver) = bounded(capacity);
        let jobs = Self {
            events,
            closing: Arc::new(AtomicBool::new(false)),
            last: 0,
            running: HashMap::new(),
        };
        (jobs, receiver)
    }

    /// A measurement goes with nothing that loads the machine; several servers go together.
    ///
    /// # Errors
    /// A second measuring job, a server beside a measurement, a measurement beside a server.
    pub fn is_free_for(&mut self, wanted: Occupies) -> Result<(), JobError> {
        self.running.retain(|_, job| !job.thread.is_finished());
        let runs = |kind: Occupies| {
            let mut jobs = self.running.values();
            jobs.any(|job| job.occupies == kind && !job.over.load(Ordering::SeqCst))
        };
        let (headline, hint) = match wanted {
            Occupies::Measuring if runs(Occupies::Measuring) => (
                "another measurement is running: two would measure each other",
                "wait for it, or cancel it",
            ),
            Occupies::Measuring if runs(Occupies::Serving) => (
                "a llama-server of Flux is running: it would spoil the measurement",
                "stop the server first",
            ),
            Occupies::Serving if runs(Occupies::Measuring) => (
                "a measurement is running: a server would spoil it",
                "wait for it, or cancel it",
            ),
            _ => return Ok(()),
        };
        Err(JobError::new("busy", headline).hint(hint))
    }

    /// Starts `work` on a thread; who asks first whether it [is free](Self::is_free_for) hears why not.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(
        &mut self,
        occupies: Occupies,
        clock: Arc<dyn Clock>,
        watch: Watch,
        work: impl FnOnce(&mut JobContext) -> Result<serde_json::Value, Ended> + Send + 'static,
    ) -> Result<JobId, JobError> {
        self.last += 1;
        let id = JobId(self.last);
        let (cancel, over) = (CancelToken::new(), Arc::new(AtomicBool::new(false)));
        let context = JobContext::new(
            id,
            self.events.clone(),
            Arc::clone(&self.closing),
            Arc::clone(&over),
            clock,
            watch,
            cancel.clone(),
        );
        let thread = Builder::new()
            .name(format!("job-{}", id.0))
            .spawn(move || context.perform(work))
            .map_err(|e| JobError::new("thread", format!("no thread could be started: {e}")))?;
        self.running.insert(
            id,
            Running {
                cancel,
                thread,
                occupies,
                over,
            },
        );
        Ok(id)
    }

    /// Asks a job to stop. A job that has ended, or never was, is left alone.
    pub fn cancel(&self, job: JobId, mode: CancelMode) {
        if let Some(running) = self.running.get(&job) {
            running.cancel.cancel(mode);
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        // A reader that does not read any more must not hold a job in `emit`.
        self.closing.store(true, Ordering::SeqCst);
        for job in self.running.values() {
            job.cancel.cancel(CancelMode::Now);
        }
        for (_, job) in self.running.drain() {
            // A panic was already turned into a failed job; there is nothing left to report.
            let _ = job.thread.join();
        }
    }
}
