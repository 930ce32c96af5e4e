//! `flux tune --dry-run`: what would be tried, what would not and why, and how long it would take.

use std::fmt::Write as _;

use crate::cli::output::Style;
use crate::domain::text::{clean, settings_phrase, settings_words, shell_command};
use crate::engine::report::DryRun;

use super::refusals;
use super::table::{Align, Table};

/// The plan as text.
pub fn dry_run(document: &DryRun, style: Style) -> String {
    let mut text = format!("{}\n", style.heading(&document.summary()));
    if !document.start.is_stock() {
        let _ = writeln!(text, "On {}", settings_phrase(&document.start));
    }
    if !document.tests.is_empty() {
        let _ = writeln!(
            text,
            "Each measured on {}",
            clean(&document.tests.join(", "))
        );
    }
    let mut table = Table::new(&[
        ("Candidate", Align::Left),
        ("Environment and arguments", Align::Left),
        ("What it does", Align::Left),
    ]);
    for candidate in &document.candidates {
        table.row([
            settings_words(&candidate.settings.beyond(&document.start)),
            shell_command(&candidate.launch.env, &candidate.launch.args),
            clean(&candidate.description),
        ]);
    }
    if !table.is_empty() {
        text.push_str(&table.render(2, style));
    }
    let refused = refusals::section(&document.refused, style);
    if !refused.is_empty() {
        let _ = write!(text, "\n{refused}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_plan_says_what_is_tried_what_is_not_and_how_long() {
        let document = json!({
            "schema": 1,
            "tests": ["pp512", "tg128"],
            "refused": [{"dimension": "int8-dot", "value": null, "reason": "the device has no int8 dot product"}],
            "candidates": [{"settings": {"graphics-queue": "on"}, "description": "one queue", "args": ["-fa", "0"],
                            "env": {"GGML_VK_ALLOW_GRAPHICS_QUEUE": "1"}}],
            "expected_secs": 1500.0,
            "processes": 40
        });
        assert_eq!(
            dry_run(&serde_json::from_value(document).unwrap(), Style::PLAIN),
            "1 candidate, about 40 llama-bench processes, about 25 min\n\
             Each measured on pp512, tg128\n\
             \x20 Candidate          Environment and arguments             What it does\n\
             \x20 Graphics queue on  GGML_VK_ALLOW_GRAPHICS_QUEUE=1 -fa 0  one queue\n\
             \nNot tried\n\
             \x20 int8-dot  the device has no int8 dot product\n"
        );
    }
}
