//! What the engine needs from the world, as traits. Adapters implement them; tests replace them.

mod bandwidth;
mod cancel;
mod history;
mod lab;
mod placements;
mod room;
mod servers;
mod store;
pub mod sync;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::domain::doctor::Facts;
use crate::domain::placement::layout::ModelLayout;
use crate::domain::search::SearchSpace;
use crate::domain::settings::AppSettings;
use crate::domain::telemetry::{AbsentSensor, ProcessorTime, SeriesId};
use crate::domain::types::{
    Backend, Host, Machine, ModelInfo, ModelListing, Run, RunProgress, RunRequest, Runtime,
    RuntimeDevice, Timestamp,
};

pub use bandwidth::{BandwidthMeter, BandwidthProgress, BandwidthRequest};
pub use cancel::{CancelMode, CancelToken};
pub use history::*;
pub use lab::{Lab, LabRequest};
pub use placements::{NewPlacement, StoredFit, StoredPlacement};
pub use room::{Erasable, Holdings};
pub use servers::{LiveServer, RequestError, ServerClient, ServerLoading, ServerStart, Servers};
pub use store::*;

/// An adapter's failure, ready for people: what and where, what to do next, and the causes beneath.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{headline}")]
pub struct PortError {
    /// What failed and where, in one sentence without a full stop; paths last.
    pub headline: String,
    /// What to do next, where Flux knows.
    pub hint: Option<String>,
    /// The causes beneath, outermost first.
    pub cause: Vec<String>,
}

impl PortError {
    /// A failure with only a headline.
    pub fn new(headline: impl Into<String>) -> Self {
        Self {
            headline: headline.into(),
            hint: None,
            cause: Vec::new(),
        }
    }

    /// A failure with the chain of `error` as its causes.
    pub fn caused(headline: impl Into<String>, error: &dyn std::error::Error) -> Self {
        let mut cause = vec![error.to_string()];
        let mut source = error.source();
        while let Some(inner) = source {
            cause.push(inner.to_string());
            source = inner.source();
        }
        Self {
            headline: headline.into(),
            hint: None,
            cause,
        }
    }

    /// A file or folder of Flux's data that cannot be used: the disk is full, or `what` says so.
    pub fn of_data(what: &str, path: &Path, error: &io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let (what, hint) = match error.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => ("the disk is full", "free space there"),
            _ => (what, "allow writing there, or use another --data-dir"),
        };
        Self::caused(format!("{what}: {}", path.display()), error).hint(hint)
    }

    /// The data folder itself cannot be used: a file stands there or above it, or as [`Self::of_data`].
    pub fn of_data_folder(what: &str, folder: &Path, error: &io::Error) -> Self {
        if is_no_folder(error) {
            let headline = format!(
                "a file stands where the data folder should be: {}",
                folder.display()
            );
            return Self::caused(headline, error).hint("move it away, or use another --data-dir");
        }
        Self::of_data(what, folder, error)
    }

    /// The same failure with what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Whether a folder could not be made or entered because something else has its name.
pub fn is_no_folder(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, NotADirectory};
    [AlreadyExists, NotADirectory].contains(&error.kind())
}

/// Result of a port.
pub type PortResult<T> = Result<T, PortError>;

/// Reads this machine. Never fails as a whole: what cannot be read is a status in the report.
pub trait MachineProbe: Send + Sync {
    /// Everything about the machine but its runtimes (`runtimes` is left empty).
    fn machine(&self) -> Machine;

    /// The host alone, for changing readings (RAM available, load).
    fn host(&self) -> Host;

    /// What would spoil a measurement and is in no reading: about this process and the folder it keeps its data in.
    fn facts(&self, data_dir: &Path) -> Facts;

    /// Writes a scan down as a fixture into `dir`, secrets hidden, and returns the file.
    ///
    /// # Errors
    /// The folder holds something already, or cannot be written.
    fn export(&self, machine: &Machine, runtimes: &[Runtime], dir: &Path) -> PortResult<PathBuf>;
}

