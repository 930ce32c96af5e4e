//! The history as people look through it: sessions in lines and pages.

use serde::{Deserialize, Serialize};

use crate::domain::types::{Goal, Settings, Timestamp, Verdict};

use super::{SessionKind, SessionState};

/// Sessions on a page unless told otherwise: more than a screen shows.
const PAGE: u32 = 50;

/// One line of the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionLine {
    /// Row id.
    pub id: i64,
    /// Kind.
    pub kind: SessionKind,
    /// When it began.
    pub started_at: Timestamp,
    /// Model name.
    pub model: String,
    /// Runtime name.
    pub runtime: String,
    /// Goal.
    pub goal: Goal,
    /// Fingerprint hash.
    pub fingerprint: String,
    /// Runs stored.
    pub runs: u64,
    /// State; `None` while running or killed.
    pub state: Option<SessionState>,
    /// Verdict.
    pub verdict: Option<Verdict>,
    /// On an exported machine.
    pub simulated: bool,
    /// Label of the metric its last judgement is by: `tg128`; `None` where nothing was judged.
    pub primary: Option<String>,
    /// Change of that metric, percent of the baseline.
    pub change_pct: Option<f64>,
    /// 95 % interval of the change, percent.
    pub ci95_pct: Option<[f64; 2]>,
    /// What was judged last; the winner, where there is one.
    pub settings: Option<Settings>,
    /// The profile it stored.
    pub profile: Option<i64>,
}

/// How a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// It ended so.
    Ended(SessionState),
    /// It is running, or was killed and can be resumed.
    Open,
}

/// Which sessions to list; the default is the first page of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFilter {
    /// Words that must all be there, whatever their case: in the model's or runtime's name, the goal, the settings
    /// judged last (`ubatch=1024`), or the session's number, with or without `#`. Empty lists all.
    pub text: String,
    /// Only with this verdict.
    pub verdict: Option<Verdict>,
    /// Only of this kind.
    pub kind: Option<SessionKind>,
    /// Only those that stand so.
    pub standing: Option<Standing>,
    /// Only of the machine with this fingerprint hash.
    pub fingerprint: Option<String>,
    /// Begun at this moment or later.
    pub since: Option<Timestamp>,
    /// Begun before this moment.
    pub until: Option<Timestamp>,
    /// Lines passed over.
    pub offset: u32,
    /// Lines at most.
    pub limit: u32,
}

impl Default for SessionFilter {
    fn default() -> Self {
        Self {
            text: String::new(),
            verdict: None,
            kind: None,
            standing: None,
            fingerprint: None,
            since: None,
            until: None,
            offset: 0,
            limit: PAGE,
        }
    }
}

/// A page of the history.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionPage {
    /// Its lines, newest first.
    pub lines: Vec<SessionLine>,
    /// Sessions that pass the filter, on every page.
    pub total: u64,
    /// Their samples: every repetition of every test.
    pub samples: u64,
}
