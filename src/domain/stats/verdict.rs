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
            "the interval leaves out zero and does not clear ±1 %",
        )
    };
    (verdict, reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(n: usize, cv_pct: f64) -> ArmSummary {
        ArmSummary {
            mean: 100.0,
            cv_pct: Some(cv_pct),
            n,
            runs: vec![100.0; n],
        }
    }

    #[test]
    fn the_verdict_follows_its_order() {
        use Verdict::{Improved, Inconclusive, Regressed, Unchanged};
        let steady = |ci| judge(&arm(4, 2.0), &arm(4, 2.0), Some(ci)).0;
        assert_eq!(steady([1.01, 30.0]), Improved);
        assert_eq!(steady([-30.0, -1.01]), Regressed);
        assert_eq!(steady([-1.0, 1.0]), Unchanged);
        assert_eq!(steady([0.2, 0.9]), Unchanged);
        assert_eq!(steady([-1.01, 1.0]), Inconclusive);
        assert_eq!(steady([0.0, 5.0]), Inconclusive);
        assert_eq!(steady([0.1, 5.0]), Unchanged);
        assert_eq!(steady([-5.0, -0.1]), Unchanged);
        // Too few runs and too much spread come before any interval.
        let huge = Some([50.0, 60.0]);
        assert_eq!(judge(&arm(2, 0.1), &arm(9, 0.1), huge).0, Inconclusive);
        assert_eq!(judge(&arm(4, 10.1), &arm(4, 0.1), huge).0, Inconclusive);
        assert_eq!(judge(&arm(4, 0.1), &arm(4, 10.1), huge).0, Inconclusive);
        assert_eq!(judge(&arm(4, 10.0), &arm(3, 10.0), huge).0, Improved);
    }

    #[test]
    fn reasons_are_plain() {
        let reason = |a, b| judge(&arm(a, 1.0), &arm(b, 1.0), None).1;
        assert_eq!(reason(1, 4), "1 run: at least 3 are needed in each arm");
        assert_eq!(reason(4, 2), "2 runs: at least 3 are needed in each arm");
        let wild = judge(&arm(4, 1.0), &arm(4, 12.34), None).1;
        assert_eq!(
            wild,
            "runs of the candidate vary by 12.3 %: above 10 % nothing is judged"
        );
    }

    #[test]
    fn no_spread_gives_no_interval_and_no_verdict() {
        for (a, b) in [([100.0; 4], [100.0; 4]), ([100.0; 4], [110.0; 4])] {
            let got = compare(&a, &b);
            assert_eq!((got.ci95_pct, got.t, got.hedges_g), (None, None, None));
            assert_eq!(got.verdict, Verdict::Inconclusive);
            assert_eq!(got.reason, "runs without any spread give no interval");
        }
        // Spread in one arm is enough.
        let got = compare(&[100.0; 4], &[109.0, 110.0, 111.0, 110.0]);
        assert_eq!(got.verdict, Verdict::Improved);
    }

    #[test]
    fn an_empty_arm_or_a_lone_run_is_told_from_zero() {
        let got = compare(&[100.0], &[]);
        assert_eq!(got.reason, "0 runs: at least 3 are needed in each arm");
        assert!(got.candidate.mean.is_nan() && got.change_pct.is_nan());
        let text = serde_json::to_string(&got).unwrap();
        assert!(text.contains("\"change_pct\":null"));
        let back: Comparison = serde_json::from_str(&text).unwrap();
        assert!(back.candidate.mean.is_nan() && back.reason == got.reason);
    }
}
