//! The evidence of a session put in order: what was asked, what came of it, and the runs behind each judgement.

use std::collections::BTreeSet;

use serde::Deserialize as _;
use serde_json::Value;

use crate::domain::search::{Confirmation, Objective, Refusal, Rejection};
use crate::domain::text::{count, quantity, verdict_title};
use crate::domain::types::{RunOutcome, Settings, Stage};
use crate::engine::evidence::Evidence;
use crate::engine::lab::LabDocument;
use crate::engine::report::{
    AbDocument, ConfirmationDocument, TuneDocument, confirmation_document,
};
use crate::ports::{SessionKind, SessionState, StoredRun};

/// A session and what is known of it.
#[derive(Debug)]
pub struct Story<'a> {
    /// All of it.
    pub evidence: &'a Evidence,
    /// Its result, where it came to one.
    pub result: Outcome,
    /// Judged confirmations in order.
    pub confirmations: Vec<ConfirmationDocument>,
    /// What the goal is judged by; unknown where an older Flux stored the session.
    objective: Option<Objective>,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A search that came to a result.
    Tuned(Box<TuneDocument>),
    /// A comparison that came to a result.
    Compared(Box<AbDocument>),
    /// A kernel lab.
    Lab(Box<LabDocument>),
    /// It failed: headline, and what to do next.
    Failed(String, Option<String>),
    /// Cancelled.
    Cancelled,
    /// Going on, or killed.
    Open,
}

impl<'a> Story<'a> {
    /// From the store's evidence.
    pub fn of(evidence: &'a Evidence) -> Self {
        let result = outcome(evidence);
        let confirmations = match &result {
            Outcome::Tuned(document) => document.confirmations.clone(),
            // A plan's benchmark is confirmed more than once; its document holds the last.
            Outcome::Compared(document) if evidence.session.begun.kind != SessionKind::Plan => {
                document.confirmation.clone().into_iter().collect()
            }
            _ => stored_confirmations(evidence),
        };
        let config = &evidence.session.begun.config;
        Self {
            evidence,
            result,
            confirmations,
            objective: Objective::deserialize(&config["plan"]["objective"]).ok(),
        }
    }

    /// The result in one sentence.
    pub fn headline(&self) -> String {
        let runs = self.evidence.runs.len() as u64;
        match &self.result {
            Outcome::Tuned(document) => document.sentence(),
            Outcome::Compared(document) => document.sentence(),
            Outcome::Lab(document) => document.sentence(),
            Outcome::Failed(headline, _) => format!("Failed: {headline}"),
            Outcome::Cancelled => format!("Cancelled: no result, {} kept", count(runs, "run")),
            Outcome::Open => format!("Not finished: no result, {} kept", count(runs, "run")),
        }
    }

    /// Why the candidate judged last was not saved although it may be faster.
    pub fn rejection(&self) -> Option<Rejection> {
        self.confirmations.last()?.rejected
    }

    /// A title: verdict and both means, where something was judged; else the sentence.
    pub fn title(&self) -> String {
        if let Some(rejection) = self.rejection() {
            return rejection.title().to_owned();
        }
        let judged = match &self.result {
            Outcome::Tuned(document) => document.comparison().zip(Some(&document.primary)),
            Outcome::Compared(document) => document.comparison().zip(Some(&document.primary)),
            _ => None,
        };
        judged.map_or_else(
            || self.headline(),
            |(comparison, label)| verdict_title(label, comparison),
        )
    }

    /// What stands under the sentence: the judgement, or what to do; empty where there is neither.
    pub fn judgement(&self) -> String {
        match &self.result {
            Outcome::Tuned(document) => document.judgement(),
            Outcome::Compared(document) => document.judgement(),
            Outcome::Failed(_, hint) => hint.clone().unwrap_or_default(),
            Outcome::Lab(_) | Outcome::Cancelled | Outcome::Open => String::new(),
        }
    }

    /// What a kernel lab found, however it ended.
    pub fn lab(&self) -> Option<LabDocument> {
        let session = &self.evidence.session;
        let end = session.end.as_ref()?;
        let is_lab = session.begun.kind == SessionKind::Lab;
        is_lab
            .then(|| LabDocument::deserialize(&end.result).ok())
            .flatten()
    }

    /// The search's result.
    pub fn tuned(&self) -> Option<&TuneDocument> {
        match &self.result {
            Outcome::Tuned(document) => Some(document),
            _ => None,
        }
    }

