//! What `flux doctor` found, the worst first.

use std::fmt::Write as _;

use crate::cli::output::Style;
use crate::domain::doctor::{Finding, Level};
use crate::domain::text::{capitalised, clean};

/// Findings with their advice, or that there are none.
pub fn findings(findings: &[Finding], style: Style) -> String {
    if findings.is_empty() {
        return "Nothing found that would spoil a measurement.\n".to_owned();
    }
    let mut text = String::new();
    for finding in findings {
        let word = match finding.level {
            Level::Info => "note",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        let _ = writeln!(
            text,
            "{} {}",
            style.heading(&format!("{word}:")),
            clean(&finding.title)
        );
        let _ = writeln!(text, "  {}", clean(&capitalised(&finding.advice)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_what_and_what_to_do() {
        let finding = Finding {
            level: Level::Warning,
            code: "battery".to_owned(),
            title: "running on battery".to_owned(),
            advice: "plug the machine in".to_owned(),
        };
        assert_eq!(
            findings(&[finding], Style::PLAIN),
            "warning: running on battery\n  Plug the machine in\n"
        );
    }
}
