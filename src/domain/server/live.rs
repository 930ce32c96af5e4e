//! Tests measured by requests to a live server: which requests give them, and what of an answer is a sample (case C09).

use serde_json::{Value as Json, json};

use crate::domain::types::{Failure, FailureClass, TestSpec};

use super::completion::Completion;

/// Prompt of a decode test without a depth, tokens: enough to be no prompt of one batch element.
pub const SHORT_PROMPT: u32 = 16;
/// The same where a chat template, or a tokenizer of few words, takes more than that: still short beside any context.
pub const LONGEST_SHORT_PROMPT: u32 = 256;
/// Drafts of fewer tokens say nothing when all are accepted.
const MIN_DRAFTED: u32 = 16;

/// Requests of one shape, and the tests each of them gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRequest {
    /// Tokens of its prompt.
    pub prompt: u32,
    /// Tokens it generates.
    pub generated: u32,
    /// The tests that are read off it.
    pub tests: Vec<TestSpec>,
}

/// What of an answer a test is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The server's time for the prompt.
    Prefill,
    /// The client's time to the first token.
    FirstToken,
    /// The server's time for the tokens after it.
    Decode,
    /// The client's time for all of it.
    Whole,
}

const fn part(test: TestSpec) -> Part {
    match (test.n_prompt, test.n_gen) {
        (_, 0) => Part::Prefill,
        (0, _) => Part::Decode,
        (_, 1) => Part::FirstToken,
        _ => Part::Whole,
    }
}

/// The requests that give these tests, as few as there can be.
///
/// # Errors
/// A prompt test at a depth, which no request of one prompt gives.
pub fn requests(tests: &[TestSpec]) -> Result<Vec<LiveRequest>, Failure> {
    let mut all: Vec<LiveRequest> = Vec::new();
    // Those that say how much is generated come first; the others take what is there.
    let says_length = |t: &&TestSpec| matches!(part(**t), Part::Decode | Part::Whole);
    let (exact, other): (Vec<&TestSpec>, Vec<&TestSpec>) = tests.iter().partition(says_length);
    for test in exact.into_iter().chain(other) {
        let part = part(*test);
        if part != Part::Decode && test.n_depth > 0 {
            let detail = format!(
                "{test} cannot be measured through llama-server: a prompt is computed from its start"
            );
            return Err(Failure::new(FailureClass::InvalidArgument, detail));
        }
        let prompt = match part {
            Part::Decode => test.n_depth.max(SHORT_PROMPT),
            _ => test.n_prompt,
        };
        let takes_any = matches!(part, Part::Prefill | Part::FirstToken);
        let fits =
            |r: &&mut LiveRequest| r.prompt == prompt && (takes_any || r.generated == test.n_gen);
        match all.iter_mut().find(fits) {
            Some(request) => request.tests.push(*test),
            None => all.push(LiveRequest {
                prompt,
                generated: test.n_gen.max(1),
                tests: vec![*test],
            }),
        }
    }
    Ok(all)
}

impl LiveRequest {
    /// Nothing but the decoding after it is measured, at no depth: the prompt may be as long as it must, up to
    /// [`LONGEST_SHORT_PROMPT`].
    pub fn takes_any_short_prompt(&self) -> bool {
        let decodes = |t: &TestSpec| part(*t) == Part::Decode && t.n_depth == 0;
        self.tests.iter().all(decodes)
    }

    /// The tests that begin when it is sent, the longest first: all but the decoding, which begins with the first token.
    pub fn sent(&self) -> impl Iterator<Item = TestSpec> + '_ {
        self.tests
            .iter()
            .copied()
            .filter(|t| part(*t) != Part::Decode)
    }

    /// The tests that begin with the first token.
    pub fn decoded(&self) -> impl Iterator<Item = TestSpec> + '_ {
        self.tests
            .iter()
            .copied()
            .filter(|t| part(*t) == Part::Decode)
    }

    /// The sample of each of its tests, nanoseconds, in their order.
    ///
    /// # Errors
    /// Case C09: a prompt from the cache, another length than asked for, no time; an answer that was not streamed; every
    /// drafted token accepted, which is an old answer said again and no speed.
    pub fn samples(&self, answer: &Completion) -> Result<Vec<u64>, Failure> {
        let timings = &answer.timings;
        timings.computed(self.prompt)?;
        if let (Some(drafted), Some(accepted)) = (timings.draft_n, timings.draft_n_accepted)
            && drafted >= MIN_DRAFTED
            && accepted >= drafted
        {
            let detail =
                format!("all {drafted} drafted tokens were accepted: the answer was known before");
            return Err(Failure::new(FailureClass::AnswerReplayed, detail));
        }
        let one = |test: &TestSpec| -> Result<u64, Failure> {
            let secs = match part(*test) {
                // The rate is of the tokens that were computed, so a start token more or less is no error.
                Part::Prefill => f64::from(test.n_prompt) / timings.prefill(self.prompt)?.rate(),
                Part::Decode => f64::from(test.n_gen) / timings.decode(self.generated)?.rate(),
                Part::FirstToken => {
                    let first = answer.first_token.ok_or_else(not_streamed)?;
                    first.as_secs_f64()
                }
                Part::Whole => {
                    timings.decode(self.generated)?;
                    answer.took.as_secs_f64()
                }
            };
            Ok((secs * 1e9).round().max(1.0) as u64)
        };
        self.tests.iter().map(one).collect()
    }
}

fn not_streamed() -> Failure {
    Failure::new(FailureClass::AnswerUnreadable, "it brought no token")
}

/// What is kept of an answer as evidence beside its samples.
pub fn evidence(answer: &Completion) -> Json {
    let t = &answer.timings;
    json!({
        "cache_n": t.cache_n, "prompt_n": t.prompt_n, "prompt_ms": t.prompt_ms, "predicted_n": t.predicted_n,
        "predicted_ms": t.predicted_ms, "draft_n": t.draft_n, "draft_n_accepted": t.draft_n_accepted,
        "first_token_ms": answer.first_token.map(|d| d.as_secs_f64() * 1e3), "request_ms": answer.took.as_secs_f64() * 1e3,
    })
}