    /// Label of the goal's metric.
    pub fn primary(&self) -> String {
        let judged = self.confirmations.last().map(|c| c.primary.clone());
        let asked = || self.objective.as_ref().map(Objective::primary);
        judged.or_else(asked).unwrap_or_default()
    }

    /// Not tried, and why.
    pub fn refused(&self) -> Vec<Refusal> {
        let offered = || {
            let offer = &self.evidence.session.begun.config["plan"]["offer"];
            Vec::deserialize(&offer["refused"]).unwrap_or_default()
        };
        self.tuned()
            .map_or_else(offered, |document| document.refused.clone())
    }

    /// The baseline's settings: stock, unless stock did not run.
    pub fn baseline(&self) -> Settings {
        let judged = self.confirmations.last().map(|c| c.baseline.clone());
        let tuned = || Some(self.tuned()?.baseline.as_ref()?.settings.clone());
        judged.or_else(tuned).unwrap_or_default()
    }

    /// The winner's settings, saved or not.
    pub fn winner(&self) -> Option<&Settings> {
        self.tuned()?.winner()
    }

    /// Finalists of a search that were confirmed and did not win, in order.
    pub fn lost(&self) -> impl Iterator<Item = &ConfirmationDocument> {
        let searched = self.tuned().is_some();
        let winner = self.winner();
        let judged = self.confirmations.iter();
        judged.filter(move |c| searched && Some(&c.settings) != winner)
    }

    /// The run at this place of the session.
    pub fn run(&self, seq: u32) -> Option<&'a StoredRun> {
        self.evidence.runs.iter().find(|run| run.seq == seq)
    }

    /// The mean of a run in this metric, in the unit people read; `None` without samples of it.
    pub fn value(&self, run: &StoredRun, label: &str) -> Option<f64> {
        Some(quantity(label, self.rate(run, label)?).0)
    }

    /// As `value`, per second: higher is better.
    pub fn rate(&self, run: &StoredRun, label: &str) -> Option<f64> {
        let RunOutcome::Valid { tests } = &run.run.outcome else {
            return None;
        };
        if let Some(test) = tests.iter().find(|t| t.test.to_string() == label) {
            return Some(test.mean_rate());
        }
        let objective = self.objective.as_ref().filter(|o| o.primary() == label)?;
        let score = objective.run_score(tests);
        score.is_finite().then_some(score)
    }

    /// Runs of a confirmation that is not judged yet.
    pub fn open_confirmation(&self) -> Vec<&'a StoredRun> {
        // Kinds of speculation are judged row by row.
        if matches!(&self.result, Outcome::Compared(document) if !document.speculation().is_empty())
        {
            return Vec::new();
        }
        let judged: BTreeSet<u32> = self
            .confirmations
            .iter()
            .flat_map(|c| c.runs.iter().map(|r| r.seq))
            .collect();
        let counted = |run: &&StoredRun| {
            run.planned.stage == Stage::Confirmation
                && run.planned.side.is_some()
                && !judged.contains(&run.seq)
        };
        self.evidence.runs.iter().filter(counted).collect()
    }
}

fn outcome(evidence: &Evidence) -> Outcome {
    let Some(end) = &evidence.session.end else {
        return Outcome::Open;
    };
    let read = |key: &str| {
        end.result
            .get(key)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let failed = || {
        let headline = read("headline").unwrap_or_else(|| "the result cannot be read".to_owned());
        Outcome::Failed(headline, read("hint"))
    };
    match (end.state, evidence.session.begun.kind) {
        (SessionState::Done, SessionKind::Lab) => LabDocument::deserialize(&end.result)
            .map_or_else(|_| failed(), |document| Outcome::Lab(Box::new(document))),
        (SessionState::Cancelled, _) => Outcome::Cancelled,
        (SessionState::Failed, _) => failed(),
        (SessionState::Done, SessionKind::Tune) => TuneDocument::deserialize(&end.result)
            .map_or_else(|_| failed(), |document| Outcome::Tuned(Box::new(document))),
        (SessionState::Done, SessionKind::Ab | SessionKind::Plan | SessionKind::ServeCheck) => {
            AbDocument::deserialize(&end.result).map_or_else(
                |_| failed(),
                |document| Outcome::Compared(Box::new(document)),
            )
        }
    }
}

fn stored_confirmations(evidence: &Evidence) -> Vec<ConfirmationDocument> {
    let stored = evidence.verdicts.iter();
    stored
        .filter_map(|verdict| Confirmation::deserialize(&verdict.detail).ok())
        .map(|confirmation| confirmation_document(&confirmation))
        .collect()
}
