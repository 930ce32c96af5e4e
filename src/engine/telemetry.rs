//! The sampler (design section 6): one thread reads every sensor in step with the monotonic clock, tells what that
//! cost, waits for no reader, and stores what was read while a session is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::domain::telemetry::Reading;
use crate::domain::types::Timestamp;
use crate::ports::{Clock, PortResult, TelemetrySource};

use super::Ports;
use super::message::JobError;

/// How often sensors are read unless told otherwise: a chart moves, and a reading costs well under 1 % of it.
pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(250);
/// Most often: faster than most sensors change.
pub const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// Least often: slower would miss whole runs.
pub const LONGEST_INTERVAL: Duration = Duration::from_secs(10);
/// Ticks kept for a slow reader; later ones are lost to it.
const TICKS_WAITING: usize = 64;
/// How often readings are stored: at most so much of them is lost with a killed Flux, and the disk is left alone between.
const STORE_INTERVAL: Duration = Duration::from_secs(2);

/// What every sensor said at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// When.
    pub at: Timestamp,
    /// The readings; sensors that said nothing are absent.
    pub readings: Vec<Reading>,
    /// What reading them cost.
    pub cost: Duration,
}

/// The session that is being measured, told by its job and looked at by the sampler.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured(Arc<AtomicI64>);

impl Measured {
    /// `session` is measured from now on.
    pub fn begin(&self, session: i64) {
        self.0.store(session, Ordering::SeqCst);
    }

    /// None is.
    pub fn end(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    fn session(&self) -> Option<i64> {
        // Row ids begin at 1.
        Some(self.0.load(Ordering::SeqCst)).filter(|&id| id > 0)
    }
}

/// The thread. Dropping it ends and joins it: at once, or when the sensors being read have answered.
pub(super) struct Sampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts it; the interval is brought into its bounds.
    pub fn start(
        ports: &Ports,
        interval: Duration,
        keep: bool,
        measured: Measured,
    ) -> Result<(Self, Receiver<Tick>), JobError> {
        let (ticks, receiver) = bounded(TICKS_WAITING);
        let (stop, stopped) = bounded(0);
        let (clock, telemetry) = (ports.clock.clone(), ports.telemetry.clone());
        let store = ports.store.clone();
        let append: Append = Box::new(move |id, batch| store.append_telemetry(id, batch));
        let keeper = keep.then(|| Keeper::new(append, measured));
        let work = move || {
            let mut work = Work {
                // Opened on the thread that reads them: some sensors take long to open.
                sources: telemetry.sources(),
                schedule: Schedule::new(interval, clock.elapsed()),
                clock,
                ticks,
                keeper,
            };
            work.run(&stopped);
        };
        let thread = thread::Builder::new()
            .name("flux-telemetry".to_owned())
            .spawn(work)
            .map_err(|e| JobError::new("thread", format!("no thread could be started: {e}")))?;
        let sampler = Self {
            stop: Some(stop),
            thread: Some(thread),
        };
        Ok((sampler, receiver))
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A sensor's code that panicked has ended the thread already.
            let _ = thread.join();
        }
    }
}

/// When the next tick is due: on a fixed grid, so that no delay adds up.
struct Schedule {
    interval: Duration,
    due: Duration,
}

impl Schedule {
    fn new(interval: Duration, now: Duration) -> Self {
        Self {
            interval: interval.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL),
            due: now,
        }
    }

    fn wait(&self, now: Duration) -> Duration {
        self.due.saturating_sub(now)
    }

    /// A tick is made: the next is due at the first moment of the grid after `now`. Those that a stall has passed over
    /// are left out, not made up for.
    fn made(&mut self, now: Duration) {
        let late = now.saturating_sub(self.due).as_nanos();
        let passed = u32::try_from(late / self.interval.as_nanos()).unwrap_or(u32::MAX - 1);
        self.due += self.interval * (passed + 1);
    }
}

struct Work {
    sources: Vec<Box<dyn TelemetrySource>>,
    schedule: Schedule,
    clock: Arc<dyn Clock>,
    ticks: Sender<Tick>,
    keeper: Option<Keeper>,
}

impl Work {
    fn run(&mut self, stopped: &Receiver<()>) {
        loop {
            let wait = self.schedule.wait(self.clock.elapsed());
            if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                break;
            }
            self.tick();
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.flush();
        }
    }

    fn tick(&mut self) {
        let begun = self.clock.elapsed();
        let at = self.clock.now();
        let values = self.sources.iter_mut().flat_map(|source| source.sample());
        let known = values.filter(|(_, value)| value.is_finite());
        let readings: Vec<Reading> = known
            .map(|(series, value)| Reading { series, at, value })
            .collect();
        let now = self.clock.elapsed();
        if let Some(keeper) = &mut self.keeper {
            keeper.keep(&readings, now);
        }
        self.schedule.made(now);
        let cost = now.saturating_sub(begun);
        // A reader that is full loses this tick, and one that is gone needs none.
        let _ = self.ticks.try_send(Tick { at, readings, cost });
    }
}

/// Stores readings of a session.
type Append = Box<dyn FnMut(i64, &[Reading]) -> PortResult<()> + Send>;

/// Collects the readings of the session that is measured, and stores them in batches.
struct Keeper {
    append: Append,
    measured: Measured,
    session: Option<i64>,
    batch: Vec<Reading>,
    stored: Duration,
}

impl Keeper {
    fn new(append: Append, measured: Measured) -> Self {
        Self {
            append,
            measured,
            session: None,
            batch: Vec::new(),
            stored: Duration::ZERO,
        }
    }

    fn keep(&mut self, readings: &[Reading], now: Duration) {
        let session = self.measured.session();
        if session != self.session {
            self.flush();
            self.session = session;
            self.stored = now;
        }
        if session.is_none() {
            return;
        }
        self.batch.extend_from_slice(readings);
        if now.saturating_sub(self.stored) >= STORE_INTERVAL {
            self.flush();
            self.stored = now;
        }
    }

    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if let Some(session) = self.session
            && !batch.is_empty()
            && let Err(error) = (self.append)(session, &batch)
        {
            // The job's own next write fails too, and says so to people.
            tracing::warn!("telemetry of session {session} was not stored: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
