//! What "faster" means for a goal: the primary metric, and the other metrics that guard it (paper section 3, rule 5).

use serde::{Deserialize, Serialize};

use crate::domain::types::{Goal, RequestShape, TestSamples, TestSpec};

use super::plan::PlanError;

/// A goal with the tests that measure it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    goal: Goal,
    request: RequestShape,
    tests: Vec<TestSpec>,
    primary_prompt: TestSpec,
    generation: TestSpec,
    /// Every run is requests to a live server, and each request gives all tests.
    #[serde(default)]
    live: bool,
}

/// Label of the time to the first token of a live request; its rate is first tokens per second.
pub const FIRST_TOKEN: &str = "first token";
/// Label of a whole request; its rate is requests per second.
pub const REQUEST: &str = "request";
/// Label of tokens generated per joule of the device.
pub const ENERGY: &str = "energy";

impl Objective {
    /// A goal judged by `tests`.
    ///
    /// # Errors
    /// Tests without a prompt or a generation test.
    pub fn new(goal: Goal, request: RequestShape, tests: Vec<TestSpec>) -> Result<Self, PlanError> {
        let prompts = tests.iter().filter(|t| t.is_prompt());
        // The request's own prompt is best stood for by the test nearest to it in length.
        let distance = |t: &&TestSpec| {
            (f64::from(t.n_prompt) / f64::from(request.prompt_tokens))
                .ln()
                .abs()
        };
        let primary_prompt = match goal {
            Goal::Request => prompts.min_by(|a, b| distance(a).total_cmp(&distance(b))),
            _ => prompts.max_by_key(|t| t.n_prompt),
        };
        let generation = tests.iter().find(|t| !t.is_prompt());
        Ok(Self {
            goal,
            request,
            primary_prompt: *primary_prompt.ok_or(PlanError::Zero("the prompt length"))?,
            generation: *generation.ok_or(PlanError::Zero("the number of generated tokens"))?,
            tests,
            live: false,
        })
    }

    /// A goal judged by live requests of this shape: the server's own prefill and decode rates, the first token and the
    /// whole request by the client's clock.
    pub fn live(goal: Goal, request: RequestShape) -> Self {
        let RequestShape {
            prompt_tokens: prompt,
            generated_tokens: generated,
        } = request;
        let mixed = |n_gen| TestSpec {
            n_gen,
            ..TestSpec::prompt(prompt)
        };
        let generation = TestSpec::generation(generated).at_depth(prompt);
        Self {
            goal,
            request,
            tests: vec![
                TestSpec::prompt(prompt),
                mixed(1),
                generation,
                mixed(generated),
            ],
            primary_prompt: mixed(1),
            generation,
            live: true,
        }
    }

    /// Are its runs requests to a live server?
    pub const fn is_live(&self) -> bool {
        self.live
    }

    /// Every metric that is judged: its label, its test, and the tokens of one unit of its rate: 1 for tokens per second, a
    /// whole test's for a request or a first token.
    pub fn metrics(&self) -> Vec<(String, TestSpec, f64)> {
        let of = |test: &TestSpec| match (self.live, test.n_prompt, test.n_gen) {
            (true, 1.., 1) => (FIRST_TOKEN.to_owned(), *test, f64::from(test.tokens())),
            (true, 1.., 2..) => (REQUEST.to_owned(), *test, f64::from(test.tokens())),
            _ => (test.to_string(), *test, 1.0),
        };
        self.tests.iter().map(of).collect()
    }

    /// The goal.
    pub const fn goal(&self) -> Goal {
        self.goal
    }

    /// Every test of a process.
    pub fn tests(&self) -> &[TestSpec] {
        &self.tests
    }

    /// Name of the primary metric: a test's label, `request` (requests per second), or `energy` (tokens generated per
    /// joule of the device).
    pub fn primary(&self) -> String {
        match self.goal {
            Goal::Request => REQUEST.to_owned(),
            Goal::Prompt if self.live => FIRST_TOKEN.to_owned(),
            Goal::Prompt => self.primary_prompt.to_string(),
            Goal::Generation => self.generation.to_string(),
            Goal::Energy => ENERGY.to_owned(),
        }
    }

    /// Does it count joules?
    pub fn needs_energy(&self) -> bool {
        self.goal == Goal::Energy
    }

