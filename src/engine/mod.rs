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
mod jobs;
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
pub mod workplace;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::ports::{
    BandwidthMeter, CancelMode, Clock, Lab, MachineProbe, Models, Runner, Runtimes, SearchSpaces,
    Servers, SettingsStore, Store, Telemetry,
};

use job::JobContext;
use jobs::Jobs;
use message::{Command, Event, JobError, JobId, Occupies};
use telemetry::{DEFAULT_INTERVAL, Sampler, Tick};
use watch::Watch;

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

/// Owns the jobs. Dropping it ends every job at once and waits until the last child is reaped.
pub struct Engine {
    // First: jobs end before the sensors that they read.
    jobs: Jobs,
    ports: Ports,
    watch: Watch,
    senses: bool,
    sampler: Option<Sampler>,
}

impl Engine {
    /// An engine over `ports`, and the one stream of its events.
    pub fn new(ports: Ports) -> (Self, Receiver<Event>) {
        let (jobs, receiver) = Jobs::new();
        (
            Self {
                jobs,
                ports,
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
        let occupies = command.occupies();
        self.jobs.is_free_for(occupies)?;
        if occupies == Occupies::Measuring && self.senses && self.sampler.is_none() {
            // Nobody looks at the ticks; the job and the store hear of the readings all the same.
            self.watch(DEFAULT_INTERVAL, true)?;
        }
        let watch = match occupies {
            Occupies::Measuring => self.watch.clone(),
            _ => Watch::default(),
        };
        let (ports, clock) = (self.ports.clone(), self.ports.clock.clone());
        self.jobs.start(occupies, clock, watch, move |context| {
            dispatch(command, &ports, context)
        })
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
        self.jobs.cancel(job, mode);
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
