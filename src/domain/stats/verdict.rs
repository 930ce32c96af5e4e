//! The verdict and its order (design section 5), and the plain comparison of two sets of runs.

use crate::domain::types::{ArmSummary, Comparison, SampleUnit, Verdict};

use super::welch::{Means, Summary, hedges_g};
use super::{MAX_CV_PCT, MIN_EFFECT_PCT, MIN_RUNS};

/// Compares run means of the baseline `a` and the candidate `b` by plain Welch, without any run order.
///
/// A value that is not finite and positive makes the whole comparison inconclusive: it is never dropped. Runs without any
/// spread give no interval and are inconclusive too: equal readings cannot say how far they would vary.
pub fn compare(a: &[f64], b: &[f64]) -> Comparison {
    judged(a, b, Means::of(a, b))
}

/// The comparison whose test and interval come from `means`; everything else from the run means themselves.
pub(super) fn judged(a: &[f64], b: &[f64], means: Option<Means>) -> Comparison {
    let invalid = a.iter().chain(b).any(|v| !(v.is_finite() && *v > 0.0));
    let means = means.filter(|_| !invalid);
    let (baseline, candidate) = (arm(a), arm(b));
    let change_pct = match means {
        Some(m) => 100.0 * (m.b - m.a) / m.a,
        None => 100.0 * (candidate.mean - baseline.mean) / baseline.mean,
    };
    let test = means.and_then(|m| m.test());
    let ci95_pct = means.and_then(|m| m.relative_interval());
    let (verdict, reason) = if invalid {
        let reason = "a sample is not a positive number: the run that gave it failed";
        (Verdict::Inconclusive, reason.to_owned())
    } else {
        judge(&baseline, &candidate, ci95_pct)
    };
    Comparison {
        baseline,
        candidate,
        change_pct,
        ci95_pct,
        hedges_g: means.and_then(|_| hedges_g(a, b)),
        t: test.map(|w| w.t),
        df: test.map(|w| w.df),
        p: test.map(|w| w.p),
        unit: SampleUnit::Runs,
        verdict,
        reason,
    }
}

fn arm(runs: &[f64]) -> ArmSummary {
    let Summary {
        n, mean, cv_pct, ..
    } = Summary::of(runs);
    ArmSummary {
        mean,
        cv_pct,
        n,
        runs: runs.to_vec(),
    }
}

/// The verdict on an interval, in the fixed order of design section 5, with its reason in one sentence.
pub fn judge(
    baseline: &ArmSummary,
    candidate: &ArmSummary,
    ci95_pct: Option<[f64; 2]>,
) -> (Verdict, String) {
    let fewest = baseline.n.min(candidate.n);
    if fewest < MIN_RUNS {
        let noun = if fewest == 1 { "run" } else { "runs" };
        let reason = format!("{fewest} {noun}: at least {MIN_RUNS} are needed in each arm");
        return (Verdict::Inconclusive, reason);
    }
    for (name, arm) in [("baseline", baseline), ("candidate", candidate)] {
        if let Some(cv) = arm.cv_pct.filter(|cv| *cv > MAX_CV_PCT) {
            let reason = format!(
                "runs of the {name} vary by {cv:.1} %: above {MAX_CV_PCT:.0} % nothing is judged"
            );
            return (Verdict::Inconclusive, reason);
        }
    }
    let Some([low, high]) = ci95_pct else {
        let reason = "runs without any spread give no interval";
        return (Verdict::Inconclusive, reason.to_owned());
    };
    let (verdict, reason) = if low > MIN_EFFECT_PCT {
        (Verdict::Improved, "the whole interval is above +1 %")
    } else if high < -MIN_EFFECT_PCT {
        (Verdict::Regressed, "the whole interval is below −1 %")
    } else if low >= -MIN_EFFECT_PCT && high <= MIN_EFFECT_PCT {
        (Verdict::Unchanged, "the whole interval is inside ±1 %")
    } else if low <= 0.0 && high >= 0.0 {
        (
            Verdict::Inconclusive,
            "the interval contains zero and reaches beyond ±1 %",
        )
    } else {
        (
            Verdict::Unchanged,
            "a real change that is not shown to exceed 1 %",
        )
    };
    (verdict, reason.to_owned())
}