    /// Do these samples tell the energy that the goal counts?
    pub fn has_energy(&self, samples: &[TestSamples]) -> bool {
        !self.per_joule(samples).is_empty()
    }

    /// Tests whose metric must not get worse: saving energy by being slow is no gain. A request has none: it already
    /// weighs both.
    pub fn guards(&self) -> Vec<TestSpec> {
        let guards = |prompt: bool| self.tests.iter().filter(move |t| t.is_prompt() == prompt);
        match self.goal {
            Goal::Request => Vec::new(),
            Goal::Prompt => guards(false).copied().collect(),
            Goal::Generation => guards(true).copied().collect(),
            Goal::Energy => self.tests.clone(),
        }
    }

    /// The primary metric of a goal of speed from the rate of every test; higher is better. For a request
    /// `1 / (prompt_tokens / pp + generated_tokens / tg)`, requests per second.
    fn speed(&self, rate: impl Fn(TestSpec) -> f64) -> f64 {
        match self.goal {
            Goal::Request | Goal::Prompt if self.live => {
                let label = self.primary();
                let metrics = self.metrics().into_iter();
                metrics
                    .filter(|(l, ..)| *l == label)
                    .map(|(_, test, unit)| rate(test) / unit)
                    .next_back()
                    .unwrap_or(f64::NAN)
            }
            Goal::Request => {
                let prompt = f64::from(self.request.prompt_tokens) / rate(self.primary_prompt);
                let generation = f64::from(self.request.generated_tokens) / rate(self.generation);
                1.0 / (prompt + generation)
            }
            Goal::Prompt => rate(self.primary_prompt),
            Goal::Generation | Goal::Energy => rate(self.generation),
        }
    }

    /// The primary metric of one run, from its mean rates.
    pub fn run_score(&self, samples: &[TestSamples]) -> f64 {
        if self.needs_energy() {
            return self.tokens_per_joule(samples);
        }
        self.speed(|test| mean_rate(samples, test))
    }

    /// The primary metric of every repetition of one run.
    pub fn repetition_scores(&self, samples: &[TestSamples]) -> Vec<f64> {
        if self.needs_energy() {
            return self.per_joule(samples);
        }
        let count = samples.iter().map(|s| s.samples_ns.len()).min();
        (0..count.unwrap_or(0))
            .map(|i| {
                self.speed(|test| {
                    let of_test = samples.iter().find(|s| s.test == test);
                    of_test.map_or(f64::NAN, |s| s.rates()[i])
                })
            })
            .collect()
    }

    /// Tokens generated per joule of the device, the mean over a run's repetitions; NaN where it is not known of all.
    pub fn tokens_per_joule(&self, samples: &[TestSamples]) -> f64 {
        let all = self.per_joule(samples);
        all.iter().sum::<f64>() / all.len() as f64
    }

    /// Tokens generated per joule of the device, of every repetition; empty where it is not known of all.
    fn per_joule(&self, samples: &[TestSamples]) -> Vec<f64> {
        let generation = samples.iter().find(|s| s.test == self.generation);
        let energy = generation.and_then(|s| s.energy.as_ref());
        let joules = energy.map_or_else(Vec::new, |e| e.joules(false));
        let tokens = f64::from(self.generation.tokens());
        joules.into_iter().map(|j| tokens / j).collect()
    }

    /// How many times its baseline time a test may take before nothing can make up for it, at least `least`. Only a
    /// request can trade one test against another: there the test alone must outlast the baseline's whole request.
    pub(super) fn hopeless_factor(
        &self,
        test: TestSpec,
        samples: &[TestSamples],
        least: f64,
    ) -> f64 {
        if self.goal != Goal::Request {
            return least;
        }
        let tokens = if test == self.primary_prompt {
            self.request.prompt_tokens
        } else if test == self.generation {
            self.request.generated_tokens
        } else {
            return f64::INFINITY;
        };
        let part = f64::from(tokens) / mean_rate(samples, test);
        (1.0 / self.run_score(samples) / part).max(least)
    }
}

/// Mean rate of one test of a run; NaN where it has none.
pub(super) fn mean_rate(samples: &[TestSamples], test: TestSpec) -> f64 {
    let found = samples.iter().find(|s| s.test == test);
    found.map_or(f64::NAN, TestSamples::mean_rate)
}
