//! An engine on a scripted runner: real store, real model file, an exported machine, no processes.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use flux::config::{SettingsFile, SpaceFile};
use flux::domain::placement::bandwidth::BandwidthProfile;
use flux::domain::telemetry::{HOST, Metric, SeriesId};
use flux::domain::types::{
    Backend, Failure, FailureClass, Machine, RawOutput, Run, RunOutcome, RunProgress, RunRequest,
    Runtime, TestSamples, Timestamp,
};
use flux::engine::message::{Command, Event, EventKind, JobId, Outcome, TuneRequest};
use flux::engine::{Engine, Ports};
use flux::gguf::GgufModels;
use flux::ports::{
    BandwidthMeter, BandwidthProgress, BandwidthRequest, CancelToken, Clock, InstallProgress,
    PortError, PortResult, Runner, Runtimes, SynthRequest, Telemetry, TelemetrySource,
};
use flux::probe::FixtureProbe;
use flux::runtime::bench::BenchRunner;
use flux::runtime::server::{LlamaServers, ServerRunner};
use flux::store::{Access, SqliteStore};

#[path = "altered_machine.rs"]
mod altered_machine;
#[path = "scripted_servers.rs"]
mod servers;

use altered_machine::{Altered, as_if_real};

use super::flux_cli::Bed;

/// How long a test waits for the job's thread before it gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// One run the engine asks for.
pub struct Asked<'a> {
    /// From 0, cancelled ones counted.
    pub number: u32,
    pub request: &'a RunRequest,
    pub cancel: &'a CancelToken,
}

impl Asked<'_> {
    /// Flash attention is on.
    pub fn on(&self) -> bool {
        let args = &self.request.launch.args;
        args.windows(2).any(|w| w == ["--flash-attn", "on"])
    }

    /// It is a candidate's own run in screening: those alone may be stopped early.
    pub fn screens(&self) -> bool {
        self.request.early_stop.is_some()
    }
}

/// What becomes of it.
pub enum Answer {
    /// Samples, flash attention 30 % faster in generation.
    Valid,
    /// Samples of prompt and generation at these factors of stock.
    Rated(f64, f64),
    Cancelled,
    Fails(FailureClass),
}

type Script = Box<dyn Fn(&Asked<'_>) -> Answer + Send + Sync>;

struct ScriptedRunner {
    script: Script,
    asked: AtomicU32,
    /// Noise goes by valid runs, so that a broken session sees the same as an unbroken one.
    valid: AtomicU32,
}

impl Runner for ScriptedRunner {
    fn run(
        &self,
        request: &RunRequest,
        cancel: &CancelToken,
        _: &mut dyn FnMut(RunProgress),
    ) -> Run {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let asked = Asked {
            number,
            request,
            cancel,
        };
        let outcome = match (self.script)(&asked) {
            Answer::Valid => self.samples(request, 1.0, if asked.on() { 1.3 } else { 1.0 }),
            Answer::Rated(prompt, generation) => self.samples(request, prompt, generation),
            Answer::Cancelled => RunOutcome::Cancelled,
            Answer::Fails(class) => RunOutcome::Failed {
                failure: Failure::new(class, "scripted"),
                salvaged: Vec::new(),
            },
        };
        Run {
            started_at: Timestamp(1),
            wall_secs: 10.0,
            outcome,
            buffers: Vec::new(),
            raw: RawOutput::default(),
            telemetry: None,
        }
    }
}

impl ScriptedRunner {
    fn samples(&self, request: &RunRequest, prompt: f64, generation: f64) -> RunOutcome {
        let place = self.valid.fetch_add(1, Ordering::SeqCst);
        // Between processes ±0.3 %, in an order that no A-B-B-A can mistake for an effect of 30 %.
        let noise = 1.0 + 0.003 * [0.0, 1.0, -1.0, 0.5, -0.5, 0.2, -0.7][place as usize % 7];
        let samples = |test: &flux::domain::types::TestSpec| {
            let rate = if test.n_gen > 0 {
                20.0 * generation
            } else {
                200.0 * prompt
            };
            let ns = |r: u32| {
                let wobble = 1.0 + 0.001 * f64::from(r % 3);
                (f64::from(test.tokens()) * 1e9 * noise * wobble / rate) as u64
            };
            TestSamples {
                test: *test,
                samples_ns: (0..request.repetitions).map(ns).collect(),
                record: serde_json::Value::Null,
                energy: None,
            }
        };
        RunOutcome::Valid {
            tests: request.tests.iter().map(samples).collect(),
        }
    }
}

/// Holds one run until the test has done something.
pub struct Gate {
    at: u32,
    reached: (Sender<()>, Receiver<()>),
    open: (Sender<()>, Receiver<()>),
}

impl Gate {
    /// Before run `at`, from 0.
    pub fn new(at: u32) -> Self {
        Self {
            at,
            reached: bounded(1),
            open: bounded(1),
        }
    }

    /// Every run is valid unless cancelled now; one waits at the gate.
    pub fn script(&self) -> impl Fn(&Asked<'_>) -> Answer + Send + Sync + 'static {
        let (at, reached, open) = (self.at, self.reached.0.clone(), self.open.1.clone());
        move |asked| {
            if asked.number == at {
                reached.send(()).unwrap();
                open.recv_timeout(PATIENCE).unwrap();
            }
            if asked.cancel.is_now() {
                Answer::Cancelled
            } else {
                Answer::Valid
            }
        }
    }

    /// Waits for the run, does `what`, lets it go on.
    pub fn pass(&self, what: impl FnOnce()) {
        self.wait();
        what();
        self.open();
    }

    /// Waits for the run.
    pub fn wait(&self) {
        self.reached.1.recv_timeout(PATIENCE).unwrap();
    }

    /// Lets it go on.
    pub fn open(&self) {
        self.open.0.send(()).unwrap();
    }
}

struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp(1)
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Measures nothing at once.
struct FixedBandwidth;

impl BandwidthMeter for FixedBandwidth {
    fn measure(
        &self,
        request: &BandwidthRequest,
        _: &CancelToken,
        _: &mut dyn FnMut(BandwidthProgress),
    ) -> PortResult<BandwidthProfile> {
        Ok(BandwidthProfile {
            measured_at: request.at,
            ..BandwidthProfile::default()
        })
    }
}

/// One sensor of the host, always at 7.
struct OneSensor;

impl Telemetry for OneSensor {
    fn sources(&self) -> Vec<Box<dyn TelemetrySource>> {
        vec![Box::new(Self)]
    }
}

impl TelemetrySource for OneSensor {
    fn name(&self) -> &'static str {
        "one"
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        let series = SeriesId {
            source: HOST.to_owned(),
            metric: Metric::CpuLoad,
        };
        vec![(series, 7.0)]
    }
}

/// A clock that stands still; whoever asks how much time passed hears of a second more.
struct FixedClock(Timestamp, AtomicU32);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.1.fetch_add(1, Ordering::SeqCst).into())
    }
}

