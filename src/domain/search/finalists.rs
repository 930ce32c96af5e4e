//! Finalists: at most three, one after the other, each reduced to what earns its place, then confirmed as it is.

use crate::domain::stats::{MAX_CV_PCT, MIN_EFFECT_PCT, MIN_PROCESSES, RunCost};
use crate::domain::text::count;
use crate::domain::types::{PlannedRun, Settings, Side, Stage, Verdict};

use super::confirmation::{Arms, Confirmation, Rejection, Size};
use super::drop_one;
use super::guard;
use super::outcome::CandidateStatus;
use super::plan::MAX_FINALISTS;
use super::screening::{PROCESS_BUDGET, TIME_LIMIT};
use super::session::{Known, Session, TuneNote, probe_if_lost, warm_up};
use super::trials::Search;

/// Codes of the remarks that candidates were left untried.
const LEFT_UNTRIED: [&str; 2] = [TIME_LIMIT, PROCESS_BUDGET];

/// What the confirmations came to.
pub(super) struct Decision {
    pub verdict: Verdict,
    pub reason: String,
    pub winner: Option<Settings>,
    pub confirmations: Vec<Confirmation>,
}

/// Confirms finalists until one is not rejected.
pub(super) fn decide<'h>(
    search: &mut Search<'_, 'h>,
    session: &mut Session<'h>,
) -> Known<Decision> {
    for index in 0..search.candidates.len() {
        search.refresh(index);
        search.tell_harm(index);
    }
    let mut decision = Decision::without_a_winner(search, session);
    if search.baseline.is_too_noisy() {
        return Ok(decision);
    }
    for _ in 0..MAX_FINALISTS {
        let Some(finalist) = next(search, &decision.confirmations) else {
            break;
        };
        let finalist = drop_one::reduce(search, session, finalist)?;
        let settings = search.candidates[finalist].settings.clone();
        let Some(size) = affordable(search, session, &settings) else {
            if decision.confirmations.is_empty() {
                decision.verdict = Verdict::Inconclusive;
                decision.reason = format!(
                    "{} left of the session's {}: too few to confirm {settings}",
                    count(session.left().into(), "process"),
                    search.plan.max_processes
                );
            }
            break;
        };
        let confirmation = confirm(search, session, &settings, size)?;
        session.notes.push(TuneNote::Judged {
            confirmation: Box::new(confirmation.clone()),
        });
        decision.take(confirmation);
        if !decision.all_rejected() {
            break;
        }
    }
    Ok(decision)
}

impl Decision {
    /// What it comes to when nothing is confirmed. A baseline that varies too much to be judged, or candidates nobody had
    /// time to try, leave the question open: that is not *unchanged*.
    fn without_a_winner(search: &Search<'_, '_>, session: &Session<'_>) -> Self {
        let noise = search.baseline.noise_pct();
        let nothing = format!(
            "no candidate beat the baseline by more than {MIN_EFFECT_PCT:.0} % in screening (noise ±{noise:.1} %)"
        );
        let (verdict, reason) = if search.baseline.is_too_noisy() {
            let cv = search.baseline.cv_pct().unwrap_or(f64::NAN);
            let reason = format!(
                "the baseline's own runs vary by {cv:.0} %: above {MAX_CV_PCT:.0} % nothing is judged, so nothing was confirmed; `flux doctor` says what may disturb them"
            );
            (Verdict::Inconclusive, reason)
        } else if session
            .remarks
            .iter()
            .any(|r| LEFT_UNTRIED.contains(&r.code.as_str()))
        {
            (
                Verdict::Inconclusive,
                format!("{nothing}, and some were left untried"),
            )
        } else {
            (Verdict::Unchanged, nothing)
        };
        Self {
            verdict,
            reason,
            winner: None,
            confirmations: Vec::new(),
        }
    }

    fn all_rejected(&self) -> bool {
        self.confirmations.iter().all(|c| c.rejected.is_some())
    }

    /// The last confirmation decides; of rejected ones every reason is kept.
    fn take(&mut self, confirmation: Confirmation) {
        self.verdict = confirmation.kept_verdict();
        let of_one = |c: &Confirmation| format!("{}: {}", c.settings, c.reason);
        let earlier = self.confirmations.iter().map(of_one);
        self.reason = earlier
            .chain([of_one(&confirmation)])
            .collect::<Vec<_>>()
            .join("; ");
        self.winner = (confirmation.rejected.is_none()
            && confirmation.verdict == Verdict::Improved)
            .then(|| confirmation.settings.clone());
        self.confirmations.push(confirmation);
    }
}

