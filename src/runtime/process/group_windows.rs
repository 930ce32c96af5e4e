//! A child in a Job Object that kills what it holds when its last handle closes, also when Flux crashes. Flux is in one of
//! its own, which its children are born into.

use std::io;
use std::os::windows::io::AsRawHandle as _;
use std::os::windows::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus};
use std::sync::OnceLock;

use win32job::{ExtendedLimitInfo, Job};

use super::suspended::resume;

/// `CREATE_NO_WINDOW`: no console window flashes up for a console program.
const CREATE_NO_WINDOW: u32 = 0x0800_0000;
/// `CREATE_SUSPENDED`: it starts nothing before it is in its job.
const CREATE_SUSPENDED: u32 = 0x0000_0004;

/// From now on no child of this process outlives it, however it ends and in whatever state the child is.
pub fn guard_children(_: &Path) {
    /// Held to the end: when its last handle closes, this process would be killed with its children.
    static OWN: OnceLock<Option<Job>> = OnceLock::new();
    OWN.get_or_init(|| {
        let job = deadly_job().and_then(|job| {
            job.assign_current_process().map_err(io::Error::other)?;
            Ok(job)
        });
        job.inspect_err(|e| tracing::warn!("children are not guarded: {e}"))
            .ok()
    });
}

fn deadly_job() -> io::Result<Job> {
    let mut limits = ExtendedLimitInfo::new();
    limits.limit_kill_on_job_close();
    Job::create_with_limit_info(&limits).map_err(io::Error::other)
}

/// A child and every process it starts.
pub(super) struct Group {
    child: Child,
    /// Dropped to kill.
    job: Option<Job>,
}

impl Group {
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        let job = deadly_job()?;
        let child = command
            .creation_flags(CREATE_NO_WINDOW | CREATE_SUSPENDED)
            .spawn()?;
        let mut group = Self { child, job: None };
        job.assign_process(group.child.as_raw_handle() as isize)
            .map_err(io::Error::other)?;
        group.job = Some(job);
        resume(group.id())?;
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
