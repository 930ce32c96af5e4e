//! Two sessions, or two runs, held against each other. They did not take turns, so this is a difference, never a verdict.

use std::collections::BTreeSet;

use crate::domain::fingerprint::diff;
use crate::domain::search::Confirmation;
use crate::domain::stats::compare;
use crate::domain::text::settings_words;
use crate::domain::types::{
    Comparison, FieldChange, RunOutcome, Settings, Side, Stage, TestSamples, TestSpec, Timestamp,
};
use crate::ports::{RunHead, Session, StoredVerdict};

use super::Ports;
use super::message::JobError;
use super::tune::no_session;
use serde::Deserialize as _;

/// What of a session is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// What was judged last.
    Candidate,
    /// What that was judged against.
    Baseline,
    /// One run, by its place from 0.
    Run(u32),
}

/// One side of a difference.
#[derive(Debug, Clone, PartialEq)]
pub struct Picked {
    /// The session.
    pub session: i64,
    /// When it began.
    pub started_at: Timestamp,
    /// Model, build and goal.
    pub model: String,
    /// Name of its build.
    pub runtime: String,
    /// What was taken.
    pub pick: Pick,
    /// What could be taken, in words.
    pub picks: Vec<(Pick, String)>,
    /// The settings of what was taken.
    pub settings: Settings,
}

/// A setting that differs; `None` is stock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingChange {
    /// The dimension.
    pub dimension: String,
    /// First and second value.
    pub values: [Option<String>; 2],
}

/// Two of them compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The sides.
    pub sides: [Picked; 2],
    /// Both are arms of one interleaved confirmation, whose verdict is the better word.
    pub interleaved: bool,
    /// The models differ by their digests.
    pub other_model: bool,
    /// Settings that differ.
    pub settings: Vec<SettingChange>,
    /// Readings of machine and build that differ.
    pub fields: Vec<FieldChange>,
    /// The tests that both sides have, by label; the change is of the second side against the first.
    pub metrics: Vec<(String, Comparison)>,
}

/// A side as it is read.
struct Read {
    session: Session,
    runs: Vec<RunHead>,
    judged: Option<Confirmation>,
}

/// Compares two picks, the first as the baseline. A pick that its session does not have falls back to what it has.
///
/// # Errors
/// There is no such session; the store cannot be read.
pub fn difference(picks: [(i64, Pick); 2], ports: &Ports) -> Result<Difference, JobError> {
    let [first, second] = picks;
    let a = Read::of(first.0, ports)?;
    let b = Read::of(second.0, ports)?;
    let (pick_a, runs_a) = a.taken(first.1);
    let (pick_b, runs_b) = b.taken(second.1);
    let sides = [a.picked(pick_a, &runs_a), b.picked(pick_b, &runs_b)];
    let is_arm = |pick| matches!(pick, Pick::Candidate | Pick::Baseline);
    Ok(Difference {
        interleaved: a.session.id == b.session.id
            && a.judged.is_some()
            && is_arm(pick_a)
            && is_arm(pick_b)
            && pick_a != pick_b,
        other_model: a.session.begun.model.digest != b.session.begun.model.digest,
        settings: settings_changes(&sides[0].settings, &sides[1].settings),
        fields: diff(&a.session.begun.fingerprint, &b.session.begun.fingerprint),
        metrics: metrics(&runs_a, &runs_b),
        sides,
    })
}

fn metrics(a: &[&RunHead], b: &[&RunHead]) -> Vec<(String, Comparison)> {
    let both: BTreeSet<TestSpec> = tests(a).intersection(&tests(b)).copied().collect();
    let each = both.into_iter().map(|test| {
        let (a, b) = (means(a, test), means(b, test));
        (test.to_string(), compare(&a, &b))
    });
    each.collect()
}

