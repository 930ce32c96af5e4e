//! Pairs: settings that help only together. One-at-a-time search is known to miss them (design section 5).
//!
//! Settings within noise of helping are put into four groups and every two groups are tried together: six processes
//! cover every pair. A union that gains is split further, down to two settings, so that each step repeats the gain.

use crate::domain::types::{Settings, Stage};

use super::plan::{CONFIRMATION_RESERVE, DROP_ONE_RUNS};
use super::session::{Known, Session, TuneNote};
use super::trials::Search;

/// Groups whose unions of two cover every pair in six processes.
const GROUPS: usize = 4;

/// A loss up to this counts as neutral, percent: two to four baseline runs can make the noise look smaller than it is.
const NEUTRAL_LOSS_PCT: f64 = 2.0;

/// One value within noise of helping.
#[derive(Debug, Clone, PartialEq)]
struct Neutral {
    dimension: String,
    value: String,
    gain_pct: f64,
}

/// Tries the neutral settings of screening together, on top of the best.
pub(super) fn try_pairs<'h>(search: &mut Search<'_, 'h>, session: &mut Session<'h>) -> Known<()> {
    session.enter(Stage::Pairs);
    second_chance(search, session)?;
    // A pair found by chance must not end the search for a real one.
    while descend(search, session, &pool(search), 0.0)? {}
    Ok(())
}

/// Only one process is spent on a value in screening: a loss of no more than twice the noise is measured again before it
/// keeps a setting out of the pairs.
fn second_chance<'h>(search: &mut Search<'_, 'h>, session: &mut Session<'h>) -> Known<()> {
    let noise_pct = search.baseline.noise_pct();
    let doubtful: Vec<usize> = search
        .tried_values
        .iter()
        .filter(|t| {
            let gain = search.gain_over(t.candidate, t.base);
            gain.is_some_and(|g| -2.0 * noise_pct <= g && g < -noise_pct)
        })
        .map(|t| t.candidate)
        .collect();
    for candidate in doubtful {
        if !spent(search, session) {
            let purpose = format!("{} again", search.candidates[candidate].settings);
            search.measure_again(session, candidate, &purpose)?;
            let candidate = search.candidates[candidate].clone();
            session.notes.push(TuneNote::Screened { candidate });
        }
    }
    Ok(())
}

/// What is left is needed to repeat a gain and to confirm, or time is up.
fn spent(search: &Search<'_, '_>, session: &Session<'_>) -> bool {
    session.left() <= CONFIRMATION_RESERVE + DROP_ONE_RUNS + 1 || search.out_of_time(session)
}

/// Settings that were not adopted and do not cost more than noise, by what is known of the baseline by now, of
/// dimensions that the best so far does not set; most helpful first.
fn pool(search: &Search<'_, '_>) -> Vec<Neutral> {
    let best = search.best_settings();
    let noise_pct = search.baseline.noise_pct();
    let mut neutral: Vec<Neutral> = search
        .tried_values
        .iter()
        .filter(|t| !search.harmed(t.candidate))
        .filter_map(|t| {
            let gain_pct = search.gain_over(t.candidate, t.base)?;
            Some(Neutral {
                dimension: t.dimension.clone(),
                value: t.value.clone(),
                gain_pct,
            })
        })
        .filter(|n| n.gain_pct >= -noise_pct.max(NEUTRAL_LOSS_PCT))
        .collect();
    neutral.retain(|n| !best.0.contains_key(&n.dimension));
    neutral.sort_by(|a, b| b.gain_pct.total_cmp(&a.gain_pct));
    neutral
}

/// Looks for a pair among `pool`; true once one was adopted. It must bring at least half of `gain_pct`, the gain that made
/// this pool worth splitting.
fn descend<'h>(
    search: &mut Search<'_, 'h>,
    session: &mut Session<'h>,
    pool: &[Neutral],
    gain_pct: f64,
) -> Known<bool> {
    let unions = unions(search, pool);
    for (i, (union, settings)) in unions.iter().enumerate() {
        session.expect(u32::try_from(unions.len() - i).unwrap_or(u32::MAX));
        if spent(search, session) {
            return Ok(false);
        }
        let names: Vec<String> = union
            .iter()
            .map(|n| format!("{}={}", n.dimension, n.value))
            .collect();
        let purpose = names.join(" + ");
        let least = gain_pct / 2.0;
        let found = if union.len() == 2 {
            search
                .try_on_top(session, Stage::Pairs, settings, &purpose, least)?
                .adopted
        } else {
            match search.promises(session, settings, &purpose, least)? {
                Some(gain_pct) => descend(search, session, union, gain_pct)?,
                None => false,
            }
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Settings tried together, and everything that is then set.
type Union = (Vec<Neutral>, Settings);

/// Every union of two of the four groups of a pool, largest summed gain first. Pools of up to four give single pairs.
fn unions(search: &Search<'_, '_>, pool: &[Neutral]) -> Vec<Union> {
    let groups: Vec<Vec<Neutral>> = (0..GROUPS.min(pool.len()))
        .map(|g| pool.iter().skip(g).step_by(GROUPS).cloned().collect())
        .collect();
    let mut unions: Vec<Union> = Vec::new();
    for (i, a) in groups.iter().enumerate() {
        for b in &groups[i + 1..] {
            for union in compatible(search, &[a.as_slice(), b.as_slice()].concat()) {
                if union.0.len() > 1 && unions.iter().all(|known| known.1 != union.1) {
                    unions.push(union);
                }
            }
        }
    }
    let gain = |union: &Union| union.0.iter().map(|n| n.gain_pct).sum::<f64>();
    unions.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
    unions
}

/// A union on top of the best so far. Where settings exclude each other the later ones are left out, and a further union
/// begins with them: no setting goes untried because of another.
fn compatible(search: &Search<'_, '_>, union: &[Neutral]) -> Vec<Union> {
    let mut variants: Vec<Union> = Vec::new();
    let mut waiting: Vec<Neutral> = union.to_vec();
    while !waiting.is_empty() {
        let (mut taken, mut settings) = (Vec::<Neutral>::new(), search.best_settings());
        let rest = union.iter().filter(|n| !waiting.contains(n));
        for neutral in waiting.iter().chain(rest) {
            let clash = taken.iter().any(|n| n.dimension == neutral.dimension);
            let offer = &search.plan.offer;
            let wider = offer.compose(&settings, &neutral.dimension, &neutral.value);
            if let (false, Ok(wider)) = (clash, wider) {
                settings = wider;
                taken.push(neutral.clone());
            }
        }
        // Its first one is always taken, unless the best itself excludes it.
        let before = waiting.len();
        waiting.retain(|n| !taken.contains(n));
        if waiting.len() == before {
            break;
        }
        variants.push((taken, settings));
    }
    variants
}