type Installs =
    Box<dyn Fn(&CancelToken, &mut dyn FnMut(InstallProgress)) -> PortResult<()> + Send + Sync>;

/// The builds known, and how the next one is installed.
struct Builds {
    known: Mutex<Vec<Runtime>>,
    /// What an installation brings.
    brings: Option<Runtime>,
    installs: Installs,
}

impl Builds {
    /// These are known; none can be installed.
    fn fixed(known: Vec<Runtime>) -> Arc<Self> {
        Arc::new(Self {
            known: Mutex::new(known),
            brings: None,
            installs: Box::new(|_, _| Err(PortError::new("not here"))),
        })
    }
}

impl Runtimes for Builds {
    fn list(&self) -> Vec<Runtime> {
        self.known.lock().unwrap().clone()
    }

    fn resolve(&self, name: &str) -> PortResult<Runtime> {
        let known = self.known.lock().unwrap();
        let named = |r: &&Runtime| r.name == name || r.dir == Path::new(name);
        let found = known.iter().find(named);
        found.cloned().ok_or_else(|| PortError::new("not known"))
    }

    fn devices_with(
        &self,
        _: &Runtime,
        _: &[String],
    ) -> PortResult<Vec<flux::domain::types::RuntimeDevice>> {
        Err(PortError::new("not here"))
    }

    fn add(&self, _: &flux::ports::NewRuntime) -> PortResult<Runtime> {
        Err(PortError::new("not here"))
    }

    fn remove(&self, _: &str) -> PortResult<Runtime> {
        Err(PortError::new("not here"))
    }

    fn install(
        &self,
        _: Backend,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(InstallProgress),
    ) -> PortResult<Runtime> {
        (self.installs)(cancel, progress)?;
        let brought = self.brings.clone().unwrap();
        self.known.lock().unwrap().push(brought.clone());
        Ok(brought)
    }
}

/// All a test needs; several engines may follow each other on it.
pub struct Desk {
    pub bed: Bed,
    pub store: Arc<SqliteStore>,
    pub ports: Ports,
}

