//! Two arms compared, metric by metric: the verdict first, the evidence under it, no digit the interval does not carry.

use std::fmt::Write as _;

use crate::cli::output::Style;
use crate::domain::text::{
    Metric, arm_values, capitalised, change_with_interval, clean, count, effect, spread, test_line,
    time_saved,
};
use crate::domain::types::Comparison;

use super::table::{Align, Table};

/// One metric: verdict sentence, reason, both arms, the test.
pub fn metric(metric: &Metric, style: Style) -> String {
    let comparison = &metric.comparison;
    let verdict = capitalised(&comparison.verdict.to_string());
    let title = format!("{}  {verdict}", clean(&metric.label));
    let mut text = format!("{}: {}\n", style.heading(&title), effect(comparison));
    let _ = writeln!(text, "  {}", clean(&comparison.reason));
    text.push_str(&arms(&metric.label, comparison));
    if let Some((change, interval)) = time_saved(&metric.label, comparison) {
        let time = change_with_interval(change, interval);
        let _ = writeln!(text, "  The time itself: {time}");
    }
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
    let (values, unit) = arm_values(label, comparison);
    for ((name, arm), value) in arms.into_iter().zip(values) {
        table.row([
            name.to_owned(),
            value,
            unit.to_owned(),
            spread(arm),
            count(arm.n as u64, "run"),
        ]);
    }
    table.render(2, Style::PLAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::text::{graphics_queue, metrics_of};
    use crate::domain::types::{ArmSummary, Verdict};

    fn judged(comparison: Comparison) -> Metric {
        Metric {
            label: "tg128".to_owned(),
            comparison,
            plain: None,
        }
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
