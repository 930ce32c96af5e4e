//! What is drawn of a session, made once per session and off the thread that draws.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::search::{MemoryUse, Rejection};
use crate::domain::text::{arm_words, capitalised, clean, quantity, settings_phrase, span};
use crate::domain::types::{Fingerprint, Goal, RunOutcome, TestSamples, Timestamp, Verdict};
use crate::engine::Ports;
use crate::engine::evidence::{Evidence, without_raw};
use crate::engine::message::JobError;
use crate::engine::profiles::server_command;
use crate::engine::resume::can_resume;
use crate::ports::{Notice, SessionKind, StoredRun};
use crate::report::figures::{ConfirmationFigures, ScreeningFigure, StripFigure};
use crate::report::findings::{Check, LiveLine, NotTried, Rejected, Setting};
use crate::report::lab::LabFigures;
use crate::report::{Outcome, Rows, Story, figures, findings, place, placements};
use crate::ui::pages::lab;

/// A session as its page shows it.
#[derive(Debug)]
pub struct SessionView {
    /// Tells its charts from those of every other view.
    pub(super) version: u64,
    /// The session.
    pub id: i64,
    /// Kind.
    pub kind: SessionKind,
    /// When it began.
    pub started_at: Timestamp,
    /// Goal.
    pub goal: Goal,
    /// Model file.
    pub model_path: PathBuf,
    /// The verdict and both means.
    pub title: String,
    /// The result in one sentence.
    pub headline: String,
    /// What stands under it.
    pub judgement: String,
    /// A verdict, where there is one.
    pub verdict: Option<Verdict>,
    /// Why what may be faster is not saved.
    pub(super) rejection: Option<Rejection>,
    /// What is wrong with the output of what is faster.
    pub(super) unfit: Option<String>,
    /// How it ended.
    pub(super) ending: Ending,
    /// It may still get a result.
    pub can_resume: bool,
    /// Sensors were read while it was measured.
    pub has_telemetry: bool,
    /// It has a winner that is not saved.
    pub saveable: bool,
    /// Its profile, and the command that serves the model with it.
    pub profile: Option<(i64, String)>,
    /// Confirmations, the one the verdict is of first.
    pub(super) confirmations: Vec<ConfirmationFigures>,
    /// A confirmation that is not judged.
    pub(super) open: Option<StripFigure>,
    /// Screening.
    pub(super) screening: Option<ScreeningFigure>,
    /// What a kernel lab found.
    pub(super) lab: Option<lab::View>,
    /// Why each setting is there.
    pub(super) settings: Vec<Setting>,
    /// What was checked.
    pub(super) checks: Vec<Check>,
    /// Placements as predicted and as measured, and how far apart these are.
    pub(super) placements: (Vec<[String; 6]>, String),
    /// Every metric through live servers.
    pub(super) live: Vec<LiveLine>,
    /// What several clients got.
    pub(super) clients: Vec<[String; 6]>,
    /// What speculation was worth.
    pub(super) speculation: Vec<(Option<Verdict>, [String; 6])>,
    /// Device memory of the winner against its limit.
    pub(super) memory: Vec<MemoryUse>,
    /// What was not saved.
    pub(super) rejected: Vec<Rejected>,
    /// What was not tried.
    pub(super) not_tried: NotTried,
    /// Notices.
    pub(super) notices: Vec<Notice>,
    /// Labels of all tests.
    pub(super) tests: Vec<String>,
    /// Every run.
    pub(super) runs: Vec<RunRow>,
    /// Machine, build and model.
    pub(super) place: [(&'static str, Rows); 3],
    /// What the results are keyed to.
    pub(super) fingerprint: Fingerprint,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// With a result.
    Done,
    /// Failed: the headline says how.
    Failed,
    /// Cancelled.
    Cancelled,
    /// Going on, or killed.
    Open,
}

/// One run of the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunRow {
    /// Row id.
    pub id: i64,
    /// From 1.
    pub number: u32,
    /// Arm and settings.
    pub arm: String,
    /// Stage.
    pub stage: &'static str,
    /// Mean per test, in the order of the view's tests; empty without samples.
    pub values: Vec<String>,
    /// Wall time.
    pub took: String,
    /// How it ended, in a word or two.
    pub state: String,
    /// It has samples.
    pub valid: bool,
    /// Mean and every repetition, or why there are none.
    pub lines: Vec<String>,
}

impl SessionView {
    /// Reads a session and makes its view.
    ///
    /// # Errors
    /// There is no such session; the store cannot be read.
    pub fn load(id: i64, ports: &Ports) -> Result<Self, JobError> {
        Ok(Self {
            has_telemetry: ports.store.telemetry_span(id)?.is_some(),
            ..Self::of(&without_raw(id, ports)?)
        })
    }

