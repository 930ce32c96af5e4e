//! Jobs, threads, cancellation, and the one protocol that every reader sees (design section 1, style B2).

pub mod ab;
mod announce;
pub mod bandwidth;
pub mod chosen;
pub mod difference;
pub mod doctor;
pub mod evidence;
pub mod import;
pub mod install;
mod job;
pub mod lab;
mod measure;
pub mod message;
pub mod models;
mod output;
pub mod plan;
pub mod prepare;
pub mod profiles;
pub mod quick;
pub mod report;
pub mod resume;
pub mod run;
pub mod scan;
pub mod serve;
pub mod serve_check;
pub mod settings;
mod speculate;
pub mod target;
pub mod telemetry;
pub mod tune;
mod watch;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::ports::{
    BandwidthMeter, CancelMode, CancelToken, Clock, Lab, MachineProbe, Models, Runner, Runtimes,
    SearchSpaces, Servers, SettingsStore, Store, Telemetry,
};

use job::JobContext;
use message::{Command, Event, JobError, JobId, Occupies};
use telemetry::{DEFAULT_INTERVAL, Sampler, Tick};
use watch::Watch;

/// Events waiting for a slow reader; a job that is ahead by so many waits, it never drops one.
const EVENT_CAPACITY: usize = 256;

/// The world as the engine sees it; `wiring` builds the real one, tests build others.
#[derive(Clone)]
pub struct Ports {
    /// Reads this machine.
    pub probe: Arc<dyn MachineProbe>,
    /// Knows llama.cpp builds.
    pub runtimes: Arc<dyn Runtimes>,
    /// Runs llama-bench.
    pub runner: Arc<dyn Runner>,
    /// Measures through llama-server.
    pub live: Arc<dyn Runner>,
    /// Runs llama-server.
    pub servers: Arc<dyn Servers>,
    /// Reads and makes model files.
    pub models: Arc<dyn Models>,
    /// Keeps everything measured.
    pub store: Arc<dyn Store>,
    /// The machine's sensors.
    pub telemetry: Arc<dyn Telemetry>,
    /// Measures what memories deliver.
    pub bandwidth: Arc<dyn BandwidthMeter>,
    /// Measures what a card can do by itself.
    pub lab: Arc<dyn Lab>,
    /// What may be set.
    pub space: Arc<dyn SearchSpaces>,
    /// The owner's choices in the desktop app; no job reads them.
    pub settings: Arc<dyn SettingsStore>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where Flux keeps its data.
    pub data_dir: PathBuf,
}

struct Running {
    cancel: CancelToken,
    thread: JoinHandle<()>,
    occupies: Occupies,
    /// Set before the last event, when nothing is measured any more.
    over: Arc<AtomicBool>,
}

/// Owns the jobs. Dropping it ends every job at once and waits until the last child is reaped.
pub struct Engine {
    ports: Ports,
    events: Sender<Event>,
    closing: Arc<AtomicBool>,
    next: AtomicU64,
    running: HashMap<JobId, Running>,
    watch: Watch,
    senses: bool,
    sampler: Option<Sampler>,
}

impl Engine {
    /// An engine over `ports`, and the one stream of its events.
    pub fn new(ports: Ports) -> (Self, Receiver<Event>) {
        let (events, receiver) = bounded(EVENT_CAPACITY);
        (
            Self {
                ports,
                events,
                closing: Arc::default(),
                next: AtomicU64::new(1),
                running: HashMap::new(),
                watch: Watch::default(),
                senses: true,
                sampler: None,
            },
            receiver,
        )
    }

    /// The ports, for queries that are no jobs.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Starts a job on a thread of its own.
    ///
    /// # Errors
    /// A second measuring job (two would measure each other), a server beside a measurement, or no thread could be
    /// started.
    pub fn submit(&mut self, command: Command) -> Result<JobId, JobError> {
        self.running.retain(|_, job| !job.thread.is_finished());
        let occupies = command.occupies();
        self.is_free_for(occupies)?;
        if occupies == Occupies::Measuring && self.senses && self.sampler.is_none() {
            // Nobody looks at the ticks; the job and the store hear of the readings all the same.
            self.watch(DEFAULT_INTERVAL, true)?;
        }
        let id = JobId(self.next.fetch_add(1, Ordering::Relaxed));
        let cancel = CancelToken::new();
        let over = Arc::default();
        let ports = self.ports.clone();
        let context = JobContext::new(
            id,
            self.events.clone(),
            Arc::clone(&self.closing),
            Arc::clone(&over),
            ports.clock.clone(),
            if occupies == Occupies::Measuring {
                self.watch.clone()
            } else {
                Watch::default()
            },
            cancel.clone(),
        );
        let thread = std::thread::Builder::new()
            .name(format!("job-{}", id.0))
            .spawn(move || context.perform(|context| dispatch(command, &ports, context)))
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

    /// A measurement goes with nothing that loads the machine; several servers go together.
    fn is_free_for(&self, wanted: Occupies) -> Result<(), JobError> {
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

    /// Reads the machine's sensors every `interval` (100 ms to 10 s) from now on, instead of any watching before. With
    /// `keep`, what is read while a session is measured is stored with it. A slow reader of the ticks loses some.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn watch(&mut self, interval: Duration, keep: bool) -> Result<Receiver<Tick>, JobError> {
        self.stop_watching();
        let (sampler, ticks) = Sampler::start(&self.ports, interval, keep, self.watch.clone())?;
        self.sampler = Some(sampler);
        Ok(ticks)
    }

    /// Measures without reading sensors: no energy, no clocks, nothing to doubt a run for.
    #[must_use]
    pub fn without_sensors(mut self) -> Self {
        self.senses = false;
        self
    }

    /// Reads no sensors any more; what was to be stored is stored.
    pub fn stop_watching(&mut self) {
        self.sampler = None;
    }

    /// Asks a job to stop. A job that has ended, or never was, is left alone.
    pub fn cancel(&self, job: JobId, mode: CancelMode) {
        if let Some(running) = self.running.get(&job) {
            running.cancel.cancel(mode);
        }
    }
}

impl Drop for Engine {
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

fn dispatch(
    command: Command,
    ports: &Ports,
    context: &mut JobContext,
) -> Result<serde_json::Value, job::Ended> {
    match command {
        Command::Tune(request) => tune::perform(&request, ports, context),
        Command::Ab(request) => ab::perform(&request, ports, context),
        Command::Plan(request) => plan::bench::perform(&request, ports, context),
        Command::Bandwidth(asked) => bandwidth::perform(&asked, ports, context),
        Command::Lab(asked) => lab::perform(&asked, ports, context),
        Command::Install(backend) => install::install(backend, ports, context),
        Command::Synth(request) => install::synthesise(&request, ports, context),
        Command::Serve(request) => serve::perform(&request, ports, context),
        Command::ServeCheck(request) => serve_check::perform(&request, ports, context),
    }
}
