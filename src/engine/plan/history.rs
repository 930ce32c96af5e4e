//! What predictions were worth when they were made: the errors of each `flux plan --bench` before its runs were learnt from.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::types::Timestamp;
use crate::ports::StoredFit;

use super::bench::ArmResult;

/// Errors that are told; further back stands in the document alone.
const TOLD: usize = 6;

/// The error of one benchmark's predictions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PredictionError {
    /// When.
    pub at: Timestamp,
    /// The model.
    pub model: String,
    /// Placements predicted and then measured.
    pub placements: usize,
    /// Mean absolute error of generation, percent of the measured rate.
    pub error_pct: f64,
    /// The same of prompts.
    pub prompt_error_pct: Option<f64>,
}

impl PredictionError {
    /// Of arms that were predicted before they were measured; `None` without one that counts.
    pub fn of(arms: &[ArmResult], model: &str, at: Timestamp) -> Option<Self> {
        let arms: Vec<&ArmResult> = arms.iter().filter(|a| a.failure.is_none()).collect();
        let pairs = |rates: fn(&ArmResult) -> (Option<f64>, Option<f64>)| -> Vec<f64> {
            let error = |a: &&ArmResult| match rates(a) {
                (Some(predicted), Some(measured)) => Some((predicted / measured - 1.0).abs()),
                _ => None,
            };
            arms.iter().filter_map(error).collect()
        };
        let mean = |errors: &[f64]| {
            (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64 * 100.0)
        };
        let generation = pairs(|a| (a.predicted_tg, a.tg));
        Some(Self {
            at,
            model: model.to_owned(),
            placements: generation.len(),
            error_pct: mean(&generation)?,
            prompt_error_pct: mean(&pairs(|a| (a.predicted_pp, a.pp))),
        })
    }

    /// A fit's document with the error before it, to be stored.
    pub(super) fn kept_in(error: Option<&Self>, mut document: Value) -> Value {
        document[KEY] = serde_json::json!(error);
        document
    }
}

/// Where the error stands in a stored fit.
const KEY: &str = "prediction_error";

/// Errors of a machine's stored fits, which come newest first; the oldest first.
pub(super) fn errors(fits: Vec<StoredFit>) -> Vec<PredictionError> {
    let kept = |fit: StoredFit| serde_json::from_value(fit.document[KEY].clone()).ok();
    let mut errors: Vec<PredictionError> = fits.into_iter().filter_map(kept).collect();
    errors.reverse();
    errors
}

/// `6.4 %`, `17 %`.
pub fn error_words(pct: f64) -> String {
    let digits = usize::from(pct < 9.95);
    format!("{pct:.digits$} %")
}

/// `Error of predictions so far: 12 % → 5.1 % over 2 benchmarks`; `None` before the first.
pub fn told(errors: &[PredictionError]) -> Option<String> {
    let from = errors.len().saturating_sub(TOLD);
    let recent = errors[from..].iter();
    let mut steps: Vec<String> = recent.map(|e| error_words(e.error_pct)).collect();
    if from > 0 {
        steps.insert(0, "…".to_owned());
    }
    let over = crate::domain::text::count(errors.len() as u64, "benchmark");
    (!steps.is_empty()).then(|| {
        let steps = steps.join(" → ");
        format!("Error of predictions so far: {steps} over {over} of this machine")
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]
mod tests {
    use super::*;
    use crate::domain::types::Settings;

    fn arm(predicted: f64, measured: Option<f64>, failure: Option<&str>) -> ArmResult {
        ArmResult {
            settings: Settings::stock(),
            tg: measured,
            pp: measured,
            predicted_tg: Some(predicted),
            predicted_pp: None,
            failure: failure.map(str::to_owned),
        }
    }

    fn error(error_pct: f64) -> PredictionError {
        PredictionError {
            at: Timestamp(0),
            model: "m".to_owned(),
            placements: 1,
            error_pct,
            prompt_error_pct: None,
        }
    }

    /// 110 for 100 and 45 for 50 are both off by 10 %; what spilled or failed says nothing of the model.
    #[test]
    fn the_error_is_the_mean_over_what_was_measured() {
        let arms = [
            arm(110.0, Some(100.0), None),
            arm(45.0, Some(50.0), None),
            arm(90.0, Some(9.0), Some("spilled")),
            arm(90.0, None, Some("out of memory")),
        ];
        let found = PredictionError::of(&arms, "m", Timestamp(7)).unwrap();
        assert!((found.error_pct - 10.0).abs() < 1e-9);
        assert_eq!((found.placements, found.prompt_error_pct), (2, None));
        assert!(PredictionError::of(&arms[2..], "m", Timestamp(7)).is_none());
    }

    #[test]
    fn errors_are_read_back_oldest_first_and_told() {
        let stored = |id: i64, document| StoredFit {
            id,
            at: Timestamp(id),
            document,
        };
        let kept = |pct| PredictionError::kept_in(Some(&error(pct)), serde_json::json!({}));
        let none = PredictionError::kept_in(None, serde_json::json!({}));
        let fits = vec![
            stored(4, kept(4.04)),
            stored(3, none),
            stored(2, kept(5.1)),
            stored(1, kept(12.2)),
        ];
        let errors = errors(fits);
        assert_eq!(
            told(&errors).unwrap(),
            "Error of predictions so far: 12 % → 5.1 % → 4.0 % over 3 benchmarks of this machine"
        );
        assert_eq!(told(&[]), None);
        let many: Vec<PredictionError> = (0..9).map(|n| error(f64::from(n))).collect();
        let many = told(&many).unwrap();
        assert!(many.contains("far: … → 3.0 % → 4.0 %"), "{many}");
    }
}
