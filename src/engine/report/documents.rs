//! The result documents as types: field for field the JSON of `--json`. What an older Flux did not store is its default,
//! and what it could not know is `None`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::search::{
    BaselineSummary, ClientsRow, ConfirmationRun, MemoryUse, Refusal, Rejection, Size, StaleCheck,
};
use crate::domain::server::output::OutputCheck;
use crate::domain::server::speculation::SpeculationRow;
use crate::domain::text::{self, Metric};
use crate::domain::types::{Backend, Comparison, Failure, Goal, Settings, Side, Stage, Verdict};
use crate::ports::Notice;

use super::Overhead;

/// A model, as a document names it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelDocument {
    /// Its own name.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Digest of its header, where the document has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// A build and the device it measured on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuntimeDocument {
    /// Name.
    pub name: String,
    /// What it prints as its version.
    pub version: String,
    /// Digest of its files.
    pub digest: String,
    /// Backend.
    pub backend: Option<Backend>,
    /// Device asked for; `None` leaves the choice to the build.
    pub device: Option<String>,
}

/// One set of settings that was screened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CandidateDocument {
    /// From 1, in the order tried.
    pub id: u32,
    /// Everything that was set.
    pub settings: Settings,
    /// The same as llama-bench's arguments.
    pub args: Vec<String>,
    /// The same as its environment.
    pub env: BTreeMap<String, String>,
    /// Mean rate per test label, t/s; empty without samples.
    pub metrics: BTreeMap<String, f64>,
    /// `ok`, `failed`, `stopped-early`.
    pub status: String,
    /// Why, where there is a reason to give.
    pub reason: Option<String>,
    /// Stage.
    pub stage: Option<Stage>,
    /// Change of the goal's metric against the baseline at that time, percent.
    pub change_pct: Option<f64>,
    /// It became the best so far.
    pub adopted: bool,
    /// Row ids of its runs.
    pub runs: Vec<i64>,
}

/// A confirmation in the shape of `flux compare`, plain Welch beside it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfirmationDocument {
    /// [`super::SCHEMA`].
    pub schema: u32,
    /// Arm B.
    pub settings: Settings,
    /// Arm A.
    pub baseline: Settings,
    /// Label of the goal's metric.
    pub primary: String,
    /// How large it was planned.
    pub size: Option<Size>,
    /// Every metric by its label.
    pub metrics: BTreeMap<String, Comparison>,
    /// The same by plain Welch.
    pub plain_welch: BTreeMap<String, Comparison>,
    /// Verdict of the primary metric.
    pub verdict: Option<Verdict>,
    /// Why it is not saved although it may be faster.
    pub rejected: Option<Rejection>,
    /// In one sentence.
    pub reason: String,
    /// Memory rule, where buffers and limits are known.
    pub memory: Vec<MemoryUse>,
    /// Counted runs in order.
    pub runs: Vec<ConfirmationRun>,
    /// Failed runs.
    pub failures: Vec<(Side, Failure)>,
}

impl ConfirmationDocument {
    /// Its metrics, the goal's first.
    pub fn judged(&self) -> Vec<Metric> {
        let metric = |(label, comparison): (&String, &Comparison)| Metric {
            label: label.clone(),
            comparison: comparison.clone(),
            plain: self.plain_welch.get(label).cloned(),
        };
        text::primary_first(self.metrics.iter().map(metric).collect(), &self.primary)
    }

    /// The metric of this label, else the first.
    fn primary(&self, wanted: &str) -> Option<&Comparison> {
        let first = || self.metrics.values().next();
        self.metrics.get(wanted).or_else(first)
    }
}

/// The profile a search saved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileDocument {
    /// Row id.
    pub id: i64,
    /// Settings.
    pub settings: Settings,
    /// What each setting does, in the order of `settings`.
    pub descriptions: Option<Vec<String>>,
    /// Arguments for llama-server.
    pub args: Vec<String>,
    /// Arguments for llama-bench.
    pub bench_args: Vec<String>,
    /// Environment of both.
    pub env: BTreeMap<String, String>,
    /// Row id of the run that introduced each setting.
    pub introduced_by: BTreeMap<String, i64>,
}

