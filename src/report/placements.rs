//! What a benchmark predicted of placements and what they ran at, the same for every reader.

use crate::domain::text::{clean, rate, settings_words};
use crate::domain::types::Timestamp;
use crate::engine::plan::{ArmResult, PredictionError, error_words};

/// What the table is called.
pub const TITLE: &str = "Placements, predicted before they ran";

/// Titles of the columns of [`cells`], and whether they hold rates, in tokens per second.
pub const TITLES: [(&str, bool); 6] = [
    ("Measured", false),
    ("tg t/s", true),
    ("predicted", true),
    ("pp t/s", true),
    ("predicted", true),
    ("", false),
];

/// A row: settings, generation, prompts, each measured and predicted, and why a number does not count.
pub fn cells(arm: &ArmResult) -> [String; 6] {
    let number = |n: Option<f64>| n.map_or_else(|| "–".to_owned(), |n| rate(n, None));
    [
        settings_words(&arm.settings),
        number(arm.tg),
        number(arm.predicted_tg),
        number(arm.pp),
        number(arm.predicted_pp),
        arm.failure.as_deref().map(clean).unwrap_or_default(),
    ]
}

/// `Mean error of the predictions: generation 17 %, prompts 26 %`; `None` where none was measured.
pub fn error(arms: &[ArmResult]) -> Option<String> {
    let error = PredictionError::of(arms, "", Timestamp(0))?;
    let prompts = error.prompt_error_pct;
    let prompts = prompts.map_or_else(String::new, |e| format!(", prompts {}", error_words(e)));
    let generation = error_words(error.error_pct);
    Some(format!(
        "Mean error of the predictions: generation {generation}{prompts}"
    ))
}

/// Every row, and what stands beside the table.
pub fn rows(arms: &[ArmResult]) -> (Vec<[String; 6]>, String) {
    (
        arms.iter().map(cells).collect(),
        error(arms).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::types::Settings;

    /// 100 predicted and 80 measured are 25 % off, 1,000 and 1,250 are 20 %.
    #[test]
    fn both_rates_stand_beside_what_was_predicted() {
        let arm = ArmResult {
            settings: Settings::stock().with("placement", "ngl=9 ub=512"),
            tg: Some(80.0),
            pp: Some(1250.0),
            predicted_tg: Some(100.0),
            predicted_pp: Some(1000.0),
            failure: None,
        };
        let failed = ArmResult {
            tg: None,
            pp: None,
            failure: Some("out of \u{1b}memory".to_owned()),
            ..arm.clone()
        };
        assert_eq!(
            cells(&arm),
            ["Placement ngl=9 ub=512", "80.0", "100", "1250", "1000", ""]
        );
        assert_eq!(
            cells(&failed)[1..],
            ["–", "100", "–", "1000", "out of \\u{1b}memory"]
        );
        let arms = [arm, failed.clone()];
        let told = error(&arms);
        assert_eq!(
            told.as_deref(),
            Some("Mean error of the predictions: generation 25 %, prompts 20 %")
        );
        assert_eq!(error(&[failed]), None);
    }
}
