//! A captured machine's answers, which replay in place of the library.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::domain::types::PciAddress;

use super::Answers;
use super::question::{Question, Refusal};

/// The file of a captured machine that holds them.
const FILE: &str = "nvml.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Answer {
    Told(u64),
    Refused(Refusal),
}

/// Answers of every GPU by its address. What was not asked then is not supported now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Recorded(BTreeMap<String, BTreeMap<Question, Answer>>);

impl Recorded {
    /// Asks everything once.
    pub fn of(answers: &dyn Answers) -> Self {
        let ask = |gpu: usize, question| match answers.ask(gpu, question) {
            Ok(raw) => (question, Answer::Told(raw)),
            Err(refusal) => (question, Answer::Refused(refusal)),
        };
        let of_gpu = |(gpu, address): (usize, PciAddress)| {
            let told = Question::ALL.into_iter().map(|q| ask(gpu, q)).collect();
            (address.to_string(), told)
        };
        Self(answers.gpus().into_iter().enumerate().map(of_gpu).collect())
    }

    /// Writes them down into the folder of a captured machine.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, dir: &Path) -> std::io::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(dir.join(FILE), text)
    }

    /// Those in the folder of a captured machine; `None` where there are none.
    pub fn load(dir: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(dir.join(FILE)).ok()?;
        let parsed = serde_json::from_str(&text);
        parsed
            .inspect_err(|e| tracing::warn!("{FILE} cannot be read: {e}: {}", dir.display()))
            .ok()
    }

    /// Changes one answer; `None` takes it away.
    pub fn set(&mut self, address: &str, question: Question, answer: Option<Result<u64, Refusal>>) {
        let of_gpu = self.0.entry(address.to_owned()).or_default();
        match answer {
            Some(Ok(raw)) => of_gpu.insert(question, Answer::Told(raw)),
            Some(Err(refusal)) => of_gpu.insert(question, Answer::Refused(refusal)),
            None => of_gpu.remove(&question),
        };
    }
}

impl Answers for Recorded {
    fn gpus(&self) -> Vec<PciAddress> {
        self.0.keys().filter_map(|key| key.parse().ok()).collect()
    }

    fn ask(&self, gpu: usize, question: Question) -> Result<u64, Refusal> {
        let of_gpu = self.0.values().nth(gpu).ok_or(Refusal::Lost)?;
        match of_gpu.get(&question) {
            Some(Answer::Told(raw)) => Ok(*raw),
            Some(Answer::Refused(refusal)) => Err(refusal.clone()),
            None => Err(Refusal::NotSupported),
        }
    }
}
