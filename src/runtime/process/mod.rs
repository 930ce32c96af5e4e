//! A supervised child (design section 4): an argument list, an explicit environment, its own process group, both
//! pipes drained on threads into bounded buffers, a time limit, and an end that kills the whole group and reaps it.

#[cfg_attr(unix, path = "group_unix.rs")]
#[cfg_attr(windows, path = "group_windows.rs")]
mod group;
mod oom;
mod output;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::domain::environment::is_switch;
use crate::ports::CancelToken;

use group::Group;
use output::{Capture, Chunk};

pub use output::Stream;

/// How often cancel, time limit and early stop are looked at while the child is silent.
const POLL: Duration = Duration::from_millis(20);
/// The same once both pipes are closed: the child is about to end.
const POLL_CLOSED: Duration = Duration::from_millis(1);
/// How long the pipes may stay open after the group was killed: a process that left the group can hold them for ever.
const PIPE_GRACE: Duration = Duration::from_secs(2);
/// Batches of lines in flight between the drains and the watcher; each holds at most one read.
const BATCHES: usize = 16;

/// What to start.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Program, a path (never looked up by a shell).
    pub program: PathBuf,
    /// Arguments, one element each.
    pub args: Vec<OsString>,
    /// Variables added after every inherited `GGML_*` and `LLAMA_*` was removed.
    pub env: BTreeMap<String, String>,
    /// Working directory, where it matters.
    pub dir: Option<PathBuf>,
    /// The child is ended when it runs longer.
    pub time_limit: Option<Duration>,
}

impl Spec {
    /// A program without arguments, own environment or limit.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            dir: None,
            time_limit: None,
        }
    }

    /// The argument list as text, program first.
    pub fn argv(&self) -> Vec<String> {
        std::iter::once(self.program.as_os_str())
            .chain(self.args.iter().map(OsString::as_os_str))
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| !is_switch(&name.to_string_lossy())))
            .envs(&self.env)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command
    }
}

/// What the watcher of a child is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// It runs, under this process id.
    Started(u32),
    /// A complete line, without its end.
    Line(Stream, &'a str),
    /// Nothing for a while, or after every batch of lines: look at the clock.
    Tick,
}

/// What the watcher answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Let it run.
    Continue,
    /// End it now.
    Stop,
}

/// Why a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// By itself.
    Exited,
    /// Its time limit passed.
    TimedOut,
    /// `CancelToken::is_now`.
    Cancelled,
    /// The watcher said stop.
    Stopped,
}

/// A child that ended and was reaped.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Why.
    pub reason: EndReason,
    /// Exit status, where it exited.
    pub exit_code: Option<i32>,
    /// Signal that ended it (Unix).
    pub signal: Option<i32>,
    /// The kernel ended a process for lack of memory meanwhile; `None` where it does not tell.
    pub memory_ran_out: Option<bool>,
    /// Standard output, the middle cut where it was very long; bytes that are not UTF-8 replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// From start to reaped.
    pub wall: Duration,
}

impl Ended {
    /// Ended by itself, with status 0.
    pub fn is_success(&self) -> bool {
        self.reason == EndReason::Exited && self.exit_code == Some(0)
    }
}

/// Starts `spec` and stays with it until it has ended and is reaped. `watch` sees every line as it comes.
///
/// The calling thread must be the one that stays: Linux ties the parent-death signal to the thread that spawned.
///
/// # Errors
/// The program could not be started, or the system refused a thread or a wait; the child is gone then too.
pub fn run(
    spec: &Spec,
    cancel: &CancelToken,
    watch: &mut dyn FnMut(Event<'_>) -> Flow,
) -> io::Result<Ended> {
    let begun = Instant::now();
    let kills = oom::kills();
    let mut group = Group::spawn(spec.command())?;
    let (sender, chunks) = bounded(BATCHES);
    let (stdout, stderr) = group.take_pipes();
    let stdout = Capture::start(Stream::Stdout, stdout, sender.clone())?;
    let stderr = Capture::start(Stream::Stderr, stderr, sender.clone())?;
    let mut watcher = Watcher {
        chunks,
        _open: sender,
        closed: 0,
        stop: watch(Event::Started(group.id())) == Flow::Stop,
        watch,
    };
    let reason = supervise(&mut group, &mut watcher, cancel, || {
        spec.time_limit.is_some_and(|limit| begun.elapsed() > limit)
    })?;
    let status = group.end()?;
    watcher.drain();
    Ok(Ended {
        reason,
        exit_code: status.code(),
        signal: signal_of(status),
        memory_ran_out: kills.zip(oom::kills()).map(|(before, now)| now > before),
        stdout: stdout.text(),
        stderr: stderr.text(),
        wall: begun.elapsed(),
    })
}

fn supervise(
    group: &mut Group,
    watcher: &mut Watcher<'_>,
    cancel: &CancelToken,
    is_overdue: impl Fn() -> bool,
) -> io::Result<EndReason> {
    loop {
        if group.has_ended()? {
            return Ok(EndReason::Exited);
        }
        if watcher.stop {
            return Ok(EndReason::Stopped);
        }
        if cancel.is_now() {
            return Ok(EndReason::Cancelled);
        }
        if is_overdue() {
            return Ok(EndReason::TimedOut);
        }
        let poll = if watcher.is_closed() {
            POLL_CLOSED
        } else {
            POLL
        };
        watcher.wait(poll);
    }
}

/// The watching side of the two drains.
struct Watcher<'a> {
    chunks: Receiver<Chunk>,
    /// Keeps the channel connected, so that waiting on it waits also when both pipes are closed.
    _open: Sender<Chunk>,
    closed: usize,
    stop: bool,
    watch: &'a mut dyn FnMut(Event<'_>) -> Flow,
}

impl Watcher<'_> {
    fn is_closed(&self) -> bool {
        self.closed == 2
    }

    /// Waits for one batch, hands it on, and ticks. False when nothing came.
    fn wait(&mut self, timeout: Duration) -> bool {
        let chunk = self.chunks.recv_timeout(timeout).ok();
        let came = chunk.is_some();
        match chunk {
            Some(Chunk::Lines(stream, lines)) => {
                for line in &lines {
                    self.tell(Event::Line(stream, line));
                }
            }
            Some(Chunk::Closed) => self.closed += 1,
            None => {}
        }
        self.tell(Event::Tick);
        came
    }

    fn tell(&mut self, event: Event<'_>) {
        self.stop |= (self.watch)(event) == Flow::Stop;
    }

    /// Takes what is still in the pipes after the group was killed.
    fn drain(&mut self) {
        let begun = Instant::now();
        while !self.is_closed() && begun.elapsed() < PIPE_GRACE {
            self.wait(POLL);
        }
    }
}

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(windows)]
fn signal_of(_: ExitStatus) -> Option<i32> {
    None
}
