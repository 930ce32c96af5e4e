//! A live llama-server as the engine sees it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::server::{ChatMessage, Completion, CompletionRequest};
use crate::domain::types::{Bytes, Failure, Launch, RawOutput, Runtime};

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

    /// Asks it; any number of clients at once.
    fn client(&self) -> Arc<dyn ServerClient>;

    /// Whether its process lives and it still answers as the one that was started: what it measured counts only then.
    ///
    /// # Errors
    /// What it died of, or who answers in its place.
    fn vouch(&self) -> Result<(), Failure>;

    /// The failure behind a failed request: what the server died of, where it did.
    fn why(&self, request: Failure) -> Failure;

    /// Ends and reaps it; what it left behind.
    fn stop(self: Box<Self>) -> RawOutput;
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The job is to end at once.
    #[error("cancelled")]
    Cancelled,
    /// It failed.
    #[error("{0}")]
    Failed(Failure),
}

impl From<Failure> for RequestError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Asks a running server. Every call ends within its limit, and at once when the job is to end at once.
pub trait ServerClient: Send + Sync {
    /// Sends a request and waits for the whole answer; `on_token` is called as each part with a token comes.
    ///
    /// # Errors
    /// Cancelled; no answer within `limit`; refused; broken off; not llama-server's.
    fn complete(
        &self,
        request: &CompletionRequest,
        limit: Duration,
        cancel: &CancelToken,
        on_token: &mut dyn FnMut(),
    ) -> Result<Completion, RequestError>;

    /// The tokens of a text, with the model's start token and with special tokens read as such: as a prompt is taken.
    ///
    /// # Errors
    /// As `complete`.
    fn tokenize(&self, text: &str, cancel: &CancelToken) -> Result<Vec<u32>, RequestError>;

    /// A chat as text, by the model's own template.
    ///
    /// # Errors
    /// As `complete`.
    fn apply_template(
        &self,
        messages: &[ChatMessage],
        cancel: &CancelToken,
    ) -> Result<String, RequestError>;
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
