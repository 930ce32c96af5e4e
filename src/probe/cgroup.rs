//! The memory that a control group leaves to this process (Linux: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst):
//! containers, services and user slices have less than the machine.

use std::path::{Path, PathBuf};

use crate::domain::types::Bytes;
use crate::system_root::{SystemRoot, read, read_number};

/// What a control group allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowed {
    /// The limit of the group.
    pub total: Bytes,
    /// Of it what is not in use; cached files can make room.
    pub free: Bytes,
}

/// A version's files in the folder of a group.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// Keys of `memory.stat`: cached files of the group and of those below it, as `MemAvailable` counts them.
    cached: [&'static str; 2],
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cached: ["total_inactive_file", "total_active_file"],
};
const V2: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
    cached: ["inactive_file", "active_file"],
};

/// The tightest limit on this process, of its group or of one above it; `None` without any, and off Linux.
pub(super) fn allowed(root: &SystemRoot) -> Option<Allowed> {
    let groups = read(&root.path("proc/self/cgroup"))?;
    groups
        .lines()
        .filter_map(|line| hierarchy(root, line))
        .flat_map(|(top, group, files)| {
            let above: Vec<PathBuf> = group.ancestors().map(|g| top.join(g)).collect();
            above.into_iter().filter_map(move |dir| of(&dir, &files))
        })
        .min_by_key(|a| a.total)
}

/// Folder of a hierarchy, the group within it, and its files; of `4:memory:/a/b` and `0::/a/b`.
fn hierarchy(root: &SystemRoot, line: &str) -> Option<(PathBuf, PathBuf, Files)> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let group = Path::new(path.trim_start_matches('/')).to_owned();
    let fs = root.path("sys/fs/cgroup");
    match controllers {
        "" => {
            let unified = fs.join("unified");
            let top = if unified.is_dir() { unified } else { fs };
            Some((top, group, V2))
        }
        names if names.split(',').any(|n| n == "memory") => Some((fs.join("memory"), group, V1)),
        _ => None,
    }
}

fn of(dir: &Path, files: &Files) -> Option<Allowed> {
    let number = |name: &str| read_number(&dir.join(name));
    let total = number(files.limit)?;
    let stat = read(&dir.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().filter_map(|line| {
        let (key, value) = line.split_once(' ')?;
        let counts = files.cached.contains(&key);
        counts.then(|| value.parse::<u64>().ok())?
    });
    let used = number(files.usage)?.saturating_sub(cached.sum());
    Some(Allowed {
        total: Bytes(total),
        free: Bytes(total.saturating_sub(used)),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]
mod tests {
    use std::fs;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, SystemRoot) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = SystemRoot::at(dir.path());
        (dir, root)
    }

    #[test]
    fn a_service_has_what_the_tightest_slice_above_it_leaves() {
        let (_dir, root) = tree(&[
            ("proc/self/cgroup", "0::/user.slice/app.service\n"),
            ("sys/fs/cgroup/user.slice/memory.max", "4294967296\n"),
            ("sys/fs/cgroup/user.slice/memory.current", "3221225472\n"),
            (
                "sys/fs/cgroup/user.slice/memory.stat",
                "anon 1073741824\ninactive_file 1073741824\nactive_file 1073741824\n",
            ),
            ("sys/fs/cgroup/user.slice/app.service/memory.max", "max\n"),
        ]);
        let expected = Allowed {
            total: Bytes::gib(4),
            free: Bytes::gib(3),
        };
        assert_eq!(allowed(&root), Some(expected));
    }

    #[test]
    fn the_older_version_names_its_controllers() {
        let (_dir, root) = tree(&[
            (
                "proc/self/cgroup",
                "5:cpu,cpuacct:/a\n4:memory:/box\n0::/\n",
            ),
            (
                "sys/fs/cgroup/memory/box/memory.limit_in_bytes",
                "2147483648\n",
            ),
            (
                "sys/fs/cgroup/memory/box/memory.usage_in_bytes",
                "1073741824\n",
            ),
        ]);
        let expected = Allowed {
            total: Bytes::gib(2),
            free: Bytes::gib(1),
        };
        assert_eq!(allowed(&root), Some(expected));
    }

    #[test]
    fn without_a_group_nothing_is_limited() {
        let (_dir, root) = tree(&[("proc/self/cgroup", "0::/\n")]);
        assert_eq!(allowed(&root), None);
        let (_dir, root) = tree(&[]);
        assert_eq!(allowed(&root), None);
    }
}
