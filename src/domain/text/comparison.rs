//! Two arms compared, in words: no digit the interval does not carry.

use serde::Deserialize as _;
use serde_json::Value;

use crate::domain::search::{ENERGY, FIRST_TOKEN, REQUEST};
use crate::domain::types::{ArmSummary, Comparison, SampleUnit};

use super::{capitalised, change_with_interval, is_shown, rate_decimals};

/// p below this is shown as a bound: its digits depend on the tail of an assumed distribution.
const SMALLEST_P: f64 = 1e-4;

/// One metric of a judgement.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// The test's label.
    pub label: String,
    /// What counts.
    pub comparison: Comparison,
    /// Plain Welch beside it, where the confirmation's own rule is another.
    pub plain: Option<Comparison>,
}

/// The goal's metric first, the others in their order.
pub fn primary_first(mut metrics: Vec<Metric>, primary: &str) -> Vec<Metric> {
    metrics.sort_by_key(|metric| metric.label != primary);
    metrics
}

/// The metrics of a document with the shape of `flux compare --json`, or of a stored confirmation, the goal's first; others are
/// left out.
pub fn metrics_of(document: &Value) -> Vec<Metric> {
    let read = |value: Option<&Value>| Comparison::deserialize(value?).ok();
    let Some(metrics) = document.get("metrics").and_then(Value::as_object) else {
        return Vec::new();
    };
    let metrics = metrics
        .iter()
        .filter_map(|(label, value)| {
            let beside = document
                .get("plain_welch")
                .and_then(|plain| plain.get(label));
            Some(Metric {
                label: label.clone(),
                comparison: read(Some(value)).or_else(|| read(value.get("confirmed")))?,
                plain: read(beside).or_else(|| read(value.get("welch"))),
            })
        })
        .collect();
    let primary = document.get("primary").and_then(Value::as_str);
    primary_first(metrics, primary.unwrap_or_default())
}

/// `+68.3 % (95 % CI +67.9 to +68.8), 8 + 8 runs`.
pub fn effect(comparison: &Comparison) -> String {
    let change = change_with_interval(comparison.change_pct, comparison.ci95_pct);
    let (a, b) = (comparison.baseline.n, comparison.candidate.n);
    match comparison.unit {
        SampleUnit::Runs => format!("{change}, {a} + {b} runs"),
        SampleUnit::Repetitions => format!("{change} over the repetitions of {a} + {b} runs"),
    }
}

/// Both arms of a metric: `9547 → 8852 ms`.
pub fn both_arms(label: &str, comparison: &Comparison) -> String {
    let ([a, b], unit) = arm_values(label, comparison);
    format!("{a} → {b} {unit}")
}

/// The means of both arms of a metric with their unit: no digit more than either carries, but so many that a difference
/// that is told beside them can be seen in them.
pub fn arm_values(label: &str, comparison: &Comparison) -> ([String; 2], &'static str) {
    let told = is_shown(comparison.change_pct, comparison.ci95_pct);
    let arms = [&comparison.baseline, &comparison.candidate];
    let values = arms.map(|arm| (quantity(label, arm.mean).0, arm.cv_pct));
    (pair(values, told), quantity(label, 1.0).1)
}

/// Two values with their coefficients of variation, in the digits that both carry; where their difference is `told`, in
/// as many at least as its first digit needs.
pub fn pair(values: [(f64, Option<f64>); 2], told: bool) -> [String; 2] {
    /// A microsecond of a second: more says nothing to anybody.
    const MOST: f64 = 6.0;
    let [(a, _), (b, _)] = values;
    let [of_a, of_b] = values.map(|(value, cv_pct)| rate_decimals(value, cv_pct));
    let first = -(a - b).abs().log10().floor();
    let seen = if told && first.is_finite() {
        first.clamp(0.0, MOST) as usize
    } else {
        0
    };
    let decimals = of_a.min(of_b).max(seen);
    [a, b].map(|value| format!("{value:.decimals$}"))
}

/// `Improved: +68.3 % (95 % CI +67.9 to +68.8), 8 + 8 runs`.
pub fn verdict_of(comparison: &Comparison) -> String {
    let verdict = capitalised(&comparison.verdict.to_string());
    format!("{verdict}: {}", effect(comparison))
}

/// A rate in the unit people read: tokens per second, seconds per request, milliseconds to the first
/// token, or tokens per joule.
pub fn quantity(label: &str, rate: f64) -> (f64, &'static str) {
    match label {
        REQUEST => (1.0 / rate, "s/request"),
        FIRST_TOKEN => (1e3 / rate, "ms"),
        ENERGY => (rate, "t/J"),
        _ => (rate, "t/s"),
    }
}

