//! A kernel lab as text: the findings first, then every number under them.

use std::fmt::Write as _;

use crate::cli::output::Style;
use crate::domain::lab::{Clock, KernelResult, LabReport, Rate};
use crate::domain::text::{bandwidth_words, clean, moment, outcome_words};
use crate::engine::lab::LabDocument;

use super::table::{Align, Table, pairs};

/// Everything.
pub fn full(lab: &LabDocument, style: Style) -> String {
    let report = &lab.report;
    let title = format!("Kernel lab, {}", moment(report.measured_at));
    let mut text = format!("{}\n{}\n", style.heading(&title), clean(&lab.sentence()));
    text.push_str(&card(report));
    let _ = writeln!(text, "\n{}", style.heading("Kernels, the fastest first"));
    text.push_str(&kernels(report, style));
    if let Some(queues) = &lab.queues {
        let _ = writeln!(text, "\n{}", style.heading("Queue families"));
        let mut table = Table::new(&[
            ("Family", Align::Left),
            ("Barriers", Align::Left),
            ("Clock", Align::Left),
            ("Per submission, µs", Align::Right),
            ("Per dispatch, µs", Align::Right),
        ]);
        for costs in &queues.costs {
            table.row([
                costs.family.words(),
                if costs.barriers { "yes" } else { "no" }.to_owned(),
                match costs.clock {
                    Clock::Host => "host",
                    Clock::Device => "device",
                }
                .to_owned(),
                costs.submission.words(),
                costs.dispatch.words(),
            ]);
        }
        text.push_str(&table.render(2, style));
    }
    for notice in &report.notices {
        let _ = writeln!(text, "note: {}", clean(notice));
    }
    text
}

fn card(report: &LabReport) -> String {
    let Some(card) = &report.card else {
        return String::new();
    };
    let families: Vec<String> = card.families.iter().map(|f| f.words()).collect();
    let peak = card
        .peak
        .map_or_else(|| "unknown".to_owned(), bandwidth_words);
    pairs(
        &[
            ("Card", clean(&card.name)),
            (
                "Sub-group",
                card.subgroup_size
                    .map_or_else(|| "unknown".to_owned(), |n| format!("{n} lanes")),
            ),
            (
                "Memory used",
                format!("at most {} of {} free", card.used, card.free),
            ),
            ("Theoretical peak", peak),
            ("Queue families", families.join(", ")),
        ],
        2,
    )
}

/// Each kernel at the largest size it was measured at, with its median at every size before.
fn kernels(report: &LabReport, style: Style) -> String {
    let mut table = Table::new(&[
        ("Kernel", Align::Left),
        ("Median", Align::Right),
        ("Slowest", Align::Right),
        ("Best", Align::Right),
        ("n", Align::Right),
        ("Of peak", Align::Right),
        ("Size", Align::Right),
        ("Median at smaller sizes, or why there is none", Align::Left),
    ]);
    let peak = report.card.as_ref().and_then(|card| card.peak);
    for kernel in report.ranked() {
        let results: Vec<&KernelResult> = report.of(kernel).collect();
        let last = results.iter().rev().find_map(|r| Some((*r, r.rate()?)));
        let mut more: Vec<String> = results
            .iter()
            .filter(|r| last.is_none_or(|(l, _)| l.size != r.size))
            .map(|r| match r.rate() {
                Some(rate) => format!("{} {}", r.size, bandwidth_words(rate.median)),
                None => format!(
                    "{} {}",
                    r.size,
                    outcome_words(&r.outcome).unwrap_or_default()
                ),
            })
            .collect();
        more.dedup();
        let cell = |pick: fn(Rate) -> f64| {
            last.map_or_else(String::new, |(_, rate)| bandwidth_words(pick(rate)))
        };
        table.row([
            kernel.to_string(),
            cell(|r| r.median),
            cell(|r| r.slowest),
            cell(|r| r.best),
            last.map_or_else(String::new, |(r, _)| r.samples().len().to_string()),
            last.zip(peak)
                .map_or_else(String::new, |((_, rate), peak)| {
                    format!("{:.0} %", 100.0 * rate.median / peak)
                }),
            last.map_or_else(String::new, |(r, _)| r.size.to_string()),
            more.join(", "),
        ]);
    }
    table.render(2, style)
}
