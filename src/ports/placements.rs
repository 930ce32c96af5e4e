//! The planner's evidence as the store keeps it.

use serde::{Deserialize, Serialize};

use crate::domain::types::{Fingerprint, Timestamp};

/// A placement to be stored: predicted, and perhaps measured.
#[derive(Debug, Clone, PartialEq)]
pub struct NewPlacement {
    /// The session that measured it; `None` for one that was only planned.
    pub session: Option<i64>,
    /// When.
    pub at: Timestamp,
    /// The machine and runtime it belongs to.
    pub fingerprint: Fingerprint,
    /// The model placed.
    pub model_digest: String,
    /// The candidate with its prediction, and its measurement or null.
    pub document: serde_json::Value,
}

/// A stored placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredPlacement {
    /// Row id.
    pub id: i64,
    /// The session that measured it.
    pub session: Option<i64>,
    /// When.
    pub at: Timestamp,
    /// The model placed.
    pub model_digest: String,
    /// The candidate with its prediction, and its measurement or null.
    pub document: serde_json::Value,
}

/// A stored fit of the speed model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredFit {
    /// Row id.
    pub id: i64,
    /// When.
    pub at: Timestamp,
    /// Constants, residuals, history of errors.
    pub document: serde_json::Value,
}
