//! What speculation was worth, as a table.

use crate::domain::server::speculation::{Acceptance, SpeculationRow};

use super::{both_arms, clean, count, effect, grouped};

/// Titles of the columns of [`speculation_cells`].
pub const SPECULATION_TITLES: [&str; 6] = [
    "Speculation",
    "Text",
    "Verdict",
    "Without → with",
    "Change",
    "Guesses",
];

/// A row of the table; `metric` is the label of what it is judged by.
pub fn speculation_cells(row: &SpeculationRow, metric: &str) -> [String; 6] {
    let verdict = row
        .verdict
        .map_or_else(|| "not compared".to_owned(), |v| v.to_string());
    [
        clean(&row.kind),
        row.text.words().to_owned(),
        verdict,
        row.comparison
            .as_ref()
            .map_or_else(String::new, |comparison| both_arms(metric, comparison)),
        row.comparison
            .as_ref()
            .map_or_else(|| clean(&row.reason), effect),
        acceptance(row.acceptance),
    ]
}

/// `61 % of 1,234 drafted tokens accepted`; how many requests had none.
pub fn acceptance(guesses: Acceptance) -> String {
    match guesses.pct() {
        Some(pct) => format!(
            "{pct:.0} % of {} drafted tokens accepted",
            grouped(guesses.drafted)
        ),
        None => format!("nothing drafted in {}", count(guesses.requests, "request")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::types::TextKind;

    #[test]
    fn a_row_says_what_was_guessed() {
        let mut row = SpeculationRow {
            kind: "ngram-mod".to_owned(),
            text: TextKind::Code,
            acceptance: Acceptance {
                requests: 9,
                drafted: 1234,
                accepted: 753,
            },
            reason: "arm B does not run".to_owned(),
            ..SpeculationRow::default()
        };
        let cells = [
            "ngram-mod",
            "code",
            "not compared",
            "",
            "arm B does not run",
            "61 % of 1,234 drafted tokens accepted",
        ];
        assert_eq!(speculation_cells(&row, "tg64"), cells);
        row.acceptance = Acceptance {
            requests: 1,
            ..Acceptance::default()
        };
        assert_eq!(
            speculation_cells(&row, "tg64")[5],
            "nothing drafted in 1 request"
        );
    }
}
