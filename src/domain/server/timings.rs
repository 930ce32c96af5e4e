//! The `timings` of a response, and whether they are samples (case C09): enough tokens, those that were asked for, none
//! of them from the cache, over a time long enough to be measured.

use serde_json::Value as Json;

use crate::domain::text::count;
use crate::domain::types::{Failure, FailureClass};

/// Fewest generated tokens of a decode sample.
pub const MIN_GENERATED: u32 = 32;
/// Shortest time of a sample, milliseconds: the server counts whole microseconds and reports 0.001 for none, so that
/// from here on the clock's step is at most 0.1 % of the reading, a tenth of the 1 % rule.
pub const MIN_MS: f64 = 1.0;
/// Tokens by which a prompt may differ from its tokenised length: a start and an end token added by the server.
const PROMPT_SLACK_TOKENS: f64 = 2.0;
/// The same as a share of the length, for templates that tokenise otherwise at their seams; the rate is computed from the
/// tokens processed, so this does not enter it.
const PROMPT_SLACK_SHARE: f64 = 0.01;

/// `timings` of a response. Rates in it are not read: they are recomputed from counts and times.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timings {
    /// Prompt tokens taken from the cache; older builds do not say.
    pub cache_n: Option<u32>,
    /// Prompt tokens processed.
    pub prompt_n: Option<u32>,
    /// Time for them, milliseconds.
    pub prompt_ms: Option<f64>,
    /// Tokens generated.
    pub predicted_n: Option<u32>,
    /// From the first generated token to the last, milliseconds.
    pub predicted_ms: Option<f64>,
    /// Tokens drafted; absent without speculation.
    pub draft_n: Option<u32>,
    /// Drafted tokens that were accepted.
    pub draft_n_accepted: Option<u32>,
}

/// Tokens over a time: a valid sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timed {
    /// Tokens.
    pub tokens: u32,
    /// Milliseconds, at least [`MIN_MS`].
    pub ms: f64,
}

impl Timed {
    /// Tokens per second.
    pub fn rate(self) -> f64 {
        f64::from(self.tokens) / self.ms * 1e3
    }
}

impl Timings {
    /// Reads the `timings` object; what is missing or no such number is `None`.
    pub fn parse(timings: &Json) -> Self {
        let count = |name: &str| {
            let n = timings.get(name).and_then(Json::as_u64);
            n.and_then(|n| u32::try_from(n).ok())
        };
        let ms = |name: &str| timings.get(name).and_then(Json::as_f64);
        Self {
            cache_n: count("cache_n"),
            prompt_n: count("prompt_n"),
            prompt_ms: ms("prompt_ms"),
            predicted_n: count("predicted_n"),
            predicted_ms: ms("predicted_ms"),
            draft_n: count("draft_n"),
            draft_n_accepted: count("draft_n_accepted"),
        }
    }

    /// The prefill sample of a request whose prompt has `tokenised` tokens.
    ///
    /// # Errors
    /// `prompt served from cache`, another prompt length than sent, or no positive finite time. Without `cache_n` the
    /// length alone tells: `prompt_n` counts only what was processed.
    pub fn prefill(&self, tokenised: u32) -> Result<Timed, Failure> {
        let tokens = self.computed(tokenised)?;
        timed(tokens, self.prompt_ms, "prompt_ms")
    }

    /// Tokens of the prompt that were computed: all of them, whatever their time.
    ///
    /// # Errors
    /// As [`Timings::prefill`], but for the time.
    pub fn computed(&self, tokenised: u32) -> Result<u32, Failure> {
        let tokens = self.prompt_n.ok_or_else(|| missing("prompt_n"))?;
        if let Some(cached) = self.cache_n.filter(|n| *n > 0) {
            return Err(Failure::new(
                FailureClass::PromptFromCache,
                format!("{cached} of {tokenised} prompt tokens came from the cache"),
            ));
        }
        let slack = (f64::from(tokenised) * PROMPT_SLACK_SHARE).max(PROMPT_SLACK_TOKENS);
        if tokens == 0 || f64::from(tokens.abs_diff(tokenised)) > slack {
            return Err(other_count(
                tokens,
                tokenised,
                "prompt tokens were processed",
            ));
        }
        Ok(tokens)
    }

    /// The decode sample of a request for `n_predict` tokens. The server's clock starts with the first token, which the
    /// prompt's time pays for, so `predicted_n` − 1 tokens were timed (`update_slots` in llama.cpp's server).
    ///
    /// # Errors
    /// `too few tokens`: under [`MIN_GENERATED`] or under `n_predict`; more than asked for; no positive finite time.
    pub fn decode(&self, n_predict: u32) -> Result<Timed, Failure> {
        let tokens = self.predicted_n.ok_or_else(|| missing("predicted_n"))?;
        if tokens != n_predict {
            return Err(other_count(tokens, n_predict, "tokens were generated"));
        }
        if tokens < MIN_GENERATED {
            return Err(Failure::new(
                FailureClass::TooFewTokens,
                format!(
                    "{} in the answer; a rate needs {MIN_GENERATED}",
                    count(tokens.into(), "token")
                ),
            ));
        }
        timed(tokens - 1, self.predicted_ms, "predicted_ms")
    }
}

fn other_count(got: u32, asked: u32, what: &str) -> Failure {
    let class = if got < asked || got == 0 {
        FailureClass::TooFewTokens
    } else {
        FailureClass::WrongTests
    };
    Failure::new(class, format!("{got} of {asked} {what}"))
}

fn timed(tokens: u32, ms: Option<f64>, name: &str) -> Result<Timed, Failure> {
    let ms = ms.ok_or_else(|| missing(name))?;
    if !ms.is_finite() || ms < MIN_MS {
        return Err(Failure::new(
            FailureClass::InvalidSample,
            format!("{name} is {ms}; a rate needs at least {MIN_MS} ms"),
        ));
    }
    Ok(Timed { tokens, ms })
}

fn missing(name: &str) -> Failure {
    Failure::new(
        FailureClass::Unparsable,
        format!("the response's timings have no {name}"),
    )
}
