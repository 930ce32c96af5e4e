//! What a llama-server is judged to be from outside: its state (case C07), who answers on its port (case C08), what
//! it is asked and answers, and which of its timings are samples (case C09). Design section 7.

mod completion;
mod events;
mod identity;
mod live;
pub mod output;
pub mod speculation;
mod text;
mod timings;

use std::time::Duration;

use super::time_limit::{COMPILE_SECS, LOAD_BYTES_PER_SEC};
use super::types::Bytes;

pub use completion::{
    AnswerReader, ChatMessage, Completion, CompletionRequest, Prompt, Sampling, TokenLogprob,
    TokenProbs, refused, unreadable,
};
pub use events::Events;
pub use identity::{another_program, identify};
pub use live::{LONGEST_SHORT_PROMPT, LiveRequest, SHORT_PROMPT, evidence, requests};
pub use text::{exact_text, seed_of};
pub use timings::{MIN_GENERATED, MIN_MS, Timed, Timings};

/// What one HTTP request met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Nobody listens.
    Refused,
    /// An HTTP status.
    Status(u16),
    /// Connected, but no HTTP answer in time.
    NoAnswer,
}

/// Whether Flux's own process lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Child {
    /// It runs.
    Alive,
    /// It ended.
    Exited {
        /// Exit status, where it exited.
        code: Option<i32>,
        /// Signal that ended it (Unix).
        signal: Option<i32>,
        /// End of its log.
        last_lines: Vec<String>,
    },
}

/// One look at a starting server. `/v1/models` has no part in it: it answers 200 while the model still loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// Flux's own process.
    pub child: Child,
    /// `GET /health`.
    pub health: Answer,
    /// `GET /props`.
    pub props: Answer,
}

/// State of a starting server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// The process lives, nobody listens yet.
    Starting,
    /// It listens, and loads its model.
    Loading,
    /// `/health` and `/props` both answer 200, and the process lives. Whose answers they are, [`identify`] says.
    Ready,
    /// The process ended.
    Exited {
        /// Exit status, where it exited.
        code: Option<i32>,
        /// Signal that ended it (Unix).
        signal: Option<i32>,
        /// End of its log.
        last_lines: Vec<String>,
    },
    /// Not ready within [`load_limit`].
    Stuck,
    /// An answer that no llama-server gives: this path, this status.
    Foreign(&'static str, u16),
}

impl ServerState {
    /// The state that `seen` shows, `elapsed` after the process was started.
    pub fn of(seen: &Observation, elapsed: Duration, limit: Duration) -> Self {
        if let Child::Exited {
            code,
            signal,
            last_lines,
        } = &seen.child
        {
            return Self::Exited {
                code: *code,
                signal: *signal,
                last_lines: last_lines.clone(),
            };
        }
        let state = match (seen.health, seen.props) {
            (Answer::Status(OK), Answer::Status(OK)) => return Self::Ready,
            (Answer::Status(OK), Answer::Status(status)) if !is_busy(status) => {
                return Self::Foreign("/props", status);
            }
            (Answer::Status(status), _) if status != OK && !is_busy(status) => {
                return Self::Foreign("/health", status);
            }
            (Answer::Refused, _) => Self::Starting,
            _ => Self::Loading,
        };
        if elapsed > limit { Self::Stuck } else { state }
    }
}

const OK: u16 = 200;

/// 503 while loading; other server errors are left to the limit.
const fn is_busy(status: u16) -> bool {
    status >= 500 && status < 600
}

/// How long a server may load a model of this size before it counts as stuck: the slowest disk worth waiting for, and
/// shader compilation, as for llama-bench. Loading is never part of a time to first token.
pub fn load_limit(model: Bytes) -> Duration {
    Duration::from_secs_f64(model.0 as f64 / LOAD_BYTES_PER_SEC + COMPILE_SECS)
}
