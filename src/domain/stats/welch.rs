//! Two samples of run means: Welch's t (1947), Fieller's interval of the relative change (1954), Hedges' g (1981).

use super::CONFIDENCE;
use super::student::{two_sided_p, upper_quantile};

/// Spread below this share of the mean is rounding of `f64`, not spread: such samples count as exactly alike.
const NO_SPREAD: f64 = 1e-12;

/// Mean and spread of one sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Number of values.
    pub n: usize,
    /// Arithmetic mean; NaN when empty.
    pub mean: f64,
    /// Sample standard deviation (n − 1); `None` below two values.
    pub sd: Option<f64>,
    /// Coefficient of variation, percent of the mean; `None` below two values.
    pub cv_pct: Option<f64>,
}

impl Summary {
    /// Summarises `values`.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n as f64;
        let sd = (n >= 2).then(|| {
            let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
            (squares / (n - 1) as f64).sqrt()
        });
        Self {
            n,
            mean,
            sd,
            cv_pct: sd.map(|sd| 100.0 * sd / mean),
        }
    }

    /// Squared standard error of the mean, `s²/n`; `None` below two values.
    pub(super) fn error_squared(&self) -> Option<f64> {
        self.sd.map(|sd| sd * sd / self.n as f64)
    }
}

/// Welch's unequal-variance t-test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Welch {
    /// `(mean b − mean a) / sqrt(s²a/na + s²b/nb)`: positive when b is larger (`ttest_ind(b, a, equal_var=False)` of `SciPy`).
    pub t: f64,
    /// Welch–Satterthwaite degrees of freedom.
    pub df: f64,
    /// Two-sided p.
    pub p: f64,
}

/// Two means with their squared standard errors and the degrees of freedom of their difference: what a ratio interval needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Means {
    pub a: f64,
    pub b: f64,
    pub error_a: f64,
    pub error_b: f64,
    /// Covariance of the two means; zero for independent samples.
    pub covariance: f64,
    pub df: f64,
}

impl Means {
    /// Means of two independent samples. `None` below two values in either, or when neither has any spread.
    pub fn of(a: &[f64], b: &[f64]) -> Option<Self> {
        let (a, b) = (Summary::of(a), Summary::of(b));
        let freedom = [
            (a.n - usize::from(a.n > 0)) as f64,
            (b.n - usize::from(b.n > 0)) as f64,
        ];
        Self::new(
            [a.mean, b.mean],
            [a.error_squared()?, b.error_squared()?],
            freedom,
        )
    }

    /// Means with squared errors that rest on `freedom` degrees each, joined by Welch–Satterthwaite. `None` without spread.
    pub fn new(mean: [f64; 2], error: [f64; 2], freedom: [f64; 2]) -> Option<Self> {
        let floor = (NO_SPREAD * mean[0])
            .powi(2)
            .max((NO_SPREAD * mean[1]).powi(2));
        let sum = error[0] + error[1];
        if !(sum.is_finite() && sum > floor) {
            return None;
        }
        Some(Self {
            a: mean[0],
            b: mean[1],
            error_a: error[0],
            error_b: error[1],
            covariance: 0.0,
            df: sum * sum / (error[0].powi(2) / freedom[0] + error[1].powi(2) / freedom[1]),
        })
    }

    /// The t-test of their difference.
    pub fn test(&self) -> Option<Welch> {
        let error = self.error_a + self.error_b - 2.0 * self.covariance;
        let t = (self.b - self.a) / error.sqrt();
        Some(Welch {
            t,
            df: self.df,
            p: two_sided_p(t, self.df)?,
        })
    }

    /// Welch's interval of `b − a`, in the values' own unit.
    fn interval(&self) -> Option<[f64; 2]> {
        let t = upper_quantile(f64::midpoint(1.0, CONFIDENCE), self.df)?;
        let half = t * (self.error_a + self.error_b - 2.0 * self.covariance).sqrt();
        let change = self.b - self.a;
        Some([change - half, change + half])
    }

    /// Fieller's interval of `b/a − 1`, percent: the ratios ρ with `(b − ρa)² ≤ t²·(error_b − 2ρ·cov + ρ²·error_a)`, where t
    /// is the two-sided quantile at `df`. With `A = a² − t²·error_a`, `B = ab − t²·cov`, `C = b² − t²·error_b` they lie
    /// between the roots `(B ± sqrt(B² − AC))/A`. `None` where the baseline is not told from zero (`A ≤ 0`): the set is
    /// unbounded. A rate is never negative, so the interval ends at −100 %.
    pub fn relative_interval(&self) -> Option<[f64; 2]> {
        let t = upper_quantile(f64::midpoint(1.0, CONFIDENCE), self.df)?;
        let Self {
            a,
            b,
            error_a,
            error_b,
            covariance,
            ..
        } = *self;
        let square = t * t;
        let denominator = a * a - square * error_a;
        if denominator <= 0.0 {
            return None;
        }
        // B² − AC and B − A with their leading terms cancelled by hand: a² ≫ t²·error.
        let spread = a * a * error_b + b * b * error_a - 2.0 * a * b * covariance
            + square * (covariance * covariance - error_a * error_b);
        let root = t * spread.max(0.0).sqrt();
        let shift = a * (b - a) + square * (error_a - covariance);
        let percent = |numerator: f64| 100.0 * numerator / denominator;
        let low = percent(shift - root).max(-100.0);
        Some([low, percent(shift + root)])
    }
}

/// Welch's t-test of `b − a`. `None` below two values in either sample, or when neither has any spread.
pub fn welch(a: &[f64], b: &[f64]) -> Option<Welch> {
    Means::of(a, b)?.test()
}

/// 95 % interval of the difference `b − a` of two independent samples, in their own unit (Welch 1947). `None` as `welch`.
pub fn difference(a: &[f64], b: &[f64]) -> Option<[f64; 2]> {
    Means::of(a, b)?.interval()
}

/// 95 % interval of the relative change from `a` to `b`, percent of `a`'s mean, carrying the uncertainty of both (Fieller
/// 1954; the two samples are independent, unequal variances, Welch–Satterthwaite df of the difference). `None` below two
/// values in either sample, without any spread, or when `a`'s mean is not told from zero.
pub fn fieller(a: &[f64], b: &[f64]) -> Option<[f64; 2]> {
    Means::of(a, b)?.relative_interval()
}

/// Hedges' g: the difference `b − a` in pooled standard deviations, times `1 − 3/(4m − 1)` with `m = na + nb − 2` (Hedges
/// 1981). `None` below two values in either sample or without any spread.
pub fn hedges_g(a: &[f64], b: &[f64]) -> Option<f64> {
    Means::of(a, b)?;
    let (a, b) = (Summary::of(a), Summary::of(b));
    let (freedom_a, freedom_b) = ((a.n - 1) as f64, (b.n - 1) as f64);
    let m = freedom_a + freedom_b;
    let pooled = ((freedom_a * a.sd?.powi(2) + freedom_b * b.sd?.powi(2)) / m).sqrt();
    Some((b.mean - a.mean) / pooled * (1.0 - 3.0 / (4.0 * m - 1.0)))
}
