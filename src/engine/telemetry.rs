//! The sampler (design section 6): one thread reads every sensor in step with the monotonic clock, tells what that
//! cost, waits for no reader, and stores what was read while a session is measured.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select};

use crate::domain::telemetry::{AbsentSensor, Reading, SeriesId};
use crate::domain::types::Timestamp;
use crate::ports::{Clock, PortResult, TelemetrySource};

use super::Ports;
use super::message::JobError;
use super::watch::{Boundary, Watch};

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
    /// Sensors that cannot be used, as far as is known by now.
    pub absent: Arc<[AbsentSensor]>,
}

/// Deletes stored readings that are older than the owner wants them kept.
///
/// # Errors
/// The store cannot be written.
pub fn forget_old(ports: &Ports) -> PortResult<()> {
    const DAY_MS: i64 = 86_400_000;
    let days = ports.settings.load().0.telemetry_days;
    if days == 0 {
        return Ok(());
    }
    let oldest = ports.clock.now().0 - i64::from(days) * DAY_MS;
    ports.store.forget_telemetry(Timestamp(oldest))
}

/// The thread. Dropping it ends and joins it: at once, or when the sensors being read have answered.
pub(super) struct Sampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    watch: Watch,
}

impl Sampler {
    /// Starts it; the interval is brought into its bounds.
    pub fn start(
        ports: &Ports,
        interval: Duration,
        keep: bool,
        watch: Watch,
    ) -> Result<(Self, Receiver<Tick>), JobError> {
        let (ticks, receiver) = bounded(TICKS_WAITING);
        let (stop, stopped) = bounded(0);
        let (clock, telemetry) = (ports.clock.clone(), ports.telemetry.clone());
        let store = ports.store.clone();
        let append: Append = Box::new(move |id, batch| store.append_telemetry(id, batch));
        let keeper = keep.then(|| Keeper::new(append, watch.clone()));
        let shared = watch.clone();
        let work = move || {
            let mut work = Work {
                // Opened on the thread that reads them: some sensors take long to open.
                sources: telemetry.sources(),
                schedule: Schedule::new(interval, clock.elapsed()),
                clock,
                ticks,
                keeper,
                watch: shared,
                absent: Arc::default(),
            };
            work.run(&stopped);
        };
        let thread = thread::Builder::new()
            .name("flux-telemetry".to_owned())
            .spawn(work)
            .map_err(|e| JobError::new("thread", format!("no thread could be started: {e}")))?;
        watch.set_interval(bounded_interval(interval));
        let sampler = Self {
            stop: Some(stop),
            thread: Some(thread),
            watch,
        };
        Ok((sampler, receiver))
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.watch.set_interval(Duration::ZERO);
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of a sensor's code ends that sensor alone.
            let _ = thread.join();
        }
    }
}

fn bounded_interval(asked: Duration) -> Duration {
    asked.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
}

/// When the next tick is due: on a fixed grid, so that no delay adds up.
struct Schedule {
    interval: Duration,
    due: Duration,
}

impl Schedule {
    fn new(interval: Duration, now: Duration) -> Self {
        Self {
            interval: bounded_interval(interval),
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
    watch: Watch,
    absent: Arc<[AbsentSensor]>,
}

impl Work {
    fn run(&mut self, stopped: &Receiver<()>) {
        let boundaries = self.watch.boundaries();
        loop {
            let wait = self.schedule.wait(self.clock.elapsed());
            select! {
                recv(stopped) -> _ => break,
                recv(boundaries) -> asked => self.boundary(asked.ok().flatten()),
                default(wait) => self.tick(),
            }
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.flush();
        }
    }

    fn tick(&mut self) {
        let begun = self.clock.elapsed();
        let is_measured = self.watch.session().is_some();
        let readings = self.read(|source| {
            source.measuring(is_measured);
            source.sample()
        });
        let now = self.clock.elapsed();
        self.schedule.made(now);
        let cost = now.saturating_sub(begun);
        let at = readings.first().map_or_else(|| self.clock.now(), |r| r.at);
        let absent: Vec<_> = self.sources.iter().flat_map(|s| s.absent()).collect();
        if *self.absent != absent {
            self.absent = absent.into();
        }
        let tick = Tick {
            at,
            readings,
            cost,
            absent: Arc::clone(&self.absent),
        };
        // A reader that is full loses this tick, and one that is gone needs none.
        let _ = self.ticks.try_send(tick);
    }

    /// Reads the counters that are too slow for every tick, and tells who waits for them.
    fn boundary(&mut self, waiting: Boundary) {
        self.read(|source| source.at_boundary());
        if let Some(waiting) = waiting {
            // The last repetition lies between two readings of power too.
            self.read(|source| source.sample());
            // Whoever waited too long is gone.
            let _ = waiting.send(());
        }
    }

    /// Asks every source; what it said is kept for the running job, and stored with its session.
    fn read(
        &mut self,
        mut ask: impl FnMut(&mut dyn TelemetrySource) -> Vec<(SeriesId, f64)>,
    ) -> Vec<Reading> {
        let at = self.clock.now();
        let mut readings = Vec::new();
        self.sources.retain_mut(|source| {
            let begun = self.clock.elapsed();
            let asked = catch_unwind(AssertUnwindSafe(|| ask(source.as_mut())));
            let Ok(mut values) = asked else {
                // Its state is unknown: it is asked no more, the others are.
                tracing::warn!(
                    "the sensors of {} hit a bug and are read no more",
                    source.name()
                );
                return false;
            };
            values.retain(|(_, value)| value.is_finite());
            // A slow sensor tells of some moment while it was read: the middle errs least.
            let middle = begun + self.clock.elapsed().saturating_sub(begun) / 2;
            self.watch.keep(middle, &values);
            let reading = |(series, value)| Reading { series, at, value };
            readings.extend(values.into_iter().map(reading));
            true
        });
        if let Some(keeper) = &mut self.keeper {
            keeper.keep(&readings, self.clock.elapsed());
        }
        readings
    }
}

/// Stores readings of a session.
type Append = Box<dyn FnMut(i64, &[Reading]) -> PortResult<()> + Send>;

/// Collects the readings of the session that is measured, and stores them in batches.
struct Keeper {
    append: Append,
    watch: Watch,
    session: Option<i64>,
    batch: Vec<Reading>,
    stored: Duration,
}

impl Keeper {
    fn new(append: Append, watch: Watch) -> Self {
        Self {
            append,
            watch,
            session: None,
            batch: Vec::new(),
            stored: Duration::ZERO,
        }
    }

    fn keep(&mut self, readings: &[Reading], now: Duration) {
        let session = self.watch.session();
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
