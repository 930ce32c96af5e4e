//! A confirmed winner, stored against the fingerprint it was measured on.

use serde::{Deserialize, Serialize};

use super::{Goal, Launch, Settings, Timestamp};

/// The hash a result is keyed to, with the fields it was made of, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// SHA-256 of the canonical text, lower-case hex.
    pub hash: String,
    /// Field name and value, in canonical order.
    pub fields: Vec<(String, String)>,
}

impl Fingerprint {
    /// The first 12 hex digits: enough to tell machines apart by eye.
    pub fn short(&self) -> &str {
        self.hash.get(..12).unwrap_or(&self.hash)
    }
}

/// One field that differs between two fingerprints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldChange {
    /// Field name.
    pub field: String,
    /// Value in the old fingerprint, if it had the field.
    pub old: Option<String>,
    /// Value in the new fingerprint, if it has the field.
    pub new: Option<String>,
}

/// A stored winner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Row id in the store.
    pub id: i64,
    /// The session that confirmed it.
    pub session: i64,
    /// Fingerprint it was measured on; it applies there only.
    pub fingerprint: String,
    /// Runtime digest it was measured with.
    pub runtime_digest: String,
    /// Model digest it was measured on.
    pub model_digest: String,
    /// What it makes faster.
    pub goal: Goal,
    /// The settings.
    pub settings: Settings,
    /// Written out for llama-bench.
    pub bench: Launch,
    /// Written out for llama-server.
    pub server: Launch,
    /// When it was stored.
    pub created_at: Timestamp,
    /// Made on a simulated machine: never applied to a real one.
    pub simulated: bool,
}
