//! The mark by which a child and all that come from it are known, whatever group or session they move to.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Set in the environment of every child, inherited by theirs.
pub(super) const VARIABLE: &str = "FLUX_CHILD_OF";
/// Looks for what is left after the first one killed all: a process may have been forking just then.
const LOOKS: usize = 50;
/// Between two looks: a killed process takes about so long to go.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// A child and those that come from it.
pub(super) struct Family(String);

impl Family {
    /// A mark no other child has.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("{}{number}", Self::of_this_process()))
    }

    /// What the marks of all children of this process begin with. With the time it began, as process ids come again.
    pub(super) fn of_this_process() -> String {
        static BEGUN: OnceLock<u128> = OnceLock::new();
        let since = || SystemTime::now().duration_since(UNIX_EPOCH);
        let begun = BEGUN.get_or_init(|| since().map_or(0, |d| d.as_nanos()));
        format!("{}-{begun}.", std::process::id())
    }

    /// The value of the variable.
    pub(super) fn mark(&self) -> &str {
        &self.0
    }

    /// Kills whoever is left of it.
    pub(super) fn end(&self) {
        end_bearing(&format!("{}\0", self.0));
    }
}

/// Kills every process whose mark begins like this.
pub(super) fn end_bearing(mark: &str) {
    for _ in 0..LOOKS {
        if kill_bearing(&format!("{VARIABLE}={mark}")) == 0 {
            return;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Kills the processes with this in their environment; how many there were.
#[cfg(target_os = "linux")]
fn kill_bearing(needle: &str) -> usize {
    use rustix::process::{Pid, Signal, kill_process};

    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let bearing = pids.filter(|pid: &i32| {
        // Another user's cannot be read and is none of ours; one that has ended has none left.
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = environment.split_inclusive(|&byte| byte == 0);
        variables.any(|variable| variable.starts_with(needle.as_bytes()))
    });
    let bearing: Vec<Pid> = bearing.filter_map(Pid::from_raw).collect();
    for pid in &bearing {
        // One that has gone meanwhile is what was wanted.
        let _ = kill_process(*pid, Signal::KILL);
    }
    bearing.len()
}

/// Elsewhere environments cannot be read: the process group must do.
#[cfg(not(target_os = "linux"))]
fn kill_bearing(_: &str) -> usize {
    0
}