/// How much of the time itself is saved, percent with its interval, where the rate is that of a request or a first token:
/// what is 8 % faster takes 1/1.08 of the time, which saves 7.4 %.
pub fn time_saved(label: &str, comparison: &Comparison) -> Option<(f64, Option<[f64; 2]>)> {
    let time = |rate_pct: f64| 100.0 * (1.0 / (1.0 + rate_pct / 100.0) - 1.0);
    let is_time = [REQUEST, FIRST_TOKEN].contains(&label) && comparison.change_pct.is_finite();
    // A rate that may be zero may take for ever.
    let finite = |[low, high]: &[f64; 2]| *low > -100.0 && high.is_finite();
    let interval = comparison.ci95_pct.filter(finite);
    let interval = interval.map(|[low, high]| [time(high), time(low)]);
    is_time.then(|| (time(comparison.change_pct), interval))
}

/// The spread of an arm's runs.
pub fn spread(arm: &ArmSummary) -> String {
    arm.cv_pct.map_or_else(
        || "no spread known".to_owned(),
        |cv| format!("CV {cv:.1} %"),
    )
}

/// The test in one line, `t = 3.10, df = 10.2, p = 0.0110, Hedges' g = 1.20`; `None` where none could be made.
pub fn test_line(comparison: &Comparison) -> Option<String> {
    let (t, df, p) = (comparison.t?, comparison.df?, comparison.p?);
    let p = if p < SMALLEST_P {
        format!("p < {SMALLEST_P}")
    } else {
        format!("p = {p:.4}")
    };
    let effect = comparison
        .hedges_g
        .map_or_else(String::new, |g| format!(", Hedges' g = {}", number(g)));
    let t = number(t);
    Some(format!("t = {t}, df = {df:.1}, {p}{effect}"))
}

/// Two decimals, with the sign that changes have.
fn number(value: f64) -> String {
    format!("{value:.2}").replace('-', "−")
}

#[cfg(test)]
/// The paper's graphics queue (section 4.1).
pub(crate) fn graphics_queue() -> Comparison {
    Comparison {
        baseline: ArmSummary {
            mean: 22.7,
            cv_pct: Some(0.32),
            n: 8,
            runs: vec![],
        },
        candidate: ArmSummary {
            mean: 38.2041,
            cv_pct: Some(0.31),
            n: 8,
            runs: vec![],
        },
        change_pct: 68.3,
        ci95_pct: Some([67.87, 68.79]),
        hedges_g: Some(150.1),
        t: Some(317.0),
        df: Some(10.2),
        p: Some(1e-20),
        unit: SampleUnit::Runs,
        verdict: crate::domain::types::Verdict::Improved,
        reason: "the whole interval is above +1 %".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_shown_in_seconds() {
        assert_eq!(quantity("request", 0.05), (20.0, "s/request"));
        assert_eq!(quantity("energy", 0.45), (0.45, "t/J"));
        assert_eq!(quantity("tg128", 38.2), (38.2, "t/s"));
    }

    #[test]
    fn a_difference_that_is_told_can_be_seen_in_both_arms() {
        let arms = |label: &str, [a, b]: [f64; 2], cv_pct: f64, ci: Option<[f64; 2]>| {
            let mut comparison = graphics_queue();
            (comparison.baseline.mean, comparison.candidate.mean) = (a, b);
            comparison.baseline.cv_pct = Some(cv_pct);
            comparison.candidate.cv_pct = Some(cv_pct);
            comparison.change_pct = 100.0 * (b / a - 1.0);
            comparison.ci95_pct = ci;
            both_arms(label, &comparison)
        };
        let wide = Some([-60.0, -8.0]);
        // 1.6 and 2.4 s, with a spread of 15 % both 2 s to the digits they carry.
        let request = arms(REQUEST, [1.0 / 1.6, 1.0 / 2.4], 15.0, wide);
        assert_eq!(request, "1.6 → 2.4 s/request");
        let first_token = arms(FIRST_TOKEN, [1e3 / 1.6, 1e3 / 2.4], 15.0, wide);
        assert_eq!(first_token, "1.6 → 2.4 ms");
        assert_eq!(
            arms(ENERGY, [0.012, 0.008], 15.0, wide),
            "0.012 → 0.008 t/J"
        );
        assert_eq!(arms("tg128", [2.4, 1.6], 15.0, wide), "2.4 → 1.6 t/s");
        assert_eq!(
            arms("pp512", [9547.0, 8852.0], 0.3, wide),
            "9547 → 8852 t/s"
        );
        // What is told as nothing, or not at all, needs no digit for it.
        let nothing = Some([-3.0, 2.9]);
        assert_eq!(arms("tg128", [38.21, 38.19], 9.0, nothing), "38 → 38 t/s");
        assert_eq!(arms("tg128", [38.21, 38.21], 9.0, None), "38 → 38 t/s");
        assert_eq!(both_arms("tg128", &graphics_queue()), "22.7 → 38.2 t/s");
    }

    #[test]
    fn a_verdict_is_followed_by_its_effect() {
        assert_eq!(
            verdict_of(&graphics_queue()),
            "Improved: +68.3 % (95 % CI +67.9 to +68.8), 8 + 8 runs"
        );
    }
}
