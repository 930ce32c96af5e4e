//! Jobs, threads, cancellation, and the one protocol that every reader sees.

pub mod message;

use std::path::PathBuf;
use std::sync::Arc;

use crate::ports::{Clock, MachineProbe, Models, Runner, Runtimes, Store};

/// The world as the engine sees it; `wiring` builds the real one, tests build others.
#[derive(Clone)]
pub struct Ports {
    /// Reads this machine.
    pub probe: Arc<dyn MachineProbe>,
    /// Knows llama.cpp builds.
    pub runtimes: Arc<dyn Runtimes>,
    /// Runs llama-bench.
    pub runner: Arc<dyn Runner>,
    /// Reads and makes model files.
    pub models: Arc<dyn Models>,
    /// Keeps everything measured.
    pub store: Arc<dyn Store>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where Flux keeps its data.
    pub data_dir: PathBuf,
}
