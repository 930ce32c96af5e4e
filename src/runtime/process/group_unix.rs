//! A child in a process group of its own that dies with Flux, by the kernel on Linux and by a guard everywhere.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::family::{Family, VARIABLE};
use super::guard;

/// A child and every process it starts; outside Linux as long as they stay in its group.
pub(super) struct Group {
    child: Child,
    pid: Pid,
    family: Family,
    is_reaped: bool,
}

impl Group {
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        let family = Family::new();
        command.process_group(0).env(VARIABLE, family.mark());
        #[cfg(target_os = "linux")]
        die_with_parent(&mut command);
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        guard::began(pid);
        Ok(Self {
            child,
            pid,
            family,
            is_reaped: false,
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn take_pipes(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    /// Has the child ended? It is left unreaped, so that its id still names its group.
    pub(super) fn has_ended(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.pid), options) {
            Ok(status) => Ok(status.is_some()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills what is left of the group, reaps the child, and kills what has left the group.
    pub(super) fn end(&mut self) -> io::Result<ExitStatus> {
        // An error means that nobody is left.
        let _ = kill_process_group(self.pid, Signal::KILL);
        let status = self.child.wait()?;
        self.is_reaped = true;
        guard::ended(self.pid);
        self.family.end();
        Ok(status)
    }
}

impl Drop for Group {
    /// For the ways out that did not come by `end`: an error, a panic in the watcher.
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = self.end();
        }
    }
}

/// The kernel kills the child when the spawning thread ends, by whatever means; this survives `exec`.
#[cfg(target_os = "linux")]
fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let arm = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above: then no signal will come.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::other("Flux ended"));
        }
        Ok(())
    };
    #[expect(unsafe_code, reason = "the only hook between fork and exec")]
    // SAFETY: `arm` makes two system calls and allocates nothing on the way that leads to exec.
    unsafe {
        command.pre_exec(arm);
    }
}