/// What `flux tune --json` prints.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TuneDocument {
    /// [`super::SCHEMA`].
    pub schema: u32,
    /// The stored session.
    pub session: Option<i64>,
    /// Hash of the machine's and the build's fingerprint.
    pub fingerprint: String,
    /// Made on an exported machine.
    pub simulated: bool,
    /// Model.
    pub model: ModelDocument,
    /// Build and device.
    pub runtime: RuntimeDocument,
    /// Goal.
    pub goal: Option<Goal>,
    /// Label of the goal's metric.
    pub primary: String,
    /// Baseline.
    pub baseline: Option<BaselineSummary>,
    /// Everything tried, in order.
    pub candidates: Vec<CandidateDocument>,
    /// Not tried, and why.
    pub refused: Vec<Refusal>,
    /// The last confirmation: the one the verdict is of.
    pub confirmation: Option<ConfirmationDocument>,
    /// Every confirmation, in order.
    pub confirmations: Vec<ConfirmationDocument>,
    /// Verdict.
    pub verdict: Option<Verdict>,
    /// Why, in one sentence.
    pub reason: String,
    /// What became of a stale profile's settings.
    pub stale_profile: Option<StaleCheck>,
    /// The profile saved.
    pub profile: Option<ProfileDocument>,
    /// There is a winner that is not saved: [`crate::engine::tune::save_profile`] can.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub saveable: bool,
    /// What the winner says against what stock says; `None` without a winner that could be saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputCheck>,
    /// Notices.
    pub notices: Vec<Notice>,
    /// Where the time went.
    pub overhead: Option<Overhead>,
}

impl TuneDocument {
    /// Does the baseline vary too much for anything to be judged?
    pub fn is_too_noisy(&self) -> bool {
        self.baseline.as_ref().is_some_and(|b| b.too_noisy)
    }

    /// Settings of the winner, saved or ready to be.
    pub fn winner(&self) -> Option<&Settings> {
        let confirmed = || Some(&self.confirmation.as_ref()?.settings);
        let saved = self.profile.as_ref().map(|p| &p.settings);
        saved.or_else(|| confirmed().filter(|_| self.saveable))
    }
}

impl TuneDocument {
    /// The goal's comparison in the last confirmation; `None` where nothing was worth confirming.
    pub fn comparison(&self) -> Option<&Comparison> {
        self.confirmation.as_ref()?.primary(&self.primary)
    }

    /// The result in one sentence: `Graphics queue on: +68.3 % (95 % CI +67.9 to +68.8), 8 + 8 runs`.
    pub fn sentence(&self) -> String {
        let confirmed = self.confirmation.as_ref().map(|c| &c.settings);
        let saved = self.profile.as_ref().map(|p| &p.settings);
        match (self.comparison(), saved.or(confirmed)) {
            (Some(comparison), Some(settings)) => {
                text::verdict_sentence(&self.subject(settings), comparison)
            }
            _ if self.verdict == Some(Verdict::Inconclusive) => text::NOT_DECIDED.to_owned(),
            _ => match &self.baseline {
                Some(baseline) => {
                    text::nothing_beat(&baseline.settings, baseline.stock_failure.is_none())
                }
                None => text::nothing_beat(&Settings::stock(), true),
            },
        }
    }

    /// Settings in words; beside a baseline that is not stock, what is more than it.
    fn subject(&self, settings: &Settings) -> String {
        let baseline = self.confirmation.as_ref().map(|c| &c.baseline);
        match baseline.filter(|b| !b.is_stock()) {
            Some(baseline) => {
                let more = text::settings_words(&settings.beyond(baseline));
                format!("{more} on top of {}", text::settings_phrase(baseline))
            }
            None => text::settings_words(settings),
        }
    }

