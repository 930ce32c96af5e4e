//! Pairs: settings that help only together. One-at-a-time search is known to miss them (design section 5).
//!
//! Settings within noise of helping are put into three groups and every two groups are tried together, so that three
//! processes cover every pair. The unions that gain, the largest first, are narrowed down to the settings that it takes.

use std::f64::consts::SQRT_2;

use crate::domain::stats::GUARD_LOSS_PCT;
use crate::domain::types::{Settings, Stage};

use super::plan::CONFIRMATION_RESERVE;
use super::session::{Known, Session, TuneNote};
use super::trials::{Search, TriedValue};

/// Groups whose unions of two cover every pair in three processes.
const GROUPS: usize = 3;

/// Runs of the best before anything is tried on top of it: all gains count from it, and what was adopted for a lucky
/// reading would make every other setting look harmful.
const BEST_RERUNS: usize = 2;

/// A mean loss up to this share of the noise of single readings counts as neutral: doubtful ones are means of three.
const NEUTRAL_SHARE: f64 = 0.75;

/// A loss up to this counts as neutral, percent: a few runs can make the noise look smaller than it is.
const NEUTRAL_LOSS_PCT: f64 = 2.0;

/// Processes of a repeated gain.
const REPEAT: u32 = 2;

/// Most readings of a value that screening did not adopt and that is in doubt.
const READINGS: usize = 3;

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
    let in_doubt = |t: &&TriedValue| doubtful(search, t.candidate, t.base);
    if pool(search).len() + search.tried_values.iter().filter(in_doubt).count() < 2 {
        return Ok(());
    }
    for _ in 0..BEST_RERUNS {
        if !spent(search, session) {
            search.rerun_best(session)?;
        }
    }
    second_chance(search, session)?;
    let base = search.best();
    let mut read: Vec<(f64, Vec<Neutral>)> = Vec::new();
    let unions = unions(search, &pool(search));
    for (i, (union, settings)) in unions.iter().enumerate() {
        session.expect(u32::try_from(unions.len() - i).unwrap_or(u32::MAX));
        if spent(search, session) {
            break;
        }
        let index = search.measure(session, Stage::Pairs, settings, &names(union))?;
        tell(search, session, index);
        if let Some(gain_pct) = search.gain_over(index, base) {
            read.push((gain_pct, union.clone()));
        }
    }
    read.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (mut gain_pct, union) in read {
        let best = search.best_settings();
        let fresh: Vec<Neutral> = union
            .iter()
            .filter(|n| !best.0.contains_key(&n.dimension))
            .cloned()
            .collect();
        if fresh.len() < union.len() {
            // What was adopted since is no longer this union's gain.
            gain_pct -= search
                .best()
                .and_then(|i| search.gain_over(i, base))
                .unwrap_or(0.0);
        }
        if fresh.len() > 1
            && gain_pct > search.baseline.noise_pct() / 2.0
            && !spent(search, session)
        {
            follow(search, session, &fresh)?;
        }
    }
    Ok(())
}

/// A union that reads above half the noise is measured again, and narrowed down where the mean of both is beyond the
/// noise of means of two. Its guards do not matter yet: another of its settings may be what harms them.
fn follow<'h>(
    search: &mut Search<'_, 'h>,
    session: &mut Session<'h>,
    union: &[Neutral],
) -> Known<()> {
    let Some(settings) = on_top(search, union) else {
        return Ok(());
    };
    let noise_pct = search.baseline.noise_pct();
    let index = search.measure(session, Stage::Pairs, &settings, &names(union))?;
    if search.candidates[index].runs.len() < 2 {
        search.measure_again(session, index, &format!("{} again", names(union)))?;
    }
    tell(search, session, index);
    match search.gain_over(index, search.best()) {
        Some(gain_pct) if gain_pct > noise_pct / SQRT_2 => narrow(search, session, union, gain_pct),
        _ => Ok(()),
    }
}

/// Finds the fewest settings of a union that keep at least half its gain, and tries them on top of the best: the
/// shortest run of settings that keeps it ends with one that is needed; with that one set, the next is found.
fn narrow<'h>(
    search: &mut Search<'_, 'h>,
    session: &mut Session<'h>,
    union: &[Neutral],
    gain_pct: f64,
) -> Known<()> {
    let least = gain_pct / 2.0;
    let (mut needed, mut rest) = (Vec::<Neutral>::new(), union.to_vec());
    while !rest.is_empty() {
        let (mut without, mut with) = (0, rest.len());
        while with - without > 1 {
            let middle = usize::midpoint(without, with);
            let some = [needed.as_slice(), &rest[..middle]].concat();
            if spent(search, session) {
                return Ok(());
            }
            if keeps(search, session, &some, least)? {
                with = middle;
            } else {
                without = middle;
            }
        }
        rest.truncate(with);
        needed.extend(rest.pop());
        if needed.len() < 2 {
            continue;
        }
        let Some(settings) = on_top(search, &needed) else {
            return Ok(());
        };
        if spent(search, session) {
            return Ok(());
        }
        let tried = search.try_on_top(session, Stage::Pairs, &settings, &names(&needed), least)?;
        if tried.adopted || search.harmed(tried.index) {
            return Ok(());
        }
    }
    Ok(())
}

