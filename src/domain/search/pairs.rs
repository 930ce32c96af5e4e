//! Pairs: settings that help only together. One-at-a-time search is known to miss them (design section 5).
//!
//! Settings within noise of helping are put into four groups and every two groups are tried together: six processes
//! cover every pair. A union that gains is split further, down to two settings, so that each step repeats the gain.

use crate::domain::types::{Settings, Stage};

use super::plan::{CONFIRMATION_RESERVE, DROP_ONE_RUNS, PAIR_RUNS};
use super::session::{Known, Session};
use super::trials::{Neutral, Search};

/// Groups whose unions of two cover every pair in six processes.
const GROUPS: usize = 4;

/// Tries the neutral settings of screening together, on top of the best.
pub(super) fn try_pairs<'h>(search: &mut Search<'_, 'h>, session: &mut Session<'h>) -> Known<()> {
    session.enter(Stage::Pairs);
    let pool = pool(search);
    let last = session.order() + PAIR_RUNS as usize;
    descend(search, session, &pool, last)?;
    Ok(())
}

/// The best neutral value of each dimension that the best so far does not set; most helpful first.
fn pool(search: &Search<'_, '_>) -> Vec<Neutral> {
    let best = search.best_settings();
    let mut sorted = search.neutral.clone();
    sorted.sort_by(|a, b| b.gain_pct.total_cmp(&a.gain_pct));
    let mut pool: Vec<Neutral> = Vec::new();
    for neutral in sorted {
        let taken = pool.iter().any(|n| n.dimension == neutral.dimension);
        if !taken && !best.0.contains_key(&neutral.dimension) {
            pool.push(neutral);
        }
    }
    pool
}

/// Looks for a pair among `pool`; true once one was adopted.
fn descend<'h>(
    search: &mut Search<'_, 'h>,
    session: &mut Session<'h>,
    pool: &[Neutral],
    last: usize,
) -> Known<bool> {
    let unions = unions(pool);
    for (i, union) in unions.iter().enumerate() {
        session.expect(u32::try_from(unions.len() - i).unwrap_or(u32::MAX));
        let reserve = CONFIRMATION_RESERVE + DROP_ONE_RUNS;
        // One more process repeats a gain.
        let spent = session.order() + 1 >= last || session.left() <= reserve + 1;
        if spent || search.out_of_time(session) {
            return Ok(false);
        }
        let Some(settings) = together(search, union) else {
            continue;
        };
        let names: Vec<String> = union
            .iter()
            .map(|n| format!("{}={}", n.dimension, n.value))
            .collect();
        let purpose = names.join(" + ");
        if union.len() == 2 {
            if search
                .try_on_top(session, Stage::Pairs, &settings, &purpose)?
                .adopted
            {
                return Ok(true);
            }
        } else if search.promises(session, &settings, &purpose)?
            && descend(search, session, union, last)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The best so far with a union set; `None` where it breaks a rule.
fn together(search: &Search<'_, '_>, union: &[Neutral]) -> Option<Settings> {
    let mut settings = search.best_settings();
    for neutral in union {
        settings = search
            .plan
            .offer
            .compose(&settings, &neutral.dimension, &neutral.value)
            .ok()?;
    }
    Some(settings)
}

/// Every union of two of the four groups of a pool, largest summed gain first. Pools of up to four give single pairs.
fn unions(pool: &[Neutral]) -> Vec<Vec<Neutral>> {
    let groups: Vec<Vec<Neutral>> = (0..GROUPS.min(pool.len()))
        .map(|g| pool.iter().skip(g).step_by(GROUPS).cloned().collect())
        .collect();
    let mut unions = Vec::new();
    for (i, a) in groups.iter().enumerate() {
        for b in &groups[i + 1..] {
            unions.push([a.as_slice(), b.as_slice()].concat());
        }
    }
    let gain = |union: &Vec<Neutral>| union.iter().map(|n| n.gain_pct).sum::<f64>();
    unions.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
    unions
}
