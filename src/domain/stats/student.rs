//! Student's t distribution with fractional degrees of freedom; golden values from `SciPy` in `tests/golden`.

use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::beta::checked_beta_reg;

/// Two-sided p of a t statistic: `I(df/(df+t²); df/2, 1/2)`, exact in the far tail too. `None` unless `df > 0` and `t` is a number.
pub fn two_sided_p(t: f64, df: f64) -> Option<f64> {
    if t.is_nan() || !df.is_finite() || df <= 0.0 {
        return None;
    }
    if t.is_infinite() {
        return Some(0.0);
    }
    checked_beta_reg(df / 2.0, 0.5, df / (df + t * t)).ok()
}

/// The value that t exceeds with probability `1 − p`. `None` unless `0 < p < 1` and `df > 0`.
pub fn upper_quantile(p: f64, df: f64) -> Option<f64> {
    if !(p > 0.0 && p < 1.0 && df.is_finite()) {
        return None;
    }
    Some(StudentsT::new(0.0, 1.0, df).ok()?.inverse_cdf(p))
}
