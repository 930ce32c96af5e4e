//! A supervised child (design section 4): an argument list, an explicit environment, its own process group, both
//! pipes drained on threads into bounded buffers, a time limit, and an end that kills the whole group and reaps it.

#[cfg(unix)]
mod family;
#[cfg_attr(unix, path = "group_unix.rs")]
#[cfg_attr(windows, path = "group_windows.rs")]
mod group;
#[cfg(unix)]
mod guard;
mod oom;
mod output;
mod supervise;
#[cfg(windows)]
#[path = "suspended_windows.rs"]
mod suspended;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::domain::environment::is_switch;
use crate::ports::CancelToken;

use group::Group;
use supervise::Watcher;

#[cfg(windows)]
pub use group::guard_children;
#[cfg(unix)]
pub use guard::{CHILD_GUARD, guard_children, stand_guard};
pub use output::Stream;
pub use supervise::{EndReason, Event, Flow};

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
    let pipes = group.take_pipes();
    let (mut watcher, [stdout, stderr]) = Watcher::start(group.id(), pipes, watch)?;
    let is_overdue = || spec.time_limit.is_some_and(|limit| begun.elapsed() > limit);
    let reason = watcher.supervise(|| group.has_ended(), cancel, is_overdue)?;
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

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(windows)]
fn signal_of(_: ExitStatus) -> Option<i32> {
    None
}
