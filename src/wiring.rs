//! Builds the real adapters; the only place that sees both sides. Placeholder until merged: no runtimes yet.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::domain::types::{Backend, Machine, Run, RunProgress, RunRequest, Runtime, Timestamp};
use crate::engine::Ports;
use crate::gguf::GgufModels;
use crate::ports::{
    CancelToken, Clock, InstallProgress, MachineProbe, Notice, PortError, PortResult, Runner,
    Runtimes,
};
use crate::probe::{FixtureProbe, MachineReader};
use crate::store::{self, SqliteStore};

/// What a command needs of the data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Measures: takes the one lock.
    Measure,
    /// Looks only.
    Look,
}

/// How to open.
#[derive(Debug, Clone)]
pub struct Options {
    /// Data folder; `None` is the usual one.
    pub data_dir: Option<PathBuf>,
    /// An exported machine to act on: its folder or name.
    pub machine: Option<PathBuf>,
    /// Access.
    pub access: Access,
}

/// What was opened.
pub struct Opened {
    /// The world.
    pub ports: Ports,
    /// What the user should know.
    pub notices: Vec<Notice>,
}

struct NoRuntimes;

fn none<T>() -> PortResult<T> {
    Err(PortError::new("not merged yet"))
}

impl Runtimes for NoRuntimes {
    fn list(&self) -> Vec<Runtime> {
        Vec::new()
    }
    fn resolve(&self, _: &str) -> PortResult<Runtime> {
        none()
    }
    fn add(&self, _: &Path) -> PortResult<Runtime> {
        none()
    }
    fn remove(&self, _: &str) -> PortResult<Runtime> {
        none()
    }
    fn install(
        &self,
        _: Backend,
        _: &CancelToken,
        _: &mut dyn FnMut(InstallProgress),
    ) -> PortResult<Runtime> {
        none()
    }
}

impl Runner for NoRuntimes {
    fn run(&self, _: &RunRequest, _: &CancelToken, _: &mut dyn FnMut(RunProgress)) -> Run {
        unreachable!("not merged yet")
    }
}

struct SystemClock(Instant);

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(jiff::Timestamp::now().as_millisecond())
    }
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Opens.
///
/// # Errors
/// As the adapters.
pub fn open(options: &Options) -> PortResult<Opened> {
    let data_dir = options
        .data_dir
        .clone()
        .unwrap_or_else(|| PathBuf::from("flux-data"));
    let probe: Arc<dyn MachineProbe> = match &options.machine {
        Some(folder) => Arc::new(FixtureProbe::load(folder)?),
        None => Arc::new(MachineReader::new()),
    };
    let access = match options.access {
        Access::Measure => store::Access::Measure,
        Access::Look => store::Access::Look,
    };
    let store = SqliteStore::open(&data_dir, access)?;
    let notices = store.opened().notices.clone();
    let ports = Ports {
        probe,
        runtimes: Arc::new(NoRuntimes),
        runner: Arc::new(NoRuntimes),
        models: Arc::new(GgufModels),
        store: Arc::new(store),
        clock: Arc::new(SystemClock(Instant::now())),
        data_dir,
    };
    Ok(Opened { ports, notices })
}

/// Writes a scan as a fixture into `dir` and returns the file.
///
/// # Errors
/// As `probe::export`.
pub fn export_machine(machine: &Machine, runtimes: &[Runtime], dir: &Path) -> PortResult<PathBuf> {
    crate::probe::export(machine, runtimes, dir)
}