fn tests(runs: &[&RunHead]) -> BTreeSet<TestSpec> {
    let valid = runs.iter().filter_map(|run| match &run.outcome {
        RunOutcome::Valid { tests } => Some(tests.iter().map(|t| t.test)),
        _ => None,
    });
    valid.flatten().collect()
}

fn means(runs: &[&RunHead], test: TestSpec) -> Vec<f64> {
    let mean = |run: &&RunHead| match &run.outcome {
        RunOutcome::Valid { tests } => tests
            .iter()
            .find(|t| t.test == test)
            .map(TestSamples::mean_rate),
        _ => None,
    };
    runs.iter().filter_map(mean).collect()
}

fn settings_changes(a: &Settings, b: &Settings) -> Vec<SettingChange> {
    let dimensions: BTreeSet<&String> = a.0.keys().chain(b.0.keys()).collect();
    let change = |dimension: &String| SettingChange {
        dimension: dimension.clone(),
        values: [a, b].map(|settings| settings.0.get(dimension).cloned()),
    };
    let changes = dimensions.into_iter().map(change);
    changes.filter(|c| c.values[0] != c.values[1]).collect()
}

impl Read {
    fn of(id: i64, ports: &Ports) -> Result<Self, JobError> {
        let session = ports.store.session(id)?.ok_or_else(|| no_session(id))?;
        let read = |verdict: &StoredVerdict| Confirmation::deserialize(&verdict.detail).ok();
        Ok(Self {
            session,
            runs: ports.store.run_heads(id)?,
            judged: ports.store.verdicts(id)?.last().and_then(read),
        })
    }

    /// The runs of a pick, or of what there is instead of it.
    fn taken(&self, pick: Pick) -> (Pick, Vec<&RunHead>) {
        match (pick, &self.judged) {
            (Pick::Run(seq), _) => (pick, self.runs.iter().filter(|r| r.seq == seq).collect()),
            (Pick::Candidate, Some(judged)) => (pick, self.arm(judged, Side::B)),
            (Pick::Baseline, Some(judged)) => (pick, self.arm(judged, Side::A)),
            (_, None) => {
                let of_stage = |r: &&RunHead| r.planned.stage == Stage::Baseline;
                (Pick::Baseline, self.runs.iter().filter(of_stage).collect())
            }
        }
    }

    fn arm(&self, judged: &Confirmation, side: Side) -> Vec<&RunHead> {
        let of_arm = |run: &&RunHead| {
            let mut counted = judged.runs.iter();
            counted.any(|c| c.seq == run.seq && c.side == side)
        };
        self.runs.iter().filter(of_arm).collect()
    }

    fn picked(&self, pick: Pick, runs: &[&RunHead]) -> Picked {
        let begun = &self.session.begun;
        let measured = runs.first().map(|run| run.planned.settings.clone());
        let settings = match (pick, &self.judged) {
            (Pick::Candidate, Some(judged)) => judged.settings.clone(),
            (Pick::Baseline, Some(judged)) => judged.baseline.clone(),
            _ => measured.unwrap_or_default(),
        };
        Picked {
            session: self.session.id,
            started_at: begun.started_at,
            model: begun.model.name.clone(),
            runtime: begun.runtime.name.clone(),
            pick,
            picks: self.picks(),
            settings,
        }
    }

    fn picks(&self) -> Vec<(Pick, String)> {
        let mut picks = Vec::new();
        if let Some(judged) = &self.judged {
            let words = settings_words(&judged.settings);
            picks.push((Pick::Candidate, format!("Candidate: {words}")));
            let words = settings_words(&judged.baseline);
            picks.push((Pick::Baseline, format!("Baseline: {words}")));
        } else if self.runs.iter().any(|r| r.planned.stage == Stage::Baseline) {
            picks.push((Pick::Baseline, "Baseline".to_owned()));
        }
        picks.extend(self.runs.iter().map(|run| {
            let words = settings_words(&run.planned.settings);
            (Pick::Run(run.seq), format!("Run {}: {words}", run.seq + 1))
        }));
        picks
    }
}
