//! What a kernel lab found, in words.

use crate::domain::lab::Outcome;

/// Why there is no number; `None` where there is one.
pub fn outcome_words(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Measured { .. } => None,
        Outcome::Wrong { detail } => Some(format!("wrong: {detail}")),
        Outcome::Missing { feature } => Some(format!("the card has no {feature}")),
        Outcome::Skipped { reason } => Some(format!("not run: {reason}")),
        Outcome::Failed(fault) => Some(format!("failed: {}", fault.detail)),
    }
}