/// Time, so that tests own it.
pub trait Clock: Send + Sync {
    /// Wall-clock time.
    fn now(&self) -> Timestamp;

    /// Monotonic time since an arbitrary start.
    fn elapsed(&self) -> Duration;
}

/// Keeps the owner's choices in the desktop app.
pub trait SettingsStore: Send + Sync {
    /// The settings, and what was wrong with the stored ones: then defaults take their place.
    fn load(&self) -> (AppSettings, Vec<Notice>);

    /// Stores them, brought into their bounds.
    ///
    /// # Errors
    /// The file cannot be written; the one before it stays.
    fn save(&self, settings: &AppSettings) -> PortResult<()>;
}

/// Keeps the search space: the one that ships with Flux, or the owner's own.
pub trait SearchSpaces: Send + Sync {
    /// The one in use.
    fn current(&self) -> Arc<SearchSpace>;

    /// The file of the owner's own, while it is in use.
    fn own_file(&self) -> Option<PathBuf>;

    /// Checks a file and uses a copy of it from now on; jobs that run go on with the one they began with.
    ///
    /// # Errors
    /// The file cannot be read or breaks a rule (the place is named), or the data folder cannot be written. The one in
    /// use stays.
    fn install(&self, file: &Path) -> PortResult<()>;

    /// Uses the one that ships with Flux again.
    ///
    /// # Errors
    /// The owner's file cannot be deleted; it stays in use.
    fn reset(&self) -> PortResult<()>;
}

/// One owner of sensors. It is read from one thread, every tick: what takes longer than a millisecond delays the rest.
pub trait TelemetrySource: Send {
    /// Its name, for messages.
    fn name(&self) -> &str;

    /// The sensors' values now, in their metrics' units. What cannot be read is absent, never zero.
    fn sample(&mut self) -> Vec<(SeriesId, f64)>;

    /// Values too slow to read every tick, read where a repetition begins or ends and at the ends of a run: energy
    /// counters that cost milliseconds. What `sample` reads already is not read again.
    fn at_boundary(&mut self) -> Vec<(SeriesId, f64)> {
        Vec::new()
    }

    /// Whether somebody measures from now on; until it is told, somebody does. In between, a device that could fall asleep
    /// is left alone long enough for that (case C27).
    fn measuring(&mut self, _measuring: bool) {}

    /// Temperatures at which the device's driver steps in, °C.
    fn critical(&self) -> Vec<(SeriesId, f64)> {
        Vec::new()
    }

    /// Adds what else it knows of its devices: who holds their memory, how they are linked to the host. Asked once.
    fn tell(&self, _facts: &mut Facts) {}

    /// Sensors that it looked for and cannot use, as far as it knows by now.
    fn absent(&self) -> Vec<AbsentSensor> {
        Vec::new()
    }
}

/// The sensors of this machine.
pub trait Telemetry: Send + Sync {
    /// Every owner of sensors here, opened anew.
    fn sources(&self) -> Vec<Box<dyn TelemetrySource>>;

    /// What the processor has done until now, for Flux and for others; `None` where the system does not tell.
    fn processor_time(&self) -> Option<ProcessorTime> {
        None
    }

    /// Writes down what they read, below `dir`, so that another machine can replay it. A GPU that sleeps is woken for it.
    ///
    /// # Errors
    /// The folder cannot be written.
    fn capture(&self, _dir: &Path) -> PortResult<()> {
        Ok(())
    }
}

/// Starts one llama-bench process and waits for it. A failed run is an outcome, not an error.
pub trait Runner: Send + Sync {
    /// Runs `request` to its end, its time limit, its early stop or `cancel`, whichever is first.
    /// The child is ended **and reaped** before this returns.
    fn run(
        &self,
        request: &RunRequest,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Run;
}

/// Reads model files and makes synthetic ones.
pub trait Models: Send + Sync {
    /// One model from any of its parts or its folder; header only.
    ///
    /// # Errors
    /// The file cannot be read, is no GGUF file, or is not a runnable set of parts.
    fn inspect(&self, path: &Path) -> PortResult<ModelInfo>;