    /// The view of this evidence.
    pub fn of(evidence: &Evidence) -> Self {
        static VERSION: AtomicU64 = AtomicU64::new(1);
        let story = Story::of(evidence);
        let begun = &evidence.session.begun;
        let tests = tests(evidence);
        let rows = evidence.runs.iter().map(|run| row(run, &tests));
        let judged = story.confirmations.iter().rev();
        let last = story.confirmations.last();
        Self {
            version: VERSION.fetch_add(1, Ordering::Relaxed),
            id: evidence.session.id,
            kind: begun.kind,
            started_at: begun.started_at,
            goal: begun.goal,
            model_path: begun.model.path.clone(),
            title: clean(&story.title()),
            headline: clean(&story.headline()),
            judgement: capitalised(&clean(&story.judgement())),
            verdict: evidence.session.end.as_ref().and_then(|end| end.verdict),
            rejection: story.rejection(),
            unfit: story
                .tuned()
                .and_then(|document| document.output.as_ref())
                .filter(|output| !output.passes())
                .map(|output| capitalised(&clean(&output.sentence()))),
            ending: match &story.result {
                Outcome::Tuned(_) | Outcome::Compared(_) | Outcome::Lab(_) => Ending::Done,
                Outcome::Failed(..) => Ending::Failed,
                Outcome::Cancelled => Ending::Cancelled,
                Outcome::Open => Ending::Open,
            },
            can_resume: can_resume(&evidence.session),
            has_telemetry: false,
            saveable: story.tuned().is_some_and(|document| document.saveable),
            profile: evidence
                .profiles
                .first()
                .map(|profile| (profile.id, server_command(begun, profile))),
            confirmations: judged.map(|c| figures::confirmation(&story, c)).collect(),
            open: figures::not_judged(&story),
            screening: figures::screening(&story),
            lab: story
                .lab()
                .map(|found| lab::View::of(LabFigures::of(&found), &begun.model.name)),
            settings: findings::settings(&story),
            checks: findings::checks(&story),
            placements: placements::rows(&evidence.placements),
            live: findings::live(&story),
            clients: findings::clients(&story),
            speculation: findings::speculation(&story),
            memory: last.map_or_else(Vec::new, |c| c.memory.clone()),
            rejected: findings::rejected(&story),
            not_tried: findings::not_tried(&story.refused()),
            notices: evidence.notices.clone(),
            runs: rows.collect(),
            tests,
            place: place(begun),
            fingerprint: begun.fingerprint.clone(),
        }
    }

    /// What stands under the title: the sentence, where the title is another, and the judgement.
    pub fn under(&self) -> String {
        let sentence = (self.title != self.headline).then_some(self.headline.as_str());
        // The title has said the verdict's word.
        let word = self
            .verdict
            .map(|verdict| format!("{} · ", capitalised(&verdict.to_string())));
        let said = word.filter(|_| sentence.is_some());
        let judgement = said.and_then(|word| self.judgement.strip_prefix(word.as_str()));
        let judgement =
            Some(judgement.unwrap_or(&self.judgement)).filter(|words| !words.is_empty());
        let parts: Vec<&str> = [sentence, judgement].into_iter().flatten().collect();
        parts.join(" · ")
    }

    /// There is something to stand beside the figures.
    pub(super) fn has_findings(&self) -> bool {
        !(self.settings.is_empty()
            && self.checks.is_empty()
            && self.rejected.is_empty()
            && self.not_tried == NotTried::default()
            && self.notices.is_empty())
    }
}

/// Labels of every test of the session, in the order of their first run.
fn tests(evidence: &Evidence) -> Vec<String> {
    let mut labels = Vec::new();
    for run in &evidence.runs {
        if let RunOutcome::Valid { tests } = &run.run.outcome {
            for test in tests {
                let label = test.test.to_string();
                if !labels.contains(&label) {
                    labels.push(label);
                }
            }
        }
    }
    labels
}

fn row(run: &StoredRun, tests: &[String]) -> RunRow {
    let planned = &run.planned;
    let arm = match planned.side {
        Some(side) => format!("{side:?} {}", settings_phrase(&planned.settings)),
        None => arm_words(planned),
    };
    let (state, valid) = match &run.run.outcome {
        RunOutcome::Valid { .. } => ("valid".to_owned(), true),
        RunOutcome::StoppedEarly { .. } => ("stopped early".to_owned(), false),
        RunOutcome::Failed { failure, .. } => (failure.class.words().to_owned(), false),
        RunOutcome::Cancelled => ("cancelled".to_owned(), false),
    };
    let values = match &run.run.outcome {
        RunOutcome::Valid { tests: measured } => tests
            .iter()
            .map(|label| {
                let found = measured.iter().find(|t| t.test.to_string() == *label);
                found.map_or_else(String::new, mean)
            })
            .collect(),
        _ => vec![String::new(); tests.len()],
    };
    RunRow {
        id: run.id,
        number: run.seq + 1,
        arm,
        stage: planned.stage.words(),
        values,
        took: span(run.run.wall_secs),
        state,
        valid,
        lines: findings::run_lines(&run.run)
            .iter()
            .map(|line| clean(line))
            .collect(),
    }
}

/// As precise as every chart shows it.
fn mean(test: &TestSamples) -> String {
    let value = quantity(&test.test.to_string(), test.mean_rate()).0;
    if value >= 1000.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}
