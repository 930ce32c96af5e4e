//! What a kernel lab found, in words.

use crate::domain::lab::Outcome;

use super::clean;

/// Why there is no number, harmless to show; `None` where there is one.
pub fn outcome_words(outcome: &Outcome) -> Option<String> {
    let (what, words) = match outcome {
        Outcome::Measured { .. } => return None,
        Outcome::Wrong { detail } => ("wrong: ", detail),
        Outcome::Missing { feature } => ("the card has no ", feature),
        Outcome::Skipped { reason } => ("not run: ", reason),
        Outcome::Failed(fault) => ("failed: ", &fault.detail),
    };
    Some(format!("{what}{}", clean(words)))
}
