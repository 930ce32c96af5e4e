//! Drop-one check: a setting that does not earn its place leaves before the confirmation, so that exactly what is
//! confirmed is saved (design section 5).

use crate::domain::stats::MIN_EFFECT_PCT;
use crate::domain::types::Stage;

use super::plan::CONFIRMATION_RESERVE;
use super::session::{Known, Session, TuneNote};
use super::trials::Search;

/// The finalist without the settings whose removal costs no more than noise, one after the other: of two settings that
/// each do the other's work one stays. A loss within noise counts all the same where the readings themselves tell it. All
/// losses are counted against the finalist itself, so they cannot add up.
pub(super) fn reduce<'h>(
    search: &mut Search<'_, 'h>,
    session: &mut Session<'h>,
    finalist: usize,
) -> Known<usize> {
    session.enter(Stage::DropOne);
    let whole = search.candidates[finalist].settings.clone();
    let baseline = search.baseline.settings.clone();
    let own: Vec<String> = whole.beyond(&baseline).0.into_keys().collect();
    let mut kept = finalist;
    if own.len() < 2 {
        return Ok(kept);
    }
    for (i, dimension) in own.iter().enumerate() {
        session.expect(u32::try_from(own.len() - i).unwrap_or(u32::MAX));
        if session.left() <= CONFIRMATION_RESERVE {
            let text = format!("no process is left to check {whole} without {dimension}");
            session.remark(true, "drop-one-cut", text);
            break;
        }
        let without = match baseline.0.get(dimension) {
            Some(value) => search.candidates[kept].settings.with(dimension, value),
            None => search.candidates[kept].settings.without(dimension),
        };
        if without == baseline || search.plan.offer.check(&without).is_err() {
            continue;
        }
        let purpose = format!("without {dimension}");
        let tried_before = search.candidates.len();
        let reduced = search.measure(session, Stage::DropOne, &without, &purpose)?;
        let loss = |search: &Search<'_, '_>| match (search.ratio(finalist), search.ratio(reduced)) {
            (Some(whole), Some(reduced)) => 100.0 * (1.0 - reduced / whole),
            _ => f64::INFINITY,
        };
        let noise_pct = search.baseline.noise_pct();
        // A lucky reading must not cost a setting its place.
        let doubtful = noise_pct / 2.0 < loss(search) && loss(search) <= noise_pct;
        if doubtful
            && search.candidates[reduced].runs.len() < 2
            && session.left() > CONFIRMATION_RESERVE
        {
            search.measure_again(session, reduced, &format!("{purpose} again"))?;
        }
        let loss = loss(search);
        if reduced == tried_before {
            let candidate = search.candidates[reduced].clone();
            session.notes.push(TuneNote::Screened { candidate });
        }
        let still_gains = search
            .ratio(reduced)
            .is_some_and(|r| 100.0 * (r - 1.0) > MIN_EFFECT_PCT);
        let told = loss > MIN_EFFECT_PCT && search.is_told_faster(finalist, reduced);
        if still_gains && loss <= noise_pct && !told && !search.harmed(reduced) {
            kept = reduced;
        }
    }
    Ok(kept)
}
