//! Speculation: a cheap guess of the next tokens, checked by the model in one pass. It pays where guesses are right, so code
//! and prose are judged apart, and how many were right is told (paper section 6).

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::domain::types::{Comparison, TextKind, Verdict};

/// Name of the setting, beside those of the search space: a kind, or [`DRAFT`] and a model file.
pub const SETTING: &str = "speculation";
/// Guesses from what was said before, without a second model (`--spec-type` of b11149).
pub const NGRAM_KINDS: [&str; 5] = [
    "ngram-mod",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-cache",
];
/// Guesses of a smaller model.
pub const DRAFT: &str = "draft-simple";
/// The kinds of text that are judged.
pub const TEXTS: [TextKind; 2] = [TextKind::Code, TextKind::Prose];

/// A value of the setting as llama-server's arguments.
pub fn args(value: &str) -> Vec<String> {
    let (kind, file) = match value.split_once(' ') {
        Some((kind, file)) => (kind, Some(file)),
        None => (value, None),
    };
    let draft = file.into_iter().flat_map(|file| ["--model-draft", file]);
    let kind = ["--spec-type", kind].into_iter();
    kind.chain(draft).map(str::to_owned).collect()
}

/// Guesses of several requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Acceptance {
    /// Requests.
    pub requests: u64,
    /// Tokens guessed.
    pub drafted: u64,
    /// Those that the model said too.
    pub accepted: u64,
}

impl Acceptance {
    /// From the evidence of runs, as [`super::evidence`] writes each request.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a Json>) -> Self {
        let mut all = Self::default();
        let requests = records
            .into_iter()
            .filter_map(|record| record["requests"].as_array());
        for request in requests.flatten() {
            let count = |name: &str| request[name].as_u64().unwrap_or(0);
            all.requests += 1;
            all.drafted += count("draft_n");
            all.accepted += count("draft_n_accepted");
        }
        all
    }

    /// Percent of the guesses that were right; `None` without one.
    pub fn pct(self) -> Option<f64> {
        (self.drafted > 0).then(|| 100.0 * self.accepted as f64 / self.drafted as f64)
    }
}

/// One kind of speculation on one kind of text, against the same without it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpeculationRow {
    /// Kind of speculation.
    pub kind: String,
    /// Kind of text.
    pub text: TextKind,
    /// Verdict on the goal's metric; `None` where it could not be compared.
    pub verdict: Option<Verdict>,
    /// Its numbers.
    pub comparison: Option<Comparison>,
    /// Guesses.
    pub acceptance: Acceptance,
    /// Why, in one sentence.
    pub reason: String,
}

/// What to do with one kind: on only where it is confirmed on all texts.
fn advised(kind: &str, rows: &[&SpeculationRow]) -> String {
    let won = |r: &&&SpeculationRow| r.verdict == Some(Verdict::Improved);
    let helped: Vec<&str> = rows.iter().filter(won).map(|r| r.text.words()).collect();
    match helped.as_slice() {
        [] => format!("{kind} stays off: it is confirmed on neither code nor prose"),
        all if all.len() == TEXTS.len() => format!("{kind} is confirmed on code and on prose"),
        one => format!(
            "{kind} stays off: it helps with {} alone",
            one.join(" and ")
        ),
    }
}

/// What to do, in a sentence for each kind.
pub fn advice(rows: &[SpeculationRow]) -> String {
    let mut kinds: Vec<&str> = rows.iter().map(|r| r.kind.as_str()).collect();
    kinds.dedup();
    let each = kinds.into_iter().map(|kind| {
        let of: Vec<&SpeculationRow> = rows.iter().filter(|r| r.kind == kind).collect();
        advised(kind, &of)
    });
    each.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(text: TextKind, verdict: Option<Verdict>) -> SpeculationRow {
        SpeculationRow {
            kind: "ngram-mod".to_owned(),
            text,
            verdict,
            ..SpeculationRow::default()
        }
    }

    #[test]
    fn it_is_on_only_where_both_texts_confirm_it() {
        let say = |code, prose| advice(&[row(TextKind::Code, code), row(TextKind::Prose, prose)]);
        let improved = Some(Verdict::Improved);
        assert_eq!(
            say(improved, improved),
            "ngram-mod is confirmed on code and on prose"
        );
        assert_eq!(
            say(improved, Some(Verdict::Unchanged)),
            "ngram-mod stays off: it helps with code alone"
        );
        // The paper's own finding (section 6).
        assert_eq!(
            say(Some(Verdict::Inconclusive), Some(Verdict::Regressed)),
            "ngram-mod stays off: it is confirmed on neither code nor prose"
        );
    }

    #[test]
    fn guesses_are_counted_over_all_requests() {
        let records = [
            json!({"requests": [{"draft_n": 40, "draft_n_accepted": 10}, {"draft_n": null}]}),
            json!({"requests": [{"draft_n": 60, "draft_n_accepted": 50}]}),
            json!(null),
        ];
        let all = Acceptance::of(&records);
        assert_eq!((all.requests, all.drafted, all.accepted), (3, 100, 60));
        assert_eq!(all.pct(), Some(60.0));
        assert_eq!(Acceptance::default().pct(), None);
    }

    #[test]
    fn kinds_and_draft_models_are_arguments() {
        assert_eq!(args("ngram-mod"), ["--spec-type", "ngram-mod"]);
        assert_eq!(
            args("draft-simple /m/small one.gguf"),
            [
                "--spec-type",
                "draft-simple",
                "--model-draft",
                "/m/small one.gguf"
            ]
        );
    }
}
