//! Profiles that came from elsewhere.

use rusqlite::{Connection, Result, Transaction, params};

use crate::domain::handover::SharedProfile;
use crate::domain::types::Timestamp;
use crate::ports::ImportedProfile;

use super::read::all;
use super::rows::{Columns, json};

/// Appends one; the same document again is the row that is there.
pub(super) fn append(tx: &Transaction, at: Timestamp, profile: &SharedProfile) -> Result<i64> {
    let same = of_model(tx, &profile.model.digest)?;
    if let Some(known) = same.into_iter().find(|i| i.profile == *profile) {
        return Ok(known.id);
    }
    tx.execute(
        "INSERT INTO imports (imported_at, model_digest, document) VALUES (?1, ?2, ?3)",
        params![at.0, profile.model.digest, json(profile)?],
    )?;
    Ok(tx.last_insert_rowid())
}

/// Those of a model, newest first.
pub(super) fn of_model(
    connection: &Connection,
    model_digest: &str,
) -> Result<Vec<ImportedProfile>> {
    let sql =
        "SELECT id, imported_at, document FROM imports WHERE model_digest = ?1 ORDER BY id DESC";
    all(connection, sql, [model_digest], |row| {
        let mut c = Columns::of(row);
        Ok(ImportedProfile {
            id: c.get()?,
            imported_at: Timestamp(c.get()?),
            profile: c.json()?,
        })
    })
}
