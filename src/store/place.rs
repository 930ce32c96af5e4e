//! The files that were opened, still under their names: of a database that was deleted, moved or replaced `SQLite` goes on
//! to use the file without a name, and all that is written to it goes with this process.

use std::path::{Path, PathBuf};

use super::open::suffixed;

/// What a file is, whatever it is called.
type Identity = Option<(u64, u64)>;

/// A database, as it was when it was opened; with its log, where that cannot go.
pub(super) struct Place(Vec<(PathBuf, Identity)>);

impl Place {
    /// Of a database that is open, `writing` to it too: while such a connection is open no other tidies the log away. To one
    /// that reads alone, the log goes with the last writer and comes with the next, on the same database.
    pub(super) fn of(path: &Path, writing: bool) -> Self {
        let log = writing.then(|| suffixed(path, "-wal"));
        let files = [path.to_owned()].into_iter().chain(log);
        let known = files.map(|file| {
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

#[cfg(all(test, unix))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_log_that_a_writer_tidied_away_is_no_replaced_database() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flux.db");
        let log = suffixed(&path, "-wal");
        fs::write(&path, "a database").unwrap();
        fs::write(&log, "").unwrap();
        let (reading, writing) = (Place::of(&path, false), Place::of(&path, true));
        assert!(reading.is_kept() && writing.is_kept());
        // The next writer's log stands there already, so that it cannot get the number of the one before.
        let next = dir.path().join("next");
        fs::write(&next, "").unwrap();
        fs::remove_file(&log).unwrap();
        assert!(reading.is_kept(), "the last writer has closed");
        assert!(!writing.is_kept(), "nobody may take it from a writer");
        fs::rename(&next, &log).unwrap();
        assert!(reading.is_kept(), "the next has opened");
        assert!(!writing.is_kept());
        fs::write(&next, "another database").unwrap();
        fs::rename(&next, &path).unwrap();
        assert!(!reading.is_kept() && !writing.is_kept());
    }
}
