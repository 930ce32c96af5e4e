//! Two arms compared, metric by metric: the verdict first, the evidence under it, no digit the interval does not carry.

use std::fmt::Write as _;

use serde::Deserialize as _;
use serde_json::Value;

use crate::cli::output::Style;
use crate::cli::text::{capitalised, change_with_interval, clean, count, rate_decimals};
use crate::domain::types::{ArmSummary, Comparison, SampleUnit};

use super::table::{Align, Table};

/// p below this is shown as a bound: its digits depend on the tail of an assumed distribution.
const SMALLEST_P: f64 = 1e-4;

/// Label of the request goal's metric; its rate is requests per second, shown as seconds per request.
const REQUEST: &str = "request";

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

/// The metrics of a document with the shape of `flux compare --json`, or of a stored confirmation; others are left out.
pub fn metrics_of(document: &Value) -> Vec<Metric> {
    let read = |value: Option<&Value>| Comparison::deserialize(value?).ok();
    let Some(metrics) = document.get("metrics").and_then(Value::as_object) else {
        return Vec::new();
    };
    metrics
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
        .collect()
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

/// One metric: verdict sentence, reason, both arms, the test.
pub fn metric(metric: &Metric, style: Style) -> String {
    let comparison = &metric.comparison;
    let verdict = capitalised(&comparison.verdict.to_string());
    let title = format!("{}  {verdict}", clean(&metric.label));
    let mut text = format!("{}: {}\n", style.heading(&title), effect(comparison));
    let _ = writeln!(text, "  {}", clean(&comparison.reason));
    text.push_str(&arms(&metric.label, comparison));
    let rule = if metric.plain.is_some() {
        "Without the trend"
    } else {
        "Welch"
    };
    if let Some(line) = test_line(comparison) {
        let _ = writeln!(text, "  {rule}: {line}");
    }
    if let Some(plain) = &metric.plain {
        let _ = writeln!(text, "  Plain Welch: {}, {}", effect(plain), plain.verdict);
    }
    text
}

/// All metrics, a blank line between them.
pub fn metrics(all: &[Metric], style: Style) -> String {
    let each: Vec<String> = all.iter().map(|one| metric(one, style)).collect();
    each.join("\n")
}

fn arms(label: &str, comparison: &Comparison) -> String {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("", Align::Right),
        ("", Align::Left),
        ("", Align::Right),
        ("", Align::Left),
    ]);
    let arms = [
        ("baseline", &comparison.baseline),
        ("candidate", &comparison.candidate),
    ];
    let decimals = arms.map(|(_, arm)| rate_decimals(quantity(label, arm.mean).0, arm.cv_pct));
    let decimals = decimals[0].min(decimals[1]);
    for (name, arm) in arms {
        let (value, unit) = quantity(label, arm.mean);
        table.row([
            name.to_owned(),
            format!("{value:.decimals$}"),
            unit.to_owned(),
            spread(arm),
            count(arm.n as u64, "run"),
        ]);
    }
    table.render(2, Style::PLAIN)
}

/// A rate in the unit people read: tokens per second, or seconds per request.
pub fn quantity(label: &str, rate: f64) -> (f64, &'static str) {
    if label == REQUEST {
        (1.0 / rate, "s/request")
    } else {
        (rate, "t/s")
    }
}

fn spread(arm: &ArmSummary) -> String {
    arm.cv_pct.map_or_else(
        || "no spread known".to_owned(),
        |cv| format!("CV {cv:.1} %"),
    )
}

fn test_line(comparison: &Comparison) -> Option<String> {
    let (t, df, p) = (comparison.t?, comparison.df?, comparison.p?);
    let p = if p < SMALLEST_P {
        format!("p < {SMALLEST_P}")
    } else {
        format!("p = {p:.4}")
    };
    let effect = comparison
        .hedges_g
        .map_or_else(String::new, |g| format!(", Hedges' g = {g:.2}"));
    Some(format!("t = {t:.2}, df = {df:.1}, {p}{effect}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::domain::types::Verdict;

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
            verdict: Verdict::Improved,
            reason: "the whole interval is above +1 %".to_owned(),
        }
    }

    fn judged(comparison: Comparison) -> Metric {
        Metric {
            label: "tg128".to_owned(),
            comparison,
            plain: None,
        }
    }

    #[test]
    fn a_request_is_shown_in_seconds() {
        assert_eq!(quantity("request", 0.05), (20.0, "s/request"));
        assert_eq!(quantity("tg128", 38.2), (38.2, "t/s"));
    }

    #[test]
    fn the_verdict_comes_first_and_the_evidence_under_it() {
        assert_eq!(
            metric(&judged(graphics_queue()), Style::PLAIN),
            "tg128  Improved: +68.3 % (95 % CI +67.9 to +68.8), 8 + 8 runs\n\
             \x20 the whole interval is above +1 %\n\
             \x20 baseline   22.7  t/s  CV 0.3 %  8 runs\n\
             \x20 candidate  38.2  t/s  CV 0.3 %  8 runs\n\
             \x20 Welch: t = 317.00, df = 10.2, p < 0.0001, Hedges' g = 150.10\n"
        );
    }

    #[test]
    fn without_an_interval_nothing_is_claimed() {
        let comparison = Comparison {
            ci95_pct: None,
            t: None,
            verdict: Verdict::Inconclusive,
            baseline: ArmSummary {
                mean: 22.7,
                cv_pct: None,
                n: 1,
                runs: vec![],
            },
            ..graphics_queue()
        };
        let text = metric(&judged(comparison), Style::PLAIN);
        assert!(
            text.starts_with("tg128  Inconclusive: about +68 % (no interval), 1 + 8 runs\n"),
            "{text}"
        );
        assert!(
            text.contains("no spread known") && !text.contains("Welch"),
            "{text}"
        );
    }

    #[test]
    fn documents_of_another_shape_have_no_metrics() {
        assert!(metrics_of(&serde_json::json!({"metrics": {"tg128": 3}})).is_empty());
        assert!(metrics_of(&serde_json::json!(null)).is_empty());
        let document = serde_json::json!({"schema": 1, "metrics": {"tg128": graphics_queue()}});
        assert_eq!(metrics_of(&document), [judged(graphics_queue())]);
        let stored = serde_json::json!({"metrics": {"tg128": {"confirmed": graphics_queue(), "welch": graphics_queue()}}});
        let both = Metric {
            plain: Some(graphics_queue()),
            ..judged(graphics_queue())
        };
        assert_eq!(metrics_of(&stored), std::slice::from_ref(&both));
        let text = metric(&both, Style::PLAIN);
        assert!(text.contains("  Without the trend: t = 317.00"), "{text}");
        assert!(
            text.ends_with(
                "  Plain Welch: +68.3 % (95 % CI +67.9 to +68.8), 8 + 8 runs, improved\n"
            ),
            "{text}"
        );
    }
}
