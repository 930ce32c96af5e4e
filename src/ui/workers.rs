//! Answering questions one after the other on a thread of its own. One that panics costs its own answer and no other.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine::message::JobError;
use crate::ports::sync::Receiver;

/// Asked of `P` on a worker.
pub type Question<P, A> = Box<dyn FnOnce(&P) -> A + Send>;

/// Which question a worker answers last when the window is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// The one under way.
    UnderWay,
    /// The last one asked: it may store something.
    Queued,
}

/// Answers until nobody can ask any more, or nobody hears: `answer` says whether somebody heard.
pub fn answer_all<P, A>(
    questions: &Receiver<Question<P, A>>,
    ports: &P,
    last: Last,
    answer: impl Fn(Result<A, JobError>) -> bool,
) {
    for question in questions {
        let answered = catch_unwind(AssertUnwindSafe(|| question(ports)));
        let answered = answered.map_err(|panic| JobError::panicked("Flux hit a bug", &*panic));
        if !answer(answered) && last == Last::UnderWay {
            return;
        }
    }
}
