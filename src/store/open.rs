//! Opening `flux.db`: newer ones are refused and left alone, damaged ones set aside and never deleted
//! (design section 11).

use std::ffi::OsString;
use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use rusqlite_migration::{M, Migrations};

use crate::ports::{Notice, NoticeLevel, PortError, is_no_folder};

use super::Access;
use super::error::{damaged, newer, opening, sql_error};
use super::lock::{MeasureLock, lock_within};

/// The database in the data folder.
pub(super) const FILE: &str = "flux.db";
/// Held while one Flux checks, sets aside or migrates, so that two starting at once do it in turn.
const OPEN_LOCK: &str = "open.lock";
/// Every format's step from the one before. A released step is never edited: add the next.
const SCRIPTS: [&str; 7] = [
    include_str!("schema.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
    include_str!("schema_6.sql"),
    include_str!("schema_7.sql"),
];
const STEPS: &[M] = &[
    M::up(SCRIPTS[0]),
    M::up(SCRIPTS[1]),
    M::up(SCRIPTS[2]),
    M::up(SCRIPTS[3]),
    M::up(SCRIPTS[4]),
    M::up(SCRIPTS[5]),
    M::up(SCRIPTS[6]),
];
/// The format this Flux writes, kept in `user_version`.
const FORMAT: i64 = 7;
const _: () = assert!(
    STEPS.len() == FORMAT as usize && SCRIPTS.len() == FORMAT as usize,
    "one step per format"
);
/// How long a write waits for another Flux's: its transactions take milliseconds, a slow disk seconds.
pub(super) const BUSY: Duration = Duration::from_secs(10);

/// Connections to an opened database.
pub(super) struct Connections {
    pub(super) path: PathBuf,
    /// Missing where the folder cannot be written; the error says why.
    pub(super) writer: Result<Connection, PortError>,
    pub(super) reader: Connection,
    pub(super) notices: Vec<Notice>,
}

/// Why a database did not open.
pub(super) enum Trouble {
    Newer(i64),
    Damaged(String),
    Folder(io::Error),
    /// Another Flux does not come to an end with opening it.
    Opening,
    Sql(rusqlite::Error),
}

impl Trouble {
    /// What was named can be no folder: nothing is there to be looked at either.
    fn is_no_folder(&self) -> bool {
        matches!(self, Self::Folder(e) if is_no_folder(e))
    }

    fn into_error(self, path: &Path) -> PortError {
        match self {
            Self::Newer(found) => newer(path, found, FORMAT),
            Self::Damaged(detail) => damaged(path, &detail),
            Self::Folder(e) => PortError::of_data_folder(
                "the data folder cannot be used",
                path.parent().unwrap_or(path),
                &e,
            ),
            Self::Opening => opening(path),
            Self::Sql(e) => sql_error("opened", path, &e),
        }
    }
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged(error.to_string())
            }
            _ => Self::Sql(error),
        }
    }
}

/// Opens the database of `data_dir`, making what is missing.
pub(super) fn open(data_dir: &Path, access: Access) -> Result<Connections, PortError> {
    let path = data_dir.join(FILE);
    let mut notices = Vec::new();
    let writer = match open_in_turn(data_dir, &path, access, &mut notices) {
        Ok(writer) => Ok(writer),
        Err(trouble @ (Trouble::Folder(_) | Trouble::Opening | Trouble::Sql(_)))
            if access == Access::Look && !trouble.is_no_folder() =>
        {
            Err(trouble.into_error(&path))
        }
        Err(trouble) => return Err(trouble.into_error(&path)),
    };
    let reader = match &writer {
        Ok(_) => read_only(&path).map_err(|t| t.into_error(&path))?,
        Err(why) => {
            notices.push(Notice {
                level: NoticeLevel::Warning,
                code: "store-read-only".to_owned(),
                text: match &why.hint {
                    Some(hint) => format!("nothing will be remembered: {why} ({hint})"),
                    None => format!("nothing will be remembered: {why}"),
                },
            });
            reader_alone(&path).map_err(|t| t.into_error(&path))?
        }
    };
    Ok(Connections {
        path,
        writer,
        reader,
        notices,
    })
}

