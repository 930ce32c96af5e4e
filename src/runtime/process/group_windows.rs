//! A child in a Job Object that kills what it holds when its last handle closes, also when Flux crashes.

use std::io;
use std::os::windows::io::AsRawHandle as _;
use std::os::windows::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus};

use win32job::{ExtendedLimitInfo, Job};

/// `CREATE_NO_WINDOW`: no console window flashes up for a console program.
const CREATE_NO_WINDOW: u32 = 0x0800_0000;

/// A child and every process it starts.
pub(super) struct Group {
    child: Child,
    /// Dropped to kill.
    job: Option<Job>,
}

impl Group {
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        let mut limits = ExtendedLimitInfo::new();
        limits.limit_kill_on_job_close();
        let job = Job::create_with_limit_info(&limits).map_err(io::Error::other)?;
        let child = command.creation_flags(CREATE_NO_WINDOW).spawn()?;
        let mut group = Self { child, job: None };
        job.assign_process(group.child.as_raw_handle() as isize)
            .map_err(io::Error::other)?;
        group.job = Some(job);
        Ok(group)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn take_pipes(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    pub(super) fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Kills what is left of the job and waits for the child.
    pub(super) fn end(&mut self) -> io::Result<ExitStatus> {
        self.job = None;
        // Ended already is no error worth telling.
        let _ = self.child.kill();
        self.child.wait()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
