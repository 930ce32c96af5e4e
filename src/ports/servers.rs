//! A live llama-server as the engine sees it.

use std::path::PathBuf;
use std::time::Duration;

use crate::domain::types::{Bytes, Launch, Runtime};

use super::{CancelToken, PortError, PortResult};

/// What to start.
#[derive(Debug, Clone)]
pub struct ServerStart {
    /// The build.
    pub runtime: Runtime,
    /// Model file.
    pub model: PathBuf,
    /// Size of all its parts: how long loading may take.
    pub model_bytes: Bytes,
    /// Settings written out for llama-server.
    pub launch: Launch,
    /// The user's own arguments. A host or port among them is overruled.
    pub extra: Vec<String>,
}

/// A moment while a server starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLoading {
    /// It listens already, and loads its model.
    pub listens: bool,
    /// Since its start.
    pub elapsed: Duration,
    /// How long it may take before it counts as stuck.
    pub limit: Duration,
}

/// A server that is ready. Dropping it ends **and reaps** its process.
pub trait LiveServer: Send {
    /// Where it answers, on loopback: `http://127.0.0.1:PORT`.
    fn url(&self) -> String;

    /// Its process id.
    fn pid(&self) -> u32;

    /// Why it ended, when it ends by itself within `limit`: its last log lines are the causes.
    fn ended_within(&mut self, limit: Duration) -> Option<PortError>;
}

/// Starts servers.
pub trait Servers: Send + Sync {
    /// Starts a server on a free loopback port and waits until it is ready.
    ///
    /// # Errors
    /// No llama-server; one that ended or got stuck, with its last log lines as causes; cancelled. Nothing is left
    /// running then.
    fn start(
        &self,
        request: &ServerStart,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(ServerLoading),
    ) -> PortResult<Box<dyn LiveServer>>;
}
