//! Whether the kernel ended processes for lack of memory: what tells its SIGKILL from somebody else's.

/// Processes that this kernel ended for lack of memory since it started, those of control groups included (Linux 4.13 on:
/// `oom_kill` of `/proc/vmstat`). `None` where it does not tell.
pub(super) fn kills() -> Option<u64> {
    if cfg!(target_os = "linux") {
        count(&std::fs::read_to_string("/proc/vmstat").ok()?)
    } else {
        None
    }
}

fn count(vmstat: &str) -> Option<u64> {
    let mut lines = vmstat.lines();
    lines.find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn the_count_is_read_beside_others() {
        let vmstat = "pgfault 12\noom_kill_disable 9\noom_kill 4\nnuma_hit 5\n";
        assert_eq!(count(vmstat), Some(4));
        assert_eq!(count("pgfault 12\n"), None);
    }
}
