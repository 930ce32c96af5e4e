//! The confirmation's rule, fixed before any run.

use crate::domain::types::Comparison;

use super::compare;

/// A run mean and its place in the interleaved order (1 for the first run of the confirmation).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ordered {
    /// Place in run order; any unit, equal steps.
    pub position: f64,
    /// Mean rate of the run.
    pub value: f64,
}

/// Judges an interleaved confirmation of baseline `a` and candidate `b`.
pub fn confirm(a: &[Ordered], b: &[Ordered]) -> Comparison {
    let values = |runs: &[Ordered]| runs.iter().map(|r| r.value).collect::<Vec<_>>();
    compare(&values(a), &values(b))
}