/// The writing connection, one Flux at a time.
fn open_in_turn(
    data_dir: &Path,
    path: &Path,
    access: Access,
    notices: &mut Vec<Notice>,
) -> Result<Connection, Trouble> {
    fs::create_dir_all(data_dir).map_err(Trouble::Folder)?;
    let turn = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(data_dir.join(OPEN_LOCK))
        .map_err(Trouble::Folder)?;
    lock_within(&turn, BUSY).map_err(|e| match e {
        TryLockError::WouldBlock => Trouble::Opening,
        TryLockError::Error(e) => Trouble::Folder(e),
    })?;
    match read_write(path, access) {
        Err(Trouble::Damaged(detail)) if access == Access::Measure => {
            // Nobody's running measurement loses its database under it.
            let _alone = MeasureLock::acquire(data_dir)
                .map_err(|held| Trouble::Damaged(format!("{detail}; {held}")))?;
            let aside = set_aside(path).map_err(Trouble::Folder)?;
            notices.push(Notice {
                level: NoticeLevel::Warning,
                code: "store-set-aside".to_owned(),
                text: format!(
                    "the database was damaged ({detail}): it was set aside and a new one made: {}",
                    aside.display()
                ),
            });
            read_write(path, access)
        }
        other => other,
    }
}

fn read_write(path: &Path, access: Access) -> Result<Connection, Trouble> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    // Until its format is known, closing must not move what its log holds into the database. Only SQLite may open the
    // file: closing another handle would drop the locks of this process's own connections (sqlite.org/howtocorrupt.html).
    let logged = length(&suffixed(path, "-wal")) > 0;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, logged)?;
    let found = format_of(&connection)?;
    if found > FORMAT {
        return Err(Trouble::Newer(found));
    }
    if access == Access::Measure {
        quick_check(&connection)?;
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    // A commit is on the medium before it returns: a sample survives loss of power (macOS needs fullfsync for it).
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.set_transaction_behavior(TransactionBehavior::Immediate);
    migrate(&mut connection)?;
    Ok(connection)
}

fn format_of(connection: &Connection) -> Result<i64, Trouble> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

fn quick_check(connection: &Connection) -> Result<(), Trouble> {
    let said: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if said == "ok" {
        return Ok(());
    }
    Err(Trouble::Damaged(said.replace('\n', " ")))
}

fn migrate(connection: &mut Connection) -> Result<(), Trouble> {
    use rusqlite_migration::Error;
    Migrations::from_slice(STEPS)
        .to_latest(connection)
        .map_err(|e| match e {
            Error::RusqliteError { err, .. } => Trouble::from(err),
            other => Trouble::Damaged(other.to_string()),
        })
}

/// Renames the database out of the way, with its log, which `SQLite` finds by name.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let stamp = Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ");
    let aside = suffixed(path, &format!(".damaged-{stamp}"));
    // The database last: a new one beside an old log would lose what the log holds.
    for part in ["-wal", "-shm", ""] {
        match fs::rename(suffixed(path, part), suffixed(&aside, part)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(aside)
}

pub(super) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// A reading connection beside a writing one.
fn read_only(path: &Path) -> Result<Connection, Trouble> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    format_of(&connection)?;
    Ok(connection)
}

/// A reading connection where nothing can be written: on a missing database, an empty one in memory.
fn reader_alone(path: &Path) -> Result<Connection, Trouble> {
    if length(path) == 0 {
        return empty();
    }
    let connection = match read_only(path) {
        // SQLite wants to write beside a WAL database; one without a log can be read as a plain file.
        Err(Trouble::Sql(_)) if length(&suffixed(path, "-wal")) == 0 => unchanging(path)?,
        other => other?,
    };
    match format_of(&connection)? {
        // Its making was cut short: nothing was ever stored in it.
        ..=0 => empty(),
        found if found > FORMAT => Err(Trouble::Newer(found)),
        found => {
            for script in &SCRIPTS[found as usize..] {
                read_beside(&connection, script)?;
            }
            Ok(connection)
        }
    }
}

