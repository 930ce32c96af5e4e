//! The confirmation's rule, fixed before any run: Welch after the common linear trend in run order is removed. Drift that
//! A-B-B-A cancels in the means stays in the variances of plain Welch: at −0.3 % per run that sees a true +3 % in 28 % of
//! sessions, this rule in 99 %, and contrasts of A-B-B-A blocks lose power everywhere (study: `tests/calibration.rs`).

use crate::domain::types::Comparison;

use super::verdict::judged;
use super::welch::Means;

/// A run mean and its place in the interleaved order (1 for the first run of the confirmation).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ordered {
    /// Place in run order; any unit, equal steps.
    pub position: f64,
    /// Mean rate of the run.
    pub value: f64,
}

/// Judges an interleaved confirmation of baseline `a` and candidate `b`; `t`, `df`, `p` and the interval are those of the
/// trend-free rule, everything else (means of the arms, CV, g) is of the run means as measured. Report [`super::compare`]
/// of the same values beside it.
///
/// Ordinary least squares of `value = mean(arm) + slope·position`, one slope for both arms. With `Q = Σ(x − x̄_arm)²`, each
/// arm's residual sum of squares has expectation `σ²(n − 1 − Q_arm/Q)` (the slope's one degree of freedom, shared by
/// leverage), so arms keep variances of their own and Welch–Satterthwaite joins them; equal arms give the regression's
/// `2n − 3`. The slope's own error enters the adjusted means as `σ²_slope·(x̄_arm − x̄)²` and their covariance; it is
/// zero in whole A-B-B-A blocks. The interval is Fieller's with that covariance.
///
/// Without any spread in position, or below three runs in an arm, this is [`super::compare`].
pub fn confirm(a: &[Ordered], b: &[Ordered]) -> Comparison {
    let values = |runs: &[Ordered]| runs.iter().map(|r| r.value).collect::<Vec<_>>();
    let (values_a, values_b) = (values(a), values(b));
    let means = if a.len().min(b.len()) < super::MIN_RUNS {
        Means::of(&values_a, &values_b)
    } else {
        trend_free(a, b).unwrap_or_else(|| Means::of(&values_a, &values_b))
    };
    judged(&values_a, &values_b, means)
}

/// How far the machine itself drifted from the first of these runs to the last, percent of the baseline's mean: the slope
/// that [`confirm`] takes out. `None` below three runs in an arm.
pub fn drift_pct(a: &[Ordered], b: &[Ordered]) -> Option<f64> {
    if a.len().min(b.len()) < super::MIN_RUNS {
        return None;
    }
    let (arm_a, arm_b) = (Arm::of(a), Arm::of(b));
    let slope = (arm_a.products + arm_b.products) / (arm_a.positions + arm_b.positions);
    let places = a.iter().chain(b).map(|run| run.position);
    let (first, last) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), x| {
        (least.min(x), most.max(x))
    });
    Some(100.0 * slope * (last - first) / arm_a.value).filter(|drift| drift.is_finite())
}

/// Sums of one arm about its own means.
struct Arm {
    n: f64,
    position: f64,
    value: f64,
    /// `Σ(x − x̄)²`.
    positions: f64,
    /// `Σ(x − x̄)(y − ȳ)`.
    products: f64,
}

impl Arm {
    fn of(runs: &[Ordered]) -> Self {
        let n = runs.len() as f64;
        let position = runs.iter().map(|r| r.position).sum::<f64>() / n;
        let value = runs.iter().map(|r| r.value).sum::<f64>() / n;
        let about = |r: &Ordered| (r.position - position, r.value - value);
        Self {
            n,
            position,
            value,
            positions: runs.iter().map(|r| about(r).0.powi(2)).sum(),
            products: runs.iter().map(|r| about(r).0 * about(r).1).sum(),
        }
    }

    /// Sum of squares left over by `slope`.
    fn residual(&self, runs: &[Ordered], slope: f64) -> f64 {
        runs.iter()
            .map(|r| (r.value - self.value - slope * (r.position - self.position)).powi(2))
            .sum()
    }
}

/// Adjusted means. The outer `None`: positions do not vary within the arms, so there is no trend to remove. The inner one:
/// no spread is left.
#[expect(
    clippy::option_option,
    reason = "the two mean different things to the only caller"
)]
fn trend_free(a: &[Ordered], b: &[Ordered]) -> Option<Option<Means>> {
    let (arm_a, arm_b) = (Arm::of(a), Arm::of(b));
    let positions = arm_a.positions + arm_b.positions;
    if !(positions.is_finite() && positions > 0.0) {
        return None;
    }
    let slope = (arm_a.products + arm_b.products) / positions;
    let (left_a, left_b) = (arm_a.residual(a, slope), arm_b.residual(b, slope));
    let freedom_a = arm_a.n - 1.0 - arm_a.positions / positions;
    let freedom_b = arm_b.n - 1.0 - arm_b.positions / positions;
    let variance = (left_a + left_b) / (freedom_a + freedom_b);
    let slope_error = variance / positions;
    let centre = (arm_a.n * arm_a.position + arm_b.n * arm_b.position) / (arm_a.n + arm_b.n);
    let (shift_a, shift_b) = (arm_a.position - centre, arm_b.position - centre);
    let means = Means::new(
        [arm_a.value - slope * shift_a, arm_b.value - slope * shift_b],
        [left_a / freedom_a / arm_a.n, left_b / freedom_b / arm_b.n],
        [freedom_a, freedom_b],
    );
    Some(means.map(|m| Means {
        error_a: m.error_a + slope_error * shift_a * shift_a,
        error_b: m.error_b + slope_error * shift_b * shift_b,
        covariance: slope_error * shift_a * shift_b,
        ..m
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drift_is_the_slope_over_the_session() {
        // A-B-B-A B-A-A-B: every run is 0.1 above the one before, over seven steps; the mean of A is 100.45.
        let run = |level: f64, position: f64| Ordered {
            position,
            value: level + 0.1 * position,
        };
        let a = [1.0, 4.0, 6.0, 7.0].map(|place| run(100.0, place));
        let b = [2.0, 3.0, 5.0, 8.0].map(|place| run(130.0, place));
        let drift = drift_pct(&a, &b).unwrap();
        assert!((drift - 70.0 / 100.45).abs() < 1e-9, "{drift}");
        assert_eq!(drift_pct(&a[..2], &b), None);
    }
}
