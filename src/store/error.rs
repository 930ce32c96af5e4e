//! The store's failures as one clear sentence each: what, where, what to do next.

use std::path::Path;

use rusqlite::ErrorCode;

use crate::domain::windows_path::is_too_long_for_sqlite;
use crate::ports::PortError;

/// What to do about a folder that cannot be written.
const OTHER_FOLDER: &str = "allow writing there, or use another --data-dir";
/// What to do about a full disk.
const FREE_SPACE: &str = "free space there";

/// A failed database operation on `path`; `doing` is `read` or `written`.
pub(super) fn sql_error(doing: &str, path: &Path, error: &rusqlite::Error) -> PortError {
    const FULL: &str = "the disk is full, nothing more was stored";
    let extended = error.sqlite_error().map(|e| e.extended_code);
    let (headline, hint) = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => (FULL, FREE_SPACE),
        Some(ErrorCode::CannotOpen) if is_too_long_for_sqlite(path) => (
            "the database's path is too long for SQLite on Windows",
            "use another --data-dir, of less than 240 characters",
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            ("the database cannot be opened for writing", OTHER_FOLDER)
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            "the database is held by another program",
            "close that program, then try again",
        ),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            return damaged(path, &error.to_string());
        }
        // The log's index could not grow.
        _ if extended == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE) => (FULL, FREE_SPACE),
        Some(ErrorCode::SystemIoFailure) => (
            "the disk failed under the database",
            "check the disk and its free space",
        ),
        Some(ErrorCode::ConstraintViolation) => {
            let headline = format!("the database refused the entry: {}", path.display());
            return PortError::caused(headline, error);
        }
        _ => {
            let headline = format!("the database could not be {doing}: {}", path.display());
            return PortError::caused(headline, error);
        }
    };
    PortError::caused(format!("{headline}: {}", path.display()), error).hint(hint)
}

/// What was to go is erased, and the file could not be made smaller.
pub(super) fn not_shrunk(path: &Path, error: &rusqlite::Error) -> PortError {
    let headline = format!(
        "what was to go is erased, but the file could not be made smaller: {}",
        path.display()
    );
    let hint = "free as much space there as it takes, then run `flux data compact` again";
    PortError::caused(headline, error).hint(hint)
}

/// A database made by a Flux that knows more.
pub(super) fn newer(path: &Path, found: i64, known: i64) -> PortError {
    PortError::new(format!(
        "this database was made by a newer Flux (format {found}, this one knows {known}): {}",
        path.display()
    ))
    .hint("update Flux, or use another --data-dir")
}

/// A database that another Flux has been opening for too long: it stands still, or its disk does.
pub(super) fn opening(path: &Path) -> PortError {
    PortError::new(format!(
        "another Flux is opening the database and does not get on: {}",
        path.display()
    ))
    .hint("end that Flux, or use another --data-dir")
}

/// A database that is not where it was opened.
pub(super) fn moved(path: &Path) -> PortError {
    PortError::new(format!(
        "the database was deleted or replaced while Flux used it, nothing more is stored: {}",
        path.display()
    ))
    .hint("put it back where it was moved from, or leave it; then start Flux again")
}

/// A damaged database that was left where it is.
pub(super) fn damaged(path: &Path, detail: &str) -> PortError {
    let mut error = PortError::new(format!("the database is damaged: {}", path.display()))
        .hint("the next `flux tune` sets it aside, deletes nothing, and starts a new one");
    error.cause.push(detail.to_owned());
    error
}
