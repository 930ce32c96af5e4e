//! A question to llama-server and its answer, as llama-server writes them (`/completion`, `/v1/chat/completions`). What it
//! sends is read, never believed: unknown fields are passed over, missing ones are absent, nothing grows without bound.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::domain::types::{Failure, FailureClass};

use super::timings::Timings;

/// Longest text kept of one answer, bytes: a hundred times the longest answer that is asked for.
const MAX_TEXT: usize = 4 * 1024 * 1024;
/// Most tokens kept of one answer; the server's own context ends an answer long before.
const MAX_TOKENS: usize = 1 << 18;

/// One turn of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// `user`, `system` or `assistant`.
    pub role: &'static str,
    /// What is said.
    pub content: String,
}

impl ChatMessage {
    /// A user's turn.
    pub fn user(content: impl Into<String>) -> Self {
        Self {
            role: "user",
            content: content.into(),
        }
    }

    /// As every chat endpoint takes it.
    pub fn body(&self) -> Json {
        json!({"role": self.role, "content": self.content})
    }
}

/// What is to be gone on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// Text, tokenised by the server.
    Text(String),
    /// A chat, written out by the model's own template.
    Chat(Vec<ChatMessage>),
}

/// How the next token is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token.
    pub temperature: f64,
    /// Only so many of the likeliest.
    pub top_k: u32,
    /// Only those that together reach this probability.
    pub top_p: f64,
    /// Only those of this share of the likeliest's probability.
    pub min_p: f64,
    /// Seed of the draw.
    pub seed: u32,
}

impl Sampling {
    /// llama-server's own defaults, which is what a user has who sets nothing.
    pub const fn usual(seed: u32) -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            seed,
        }
    }

    /// The likeliest token each time.
    pub const fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::usual(0)
        }
    }
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// What to go on with.
    pub prompt: Prompt,
    /// Most tokens to generate; with `ignore_eos` exactly so many.
    pub n_predict: u32,
    /// How to draw them.
    pub sampling: Sampling,
    /// Go on after the model's end token, so that the length is the one asked for.
    pub ignore_eos: bool,
    /// Let the server reuse what it remembers of earlier prompts.
    pub cache_prompt: bool,
    /// Log-probabilities of so many of the likeliest tokens at each place; 0 for none.
    pub n_probs: u32,
    /// Answer token by token. Without it there is no time to first token.
    pub stream: bool,
}

impl CompletionRequest {
    /// A request of a user who watches the answer: usual sampling, nothing from the cache, exactly `n_predict` tokens.
    pub const fn new(prompt: Prompt, n_predict: u32, seed: u32) -> Self {
        Self {
            prompt,
            n_predict,
            sampling: Sampling::usual(seed),
            ignore_eos: true,
            cache_prompt: false,
            n_probs: 0,
            stream: true,
        }
    }

    /// Where it is sent.
    pub const fn path(&self) -> &'static str {
        match self.prompt {
            Prompt::Chat(_) => "/v1/chat/completions",
            Prompt::Text(_) => "/completion",
        }
    }

    /// What is sent.
    pub fn body(&self) -> Json {
        let Sampling {
            temperature,
            top_k,
            top_p,
            min_p,
            seed,
        } = self.sampling;
        let mut body = json!({
            "stream": self.stream, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
            "seed": seed, "ignore_eos": self.ignore_eos, "cache_prompt": self.cache_prompt,
        });
        match &self.prompt {
            Prompt::Chat(messages) => {
                body["messages"] = messages.iter().map(ChatMessage::body).collect();
                body["max_tokens"] = self.n_predict.into();
                if self.n_probs > 0 {
                    body["logprobs"] = true.into();
                    body["top_logprobs"] = self.n_probs.into();
                }
            }
            Prompt::Text(text) => {
                body["prompt"] = text.as_str().into();
                body["n_predict"] = self.n_predict.into();
                body["return_tokens"] = true.into();
                body["n_probs"] = self.n_probs.into();
            }
        }
        body
    }
}

/// A token with its natural log-probability.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// Its id, where the server tells.
    pub id: Option<u32>,
    /// Its text.
    pub text: String,
    /// Its log-probability before sampling.
    pub logprob: f64,
}

/// One place of an answer: the token drawn, and the likeliest ones.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenProbs {
    /// The token drawn.
    pub chosen: TokenLogprob,
    /// The likeliest, the first most.
    pub top: Vec<TokenLogprob>,
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completion {
    /// Its text, thoughts included.
    pub text: String,
    /// Its tokens, where the endpoint tells them (`/completion`).
    pub tokens: Vec<u32>,
    /// Probabilities at each place, where asked for.
    pub probs: Vec<TokenProbs>,
    /// The server's own times.
    pub timings: Timings,
    /// Why it ended: `limit`, `length`, `eos`, `stop`; as the server says it.
    pub finish: Option<String>,
    /// From sending to the first token of a streamed answer, by the client's clock.
    pub first_token: Option<Duration>,
    /// From sending to the last byte, by the client's clock.
    pub took: Duration,
}

