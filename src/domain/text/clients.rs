//! What several clients got from one server, as a table.

use crate::domain::search::ClientsRow;
use crate::domain::types::ArmSummary;

use super::{count, rate_decimals};

/// Titles of the columns of [`clients_cells`].
pub const CLIENTS_TITLES: [&str; 6] = [
    "Clients",
    "t/s in all",
    "t/s for each",
    "First token, ms",
    "Request, s",
    "Servers",
];

/// A row of the table: means with half of their runs' spread (one standard deviation).
pub fn clients_cells(row: &ClientsRow) -> [String; 6] {
    let mut servers = row.total.n.to_string();
    if !row.failures.is_empty() {
        let failed = count(row.failures.len() as u64, "failure");
        servers = format!("{servers} ({failed})");
    }
    [
        row.clients.to_string(),
        with_spread(&row.total),
        with_spread(&row.each),
        with_spread(&row.first_token_ms),
        with_spread(&row.request_secs),
        servers,
    ]
}

/// `38.1 ± 0.2`, the standard deviation of the runs; no more digits than it carries.
fn with_spread(arm: &ArmSummary) -> String {
    if arm.n == 0 {
        return "–".to_owned();
    }
    let decimals = rate_decimals(arm.mean, arm.cv_pct);
    let mean = format!("{:.decimals$}", arm.mean);
    match arm.cv_pct {
        Some(cv) => format!("{mean} ± {:.decimals$}", arm.mean * cv / 100.0),
        None => mean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::types::{Failure, FailureClass};

    #[test]
    fn a_row_says_means_spreads_and_failures() {
        let arm = |runs: [f64; 3]| {
            let of = crate::domain::stats::Summary::of(&runs);
            ArmSummary {
                mean: of.mean,
                cv_pct: of.cv_pct,
                n: 3,
                runs: runs.to_vec(),
            }
        };
        let row = ClientsRow {
            clients: 4,
            // Standard deviations 2, 2, 200 and 0.2.
            total: arm([59.0, 61.0, 63.0]),
            each: arm([16.0, 18.0, 20.0]),
            first_token_ms: arm([2000.0, 2200.0, 2400.0]),
            request_secs: arm([6.9, 7.1, 7.3]),
            failures: vec![Failure::new(FailureClass::AnswerBroken, "x")],
        };
        assert_eq!(
            clients_cells(&row),
            [
                "4",
                "61 ± 2",
                "18 ± 2",
                "2200 ± 200",
                "7.1 ± 0.2",
                "3 (1 failure)"
            ]
        );
    }
}