    /// What stands under the sentence: verdict, reason, and what was saved.
    pub fn judgement(&self) -> String {
        let unfit = self.output.as_ref().filter(|output| !output.passes());
        let saved = match &self.profile {
            None if let Some(output) = unfit => text::clean(&output.sentence()),
            Some(profile) => format!("saved as profile {}", profile.id),
            None if self.saveable => "not saved yet".to_owned(),
            None => "no profile saved".to_owned(),
        };
        text::judged(self.verdict, &self.reason, Some(&saved))
    }
}

/// One arm of `flux ab`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArmDocument {
    /// As the user named it.
    pub arm: String,
    /// Its settings.
    pub settings: Settings,
    /// Name of its build.
    pub runtime: String,
}

/// What was asked of live servers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveDocument {
    /// Tokens of each prompt.
    pub prompt_tokens: u32,
    /// Tokens of each answer.
    pub generated_tokens: u32,
    /// Prompts were text, through the model's chat template; else tokens.
    pub chat_template: bool,
    /// The profile checked.
    pub profile: Option<i64>,
    /// What several clients got, where that was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientsRow>,
    /// What speculation was worth, where that was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub speculation: Vec<SpeculationRow>,
}

impl LiveDocument {
    /// `prompts of 1,496 tokens, answers of 128, through the chat template`.
    pub fn requests(&self) -> String {
        let (prompt, answer) = (self.prompt_tokens.into(), self.generated_tokens.into());
        let how = if self.chat_template {
            "through the chat template"
        } else {
            "as plain tokens"
        };
        let (prompt, answer) = (text::grouped(prompt), text::grouped(answer));
        format!("prompts of {prompt} tokens, new each time, and answers of {answer}, {how}")
    }
}

/// What `flux ab --json` prints, and `flux serve-check --json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AbDocument {
    /// [`super::SCHEMA`].
    pub schema: u32,
    /// The stored session.
    pub session: Option<i64>,
    /// Hash of the machine's and arm A's build's fingerprint.
    pub fingerprint: String,
    /// Model.
    pub model: ModelDocument,
    /// Goal.
    pub goal: Option<Goal>,
    /// Label of the goal's metric.
    pub primary: String,
    /// Arm A.
    pub a: ArmDocument,
    /// Arm B.
    pub b: ArmDocument,
    /// The comparison.
    pub confirmation: Option<ConfirmationDocument>,
    /// Verdict.
    pub verdict: Option<Verdict>,
    /// Why, in one sentence.
    pub reason: String,
    /// What the benchmark of a plan chose: the settings to use from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Settings>,
    /// What was asked of live servers, where it was measured through them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveDocument>,
    /// Notices.
    pub notices: Vec<Notice>,
    /// Where the time went.
    pub overhead: Option<Overhead>,
}

impl AbDocument {
    /// What several clients got, where that was measured.
    pub fn clients(&self) -> &[ClientsRow] {
        self.live.as_ref().map_or(&[], |live| &live.clients)
    }

    /// What speculation was worth, where that was measured.
    pub fn speculation(&self) -> &[SpeculationRow] {
        self.live.as_ref().map_or(&[], |live| &live.speculation)
    }

    /// The same as a table.
    pub fn speculation_lines(&self) -> Vec<[String; 6]> {
        let cells = |row| text::speculation_cells(row, &self.primary);
        self.speculation().iter().map(cells).collect()
    }

    /// The goal's comparison.
    pub fn comparison(&self) -> Option<&Comparison> {
        self.confirmation.as_ref()?.primary(&self.primary)
    }

