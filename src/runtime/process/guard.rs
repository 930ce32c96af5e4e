//! A second, idle `flux` that ends the children of a Flux that was killed: the kernel ends a child with its parent, but not
//! that child's own children, and outside Linux neither.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

use super::family::{Family, end_bearing};

/// The word that makes `flux` stand guard, followed by the mark of the children.
pub const CHILD_GUARD: &str = "child-guard";

/// One per process, as its death is what it waits for.
static GUARD: OnceLock<Guard> = OnceLock::new();

struct Guard {
    flux: PathBuf,
    standing: Mutex<Option<Child>>,
}

/// Children of this process are guarded by another `flux` from now on.
pub fn guard_children(flux: &Path) {
    GUARD.get_or_init(|| Guard {
        flux: flux.to_owned(),
        standing: Mutex::default(),
    });
}

/// A group of processes began.
pub(super) fn began(group: Pid) {
    tell('+', group);
}

/// A group of processes is gone: its number may be given to others.
pub(super) fn ended(group: Pid) {
    tell('-', group);
}

fn tell(what: char, group: Pid) {
    let Some(guard) = GUARD.get() else {
        return;
    };
    let line = format!("{what}{}\n", group.as_raw_nonzero());
    let mut standing = guard
        .standing
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if !heard(standing.as_mut(), &line) && what == '+' {
        // The first child, or the guard itself was killed.
        *standing = guard.stand();
        heard(standing.as_mut(), &line);
    }
}

fn heard(standing: Option<&mut Child>, line: &str) -> bool {
    let pipe = standing.and_then(|child| child.stdin.as_mut());
    pipe.is_some_and(|pipe| pipe.write_all(line.as_bytes()).is_ok())
}

impl Guard {
    fn stand(&self) -> Option<Child> {
        let mut command = Command::new(&self.flux);
        command
            .args([CHILD_GUARD, &Family::of_this_process()])
            // It needs nothing of what Flux was started with, and marks nobody as a child of it.
            .env_clear()
            .current_dir("/")
            // What a terminal sends to Flux is not for it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let started = command.spawn();
        started
            .inspect_err(|e| tracing::warn!("children are not guarded: {e}"))
            .ok()
    }
}

/// Stands guard: hears of groups until the Flux at the other end of stdin is gone, then ends those that are left.
pub fn stand_guard(mark: &str) {
    // `killall -9 flux` is not for it. Without this name it would end with those it is to end for.
    let _ = std::fs::write("/proc/self/comm", CHILD_GUARD);
    let mut groups = BTreeSet::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let Some((what, Ok(group))) = line.split_at_checked(1).map(|(w, g)| (w, g.parse())) else {
            continue;
        };
        if what == "+" {
            groups.insert(group);
        } else {
            groups.remove(&group);
        }
    }
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        // An error means that nobody is left.
        let _ = kill_process_group(group, Signal::KILL);
    }
    end_bearing(mark);
}
