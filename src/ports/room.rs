//! What a store takes on the disk, and what may be erased from it.

use serde::{Deserialize, Serialize};

use crate::domain::types::{Bytes, Timestamp};

/// What a store holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holdings {
    /// Size of the database.
    pub bytes: Bytes,
    /// As much of it is free for new entries, and given back by compacting.
    pub reusable: Bytes,
    /// Sessions listed.
    pub sessions: u64,
    /// Sessions marked as deleted.
    pub deleted: u64,
    /// Samples of all of them.
    pub samples: u64,
    /// Readings of sensors.
    pub readings: u64,
    /// When the first session began.
    pub since: Option<Timestamp>,
}

/// What is older than a moment and can be erased without touching a sample or a judgement that is listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasable {
    /// Readings of sensors.
    pub readings: u64,
    /// Runs of sessions begun before it that still have what their process printed.
    pub outputs: u64,
    /// Size of that.
    pub output_bytes: Bytes,
    /// Sessions deleted before it, to be erased whole.
    pub sessions: u64,
    /// Their samples.
    pub samples: u64,
}

impl Erasable {
    /// Is there nothing?
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}