    /// The result in one sentence: `ubatch=1024 against stock: +3.1 % (95 % CI +2.8 to +3.4), 8 + 8 runs`.
    pub fn sentence(&self) -> String {
        if let [first, .., last] | [first @ last] = self.clients() {
            let of = |row: &ClientsRow| (row.total.mean, row.total.cv_pct);
            let few = text::count(first.clients.into(), "client");
            let [a, b] = text::pair([of(first), of(last)], true);
            let many = last.clients;
            let words = format!("{}: {a} t/s in all with {few}, {b} with {many}", self.b.arm);
            return text::clean(&words);
        }
        if !self.speculation().is_empty() {
            return text::clean(&self.reason);
        }
        let subject = format!("{} against {}", self.b.arm, self.baseline());
        match self.comparison() {
            Some(comparison) => text::verdict_sentence(&subject, comparison),
            None => text::clean(&format!("{subject}: not compared")),
        }
    }

    /// What the judged settings were compared with: of several comparisons the last one's.
    fn baseline(&self) -> String {
        let judged = self.confirmation.as_ref().map(|c| &c.baseline);
        match judged.filter(|baseline| **baseline != self.a.settings) {
            Some(baseline) => text::settings_phrase(baseline),
            None => self.a.arm.clone(),
        }
    }

    /// What stands under the sentence: verdict and reason.
    pub fn judgement(&self) -> String {
        let judged = || text::judged(self.verdict, &self.reason, None);
        match &self.live {
            None => judged(),
            Some(live) if !live.clients.is_empty() || !live.speculation.is_empty() => {
                text::capitalised(&live.requests())
            }
            Some(live) => format!("{} · {}", judged(), live.requests()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_with_fields_missing_are_read() {
        let stored =
            r#"{"session": 5, "verdict": "unchanged", "candidates": [{"id": 1}], "new_field": 1}"#;
        let document: TuneDocument = serde_json::from_str(stored).unwrap();
        assert_eq!(document.session, Some(5));
        assert_eq!(document.candidates[0].change_pct, None);
        assert!(!document.saveable);
        assert_eq!(
            document.sentence(),
            "Nothing beat stock in screening: stock stays"
        );
        assert_eq!(document.judgement(), "Unchanged · no profile saved");
        let document: AbDocument = serde_json::from_str(r#"{"a": {"arm": "stock"}}"#).unwrap();
        assert_eq!(document.overhead, None);
    }

    #[test]
    fn an_arm_is_shown_harmlessly_and_compared_by_the_goals_metric() {
        let comparison = text::graphics_queue();
        let document = AbDocument {
            primary: "tg128".to_owned(),
            a: ArmDocument {
                arm: "stock".to_owned(),
                ..ArmDocument::default()
            },
            b: ArmDocument {
                arm: "ubatch=1024\u{1b}".to_owned(),
                ..ArmDocument::default()
            },
            confirmation: Some(ConfirmationDocument {
                metrics: BTreeMap::from([("tg128".to_owned(), comparison)]),
                ..ConfirmationDocument::default()
            }),
            ..AbDocument::default()
        };
        assert_eq!(
            document.sentence(),
            "ubatch=1024\\u{1b} against stock: +68.3 % (95 % CI +67.9 to +68.8), 8 + 8 runs"
        );
    }

    /// A benchmark of placements said `against stock` where its last comparison was with llama.cpp's own fitting.
    #[test]
    fn the_sentence_names_what_the_numbers_are_against() {
        let fitting = Settings::stock().with("placement", "fit=1024");
        let arm = |arm: &str| ArmDocument {
            arm: arm.to_owned(),
            ..ArmDocument::default()
        };
        let document = AbDocument {
            primary: "tg128".to_owned(),
            a: arm("stock"),
            b: arm("placement ngl=9 ub=512"),
            confirmation: Some(ConfirmationDocument {
                baseline: fitting,
                metrics: BTreeMap::from([("tg128".to_owned(), text::graphics_queue())]),
                ..ConfirmationDocument::default()
            }),
            ..AbDocument::default()
        };
        assert_eq!(
            document.sentence(),
            "placement ngl=9 ub=512 against llama.cpp's own fitting (1024 MiB left free): +68.3 % (95 % CI +67.9 to +68.8), 8 + 8 runs"
        );
    }
}
