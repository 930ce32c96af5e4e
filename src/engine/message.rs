//! The protocol between the engine and its readers (app and command line): commands in, events out.
//!
//! Invariants, each a test: `seq` rises by one per job; exactly one `Finished` per job and nothing after it;
//! a cancel always ends in `Finished`; a sample is in the store before it is announced.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::types::{Backend, Bytes, Goal, PlannedRun, RequestShape, Settings, Timestamp};
use crate::ports::{Notice, PortError, SynthRequest};

use super::bandwidth::BandwidthAsked;
use super::lab::LabAsked;
use super::plan::PlanRequest;
use super::run::RunRequest;
use super::serve_check::ServeCheckRequest;

/// A job's number, never used twice in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

/// What `flux tune` is asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneRequest {
    /// Model file.
    pub model: PathBuf,
    /// Runtime name or folder; `None` takes the best known.
    pub runtime: Option<String>,
    /// Device name of the runtime (`Vulkan0`) or PCI address; `None` takes the runtime's default.
    pub device: Option<String>,
    /// Goal.
    pub goal: Goal,
    /// The request of the request goal.
    pub request_shape: RequestShape,
    /// Reduced-precision caches may be tried.
    pub allow_kv_quant: bool,
    /// Repetitions in a process, instead of the planned number.
    pub repetitions: Option<u32>,
    /// Processes per arm in the confirmation, instead of the planned number.
    pub processes: Option<u32>,
    /// llama-bench processes of the whole session, instead of the method's most.
    #[serde(default)]
    pub max_processes: Option<u32>,
    /// Seconds of measuring after which no further candidate is started.
    pub time_limit_secs: Option<f64>,
    /// Only these dimensions.
    pub only: Vec<String>,
    /// What every arm starts from: `stock`, or a placement in words; `None` takes what `flux plan --bench` chose here.
    #[serde(default)]
    pub placement: Option<String>,
    /// Prompt lengths, generated tokens and depths other than the default workload.
    pub prompt_tokens: Option<u32>,
    /// Tokens generated in the generation test.
    pub generated_tokens: Option<u32>,
    /// Context depth of all tests.
    pub depth: u32,
    /// Device memory a winner must leave free, instead of `domain::settings::VRAM_RESERVE`.
    #[serde(default)]
    pub memory_reserve: Option<Bytes>,
    /// A session to go on with; its own settings then win over those above.
    pub resume: Option<i64>,
    /// Store the winner as a profile; without it the result says that it can be, see [`super::tune::save_profile`].
    /// Also counts when a session is gone on with.
    #[serde(default = "yes")]
    pub save: bool,
}

impl TuneRequest {
    /// A search of everything on `model` for the generation goal, with what the machine would use by itself.
    pub fn new(model: PathBuf) -> Self {
        Self {
            model,
            runtime: None,
            device: None,
            goal: Goal::Generation,
            request_shape: RequestShape::default(),
            allow_kv_quant: false,
            repetitions: None,
            processes: None,
            max_processes: None,
            time_limit_secs: None,
            only: Vec::new(),
            placement: None,
            prompt_tokens: None,
            generated_tokens: None,
            depth: 0,
            memory_reserve: None,
            resume: None,
            save: true,
        }
    }
}

const fn yes() -> bool {
    true
}

/// What `flux ab` is asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AbRequest {
    /// Model file.
    pub model: PathBuf,
    /// Arm A: settings (`flash-attn=on ubatch=1024`), `stock`, or a runtime's name or folder.
    pub a: String,
    /// Arm B, likewise.
    pub b: String,
    /// Runtime for arms that name none.
    pub runtime: Option<String>,
    /// Device.
    pub device: Option<String>,
    /// Goal whose metric is the primary one.
    pub goal: Goal,
    /// Repetitions in a process.
    pub repetitions: Option<u32>,
    /// Processes per arm.
    pub processes: Option<u32>,
    /// Prompt tokens.
    pub prompt_tokens: Option<u32>,
    /// Generated tokens.
    pub generated_tokens: Option<u32>,
    /// Context depth.
    pub depth: u32,
}

/// What the engine can be asked to do in the background.
#[derive(Debug, Clone)]
pub enum Command {
    /// Search and confirm.
    Tune(TuneRequest),
    /// Compare two arms.
    Ab(AbRequest),
    /// Measure and confirm placements.
    Plan(Box<PlanRequest>),
    /// Measure what the machine's memories deliver.
    Bandwidth(BandwidthAsked),
    /// Measure what a card can do by itself.
    Lab(LabAsked),
    /// Install a llama.cpp build.
    Install(Backend),
    /// Write a random-weight model.
    Synth(SynthRequest),
    /// Run llama-server with the stored profile until it is cancelled or ends.
    Serve(RunRequest),
    /// Compare two arms through live servers, or see what several clients get.
    ServeCheck(ServeCheckRequest),
}

/// How a job loads the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupies {
    /// Hardly.
    Nothing,
    /// It measures, by llama-bench or itself: one such job at a time, and nothing beside it.
    Measuring,
    /// It runs llama-server.
    Serving,
}