/// The next finalist: the best of the search, then by gain; those that clearly harm a guarded metric come last. What
/// holds all settings of a rejected one is out: it carries what was rejected.
fn next(search: &Search<'_, '_>, rejected: &[Confirmation]) -> Option<usize> {
    let carries = |settings: &Settings| {
        rejected.iter().any(|r| {
            r.settings
                .0
                .iter()
                .all(|(d, v)| settings.0.get(d) == Some(v))
        })
    };
    let gain = |i: usize| {
        search
            .ratio(i)
            .map_or(f64::NEG_INFINITY, |r| 100.0 * (r - 1.0))
    };
    let eligible = |&i: &usize| {
        let c = &search.candidates[i];
        c.status == CandidateStatus::Ok && gain(i) > MIN_EFFECT_PCT && !carries(&c.settings)
    };
    let best = search.best().filter(eligible);
    best.or_else(|| {
        (0..search.candidates.len())
            .filter(eligible)
            .max_by(|&i, &j| {
                let unharmed = |i| !search.harmed(i);
                unharmed(i)
                    .cmp(&unharmed(j))
                    .then(gain(i).total_cmp(&gain(j)))
            })
    })
}

/// The planned size, cut to the processes left; `None` where not even the smallest confirmation fits.
fn affordable(
    search: &Search<'_, '_>,
    session: &mut Session<'_>,
    settings: &Settings,
) -> Option<Size> {
    let (load_secs, repetition_secs) = search.baseline.cost_secs();
    let cost = RunCost {
        load_secs,
        repetition_secs,
    };
    let plan = search.plan;
    let size = Size::plan(
        &search.baseline.repetitions(),
        cost,
        plan.processes,
        plan.repetitions,
    );
    // One process warms the candidate up.
    let most = session.left().saturating_sub(1) / 2;
    if size.processes <= most {
        return Some(size);
    }
    if most < u32::try_from(MIN_PROCESSES).unwrap_or(u32::MAX) {
        return None;
    }
    session.remark(
        true,
        "confirmation-cut",
        format!("{settings} is confirmed with {most} processes per arm instead of {}: no more are left of the session's {}", size.processes, plan.max_processes),
    );
    Some(size.resized(most))
}

fn confirm<'h>(
    search: &Search<'_, 'h>,
    session: &mut Session<'h>,
    settings: &Settings,
    size: Size,
) -> Known<Confirmation> {
    session.enter(Stage::Confirmation);
    session.expect(2 * size.processes + 1);
    session.notes.push(TuneNote::ConfirmationPlanned {
        settings: settings.clone(),
        processes: size.processes,
        repetitions: size.repetitions,
        smallest_effect_pct: size.smallest_effect_pct,
    });
    let plan = search.plan;
    let arms = Arms {
        a: &search.baseline.settings,
        b: settings,
    };
    let warm = session.run(PlannedRun {
        side: Some(Side::B),
        ..warm_up(settings)
    })?;
    if let Err(failure) = warm.samples() {
        probe_if_lost(session, arms.a, Some(Side::A), &failure)?;
        let reason = format!("rejected: its warm-up failed ({failure})");
        return Ok(arms.without_runs(&plan.objective, size, Rejection::Failed, reason));
    }
    let memory = guard::memory_use(&warm.run.buffers, &plan.memory_limits);
    if let Some(reason) = guard::over_limit(&memory) {
        let mut rejected = arms.without_runs(&plan.objective, size, Rejection::Memory, reason);
        rejected.memory = memory;
        return Ok(rejected);
    }
    if memory.is_empty() && !plan.memory_limits.is_empty() {
        session.remark(true, "memory-unknown", format!("the log of {settings} names no buffers of any device: its memory could not be checked"));
    }
    let mut confirmation = arms.confirm(session, &plan.objective, size)?;
    confirmation.memory = memory;
    guard::apply_guards(&mut confirmation, &plan.objective);
    Ok(confirmation)
}
