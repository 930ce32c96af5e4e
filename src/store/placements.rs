//! The planner's evidence: bandwidth profiles, placements and fits of the speed model.

use rusqlite::{Connection, OptionalExtension, Result, Transaction, params};

use crate::domain::placement::bandwidth::BandwidthProfile;
use crate::domain::types::{Fingerprint, Timestamp};
use crate::ports::{NewPlacement, StoredFit, StoredPlacement};

use super::read::all;
use super::rows::{Columns, json};
use super::write::fingerprint;

/// Appends a bandwidth profile.
pub(super) fn append_bandwidth(
    tx: &Transaction,
    of: &Fingerprint,
    profile: &BandwidthProfile,
) -> Result<i64> {
    fingerprint(tx, of)?;
    tx.execute(
        "INSERT INTO bandwidths (fingerprint, measured_at, document) VALUES (?1, ?2, ?3)",
        params![of.hash, profile.measured_at.0, json(profile)?],
    )?;
    Ok(tx.last_insert_rowid())
}

/// The newest bandwidth profile.
pub(super) fn bandwidth(connection: &Connection, hash: &str) -> Result<Option<BandwidthProfile>> {
    let sql = "SELECT document FROM bandwidths WHERE fingerprint = ?1 ORDER BY id DESC LIMIT 1";
    connection
        .query_row(sql, [hash], |row| Columns::of(row).json())
        .optional()
}

/// Appends a placement.
pub(super) fn append_placement(tx: &Transaction, new: &NewPlacement) -> Result<i64> {
    fingerprint(tx, &new.fingerprint)?;
    tx.execute(
        "INSERT INTO placements (session, at, fingerprint, model_digest, document) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            new.session,
            new.at.0,
            new.fingerprint.hash,
            new.model_digest,
            json(&new.document)?
        ],
    )?;
    Ok(tx.last_insert_rowid())
}

/// Placements of a machine, of one model or of all, newest first.
pub(super) fn placements(
    connection: &Connection,
    hash: &str,
    model_digest: Option<&str>,
) -> Result<Vec<StoredPlacement>> {
    let sql = "SELECT id, session, at, model_digest, document FROM placements
               WHERE fingerprint = ?1 AND (?2 IS NULL OR model_digest = ?2) ORDER BY id DESC";
    all(connection, sql, params![hash, model_digest], |row| {
        let mut c = Columns::of(row);
        Ok(StoredPlacement {
            id: c.get()?,
            session: c.get()?,
            at: Timestamp(c.get()?),
            model_digest: c.get()?,
            document: c.json()?,
        })
    })
}

/// Appends a fit.
pub(super) fn append_fit(
    tx: &Transaction,
    of: &Fingerprint,
    at: Timestamp,
    document: &serde_json::Value,
) -> Result<i64> {
    fingerprint(tx, of)?;
    tx.execute(
        "INSERT INTO fits (fingerprint, created_at, document) VALUES (?1, ?2, ?3)",
        params![of.hash, at.0, json(document)?],
    )?;
    Ok(tx.last_insert_rowid())
}

/// Fits of a machine, newest first.
pub(super) fn fits(connection: &Connection, hash: &str) -> Result<Vec<StoredFit>> {
    let sql = "SELECT id, created_at, document FROM fits WHERE fingerprint = ?1 ORDER BY id DESC";
    all(connection, sql, [hash], |row| {
        let mut c = Columns::of(row);
        Ok(StoredFit {
            id: c.get()?,
            at: Timestamp(c.get()?),
            document: c.json()?,
        })
    })
}
