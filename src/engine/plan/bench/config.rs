//! What a benchmark of a plan was begun with.

use serde::{Deserialize, Serialize};

use crate::domain::search::Objective;
use crate::engine::plan::PlanRequest;
use crate::engine::target::Target;
use crate::ports::{NewSession, SessionKind};

/// What a benchmark was begun with, as its session keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanConfig {
    /// As asked for.
    pub request: PlanRequest,
    /// Where the arms run.
    pub target: Target,
    /// What they are judged by.
    #[serde(default)]
    pub plan: Option<Judged>,
}

impl PlanConfig {
    /// Of a session; `None` where it is no benchmark of a plan.
    pub fn of(begun: &NewSession) -> Option<Self> {
        let config = (begun.kind == SessionKind::Plan).then_some(&begun.config);
        config.and_then(|config| Self::deserialize(config).ok())
    }
}

/// The part of a method's plan that says what a session is judged by, as searches and comparisons keep it too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The goal and its tests.
    pub objective: Objective,
}