impl Desk {
    /// With a runner that answers so.
    pub fn new(script: impl Fn(&Asked<'_>) -> Answer + Send + Sync + 'static) -> Self {
        let bed = Bed::new("");
        let store = Arc::new(SqliteStore::open(&bed.data, Access::Measure).unwrap());
        let ports = Ports {
            probe: as_if_real("none"),
            runtimes: Builds::fixed(vec![bed.fake.runtime(&[])]),
            runner: Arc::new(ScriptedRunner {
                script: Box::new(script),
                asked: AtomicU32::new(0),
                valid: AtomicU32::new(0),
            }),
            live: Arc::new(ServerRunner::new(Arc::new(RealClock(Instant::now())))),
            servers: Arc::new(LlamaServers),
            models: Arc::new(GgufModels),
            store: store.clone(),
            telemetry: Arc::new(OneSensor),
            bandwidth: Arc::new(FixedBandwidth),
            lab: Arc::new(flux::lab::InProcess),
            space: Arc::new(SpaceFile::open(&bed.data).0),
            settings: Arc::new(SettingsFile::new(&bed.data)),
            clock: Arc::new(RealClock(Instant::now())),
            data_dir: bed.data.clone(),
        };
        Self { bed, store, ports }
    }

    /// With real processes of a runtime that behaves as this scripts.
    pub fn running(script: &str) -> Self {
        let mut desk = Self::new(|_| unreachable!());
        desk.bed = Bed::new(script);
        let data = desk.bed.data.clone();
        desk.keeps_its_data_in(&data);
        desk.ports.runtimes = Builds::fixed(vec![desk.bed.fake.runtime(&[])]);
        desk.ports.runner = Arc::new(BenchRunner::new(desk.ports.clock.clone()));
        desk
    }

    pub fn engine(&self) -> (Engine, Receiver<Event>) {
        Engine::new(self.ports.clone())
    }

    /// Its machine is told otherwise from now on; called whenever it is read.
    pub fn tells_otherwise(&mut self, alter: impl Fn(&mut Machine) + Send + Sync + 'static) {
        let probe = Arc::clone(&self.ports.probe);
        self.ports.probe = Arc::new(Altered { probe, alter });
    }

    /// Makes its build another one.
    pub fn builds(&mut self, change: impl FnOnce(&mut Runtime)) {
        let mut runtime = self.ports.runtimes.list().remove(0);
        change(&mut runtime);
        self.ports.runtimes = Builds::fixed(vec![runtime]);
    }

    /// Its build lists these devices.
    pub fn lists(&mut self, devices: &[(&str, &str)]) {
        self.ports.runtimes = Builds::fixed(vec![self.bed.fake.runtime(devices)]);
    }

    /// Without a build, until one is installed this way.
    pub fn lacks_runtime(
        &mut self,
        installs: impl Fn(&CancelToken, &mut dyn FnMut(InstallProgress)) -> PortResult<()>
        + Send
        + Sync
        + 'static,
    ) {
        self.ports.runtimes = Arc::new(Builds {
            known: Mutex::default(),
            brings: Some(self.bed.fake.runtime(&[])),
            installs: Box::new(installs),
        });
    }

    /// The same desk on an exported machine with its builds, at a fixed time.
    pub fn as_recorded_on(&mut self, machine: &str, now: Timestamp) {
        self.moves_to(machine);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/machines");
        let exported = FixtureProbe::load(&folder.join(machine)).unwrap();
        self.ports.runtimes = Builds::fixed(exported.runtimes().to_vec());
        self.ports.servers = Arc::new(servers::AgreeingServers);
        self.ports.clock = Arc::new(FixedClock(now, AtomicU32::new(0)));
    }

    /// Keeps everything in this folder from now on.
    pub fn keeps_its_data_in(&mut self, data: &Path) {
        self.store = Arc::new(SqliteStore::open(data, Access::Measure).unwrap());
        self.ports.store = self.store.clone();
        self.ports.settings = Arc::new(SettingsFile::new(data));
        data.clone_into(&mut self.ports.data_dir);
    }

    /// A model of this shape with random weights, its tensor data a hole.
    pub fn synthesised(&self, shape: &str) -> PathBuf {
        let output = self.bed.fake.scratch().join(format!("{shape}.gguf"));
        let request = SynthRequest {
            shape: shape.to_owned(),
            output: output.clone(),
            sparse: true,
            seed: 0,
        };
        let models = &self.ports.models;
        models
            .synthesise(&request, &CancelToken::new(), &mut |_, _| {})
            .unwrap();
        output
    }

    /// The same desk on another machine.
    pub fn moves_to(&mut self, machine: &str) {
        self.ports.probe = as_if_real(machine);
    }

    /// A search of flash attention, or its session gone on with.
    pub fn tune(&self, resume: Option<i64>) -> Command {
        self.tune_with(resume, 4)
    }

    /// The same with so many processes per arm in the confirmation.
    pub fn tune_with(&self, resume: Option<i64>, processes: u32) -> Command {
        Command::Tune(TuneRequest {
            processes: Some(processes),
            only: vec!["flash-attn".to_owned()],
            resume,
            ..TuneRequest::new(self.bed.model.clone())
        })
    }

    /// A job that measures nothing.
    pub fn synth(&self, name: &str) -> Command {
        Command::Synth(SynthRequest {
            shape: "tiny".to_owned(),
            output: self.bed.fake.scratch().join(name),
            sparse: true,
            seed: 0,
        })
    }
}

/// How a job ended; events of others are passed over.
pub fn finished(events: &Receiver<Event>, job: JobId) -> Outcome {
    loop {
        let event = events.recv_timeout(PATIENCE).unwrap();
        match event.kind {
            EventKind::Finished(outcome) if event.job == job => return outcome,
            _ => {}
        }
    }
}
