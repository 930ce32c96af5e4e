//! Between columns and the shared words: documents as JSON, plain enums as their JSON word.

use rusqlite::types::Type;
use rusqlite::{Error, Result, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The JSON of `value`.
///
/// # Errors
/// It would not read back equal (a number that is not finite, a path that is not Unicode): that is no evidence.
pub(super) fn json<T: Serialize + DeserializeOwned + PartialEq>(value: &T) -> Result<String> {
    let text = serde_json::to_string(value).map_err(unstorable)?;
    match serde_json::from_str::<T>(&text) {
        Ok(back) if back == *value => Ok(text),
        Ok(_) => Err(unstorable("a value that would not read back as it is")),
        Err(e) => Err(unstorable(e)),
    }
}

/// The word of an enum without fields.
pub(super) fn word<T: Serialize>(value: &T) -> Result<String> {
    match serde_json::to_value(value).map_err(unstorable)? {
        Value::String(word) => Ok(word),
        other => Err(unstorable(format!("not a word: {other}"))),
    }
}

/// A whole number that fits the database.
pub(super) fn whole(value: u64) -> Result<i64> {
    i64::try_from(value).map_err(unstorable)
}

/// A value that the database and Flux do not both understand.
pub(super) fn unstorable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ToSqlConversionFailure(error.into())
}

fn unreadable(column: usize, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::FromSqlConversionFailure(column, Type::Text, error.into())
}

/// Reads the columns of one row from left to right.
pub(super) struct Columns<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl<'a> Columns<'a> {
    /// From the first column on.
    pub(super) fn of(row: &'a Row<'a>) -> Self {
        Self { row, next: 0 }
    }

    /// A plain value.
    pub(super) fn get<T: rusqlite::types::FromSql>(&mut self) -> Result<T> {
        let value = self.row.get(self.next);
        self.next += 1;
        value
    }

    /// A document.
    pub(super) fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        let text: String = self.get()?;
        serde_json::from_str(&text).map_err(|e| unreadable(self.next - 1, e))
    }

    /// A document that may be missing.
    pub(super) fn json_or_none<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let text: Option<String> = self.get()?;
        text.map(|t| serde_json::from_str(&t))
            .transpose()
            .map_err(|e| unreadable(self.next - 1, e))
    }

    /// A word.
    pub(super) fn word<T: DeserializeOwned>(&mut self) -> Result<T> {
        let word: String = self.get()?;
        serde_json::from_value(Value::String(word)).map_err(|e| unreadable(self.next - 1, e))
    }

    /// A word that may be missing.
    pub(super) fn word_or_none<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let word: Option<String> = self.get()?;
        word.map(|w| serde_json::from_value(Value::String(w)))
            .transpose()
            .map_err(|e| unreadable(self.next - 1, e))
    }

    /// A count.
    pub(super) fn count(&mut self) -> Result<u64> {
        let value: i64 = self.get()?;
        u64::try_from(value).map_err(|e| unreadable(self.next - 1, e))
    }
}
