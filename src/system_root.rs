//! The root of `/sys`, `/proc` and `/dev`, so that captured trees replay in tests.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the system's virtual files are read from: `/`, or the folder of a captured tree.
#[derive(Debug, Clone)]
pub struct SystemRoot(PathBuf);

impl Default for SystemRoot {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

impl SystemRoot {
    /// Reads below `dir` instead of `/`.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self(dir.into())
    }

    /// Not a captured tree.
    pub(crate) fn is_this_machine(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// The path of `relative` (`sys/class/…`).
    pub(crate) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.0.join(relative)
    }

    /// The entries of a folder in name order; none when it cannot be read. A path from such a list is as good.
    pub(crate) fn list(&self, relative: impl AsRef<Path>) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path(relative)) else {
            return Vec::new();
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        paths.sort();
        paths
    }

    /// Trimmed text of a file; `None` when it cannot be read or is empty.
    pub(crate) fn read(&self, relative: &str) -> Option<String> {
        read(&self.path(relative))
    }
}

/// Trimmed text of a file; `None` when it cannot be read or is empty.
pub(crate) fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// A number as sysfs writes it: `0x1002`, or decimal.
pub(crate) fn read_number(path: &Path) -> Option<u64> {
    let text = read(path)?;
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Last component of a path, as text.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default()
}
