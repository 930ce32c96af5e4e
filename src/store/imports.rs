//! Profiles that came from elsewhere.

use rusqlite::{Connection, Result, Transaction, params};

use crate::domain::handover::SharedProfile;
use crate::domain::types::Timestamp;
use crate::ports::ImportedProfile;

use super::read::all;
use super::rows::{Columns, json};

/// Appends one; the same document again is the row that is there.
pub(super) fn append(tx: &Transaction, at: Timestamp, profile: &SharedProfile) -> Result<i64> {
    let same = list(tx, Some(&profile.model.digest))?;
    if let Some(known) = same.into_iter().find(|i| i.profile == *profile) {
        return Ok(known.id);
    }
    tx.execute(
        "INSERT INTO imports (imported_at, model_digest, document) VALUES (?1, ?2, ?3)",
        params![at.0, profile.model.digest, json(profile)?],
    )?;
    Ok(tx.last_insert_rowid())
}

/// Removes one; `false` where there is none.
pub(super) fn remove(tx: &Transaction, import: i64) -> Result<bool> {
    Ok(tx.execute("DELETE FROM imports WHERE id = ?1", [import])? > 0)
}

/// All of them or those of a model, newest first.
pub(super) fn list(
    connection: &Connection,
    model_digest: Option<&str>,
) -> Result<Vec<ImportedProfile>> {
    let sql = "SELECT id, imported_at, document FROM imports
               WHERE ?1 IS NULL OR model_digest = ?1 ORDER BY id DESC";
    all(connection, sql, [model_digest], |row| {
        let mut c = Columns::of(row);
        Ok(ImportedProfile {
            id: c.get()?,
            imported_at: Timestamp(c.get()?),
            profile: c.json()?,
        })
    })
}
