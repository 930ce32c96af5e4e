//! The mark by which a child and all that come from it are known, whatever group or session they move to.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossbeam_channel::bounded;

/// Set in the environment of every child, inherited by theirs.
pub(super) const VARIABLE: &str = "FLUX_CHILD_OF";
/// Looks for what is left after the first one killed all: a process may have been forking just then.
const LOOKS: usize = 50;
/// Between two looks: a killed process takes about so long to go.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// Reading an environment takes microseconds; one that takes so long is not waited for.
const PATIENCE: Duration = Duration::from_millis(500);

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
    // Another user's cannot be read and is none of ours; one that has ended has none left.
    let read = |pid| std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let bearing = bearing(needle, pids.collect(), read);
    let bearing: Vec<Pid> = bearing.into_iter().filter_map(Pid::from_raw).collect();
    for pid in &bearing {
        // One that has gone meanwhile is what was wanted.
        let _ = kill_process(*pid, Signal::KILL);
    }
    bearing.len()
}

/// Processes whose environment could not be read in time, each with a thread that still tries.
#[cfg(target_os = "linux")]
static STUCK: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Which processes have a variable that begins like this. The kernel lets a reader wait for a process that is stuck with
/// its memory locked, for ever and beyond any signal: it is left out, then and as long as it is stuck.
#[cfg(target_os = "linux")]
fn bearing(
    needle: &str,
    mut pids: VecDeque<i32>,
    read: impl Fn(i32) -> Vec<u8> + Clone + Send + 'static,
) -> Vec<i32> {
    let stuck = || STUCK.lock().unwrap_or_else(PoisonError::into_inner);
    pids.retain(|pid| !stuck().contains(pid));
    let mut found = Vec::new();
    while !pids.is_empty() {
        let (sender, looked) = bounded(pids.len());
        let (rest, needle, read) = (pids.clone(), needle.as_bytes().to_vec(), read.clone());
        let look = move || {
            for pid in rest {
                let environment = read(pid);
                let mut variables = environment.split_inclusive(|&byte| byte == 0);
                let bears = variables.any(|variable| variable.starts_with(&needle));
                if sender.send((pid, bears)).is_err() {
                    // Given up: the rest was looked at by another.
                    stuck().remove(&pid);
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("flux-family".to_owned());
        if thread.spawn(look).is_err() {
            break;
        }
        while let Ok((pid, bears)) = looked.recv_timeout(PATIENCE) {
            pids.pop_front();
            found.extend(bears.then_some(pid));
        }
        stuck().extend(pids.pop_front());
    }
    found
}

/// Elsewhere environments cannot be read: the process group must do.
#[cfg(not(target_os = "linux"))]
fn kill_bearing(_: &str) -> usize {
    0
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_looked_at_holds_nobody_up() {
        // No process has these ids: they are above what Linux gives.
        const STUCK_PID: i32 = i32::MAX - 1;
        let (release, wait) = bounded::<()>(0);
        let (ended, end) = bounded(1);
        let read = move |pid| {
            if pid == STUCK_PID {
                let _ = wait.recv();
                let _ = ended.send(());
            }
            let mark = if pid % 2 == 0 {
                "A=1\0MARK=7\0"
            } else {
                "MARK=6\0"
            };
            mark.as_bytes().to_vec()
        };
        let pids = || VecDeque::from([1, 2, STUCK_PID, 4, 5]);
        assert_eq!(bearing("MARK=7\0", pids(), read.clone()), [2, 4]);
        // It is not waited for again.
        let begun = std::time::Instant::now();
        assert_eq!(bearing("MARK=7\0", pids(), read.clone()), [2, 4]);
        assert!(begun.elapsed() < PATIENCE);
        drop(release);
        end.recv().unwrap();
    }
}
