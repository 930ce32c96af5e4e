//! The kernel's account of the processor's time (proc(5)).

use crate::domain::telemetry::ProcessorTime;
use crate::system_root::SystemRoot;

/// The account of now; `None` where the system keeps none in `/proc`.
pub(super) fn time(root: &SystemRoot) -> Option<ProcessorTime> {
    of(&root.read("proc/stat")?, &root.read("proc/self/stat")?)
}

/// From the texts of `/proc/stat` and `/proc/self/stat`.
fn of(system: &str, own: &str) -> Option<ProcessorTime> {
    let cores = system.lines().next()?.strip_prefix("cpu ")?;
    // user, nice, system, idle, iowait, irq, softirq, steal. Guests are in user already.
    let ticks: Vec<u64> = numbers(cores).take(8).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    let total: u64 = ticks.iter().sum();
    // The name, in brackets, may hold anything. After it utime, stime, and those of children that were waited for are
    // fields 14 to 17, and the state, which is no number, is field 3.
    let (_, after_name) = own.rsplit_once(')')?;
    let after_state = after_name.trim_start().split_once(' ')?.1;
    let own: Vec<u64> = after_state
        .split_whitespace()
        .skip(10)
        .take(4)
        .map_while(|n| n.parse().ok())
        .collect();
    (own.len() == 4).then(|| ProcessorTime {
        total,
        busy: total - idle,
        own: own.iter().sum(),
    })
}

fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split_whitespace().map_while(|n| n.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_account_is_read() {
        let system = "cpu  100 20 30 4000 50 6 7 8 90 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        // A name with a bracket and spaces; the terminal's group is -1.
        let own = "42 (flux) x) S 1 42 42 0 -1 4194560 500 600 0 0 11 12 1300 14 20 0 9 0 77 1 2";
        let read = ProcessorTime {
            total: 4221,
            busy: 171,
            own: 1337,
        };
        assert_eq!(of(system, own), Some(read));
        assert_eq!(of("cpu0 1 2 3 4", own), None);
        assert_eq!(of(system, "42 (flux) S 1 42"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_time_of_a_process_that_was_waited_for_is_our_own() {
        let root = SystemRoot::default();
        let before = time(&root).unwrap();
        let spin = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        std::process::Command::new("sh")
            .args(["-c", spin])
            .status()
            .unwrap();
        let now = time(&root).unwrap();
        assert!(now.own > before.own, "{before:?} {now:?}");
        assert!(now.busy >= before.busy && now.total > before.total);
    }
}
