//! One arm of a benchmark, measured once, and whether its number counts.

use serde::{Deserialize, Serialize};

use crate::domain::placement::memory::DeviceMemory;
use crate::domain::placement::planner::Candidate;
use crate::domain::types::{Goal, RequestShape, Run, RunOutcome, Settings, TestSamples};

/// Measured below this share of the prediction on a device that is nearly full: spilled into shared memory (case C16).
const SPILLED: f64 = 0.5;
/// … nearly full: this share of what may be used.
const NEARLY_FULL: f64 = 0.9;

/// One arm, measured once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmResult {
    /// Settings.
    pub settings: Settings,
    /// Generated tokens per second.
    pub tg: Option<f64>,
    /// Prompt tokens per second.
    pub pp: Option<f64>,
    /// Predicted generated tokens per second.
    pub predicted_tg: Option<f64>,
    /// Predicted prompt tokens per second.
    pub predicted_pp: Option<f64>,
    /// Why there is no number, or why it does not count.
    pub failure: Option<String>,
}

impl ArmResult {
    pub(super) fn cost(&self, goal: Goal, shape: RequestShape) -> Option<f64> {
        let (tg, pp) = (self.tg?, self.pp?);
        let counted = self.failure.is_none();
        counted.then(|| match goal {
            Goal::Prompt => 1.0 / pp,
            Goal::Request => {
                f64::from(shape.prompt_tokens) / pp + f64::from(shape.generated_tokens) / tg
            }
            Goal::Generation | Goal::Energy => 1.0 / tg,
        })
    }
}

/// What a run came to.
pub(super) fn result(
    settings: &Settings,
    run: &Run,
    predicted: Option<&Candidate>,
    may_spill: bool,
) -> ArmResult {
    let mut arm = ArmResult {
        settings: settings.clone(),
        tg: None,
        pp: None,
        predicted_tg: predicted.map(|c| c.predicted.tg),
        predicted_pp: predicted.map(|c| c.predicted.pp),
        failure: None,
    };
    match &run.outcome {
        RunOutcome::Valid { tests } => {
            let mean = |prompt| {
                tests
                    .iter()
                    .find(|t| t.test.is_prompt() == prompt)
                    .map(TestSamples::mean_rate)
            };
            arm.tg = mean(false);
            arm.pp = mean(true);
        }
        RunOutcome::Failed { failure, .. } => arm.failure = Some(failure.to_string()),
        RunOutcome::StoppedEarly { .. } => arm.failure = Some("stopped early".to_owned()),
        RunOutcome::Cancelled => arm.failure = Some("cancelled".to_owned()),
    }
    if let (Some(candidate), Some(tg)) = (predicted.filter(|_| may_spill), arm.tg)
        && candidate.predicted.tg * SPILLED > tg
        && let Some(full) = nearly_full(candidate)
    {
        let share = 100.0 * tg / candidate.predicted.tg;
        arm.failure = Some(format!(
            "spilled to system memory: {full} is nearly full and generation is at {share:.0} % of the prediction"
        ));
    }
    arm
}

fn nearly_full(candidate: &Candidate) -> Option<&str> {
    let devices = candidate.memory.iter().rev().skip(1);
    let full = |m: &&DeviceMemory| m.total().0 as f64 > m.usable.0 as f64 * NEARLY_FULL;
    devices.filter(full).map(|m| m.id.as_str()).next()
}