/// What a later format adds, made beside a database that stays as it is, for this connection alone.
fn read_beside(connection: &Connection, script: &str) -> Result<(), Trouble> {
    // A temporary table cannot refer to one of the database.
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    // A table made anew hides the database's own of that name, which cannot be dropped here.
    let skipped = ["CREATE INDEX", "DROP TABLE"];
    let mut step: String = script
        .lines()
        .filter(|line| !skipped.iter().any(|start| line.starts_with(start)))
        .flat_map(|line| [line, "\n"])
        .collect();
    for what in ["TABLE", "VIEW", "TRIGGER"] {
        step = step.replace(
            &format!("CREATE {what} "),
            &format!("CREATE TEMPORARY {what} "),
        );
    }
    Ok(connection.execute_batch(&step)?)
}

fn empty() -> Result<Connection, Trouble> {
    let mut connection = Connection::open_in_memory()?;
    migrate(&mut connection)?;
    Ok(connection)
}

/// Opens a file that nobody can change.
pub(super) fn unchanging(path: &Path) -> Result<Connection, Trouble> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let path = std::path::absolute(path).map_err(Trouble::Folder)?;
    let bytes = path.as_os_str().as_encoded_bytes();
    Ok(Connection::open_with_flags(
        immutable_uri(bytes, cfg!(windows)),
        flags,
    )?)
}

/// `SQLite`'s URI of an absolute path, read as a file that never changes (sqlite.org/uri.html). In Windows' paths
/// backslashes separate, a drive's letter comes after a slash (`file:///C:/…`), and a server's name has its two slashes
/// behind the empty authority (`file:////server/share/…`).
fn immutable_uri(path: &[u8], windows: bool) -> String {
    use std::fmt::Write;
    let mut uri = String::from("file://");
    if !path.starts_with(b"/") && !path.starts_with(b"\\") {
        uri.push('/');
    }
    for &byte in path {
        match byte {
            b'\\' if windows => uri.push('/'),
            b':' if windows => uri.push(':'),
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                uri.push(char::from(byte));
            }
            // Writing to a String cannot fail.
            other => drop(write!(uri, "%{other:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    uri
}

/// Length of a file, 0 where there is none.
fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.len())
}

#[cfg(test)]
mod tests {
    use super::immutable_uri;

    #[test]
    fn paths_of_every_system_become_uris() {
        let unix = |path: &str| immutable_uri(path.as_bytes(), false);
        assert_eq!(
            unix("/a b/50%#?.db"),
            "file:///a%20b/50%25%23%3F.db?immutable=1"
        );
        // A backslash and a colon are letters of a name there.
        assert_eq!(unix("/a\\b:c.db"), "file:///a%5Cb%3Ac.db?immutable=1");
        // The forms of sqlite.org/uri.html: a drive, a server, and a path of any length, whose `?` is no query.
        let windows = |path: &str| immutable_uri(path.as_bytes(), true);
        for (path, uri) in [
            (
                r"C:\Users\Ada L\flux.db",
                "file:///C:/Users/Ada%20L/flux.db",
            ),
            (r"\\server\share\flux.db", "file:////server/share/flux.db"),
            (r"\\?\D:\x\flux.db", "file:////%3F/D:/x/flux.db"),
            (r"D:/mixed\flux.db", "file:///D:/mixed/flux.db"),
            (
                "C:\\данные\\f.db",
                "file:///C:/%D0%B4%D0%B0%D0%BD%D0%BD%D1%8B%D0%B5/f.db",
            ),
        ] {
            assert_eq!(windows(path), format!("{uri}?immutable=1"));
        }
    }
}
