//! Units: bytes and instants, each with the one way it is shown.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A size in bytes; shown in binary units (KiB, MiB, GiB).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `n` mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n * 1024 * 1024)
    }

    /// `n` gibibytes.
    pub const fn gib(n: u64) -> Self {
        Self(n * 1024 * 1024 * 1024)
    }

    /// The size in mebibytes.
    pub fn as_mib(self) -> f64 {
        self.0 as f64 / (1024.0 * 1024.0)
    }

    /// The size in gibibytes.
    pub fn as_gib(self) -> f64 {
        self.as_mib() / 1024.0
    }

    /// `self − other`, never below zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KIB: u64 = 1024;
        let text = match self.0 {
            n if n < KIB => format!("{n} B"),
            n if n < KIB * KIB => format!("{:.1} KiB", n as f64 / KIB as f64),
            n if n < KIB * KIB * KIB => format!("{:.1} MiB", self.as_mib()),
            _ => format!("{:.2} GiB", self.as_gib()),
        };
        f.pad(&text)
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        Self(iter.map(|b| b.0).sum())
    }
}

/// A moment in wall-clock time: milliseconds since the Unix epoch, UTC.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);