/// Puts an answer together from its parts.
#[derive(Debug, Default)]
pub struct AnswerReader {
    answer: Completion,
    has_ended: bool,
}

impl AnswerReader {
    /// Takes the next event of a stream, or the one body of an answer that is none; true where it brought a token.
    ///
    /// # Errors
    /// It is no answer of llama-server, says an error, or is longer than any that was asked for.
    pub fn part(&mut self, part: &Json) -> Result<bool, Failure> {
        if let Some(error) = part.get("error") {
            return Err(refused(error));
        }
        let Some(object) = part.as_object() else {
            return Err(unreadable("a part of it is no JSON object"));
        };
        let choice = part.pointer("/choices/0");
        let known = ["content", "choices", "timings", "stop"];
        if !known.iter().any(|name| object.contains_key(*name)) {
            return Err(unreadable("a part of it is none of llama-server's"));
        }
        let before = (self.answer.text.len(), self.answer.tokens.len());
        self.text(part, choice);
        let finish = match choice {
            Some(choice) => choice.get("finish_reason"),
            None => part.get("stop_type"),
        };
        if let Some(finish) = finish.and_then(Json::as_str) {
            self.answer.finish = Some(finish.to_owned());
        }
        if let Some(timings) = part.get("timings").filter(|t| t.is_object()) {
            self.answer.timings = Timings::parse(timings);
            self.has_ended = true;
        }
        self.has_ended |= part.get("stop") == Some(&Json::Bool(true));
        if self.answer.text.len() > MAX_TEXT || self.answer.tokens.len() > MAX_TOKENS {
            return Err(unreadable("it is longer than any that was asked for"));
        }
        Ok((self.answer.text.len(), self.answer.tokens.len()) != before)
    }

    /// The answer, once it has ended.
    ///
    /// # Errors
    /// It ended before its end.
    pub fn finish(self) -> Result<Completion, Failure> {
        if self.has_ended {
            return Ok(self.answer);
        }
        Err(Failure::new(
            FailureClass::AnswerBroken,
            format!("after {} bytes of text", self.answer.text.len()),
        ))
    }

    fn text(&mut self, part: &Json, choice: Option<&Json>) {
        let spoken = match choice {
            // A whole answer has a message, an event of a stream a delta.
            Some(choice) => {
                let delta = choice.get("delta").filter(|d| d.is_object());
                delta.or_else(|| choice.get("message"))
            }
            None => Some(part),
        };
        for name in ["reasoning_content", "content"] {
            let text = spoken.and_then(|s| s.get(name)).and_then(Json::as_str);
            self.answer.text.push_str(text.unwrap_or_default());
        }
        let tokens = part.get("tokens").and_then(Json::as_array);
        let ids = tokens.into_iter().flatten().filter_map(id);
        self.answer.tokens.extend(ids.take(MAX_TOKENS + 1));
        let places = match choice {
            Some(choice) => choice.pointer("/logprobs/content"),
            None => part.get("completion_probabilities"),
        };
        let places = places.and_then(Json::as_array).into_iter().flatten();
        self.answer
            .probs
            .extend(places.filter_map(place).take(MAX_TOKENS));
    }
}

fn id(token: &Json) -> Option<u32> {
    token.as_u64().and_then(|n| u32::try_from(n).ok())
}

fn place(place: &Json) -> Option<TokenProbs> {
    let top = place.get("top_logprobs").and_then(Json::as_array);
    Some(TokenProbs {
        chosen: token(place)?,
        top: top.into_iter().flatten().filter_map(token).collect(),
    })
}

fn token(token: &Json) -> Option<TokenLogprob> {
    let text = token
        .get("token")
        .and_then(Json::as_str)
        .unwrap_or_default();
    Some(TokenLogprob {
        id: token.get("id").and_then(id),
        text: text.to_owned(),
        // An impossible token has −∞, which JSON writes as null.
        logprob: token.get("logprob")?.as_f64().unwrap_or(f64::NEG_INFINITY),
    })
}

/// The failure of a request that the server did not take, with what it said.
pub fn refused(error: &Json) -> Failure {
    let message = error.get("message").and_then(Json::as_str);
    let said = message
        .or_else(|| error.as_str())
        .unwrap_or("no reason given");
    let said: String = said.chars().take(400).collect();
    Failure::new(FailureClass::RequestRefused, said)
}

/// The failure of an answer that is none of llama-server's.
pub fn unreadable(why: &str) -> Failure {
    Failure::new(FailureClass::AnswerUnreadable, why)
}
