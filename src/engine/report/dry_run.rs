//! The document of `flux tune --dry-run`.

use serde::{Deserialize, Serialize};

use crate::domain::search::Refusal;
use crate::domain::text;
use crate::domain::types::{Goal, Launch, Settings};
use crate::ports::Notice;

use super::SCHEMA;

/// A value that would be tried.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DryCandidate {
    /// Settings.
    pub settings: Settings,
    /// What it does, in one line.
    pub description: String,
    /// Arguments and environment for llama-bench.
    #[serde(flatten)]
    pub launch: Launch,
}

/// What `flux tune --dry-run --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DryRun {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Hash of the machine's and the build's fingerprint.
    pub fingerprint: String,
    /// Name of the build.
    pub runtime: String,
    /// Name of the model.
    pub model: String,
    /// Goal.
    pub goal: Option<Goal>,
    /// Labels of the tests of each run.
    pub tests: Vec<String>,
    /// What every arm starts from.
    #[serde(skip_serializing_if = "Settings::is_stock")]
    pub start: Settings,
    /// Things worth saying before it begins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// What would be tried.
    pub candidates: Vec<DryCandidate>,
    /// What would not, and why.
    pub refused: Vec<Refusal>,
    /// About how many llama-bench processes.
    pub processes: Option<u32>,
    /// About how many seconds; `None` until a session of this machine and model tells.
    pub expected_secs: Option<f64>,
}

impl Default for DryRun {
    fn default() -> Self {
        Self {
            schema: SCHEMA,
            fingerprint: String::new(),
            runtime: String::new(),
            model: String::new(),
            goal: None,
            tests: Vec::new(),
            start: Settings::stock(),
            notices: Vec::new(),
            candidates: Vec::new(),
            refused: Vec::new(),
            processes: None,
            expected_secs: None,
        }
    }
}

impl DryRun {
    /// `6 candidates, about 40 llama-bench processes, about 25 min`.
    pub fn summary(&self) -> String {
        let mut parts = vec![text::count(self.candidates.len() as u64, "candidate")];
        if let Some(processes) = self.processes {
            parts.push(format!("about {processes} llama-bench processes"));
        }
        match self.expected_secs {
            Some(secs) => parts.push(format!("about {}", text::span(secs))),
            None => parts.push("time unknown until the baseline has run".to_owned()),
        }
        parts.join(", ")
    }
}
