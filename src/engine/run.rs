//! `flux run`: the stored profile applied to llama-server.
//! Placeholder until merged.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::types::{Goal, Profile};
use crate::ports::Notice;

use super::Ports;
use super::message::JobError;

/// What `flux run` is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRequest {
    /// Model file.
    pub model: PathBuf,
    /// Runtime name or folder.
    pub runtime: Option<String>,
    /// Which profile, where several goals were tuned.
    pub goal: Option<Goal>,
    /// Apply a profile of another fingerprint.
    pub stale_ok: bool,
    /// The user's own llama-server arguments, after those of the profile.
    pub extra: Vec<String>,
}

/// A command ready to be started, and why it looks as it does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Environment set by the profile.
    pub env: BTreeMap<String, String>,
    /// The profile applied; `None` is stock.
    pub profile: Option<Profile>,
    /// One entry per setting.
    pub explanation: Vec<Explanation>,
    /// What the user should know.
    pub notices: Vec<Notice>,
}

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Dimension.
    pub setting: String,
    /// Value.
    pub value: String,
    /// What it does, in one line.
    pub describe: String,
    /// The screening run that introduced it.
    pub run_id: i64,
    /// What that run measured, in words.
    pub run_metric_text: String,
    /// What the confirmation found, in words.
    pub confirmation_text: String,
}

/// From a request to a command.
///
/// # Errors
/// x
pub fn prepare(_request: &RunRequest, _ports: &Ports) -> Result<RunPlan, JobError> {
    Err(JobError::new("x", "not merged yet"))
}
