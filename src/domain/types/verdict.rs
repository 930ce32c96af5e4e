//! Judgements and the numbers under them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// The four verdicts of the method (paper section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The interval's lower bound clears +1 %.
    Improved,
    /// The interval's upper bound is below −1 %.
    Regressed,
    /// The interval lies inside ±1 %, or shows a real change under 1 %.
    Unchanged,
    /// Too few runs, too much spread, or an interval that straddles zero.
    Inconclusive,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Improved => "improved",
            Self::Regressed => "regressed",
            Self::Unchanged => "unchanged",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// What a test is computed on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleUnit {
    /// Run means: the method's sampling unit.
    #[default]
    Runs,
    /// Repetitions of two single runs: shown, never judged, because they are not independent.
    Repetitions,
}

/// One arm of a comparison in one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmSummary {
    /// Mean of run means; NaN (JSON `null`) without runs.
    #[serde(deserialize_with = "nan_where_null")]
    pub mean: f64,
    /// Coefficient of variation of run means, percent; `None` with one run.
    pub cv_pct: Option<f64>,
    /// Number of runs.
    pub n: usize,
    /// The run means themselves.
    pub runs: Vec<f64>,
}

/// JSON has no NaN: it is written as `null` and read back.
fn nan_where_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// A comparison of two arms in one metric. Field names are the JSON contract of `flux compare`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Arm A.
    pub baseline: ArmSummary,
    /// Arm B.
    pub candidate: ArmSummary,
    /// Relative change of the means, percent of the baseline; positive is faster. NaN (JSON `null`) without runs.
    #[serde(deserialize_with = "nan_where_null")]
    pub change_pct: f64,
    /// 95 % interval of it (Fieller). `None` where it cannot be formed: never a zero-width one.
    pub ci95_pct: Option<[f64; 2]>,
    /// Hedges' g with its small-sample correction.
    pub hedges_g: Option<f64>,
    /// Welch's t.
    pub t: Option<f64>,
    /// Welch–Satterthwaite degrees of freedom.
    pub df: Option<f64>,
    /// Two-sided p.
    pub p: Option<f64>,
    /// What the test and the interval were computed on.
    #[serde(default)]
    pub unit: SampleUnit,
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in one sentence.
    pub reason: String,
}
