//! What a search or a comparison came to, in sentences.

use crate::domain::search::{Refusal, Rejection};
use crate::domain::types::{Comparison, Settings, Verdict};

use super::{capitalised, clean, effect, quantity, rate_decimals, settings_phrase};

/// `Graphics queue on: +68.3 % (95 % CI +67.9 to +68.8), 8 + 8 runs`.
pub fn verdict_sentence(subject: &str, comparison: &Comparison) -> String {
    format!("{}: {}", clean(subject), effect(comparison))
}

/// A title: the verdict word and both means, `Improved: 22.8 → 38.1 t/s`; what is not shown to differ has no arrow.
pub fn verdict_title(label: &str, comparison: &Comparison) -> String {
    let (a, unit) = quantity(label, comparison.baseline.mean);
    let (b, _) = quantity(label, comparison.candidate.mean);
    let decimals = rate_decimals(a, comparison.baseline.cv_pct)
        .min(rate_decimals(b, comparison.candidate.cv_pct));
    match comparison.verdict {
        Verdict::Improved | Verdict::Regressed => {
            let word = capitalised(&comparison.verdict.to_string());
            format!("{word}: {a:.decimals$} → {b:.decimals$} {unit}")
        }
        Verdict::Unchanged => format!("Unchanged: {a:.decimals$} {unit} either way"),
        Verdict::Inconclusive => "Inconclusive: no difference could be shown".to_owned(),
    }
}

/// The sentence where nothing could be confirmed, because the baseline itself is too noisy to be beaten.
pub const NOT_DECIDED: &str = "Inconclusive: nothing could be confirmed";

/// The sentence where nothing was worth confirming. Stock cannot stay where it does not run (case C15).
pub fn nothing_beat(baseline: &Settings, start_runs: bool) -> String {
    let words = settings_phrase(baseline);
    if start_runs {
        return format!("Nothing beat {words} in screening: {words} stays");
    }
    format!("Stock does not run here; {words} does, and nothing beat it in screening")
}

/// What stands under the sentence: `Improved · the whole interval is above +1 % · saved as profile 4`.
pub fn judged(verdict: Option<Verdict>, reason: &str, saved: Option<&str>) -> String {
    let word = verdict.map(|v| capitalised(&v.to_string()));
    let reason = Some(clean(reason)).filter(|r| !r.is_empty());
    let parts = [word, reason, saved.map(str::to_owned)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// How a finalist's confirmation ended: `inconclusive: rejected (guard unproven): …`.
pub fn confirmed_words(
    verdict: Option<Verdict>,
    rejected: Option<Rejection>,
    reason: &str,
) -> String {
    let words = [
        verdict.map(|v| v.to_string()),
        rejected.map(|r| format!("rejected ({})", r.words())),
        Some(clean(reason)),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(": ")
}

/// What was not tried, as it is typed: `mmvq`, or `mmvq=force`.
pub fn refusal_words(refusal: &Refusal) -> String {
    clean(&match &refusal.value {
        Some(value) => format!("{}={value}", refusal.dimension),
        None => refusal.dimension.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::types::{ArmSummary, SampleUnit};

    #[test]
    fn stock_stays_only_where_it_runs() {
        let queue = Settings::stock().with("graphics-queue", "on");
        assert_eq!(
            nothing_beat(&Settings::stock(), true),
            "Nothing beat stock in screening: stock stays"
        );
        let placed = Settings::stock().with("placement", "ngl=24 ub=512");
        assert_eq!(
            nothing_beat(&placed, true),
            "Nothing beat placement ngl=24 ub=512 in screening: placement ngl=24 ub=512 stays"
        );
        assert_eq!(
            nothing_beat(&queue, false),
            "Stock does not run here; graphics queue on does, and nothing beat it in screening"
        );
    }

    #[test]
    fn a_title_claims_no_more_than_the_verdict() {
        let arm = |mean: f64| ArmSummary {
            mean,
            cv_pct: Some(0.3),
            n: 8,
            runs: vec![mean; 8],
        };
        let judged = |verdict| Comparison {
            baseline: arm(22.81),
            candidate: arm(38.2),
            change_pct: 67.5,
            ci95_pct: Some([67.0, 68.0]),
            hedges_g: None,
            t: None,
            df: None,
            p: None,
            unit: SampleUnit::Runs,
            verdict,
            reason: String::new(),
        };
        let title = |verdict| verdict_title("tg128", &judged(verdict));
        assert_eq!(title(Verdict::Improved), "Improved: 22.8 → 38.2 t/s");
        assert_eq!(title(Verdict::Regressed), "Regressed: 22.8 → 38.2 t/s");
        assert_eq!(title(Verdict::Unchanged), "Unchanged: 22.8 t/s either way");
        assert_eq!(
            title(Verdict::Inconclusive),
            "Inconclusive: no difference could be shown"
        );
    }

    #[test]
    fn judgements_have_no_empty_parts() {
        assert_eq!(
            judged(Some(Verdict::Improved), "", Some("saved as profile 4")),
            "Improved · saved as profile 4"
        );
        assert_eq!(judged(None, "", None), "");
        assert_eq!(
            confirmed_words(
                Some(Verdict::Inconclusive),
                Some(Rejection::GuardUnproven),
                "why"
            ),
            "inconclusive: rejected (guard unproven): why"
        );
    }
}
