//! Which of two placements of Flux's own goes on after their interleaved runs. Neither is in use: nothing is claimed by taking
//! one, and the mean of those runs says more than the one run each that ranked them.

use crate::domain::search::{AbOutcome, FAILURES_BORNE, Objective};
use crate::domain::stats::GUARD_LOSS_PCT;
use crate::domain::types::Side;

/// Arm B is taken where it ran better on the whole and loses no more of a guarded metric than a winner may, or where it ran
/// and arm A did not. `last` is the side of the last run, by which an arm that does not even warm up is known.
pub(super) fn second_is_taken(
    outcome: &AbOutcome,
    objective: &Objective,
    last: Option<Side>,
) -> bool {
    let Some(judged) = &outcome.confirmation else {
        return outcome.failure.is_some() && last == Some(Side::A);
    };
    let failed = |side: Side| {
        let of_side = judged.failures.iter().filter(|(s, _)| *s == side);
        of_side.count() > FAILURES_BORNE
    };
    if failed(Side::A) || failed(Side::B) {
        return !failed(Side::B);
    }
    let change = |label: &str| judged.metrics.get(label).map(|m| m.confirmed.change_pct);
    let guards = objective.guards();
    let unharmed = guards
        .iter()
        .filter_map(|test| change(&test.to_string()))
        .all(|pct| pct >= -GUARD_LOSS_PCT);
    judged.rejected.is_none() && unharmed && change(&judged.primary).is_some_and(|pct| pct > 0.0)
}
