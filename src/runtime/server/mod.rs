//! A live llama-server of Flux's own (design section 7; cases C07, C08): on a loopback port that Flux chose, handed out
//! only when it is ready and known to be the one that was started, ended and reaped with its handle.

mod client;
mod http;
mod port;
mod runner;

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::domain::server::{
    Answer, Child, Observation, ServerState, another_program, identify, load_limit,
};
use crate::domain::types::{Bytes, Failure, FailureClass, Launch, RawOutput, Runtime};
use crate::domain::windows_path::argument;
use crate::ports::{CancelMode, CancelToken};

use super::config::llama_spec;
use super::failure::classify;
use super::process::{self, Ended, Event, Flow, Spec};

use http::Client;

pub use port::LlamaServers;
pub use runner::ServerRunner;

/// Pause between two looks at a starting server.
const POLL: Duration = Duration::from_millis(50);
/// Lines of the log that go with a failure.
const LAST_LINES: usize = 20;

/// What to start.
#[derive(Debug, Clone, Copy)]
pub struct ServerRequest<'a> {
    /// The build.
    pub runtime: &'a Runtime,
    /// Model file.
    pub model: &'a Path,
    /// Size of all its parts: how long loading may take.
    pub model_bytes: Bytes,
    /// Settings written out for llama-server.
    pub launch: &'a Launch,
    /// Further arguments. A host or port among them is overruled; an API key or prefix would hide the server from Flux.
    pub extra: &'a [String],
}

/// Why there is no server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// It failed; the process, where there was one, is reaped.
    #[error("{failure}")]
    Failed {
        /// Class and evidence.
        failure: Failure,
        /// End of its log.
        last_lines: Vec<String>,
    },
    /// The job was cancelled; the process is reaped.
    #[error("cancelled")]
    Cancelled,
}

impl From<Failure> for StartError {
    fn from(failure: Failure) -> Self {
        Self::Failed {
            failure,
            last_lines: Vec::new(),
        }
    }
}

/// A ready server. Dropping it ends it.
pub struct Server {
    port: u16,
    process: ServerProcess,
    load_time: Duration,
    model: String,
    /// Its command; filled in when it has ended.
    raw: RawOutput,
}

impl Server {
    /// Starts a server on a free port and waits until it is ready. `progress` gets its state after every look.
    ///
    /// # Errors
    /// No llama-server, one that ended, got stuck or whose port another program answers on; cancelled.
    pub fn start(
        request: &ServerRequest<'_>,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(&ServerState),
    ) -> Result<Self, StartError> {
        let port = free_port().map_err(|e| {
            Failure::new(
                FailureClass::NotStarted,
                format!("no free port on 127.0.0.1: {e}"),
            )
        })?;
        Self::start_on(request, port, cancel, progress)
    }

    /// The same on this port of 127.0.0.1, and on no other.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_on(
        request: &ServerRequest<'_>,
        port: u16,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(&ServerState),
    ) -> Result<Self, StartError> {
        let begun = Instant::now();
        let spec = spec(request, port)?;
        let raw = RawOutput {
            argv: spec.argv(),
            env: spec.env.clone(),
            ..RawOutput::default()
        };
        let process = ServerProcess::spawn(spec)?;
        let waiting = Waiting {
            client: Client::new(port),
            model: request.model.to_string_lossy().into_owned(),
            port,
            begun,
            limit: load_limit(request.model_bytes),
        };
        match waiting.until_ready(&process, cancel, progress) {
            Ok(()) => Ok(Self {
                port,
                process,
                load_time: begun.elapsed(),
                model: waiting.model,
                raw,
            }),
            Err(Unready::Cancelled) => Err(StartError::Cancelled),
            Err(Unready::Ended) => Err(failed_start(process.end(), port)),
            Err(Unready::Unusable(failure)) => Err(StartError::Failed {
                failure,
                last_lines: process.end().map(|e| last_lines(&e)).unwrap_or_default(),
            }),
        }
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid.load(Ordering::SeqCst)
    }

    /// From its start to ready; no part of any time to first token.
    pub fn load_time(&self) -> Duration {
        self.load_time
    }

    /// Does its process still run? A sample counts only when it does after the answer: another may have answered.
    pub fn is_alive(&self) -> bool {
        self.process.is_alive()
    }

    /// Ends it, also when it ended before, and tells how it ended.
    ///
    /// # Errors
    /// The system refused to wait for it.
    pub fn stop(self) -> io::Result<Ended> {
        self.process.end()
    }
}

/// The argument list: Flux's address last, where it overrules any other.
fn spec(request: &ServerRequest<'_>, port: u16) -> Result<Spec, Failure> {
    let Some(program) = &request.runtime.server else {
        return Err(Failure::new(
            FailureClass::NotStarted,
            format!("no llama-server in {}", request.runtime.dir.display()),
        ));
    };
    let mut spec = llama_spec(program, request.runtime.environment(&request.launch.env));
    spec.args = vec!["-m".into(), argument(request.model).into()];
    spec.args
        .extend(request.launch.args.iter().map(OsString::from));
    spec.args.extend(request.extra.iter().map(OsString::from));
    spec.args
        .extend(["--host", "127.0.0.1", "--port"].map(OsString::from));
    spec.args.push(port.to_string().into());
    Ok(spec)
}

/// A port nobody listens on now.
fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Why waiting ended without a ready server.
enum Unready {
    Cancelled,
    /// The process could not be started, or ended.
    Ended,
    /// The process may live, but is of no use.
    Unusable(Failure),
}

