//! Databases that are newer, damaged, or not there at all.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use flux::ports::{NoticeLevel, PortError};
use flux::store::{Access, MeasureLock, SqliteStore};
use rusqlite::Connection;

use crate::sample::*;

/// Why a folder does not open.
pub fn refusal(dir: &Path, access: Access) -> PortError {
    match SqliteStore::open(dir, access) {
        Ok(_) => panic!("opened"),
        Err(e) => e,
    }
}

/// Every file of a folder but the locks, with its bytes.
fn files(dir: &Path) -> BTreeMap<OsString, Vec<u8>> {
    fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap())
        .filter(|e| e.path().extension().is_none_or(|x| x != "lock"))
        .map(|e| (e.file_name(), fs::read(e.path()).unwrap()))
        .collect()
}

#[test]
fn a_newer_database_is_refused_and_untouched() {
    let dir = tempfile::tempdir().unwrap();
    fill(&measuring(dir.path()));
    let path = dir.path().join("flux.db");
    let raised = Connection::open(&path).unwrap();
    raised.pragma_update(None, "user_version", 8).unwrap();
    // With the new version still in its log, as after a crash; then in the database itself.
    let crashed = tempfile::tempdir().unwrap();
    for name in ["flux.db", "flux.db-wal"] {
        fs::copy(dir.path().join(name), crashed.path().join(name)).unwrap();
    }
    drop(raised);
    for folder in [crashed.path(), dir.path()] {
        let before = files(folder);
        for access in [Access::Measure, Access::Look] {
            let error = refusal(folder, access);
            let path = folder.join("flux.db");
            assert_eq!(
                error.headline,
                format!(
                    "this database was made by a newer Flux (format 8, this one knows 7): {}",
                    path.display()
                )
            );
            assert_eq!(
                error.hint.as_deref(),
                Some("update Flux, or use another --data-dir")
            );
        }
        let mut after = files(folder);
        // The log's index, which SQLite makes anew from the log.
        after.remove(OsStr::new("flux.db-shm"));
        assert!(after == before, "touched");
    }
}

/// A folder with a filled database that `harm` has changed on disk.
fn harmed(harm: impl FnOnce(&mut Vec<u8>)) -> (tempfile::TempDir, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    fill(&measuring(dir.path()));
    let path = dir.path().join("flux.db");
    let mut bytes = fs::read(&path).unwrap();
    harm(&mut bytes);
    fs::write(&path, &bytes).unwrap();
    (dir, bytes)
}

type Harm = fn(&mut Vec<u8>);

#[test]
fn a_damaged_database_is_set_aside_and_a_new_one_made() {
    let harms: [(&str, Harm); 5] = [
        ("first byte", |b| b[0] = b'X'),
        ("text instead", |b| {
            *b = b"not a database, it's a note".to_vec();
        }),
        ("page size 3", |b| b[16..18].copy_from_slice(&[0, 3])),
        ("a page of noise", |b| b[4096 * 4..4096 * 5].fill(0xA5)),
        ("cut in half", |b| b.truncate(b.len() / 2)),
    ];
    for (what, harm) in harms {
        let (dir, bytes) = harmed(harm);
        fs::write(dir.path().join("flux.db-wal"), "a log").unwrap();
        let store = measuring(dir.path());
        let [notice] = store.opened().notices.as_slice() else {
            panic!("{what}: {:?}", store.opened().notices)
        };
        assert_eq!(
            (notice.level, notice.code.as_str()),
            (NoticeLevel::Warning, "store-set-aside")
        );
        let kept = files(dir.path());
        let (aside, found) = kept
            .iter()
            .find(|(name, _)| {
                let name = name.to_string_lossy();
                name.starts_with("flux.db.damaged-") && name.ends_with('Z')
            })
            .unwrap();
        assert!(*found == bytes, "{what}: not deleted, not changed");
        let aside = dir.path().join(aside);
        assert!(
            notice.text.ends_with(&aside.display().to_string()),
            "{}",
            notice.text
        );
        let ids = fill(&store);
        assert_filled(&store, &ids);
    }
}

#[test]
fn a_damaged_database_is_left_alone_by_a_looker_and_under_a_measurement() {
    let (dir, bytes) = harmed(|b| b[0] = b'X');
    let path = dir.path().join("flux.db");
    let headline = format!("the database is damaged: {}", path.display());
    assert_eq!(refusal(dir.path(), Access::Look).headline, headline);
    let lock = MeasureLock::acquire(dir.path()).unwrap();
    let error = refusal(dir.path(), Access::Measure);
    assert_eq!(error.headline, headline);
    assert!(
        error.cause[0].contains("is measuring with this data folder"),
        "{error:?}"
    );
    assert!(fs::read(&path).unwrap() == bytes);
    drop(lock);
    assert_eq!(measuring(dir.path()).opened().notices.len(), 1);
}

#[test]
fn a_folder_that_is_none_is_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("it's a file");
    fs::write(&file, "").unwrap();
    let error = refusal(&file, Access::Measure);
    assert_eq!(refusal(&file, Access::Look), error);
    assert_eq!(
        error.headline,
        format!(
            "a file stands where the data folder should be: {}",
            file.display()
        )
    );
    assert_eq!(
        error.hint.as_deref(),
        Some("move it away, or use another --data-dir")
    );
    assert!(MeasureLock::acquire(&file).is_err());
    // Or above it.
    let below = file.join("data");
    assert!(
        refusal(&below, Access::Measure)
            .headline
            .starts_with("a file stands where the data folder should be: ")
    );
}
