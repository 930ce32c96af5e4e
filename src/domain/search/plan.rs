//! A search as it is planned: everything the state machine needs, so that a stored plan resumes it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::server::MIN_GENERATED;
use crate::domain::types::{Bytes, Goal, RequestShape, Settings, TestSpec};

use super::goal::Objective;
use super::offer::{Offer, OfferRules};

/// Prompt of llama-bench's own default test, tokens.
pub const PROMPT: u32 = 512;
/// Tokens generated in llama-bench's own default test.
pub const GENERATED: u32 = 128;
/// The longer prompt that is measured where micro-batch is searched: twice the largest micro-batch offered (case C43).
pub const LONG_PROMPT: u32 = 2048;
/// Most llama-bench processes in a session: an evening's patience, and the bound of the whole-tuner study.
pub const MAX_PROCESSES: u32 = 80;
/// Repetitions of a screening process; the method asks for at least three.
pub const SCREENING_REPETITIONS: u32 = 3;
/// Processes kept free for one full confirmation: a warm-up and two arms of twelve.
pub const CONFIRMATION_RESERVE: u32 = 25;
/// Processes that screening leaves for the pair stage: two runs of the best, about six unions, one repeat, eight to narrow it down.
pub const PAIR_RESERVE: u32 = 18;
/// Processes kept free for the drop-one check of a winner with four settings.
pub const DROP_ONE_RUNS: u32 = 4;
/// Finalists confirmed at most: more would be fishing for a lucky one.
pub const MAX_FINALISTS: usize = 3;

/// What a search is asked for beside its offer.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanInput {
    /// The goal.
    pub goal: Goal,
    /// The request of the request goal.
    pub request: RequestShape,
    /// Prompt of the prompt test, tokens.
    pub prompt_tokens: u32,
    /// Tokens of the generation test.
    pub generated_tokens: u32,
    /// Context depth of all tests.
    pub depth: u32,
    /// Repetitions in a process, instead of the planned number.
    pub repetitions: Option<u32>,
    /// Processes per arm of a confirmation, instead of the planned number.
    pub processes: Option<u32>,
    /// llama-bench processes of the whole session, instead of [`MAX_PROCESSES`].
    pub max_processes: Option<u32>,
    /// Seconds of measuring after which no further candidate is started.
    pub time_limit_secs: Option<f64>,
    /// What every arm starts from: stock, or the placement that the settings are searched on.
    pub start: Settings,
    /// The settings of a stale profile: the first candidate.
    pub first_candidate: Option<Settings>,
    /// Further baselines for when stock fails, after those the search space marks.
    pub fallbacks: Vec<Settings>,
    /// Device memory a winner may use, by llama.cpp's device name: free memory minus the reserve.
    pub memory_limits: BTreeMap<String, Bytes>,
}

impl PlanInput {
    /// llama-bench's default workload for a goal, nothing else asked.
    pub fn new(goal: Goal) -> Self {
        Self {
            goal,
            request: RequestShape::default(),
            prompt_tokens: PROMPT,
            generated_tokens: GENERATED,
            depth: 0,
            repetitions: None,
            processes: None,
            max_processes: None,
            time_limit_secs: None,
            start: Settings::stock(),
            first_candidate: None,
            fallbacks: Vec::new(),
            memory_limits: BTreeMap::new(),
        }
    }
}

/// A search that cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A number that must be positive is zero.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// A decode rate of so few tokens means nothing (case C09).
    #[error("{0} generated tokens give no decode rate: ask for at least {MIN_GENERATED}")]
    TooFewGenerated(u32),
}

/// Everything the search needs; stored whole with its session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TunePlan {
    /// The goal and what it is judged by.
    pub objective: Objective,
    /// Candidates.
    pub offer: Offer,
    /// Repetitions of a screening process.
    pub screening_repetitions: u32,
    /// Repetitions in a process of the confirmation, instead of the planned number.
    pub repetitions: Option<u32>,
    /// Processes per arm of the confirmation, instead of the planned number.
    pub processes: Option<u32>,
    /// Seconds of measuring after which no further candidate is started.
    pub time_limit_secs: Option<f64>,
    /// Most processes of the session.
    pub max_processes: u32,
    /// What every arm starts from: stock, or the placement that the settings are searched on.
    #[serde(default)]
    pub start: Settings,
    /// The settings of a stale profile: the first candidate.
    pub first_candidate: Option<Settings>,
    /// Baselines for when the start fails, in order.
    pub fallbacks: Vec<Settings>,
    /// Device memory a winner may use, by llama.cpp's device name.
    pub memory_limits: BTreeMap<String, Bytes>,
}

impl TunePlan {
    /// Plans a search over an offer.
    ///
    /// # Errors
    /// A zero where a number is needed.
    pub fn new(offer: Offer, input: PlanInput) -> Result<Self, PlanError> {
        let positive = [
            (input.prompt_tokens, "the prompt length"),
            (input.generated_tokens, "the number of generated tokens"),
            (input.repetitions.unwrap_or(1), "the number of repetitions"),
            (input.processes.unwrap_or(1), "the number of processes"),
            (input.request.prompt_tokens, "the request's prompt length"),
            (
                input.request.generated_tokens,
                "the request's number of generated tokens",
            ),
        ];
        if let Some((_, what)) = positive.into_iter().find(|(n, _)| *n == 0) {
            return Err(PlanError::Zero(what));
        }
        let marked = offer.dimensions.iter().flat_map(|d| {
            d.values
                .iter()
                .filter(|v| v.fallback)
                .map(|v| input.start.with(&d.id, &v.id))
        });
        let fallbacks: Vec<Settings> = marked.chain(input.fallbacks).collect();
        // Asking for more processes than the method plans with is the user's right: the session grows by them.
        let asked = input.processes.unwrap_or(0);
        let extra = 2 * asked.saturating_sub((CONFIRMATION_RESERVE - 1) / 2);
        let long = offer.dimensions.iter().any(|d| d.prompt_bound);
        Ok(Self {
            objective: Objective::new(
                input.goal,
                input.request,
                workload(
                    input.prompt_tokens,
                    input.generated_tokens,
                    input.depth,
                    long,
                ),
            )?,
            offer,
            screening_repetitions: input
                .repetitions
                .unwrap_or(SCREENING_REPETITIONS)
                .max(SCREENING_REPETITIONS),
            repetitions: input.repetitions,
            processes: input.processes,
            time_limit_secs: input.time_limit_secs,
            max_processes: input.max_processes.unwrap_or(MAX_PROCESSES) + extra,
            start: input.start,
            first_candidate: input.first_candidate,
            fallbacks,
            memory_limits: input.memory_limits,
        })
    }

    /// Longest prompt measured when micro-batch is searched with this prompt: what [`OfferRules::max_prompt`] is.
    pub fn max_prompt(prompt_tokens: u32) -> u32 {
        OfferRules::default().max_prompt.max(prompt_tokens)
    }

    /// Tests of every process of the session, in order.
    pub fn tests(&self) -> &[TestSpec] {
        self.objective.tests()
    }
}

/// The tests of a process: a prompt, a longer one where the micro-batch is searched, generation.
pub fn workload(prompt: u32, generated: u32, depth: u32, long: bool) -> Vec<TestSpec> {
    let mut tests = vec![
        TestSpec::prompt(prompt).at_depth(depth),
        TestSpec::generation(generated).at_depth(depth),
    ];
    if long && prompt < LONG_PROMPT {
        tests.push(TestSpec::prompt(LONG_PROMPT).at_depth(depth));
    }
    tests
}