    /// The same model as the planner sees it: every tensor with its block and class, what each block keeps.
    ///
    /// # Errors
    /// As `inspect`, or the file is no model with layers.
    fn layout(&self, path: &Path) -> PortResult<ModelLayout>;

    /// The projector that lies beside a model, of several the largest; only where the folder holds no other model.
    fn projector(&self, model: &Path) -> Option<ModelInfo>;

    /// Every GGUF file below `dir`, broken ones with what is wrong.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn list(&self, dir: &Path) -> PortResult<Vec<ModelListing>>;

    /// Writes a random-weight model with a real model's shapes; nothing is left behind on failure or cancel.
    /// `progress` gets bytes written and bytes in all.
    ///
    /// # Errors
    /// Unknown shape, a file that exists already, no space, cancelled.
    fn synthesise(
        &self,
        request: &SynthRequest,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(u64, u64),
    ) -> PortResult<ModelInfo>;

    /// The shapes `synthesise` knows.
    fn shapes(&self) -> Vec<String>;

    /// Folders in which llama.cpp and others keep models on this system, whether they exist or not.
    fn usual_dirs(&self) -> Vec<PathBuf>;
}

/// What to synthesise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SynthRequest {
    /// Shape name, e.g. `qwen3-4b`.
    pub shape: String,
    /// File to write.
    pub output: PathBuf,
    /// Leave the tensor data a hole, for planning only.
    pub sparse: bool,
    /// Seed of the weights.
    pub seed: u64,
}

/// A build to add.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewRuntime {
    /// Folder with its programs.
    pub dir: PathBuf,
    /// Name to know it by; `None` takes one from its version and backends, or keeps the one it has.
    pub name: Option<String>,
    /// Variables every process of it gets. The same folder with others is another build.
    pub env: BTreeMap<String, String>,
}

/// Progress of an installation.
#[derive(Debug, Clone, PartialEq)]
pub struct InstallProgress {
    /// What is being done, in a few words.
    pub step: String,
    /// Share done, 0 to 1, where it is known.
    pub fraction: Option<f64>,
}

/// Knows, finds, adds, installs and removes llama.cpp builds.
pub trait Runtimes: Send + Sync {
    /// Every build known here, identified (by cache where its digest is unchanged), the best first.
    fn list(&self) -> Vec<Runtime>;

    /// The build of a name or a folder.
    ///
    /// # Errors
    /// There is none, or it is not llama.cpp.
    fn resolve(&self, name_or_dir: &str) -> PortResult<Runtime>;

    /// Every device a build lists when it knows the RPC servers at these addresses (`host:port`). Nothing is opened that
    /// listens.
    ///
    /// # Errors
    /// A build without RPC, an address that is none, a server that does not answer.
    fn devices_with(&self, runtime: &Runtime, servers: &[String])
    -> PortResult<Vec<RuntimeDevice>>;

    /// Adds a folder for good.
    ///
    /// # Errors
    /// It holds no llama.cpp, the name is another build's, or the catalogue cannot be written.
    fn add(&self, new: &NewRuntime) -> PortResult<Runtime>;

    /// Forgets a build; one that Flux installed is deleted too.
    ///
    /// # Errors
    /// It is not known, or its folder cannot be deleted.
    fn remove(&self, name: &str) -> PortResult<Runtime>;

    /// Installs a build for `backend` into the data folder.
    ///
    /// # Errors
    /// A missing build tool (named, with the package that brings it), no network, a wrong checksum, cancelled.
    /// Nothing half-made is left behind.
    fn install(
        &self,
        backend: Backend,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(InstallProgress),
    ) -> PortResult<Runtime>;
}
