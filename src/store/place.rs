//! The files that were opened, still under their names: of a database that was deleted, moved or replaced `SQLite` goes on
//! to use the file without a name, and all that is written to it goes with this process.

use std::path::{Path, PathBuf};

use super::open::suffixed;

/// What a file is, whatever it is called.
type Identity = Option<(u64, u64)>;

/// A database and its log, as they were when they were opened.
pub(super) struct Place(Vec<(PathBuf, Identity)>);

impl Place {
    /// Of a database that is open.
    pub(super) fn of(path: &Path) -> Self {
        let files = [path.to_owned(), suffixed(path, "-wal")];
        let known = files.into_iter().map(|file| {
            let is = identity(&file);
            (file, is)
        });
        // What is not there cannot be lost: a database in memory, one without a log.
        Self(known.filter(|(_, is)| is.is_some()).collect())
    }

    /// Are they still what stands there?
    pub(super) fn is_kept(&self) -> bool {
        self.0.iter().all(|(file, is)| identity(file) == *is)
    }
}

#[cfg(unix)]
fn identity(file: &Path) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(file).ok()?;
    Some((found.dev(), found.ino()))
}

/// Elsewhere a file that is open cannot be deleted or moved.
#[cfg(not(unix))]
fn identity(_: &Path) -> Identity {
    None
}
