//! Making a database smaller: what may go, by age and on the owner's word alone. Samples, records, verdicts, profiles and
//! notices of every session that is not deleted stay as they are.

use rusqlite::{Connection, Params, Result, Transaction, params};

use crate::domain::types::{Bytes, Timestamp};
use crate::ports::{Erasable, Holdings};

use super::rows::Columns;

/// Stands where the output of a run stood.
const ERASED: &str = "[erased by flux data compact]";

/// Sessions whose last mark says deleted, and says so since before ?1; not those that a listed profile rests on.
const GONE: &str = "SELECT m.session FROM session_marks m
    WHERE m.deleted AND m.at < ?1 AND m.id = (SELECT max(id) FROM session_marks WHERE session = m.session)
    AND NOT EXISTS (SELECT 1 FROM runs r JOIN profile_settings f ON f.introduced_by = r.id
        JOIN profiles p ON p.id = f.profile WHERE r.session = m.session AND p.session <> m.session)";

/// Runs of sessions begun before ?1 that still have an output longer than what would stand in its place, [`ERASED`].
const PRINTED: &str = "session IN (SELECT id FROM sessions WHERE started_at < ?1)
    AND (octet_length(stdout) > 29 OR octet_length(stderr) > 29)";
const _: () = assert!(ERASED.len() == 29, "the length that is looked for");

/// Rows that belong to sessions of `gone` (a temporary table), children before their parents.
const ROWS: [&str; 15] = [
    "samples WHERE run IN (SELECT id FROM runs WHERE session IN gone)",
    "run_tests WHERE run IN (SELECT id FROM runs WHERE session IN gone)",
    "run_telemetry WHERE run IN (SELECT id FROM runs WHERE session IN gone)",
    "telemetry WHERE session IN gone",
    "telemetry_data WHERE block IN (SELECT id FROM telemetry_blocks WHERE session IN gone)",
    "telemetry_blocks WHERE session IN gone",
    "profile_settings WHERE profile IN (SELECT id FROM profiles WHERE session IN gone)",
    "profiles WHERE session IN gone",
    "verdicts WHERE session IN gone",
    "notices WHERE session IN gone",
    "placements WHERE session IN gone",
    "runs WHERE session IN gone",
    "arms WHERE session IN gone",
    "session_ends WHERE session IN gone",
    "session_marks WHERE session IN gone",
];

/// What a database holds.
pub(super) fn holdings(connection: &Connection) -> Result<Holdings> {
    let pages =
        |pragma| connection.pragma_query_value(None, pragma, |row| Columns::of(row).count());
    let page = pages("page_size")?;
    let sql = "SELECT count(*) - (SELECT count(*) FROM deleted_sessions), (SELECT count(*) FROM deleted_sessions),
               (SELECT coalesce(sum(samples), 0) FROM session_totals),
               (SELECT coalesce(sum(readings), 0) FROM telemetry_blocks) + (SELECT count(*) FROM telemetry),
               min(started_at) FROM sessions";
    connection.query_row(sql, [], |row| {
        let mut c = Columns::of(row);
        Ok(Holdings {
            bytes: Bytes(pages("page_count")? * page),
            reusable: Bytes(pages("freelist_count")? * page),
            sessions: c.count()?,
            deleted: c.count()?,
            samples: c.count()?,
            readings: c.count()?,
            since: c.get::<Option<i64>>()?.map(Timestamp),
        })
    })
}

/// What of it is older than a moment and may be erased.
pub(super) fn erasable(connection: &Connection, before: Timestamp) -> Result<Erasable> {
    let counts = |sql: &str| counted(connection, sql, [before.0]);
    let (readings, loose) = counts(
        "SELECT coalesce(sum(readings), 0), (SELECT count(*) FROM telemetry WHERE at < ?1)
         FROM telemetry_blocks WHERE to_at < ?1",
    )?;
    let (outputs, bytes) = counts(&format!(
        "SELECT count(*), coalesce(sum(octet_length(stdout) + octet_length(stderr)), 0) FROM runs WHERE {PRINTED}"
    ))?;
    let (sessions, samples) = counts(&format!(
        "SELECT count(*), coalesce(sum(samples), 0) FROM session_totals WHERE session IN ({GONE})"
    ))?;
    Ok(Erasable {
        readings: readings + loose,
        outputs,
        output_bytes: Bytes(bytes),
        sessions,
        samples,
    })
}

fn counted(connection: &Connection, sql: &str, of: impl Params) -> Result<(u64, u64)> {
    connection.query_row(sql, of, |row| {
        let mut c = Columns::of(row);
        Ok((c.count()?, c.count()?))
    })
}

/// Erases it, and gives the room back to the disk: what was erased, and whether that room was given back. Cut short it has
/// erased all or nothing.
pub(super) fn compact(
    connection: &mut Connection,
    before: Timestamp,
) -> Result<(Erasable, Result<()>)> {
    // Each row erased would look through the tables that may refer to it: minutes in a large database.
    connection.pragma_update(None, "foreign_keys", false)?;
    let tx = connection.transaction();
    let erased = tx.and_then(|tx| {
        let erased = erase(&tx, before)?;
        tx.commit()?;
        Ok(erased)
    });
    connection.pragma_update(None, "foreign_keys", true)?;
    let erased = erased?;
    let shrunk = connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)");
    Ok((erased, shrunk))
}

fn erase(tx: &Transaction, before: Timestamp) -> Result<Erasable> {
    let erased = erasable(tx, before)?;
    super::telemetry::forget(tx, before)?;
    tx.execute_batch(
        "DELETE FROM telemetry_data WHERE block NOT IN (SELECT id FROM telemetry_blocks)",
    )?;
    tx.execute_batch("CREATE TEMPORARY TABLE gone (session INTEGER PRIMARY KEY)")?;
    tx.execute(&format!("INSERT INTO gone {GONE}"), [before.0])?;
    for rows in ROWS {
        tx.execute_batch(&format!("DELETE FROM {rows}"))?;
    }
    tx.execute_batch("DELETE FROM session_totals WHERE session IN gone; DELETE FROM sessions WHERE id IN gone; DROP TABLE gone")?;
    erase_outputs(tx, before)?;
    Ok(erased)
}

/// The one change of evidence that there is. Its guard is away within the transaction alone.
fn erase_outputs(tx: &Transaction, before: Timestamp) -> Result<()> {
    let guard = "SELECT sql FROM sqlite_master WHERE name = 'runs_stay'";
    let guard: String = tx.query_row(guard, [], |row| row.get(0))?;
    tx.execute_batch("DROP TRIGGER runs_stay")?;
    let update = format!(
        "UPDATE runs SET stdout = iif(octet_length(stdout) > 29, ?2, stdout),
         stderr = iif(octet_length(stderr) > 29, ?2, stderr) WHERE {PRINTED}"
    );
    tx.execute(&update, params![before.0, ERASED])?;
    tx.execute_batch(&guard)
}