struct Waiting {
    client: Client,
    model: String,
    port: u16,
    begun: Instant,
    limit: Duration,
}

impl Waiting {
    fn until_ready(
        &self,
        process: &ServerProcess,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(&ServerState),
    ) -> Result<(), Unready> {
        loop {
            if cancel.is_cancelled() {
                return Err(Unready::Cancelled);
            }
            let health = self.client.get("/health");
            let props = match health.answer {
                Answer::Status(200) => self.client.get("/props"),
                _ => http::Reply::none(),
            };
            let models = self.client.get("/v1/models");
            // Looked at last: answers count only from a server that outlived them.
            let ended = process.wait(POLL);
            let child = ended.map_or(Child::Alive, exited);
            let seen = Observation {
                child,
                health: health.answer,
                props: props.answer,
            };
            let mut state = ServerState::of(&seen, self.begun.elapsed(), self.limit);
            if state == ServerState::Ready && models.answer == Answer::NoAnswer {
                state = ServerState::Loading;
            }
            if state == ServerState::Ready {
                identify(&props.json(), &models.json(), &self.model, self.port)
                    .map_err(Unready::Unusable)?;
            }
            progress(&state);
            if ended.is_some() {
                return Err(Unready::Ended);
            }
            match state {
                ServerState::Ready => return Ok(()),
                ServerState::Stuck => return Err(Unready::Unusable(self.stuck(&seen))),
                ServerState::Foreign(path, status) => {
                    let why = format!("{path} gives status {status}");
                    return Err(Unready::Unusable(another_program(self.port, &why)));
                }
                _ => {}
            }
        }
    }

    fn stuck(&self, seen: &Observation) -> Failure {
        let answer = match seen.health {
            Answer::Refused => "nobody listens on its port".to_owned(),
            Answer::NoAnswer => "/health does not answer".to_owned(),
            Answer::Status(status) => format!("/health gives status {status}"),
        };
        let limit = self.limit.as_secs_f64();
        Failure::new(
            FailureClass::TimedOut,
            format!("llama-server is not ready after {limit:.0} s: {answer}"),
        )
    }
}

fn exited(ended: &io::Result<Ended>) -> Child {
    let ended = ended.as_ref().ok();
    Child::Exited {
        code: ended.and_then(|e| e.exit_code),
        signal: ended.and_then(|e| e.signal),
        last_lines: ended.map(last_lines).unwrap_or_default(),
    }
}

fn failed_start(ended: io::Result<Ended>, port: u16) -> StartError {
    match ended {
        Ok(ended) => {
            let mut failure = classify(&ended);
            if failure.class == FailureClass::AnotherServer {
                failure = another_program(port, &failure.detail);
            }
            StartError::Failed {
                failure,
                last_lines: last_lines(&ended),
            }
        }
        Err(error) => Failure::new(FailureClass::NotStarted, error.to_string()).into(),
    }
}

fn last_lines(ended: &Ended) -> Vec<String> {
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let from = lines.len().saturating_sub(LAST_LINES);
    lines[from..].iter().map(ToString::to_string).collect()
}

/// llama-server on a thread of its own, which stays with it to its end: Linux ends the child with the thread.
struct ServerProcess {
    stop: CancelToken,
    pid: Arc<AtomicU32>,
    ended: Receiver<io::Result<Ended>>,
    /// Taken from `ended` by the first who asked.
    seen: OnceLock<io::Result<Ended>>,
    thread: Option<JoinHandle<()>>,
}

impl ServerProcess {
    fn spawn(spec: Spec) -> Result<Self, Failure> {
        let stop = CancelToken::new();
        let pid = Arc::new(AtomicU32::new(0));
        let (sender, ended) = bounded(1);
        let (token, id) = (stop.clone(), Arc::clone(&pid));
        let thread = std::thread::Builder::new()
            .name("llama-server".to_owned())
            .spawn(move || stay(&spec, &token, &id, &sender))
            .map_err(|e| Failure::new(FailureClass::NotStarted, e.to_string()))?;
        Ok(Self {
            stop,
            pid,
            ended,
            seen: OnceLock::new(),
            thread: Some(thread),
        })
    }

    fn is_alive(&self) -> bool {
        self.ended.is_empty()
            && self.seen.get().is_none()
            && self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }

    /// How it ended, when it does within `limit`.
    fn wait(&self, limit: Duration) -> Option<&io::Result<Ended>> {
        if self.seen.get().is_none() {
            let ended = match self.ended.recv_timeout(limit) {
                Ok(ended) => ended,
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => Err(gone()),
            };
            // Another client may have seen it first.
            let _ = self.seen.set(ended);
        }
        self.seen.get()
    }

    fn end(mut self) -> io::Result<Ended> {
        self.stop.cancel(CancelMode::Now);
        let seen = self.seen.take();
        seen.unwrap_or_else(|| self.ended.recv().unwrap_or_else(|_| Err(gone())))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.stop.cancel(CancelMode::Now);
        if let Some(thread) = self.thread.take() {
            // A panic there has reaped the child on its way.
            let _ = thread.join();
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the server's thread ended early")
}

fn stay(spec: &Spec, stop: &CancelToken, pid: &AtomicU32, ended: &Sender<io::Result<Ended>>) {
    let result = process::run(spec, stop, &mut |event| {
        if let Event::Started(id) = event {
            pid.store(id, Ordering::SeqCst);
        }
        Flow::Continue
    });
    let result = result.map_err(|e| io::Error::new(e.kind(), format!("{e}: {}", spec.argv()[0])));
    // The handle keeps its end of the channel until this thread is joined.
    let _ = ended.send(result);
}