/// Do these settings gain more than `least_pct` on the best? A reading near it is repeated.
fn keeps<'h>(
    search: &mut Search<'_, 'h>,
    session: &mut Session<'h>,
    some: &[Neutral],
    least_pct: f64,
) -> Known<bool> {
    let Some(settings) = on_top(search, some) else {
        return Ok(false);
    };
    let index = search.measure(session, Stage::Pairs, &settings, &names(some))?;
    let gain = |search: &Search<'_, 'h>| search.gain_over(index, search.best());
    let near = search.baseline.noise_pct() / 2.0;
    if search.candidates[index].runs.len() < 2
        && gain(search).is_some_and(|g| (g - least_pct).abs() < near)
    {
        search.measure_again(session, index, &format!("{} again", names(some)))?;
    }
    tell(search, session, index);
    Ok(gain(search).is_some_and(|g| g > least_pct))
}

/// Settings on top of the best so far.
fn on_top(search: &Search<'_, '_>, some: &[Neutral]) -> Option<Settings> {
    let offer = &search.plan.offer;
    some.iter().try_fold(search.best_settings(), |settings, n| {
        offer.compose(&settings, &n.dimension, &n.value).ok()
    })
}

fn tell<'h>(search: &Search<'_, 'h>, session: &mut Session<'h>, index: usize) {
    let candidate = search.candidates[index].clone();
    session.notes.push(TuneNote::Screened { candidate });
}

fn names(union: &[Neutral]) -> String {
    let names: Vec<String> = union
        .iter()
        .map(|n| format!("{}={}", n.dimension, n.value))
        .collect();
    names.join(" + ")
}

/// Only one process is spent on a value in screening: a loss of half to twice the noise, or of a guarded metric near its
/// limit, is measured up to three times before it keeps a setting out of the pairs.
fn second_chance<'h>(search: &mut Search<'_, 'h>, session: &mut Session<'h>) -> Known<()> {
    let tried: Vec<(usize, Option<usize>)> = search
        .tried_values
        .iter()
        .map(|t| (t.candidate, t.base))
        .collect();
    for (candidate, base) in tried {
        while search.candidates[candidate].runs.len() < READINGS
            && doubtful(search, candidate, base)
            && !spent(search, session)
        {
            let purpose = format!("{} again", search.candidates[candidate].settings);
            search.measure_again(session, candidate, &purpose)?;
            tell(search, session, candidate);
        }
    }
    Ok(())
}

/// Its loss, or that of a guarded metric, is near what keeps it out of the pairs.
fn doubtful(search: &Search<'_, '_>, candidate: usize, base: Option<usize>) -> bool {
    let noise_pct = search.baseline.noise_pct();
    let near = |g: f64| -2.0 * noise_pct <= g && g < -noise_pct / 2.0;
    let guard = search.candidates[candidate].guard_pct;
    let at_limit = guard.is_some_and(|g| g >= -2.0 * noise_pct - GUARD_LOSS_PCT);
    search.harmed(candidate) && at_limit || search.gain_over(candidate, base).is_some_and(near)
}

/// What is left is needed to repeat a gain and to confirm, or time is up. Narrowing down has done the drop-one check of
/// what it adopts, so nothing is kept free for that.
fn spent(search: &Search<'_, '_>, session: &Session<'_>) -> bool {
    session.left() <= CONFIRMATION_RESERVE + REPEAT || search.out_of_time(session)
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
        .filter(|n| n.gain_pct >= -(NEUTRAL_SHARE * noise_pct).max(NEUTRAL_LOSS_PCT))
        .collect();
    neutral.retain(|n| !best.0.contains_key(&n.dimension));
    neutral.sort_by(|a, b| b.gain_pct.total_cmp(&a.gain_pct));
    neutral
}

/// Settings tried together, and everything that is then set.
type Union = (Vec<Neutral>, Settings);

/// Every union of two of the three groups of a pool, largest summed gain first. Pools of up to three give single pairs.
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
