//! Builds the real adapters; the only place that sees both sides (design section 1).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bandwidth::vulkan::InProcess;
use crate::bandwidth::{Devices as _, DevicesReport, DevicesRequest, Meter};
use crate::config::{SettingsFile, SpaceFile};
use crate::domain::lab::LabEvent;
use crate::domain::types::{Backend, Runtime, RuntimeDevice, Timestamp, VulkanReport};
use crate::engine::Ports;
use crate::gguf::GgufModels;
use crate::lab;
use crate::ports::{
    BandwidthMeter, CancelToken, Clock, InstallProgress, Lab, LabRequest, MachineProbe, NewRuntime,
    Notice, PortError, PortResult, Runtimes,
};
use crate::probe::{FixtureProbe, MachineReader, SystemRoot};
use crate::runtime::bench::BenchRunner;
use crate::runtime::catalog::Catalog;
use crate::runtime::process::guard_children;
use crate::runtime::server::{LlamaServers, ServerRunner};
use crate::store::SqliteStore;
use crate::telemetry::Sensors;

use vulkan_apart::{DevicesApart, LabApart, VulkanApart};

#[cfg(unix)]
pub use crate::runtime::process::{CHILD_GUARD, stand_guard};
pub use crate::store::Access;

mod vulkan_apart;

pub use vulkan_apart::{VULKAN_BANDWIDTH, VULKAN_LAB, VULKAN_REPORT};

/// How to open.
#[derive(Debug, Clone)]
pub struct Options {
    /// Data folder; `None` is the operating system's usual one.
    pub data_dir: Option<PathBuf>,
    /// An exported machine to act as: its folder or name.
    pub machine: Option<PathBuf>,
    /// What the command needs of the store.
    pub access: Access,
    /// A `flux` to ask Vulkan in, apart from this process; `None` asks it here.
    pub flux: Option<PathBuf>,
}

/// What was opened.
pub struct Opened {
    /// The world.
    pub ports: Ports,
    /// What the user should know.
    pub notices: Vec<Notice>,
}

/// Opens the data folder and builds every adapter.
///
/// # Errors
/// No usual data folder on this system, an unreadable fixture, or a store that cannot be opened.
pub fn open(options: &Options) -> PortResult<Opened> {
    let data_dir = match &options.data_dir {
        Some(dir) => dir.clone(),
        None => default_data_dir()?,
    };
    if let Some(flux) = &options.flux {
        guard_children(flux);
    }
    let store = SqliteStore::open(&data_dir, options.access)?;
    let mut notices = store.opened().notices.clone();
    let (space, space_notice) = SpaceFile::open(&data_dir);
    notices.extend(space_notice);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock(Instant::now()));
    let catalog = Catalog::new(&data_dir);
    let mut root = SystemRoot::default();
    let (probe, runtimes): (Arc<dyn MachineProbe>, Arc<dyn Runtimes>) = match &options.machine {
        Some(folder) => {
            let probe = FixtureProbe::load(folder)?;
            let exported = probe.runtimes().to_vec();
            root = probe.root();
            (
                Arc::new(probe),
                Arc::new(WithExported { catalog, exported }),
            )
        }
        None => (machine_reader(options), Arc::new(catalog)),
    };
    let ports = Ports {
        probe,
        runtimes,
        runner: Arc::new(BenchRunner::new(Arc::clone(&clock))),
        live: Arc::new(ServerRunner::new(Arc::clone(&clock))),
        servers: Arc::new(LlamaServers),
        models: Arc::new(GgufModels),
        store: Arc::new(store),
        telemetry: Arc::new(Sensors::new(root, Arc::clone(&clock))),
        bandwidth: bandwidth_meter(options),
        lab: kernel_lab(options),
        space: Arc::new(space),
        settings: Arc::new(SettingsFile::new(&data_dir)),
        clock,
        data_dir,
    };
    Ok(Opened { ports, notices })
}

/// Does Flux keep something in this folder?
pub fn is_data_dir(dir: &Path) -> bool {
    SqliteStore::is_in(dir)
}

/// What Vulkan says, asked in this process.
pub fn vulkan_report() -> VulkanReport {
    crate::probe::vulkan::report()
}

/// What the Vulkan devices of this machine deliver, measured in this process.
///
/// # Errors
/// The request is none.
pub fn vulkan_bandwidth(request: &str) -> PortResult<DevicesReport> {
    let request: DevicesRequest = serde_json::from_str(request)
        .map_err(|e| PortError::caused("this is no request of another Flux", &e))?;
    Ok(InProcess.measure(&request, &CancelToken::new()))
}

/// The kernel lab in this process; `tell` gets every event.
///
/// # Errors
/// The request is none; as the lab's.
pub fn vulkan_lab(request: &str, tell: &mut dyn FnMut(LabEvent)) -> PortResult<()> {
    let request: LabRequest = serde_json::from_str(request)
        .map_err(|e| PortError::caused("this is no request of another Flux", &e))?;
    lab::InProcess.measure(&request, &CancelToken::new(), tell)
}

fn kernel_lab(options: &Options) -> Arc<dyn Lab> {
    match &options.flux {
        Some(flux) => Arc::new(LabApart::new(flux.clone())),
        None => Arc::new(lab::InProcess),
    }
}

fn bandwidth_meter(options: &Options) -> Arc<dyn BandwidthMeter> {
    match &options.flux {
        Some(flux) => Arc::new(Meter::new(DevicesApart::new(flux.clone()))),
        None => Arc::new(Meter::new(InProcess)),
    }
}

fn machine_reader(options: &Options) -> Arc<dyn MachineProbe> {
    match &options.flux {
        Some(flux) => Arc::new(VulkanApart::new(flux.clone())),
        None => Arc::new(MachineReader::new()),
    }
}

fn default_data_dir() -> PortResult<PathBuf> {
    directories::ProjectDirs::from("", "", "flux")
        .map(|dirs| dirs.data_dir().to_path_buf())
        .ok_or_else(|| {
            PortError::new("this system names no folder for application data")
                .hint("choose one with --data-dir")
        })
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

/// Builds that run here first, then those the exported machine had: the latter can be planned with, not run.
struct WithExported {
    catalog: Catalog,
    exported: Vec<Runtime>,
}

impl Runtimes for WithExported {
    fn list(&self) -> Vec<Runtime> {
        let mut all = self.catalog.list();
        all.extend(self.exported.iter().cloned());
        all
    }

    fn resolve(&self, name_or_dir: &str) -> PortResult<Runtime> {
        let exported = self.exported.iter().find(|r| r.name == name_or_dir);
        exported
            .cloned()
            .map_or_else(|| self.catalog.resolve(name_or_dir), Ok)
    }

    fn devices_with(
        &self,
        runtime: &Runtime,
        servers: &[String],
    ) -> PortResult<Vec<RuntimeDevice>> {
        self.catalog.devices_with(runtime, servers)
    }

    fn add(&self, new: &NewRuntime) -> PortResult<Runtime> {
        self.catalog.add(new)
    }

    fn remove(&self, name: &str) -> PortResult<Runtime> {
        self.catalog.remove(name)
    }

    fn install(
        &self,
        backend: Backend,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(InstallProgress),
    ) -> PortResult<Runtime> {
        self.catalog.install(backend, cancel, progress)
    }
}