impl Command {
    /// The kind its job says it is when it begins.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Tune(_) => "tune",
            Self::Ab(_) => "ab",
            Self::Plan(_) => "plan",
            Self::Bandwidth(_) => "bandwidth",
            Self::Lab(_) => "lab",
            Self::Install(_) => "install",
            Self::Synth(_) => "synth",
            Self::Serve(_) => "serve",
            Self::ServeCheck(_) => "serve-check",
        }
    }

    /// How it loads the machine.
    pub const fn occupies(&self) -> Occupies {
        match self {
            Self::Tune(_)
            | Self::Ab(_)
            | Self::Plan(_)
            | Self::Bandwidth(_)
            | Self::Lab(_)
            | Self::ServeCheck(_) => Occupies::Measuring,
            Self::Serve(_) => Occupies::Serving,
            Self::Install(_) | Self::Synth(_) => Occupies::Nothing,
        }
    }
}

/// A stage of a job, for determinate progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageInfo {
    /// Name in words.
    pub name: String,
    /// Runs expected in it.
    pub runs: u32,
}

/// What happened, in a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The job.
    pub job: JobId,
    /// Rises by one.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
}

/// One candidate as the ranking shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateResult {
    /// Candidate id, from 1; 0 is stock.
    pub id: u32,
    /// Settings.
    pub settings: Settings,
    /// Mean rate per test label.
    pub metrics: BTreeMap<String, f64>,
    /// `ok`, `failed`, `stopped-early`, …
    pub status: String,
    /// Why, where there is a reason to give.
    pub reason: Option<String>,
    /// Change of the goal's metric against the baseline, percent.
    pub change_pct: Option<f64>,
}

/// Kinds of event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// The job began.
    Started {
        /// What kind of job.
        job_kind: String,
        /// The stored session, where the job has one.
        session: Option<i64>,
        /// That session was begun before, and goes on.
        #[serde(default)]
        goes_on: bool,
        /// Its stages.
        plan: Vec<StageInfo>,
        /// Name of the goal's metric: a test's label, or `request`. `None` for a job that measures nothing.
        primary: Option<String>,
    },
    /// A stage began.
    Stage {
        /// Name in words.
        name: String,
    },
    /// Where the job is. Latest wins; may be dropped.
    Progress {
        /// Runs (or bytes) done.
        done: u64,
        /// Runs (or bytes) expected.
        total: u64,
        /// Seconds left, where known.
        eta_secs: Option<f64>,
        /// What is going on, in a few words.
        doing: String,
    },
    /// A run was stored.
    RunStored {
        /// Row id.
        run: i64,
        /// Place in the session.
        seq: u32,
        /// What was asked.
        planned: Box<PlannedRun>,
        /// Mean rate per test label; empty for a run without samples.
        metrics: BTreeMap<String, f64>,
        /// The goal's metric of every repetition.
        scores: Vec<f64>,
        /// Tokens per joule of every test, in words, where a sensor told.
        energy: Vec<String>,
        /// Why there are no samples.
        failure: Option<String>,
        /// Seconds it took.
        wall_secs: f64,
    },
    /// Told again, in order, when a session goes on: what happened before it was broken off.
    Earlier(Box<EventKind>),
    /// A candidate was judged in screening.
    Screened(CandidateResult),
    /// The smallest effect the planned confirmation can see, percent, and its size.
    ConfirmationPlanned {
        /// Settings of the finalist.
        settings: Settings,
        /// Processes per arm.
        processes: u32,
        /// Repetitions in each.
        repetitions: u32,
        /// Smallest effect, percent of the baseline; `None` without a spread to plan from.
        smallest_effect_pct: Option<f64>,
    },
    /// A confirmation ended; the document `flux tune --json` prints for it, a [`super::report::ConfirmationDocument`].
    Verdict {
        /// Settings judged.
        settings: Settings,
        /// The judgement.
        confirmation: serde_json::Value,
    },
    /// The server is ready.
    Serving {
        /// Where it answers, on loopback: `http://127.0.0.1:PORT`.
        url: String,
        /// Its process id.
        pid: u32,
        /// Name of its model.
        model: String,
        /// Row id of the profile applied; `None` is stock.
        profile: Option<i64>,
    },
    /// Something worth saying.
    Notice(Notice),
    /// The last event.
    Finished(Outcome),
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Ran to its end; the document its command prints with `--json`.
    Done {
        /// The result.
        result: serde_json::Value,
    },
    /// Cancelled; what is stored stays.
    Cancelled {
        /// Runs kept.
        kept_runs: u32,
        /// The session to resume.
        session: Option<i64>,
    },
    /// Failed.
    Failed {
        /// The error.
        error: JobError,
    },
}

/// Code of an error in what was asked for, rather than in doing it: the command line ends with status 2.
pub const USAGE: &str = "usage";

/// An error that crosses threads and is shown to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobError {
    /// Stable kebab-case code.
    pub code: String,
    /// What and where, in one sentence.
    pub headline: String,
    /// Causes beneath.
    pub cause: Vec<String>,
    /// What to do next.
    pub hint: Option<String>,
}

impl JobError {
    /// An error with code and headline.
    pub fn new(code: &str, headline: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            headline: headline.into(),
            cause: Vec::new(),
            hint: None,
        }
    }

    /// What a panic that was caught says, after these words.
    pub fn panicked(what: &str, panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let headline = format!("{what}: {}", text.unwrap_or("no message"));
        Self::new("panicked", headline)
            .hint("everything measured so far is stored; please report this")
    }

    /// The same error with what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<PortError> for JobError {
    fn from(error: PortError) -> Self {
        Self {
            code: "failed".to_owned(),
            headline: error.headline,
            cause: error.cause,
            hint: error.hint,
        }
    }
}
