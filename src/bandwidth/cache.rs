//! How large the last-level caches are: what is read from RAM must be far larger.

/// Bytes of all last-level caches together; 0 where the system does not say.
pub(super) fn last_level() -> u64 {
    #[cfg(target_os = "linux")]
    return linux::all(std::path::Path::new("/sys/devices/system/cpu"));
    #[cfg(not(target_os = "linux"))]
    0
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    /// Levels of cache looked at; no processor has more.
    const INDICES: u32 = 8;

    /// Of `cpuN/cache/indexM` (Linux: Documentation/ABI/testing/sysfs-devices-system-cpu), each cache once.
    pub(super) fn all(root: &Path) -> u64 {
        let mut caches = BTreeMap::new();
        let cpus = fs::read_dir(root).into_iter().flatten().flatten();
        for cpu in cpus {
            let of_cpu =
                (0..INDICES).filter_map(|i| cache(&cpu.path().join(format!("cache/index{i}"))));
            if let Some((level, shared, bytes)) = of_cpu.max() {
                caches.insert((level, shared), bytes);
            }
        }
        caches.values().sum()
    }

    /// Level, who shares it, bytes.
    fn cache(index: &Path) -> Option<(u32, String, u64)> {
        let read = |name| fs::read_to_string(index.join(name)).ok();
        let level = read("level")?.trim().parse().ok()?;
        let shared = read("shared_cpu_list")?.trim().to_owned();
        let kib: u64 = read("size")?.trim().strip_suffix('K')?.parse().ok()?;
        Some((level, shared, kib * 1024))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn write(root: &Path, cpu: u32, index: u32, level: u32, shared: &str, size: &str) {
            let dir = root.join(format!("cpu{cpu}/cache/index{index}"));
            fs::create_dir_all(&dir).unwrap();
            for (name, text) in [
                ("level", level.to_string()),
                ("shared_cpu_list", shared.to_owned()),
                ("size", size.to_owned()),
            ] {
                fs::write(dir.join(name), format!("{text}\n")).unwrap();
            }
        }

        #[test]
        fn two_sockets_have_two_caches_whoever_shares_them() {
            let dir = tempfile::tempdir().unwrap();
            for (cpu, shared) in [(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")] {
                write(dir.path(), cpu, 0, 1, &cpu.to_string(), "32K");
                write(dir.path(), cpu, 3, 3, shared, "32768K");
            }
            fs::create_dir(dir.path().join("cpufreq")).unwrap();
            assert_eq!(all(dir.path()), 2 * 32 * 1024 * 1024);
            assert_eq!(all(&dir.path().join("none")), 0);
        }
    }
}
