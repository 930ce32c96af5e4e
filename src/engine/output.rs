//! The output check before a profile is saved (case C42): stock and the winner, each in a fresh llama-server with its own
//! arguments, answer the same prompts. Nothing is measured here; what they say is compared.

use std::time::Duration;

use crate::domain::search::Tool;
use crate::domain::server::TokenProbs;
use crate::domain::server::output::{
    AnswerDifference, CONTEXT, OutputCheck, OutputStatus, PROMPTS, compare, output_request, places,
    smaller_cache,
};
use crate::domain::types::{Failure, Settings};
use crate::ports::{CancelToken, LiveServer, Notice, NoticeLevel, RequestError, ServerStart};

use super::Ports;
use super::job::{Ended, JobContext};
use super::measure::Bench;
use super::message::{EventKind, JobError};
use super::workplace::Workplace;

/// Longest wait for one answer: a prompt of 300 tokens and 32 more at one token per second, the slowest worth tuning.
const ANSWER_LIMIT: Duration = Duration::from_mins(6);
/// Times the winner is asked: some wrong kernels show only in a server that is warm (case C42).
const ROUNDS: u64 = 2;
/// Name of the stage.
const STAGE: &str = "output check";

/// Why there are no answers of a server.
enum Silent {
    Cancelled,
    /// It did not start, died, or answers nothing that can be compared.
    Failed(String),
}

/// The answers of one server, a round after the other, each in the order of [`PROMPTS`].
type Answers = Vec<Vec<TokenProbs>>;

/// Asks and compares; `tell` hears of every answer that is waited for, with its number and how many there are. `None` when
/// cancelled.
///
/// # Errors
/// The settings cannot be written out.
pub(super) fn check(
    place: &Workplace,
    settings: &Settings,
    ports: &Ports,
    cancel: &CancelToken,
    tell: &mut dyn FnMut(u64, u64, &str),
) -> Result<Option<OutputCheck>, JobError> {
    let skipped = |why: &str| {
        let reason = format!("the output was not compared with stock's: {why}");
        Ok(Some(OutputCheck::without(OutputStatus::Skipped, reason)))
    };
    if place.runtime.server.is_none() {
        return skipped("this build has no llama-server");
    }
    if !place.model.tokenizer {
        return skipped("the model has no tokenizer");
    }
    let mut asking = Asking {
        place,
        ports,
        cancel,
        tell,
        asked: 0,
    };
    let baseline = match asking.answers(&Settings::stock(), "stock", 1)? {
        Ok(answers) => answers,
        Err(Silent::Cancelled) => return Ok(None),
        Err(Silent::Failed(why)) => {
            return skipped(&format!(
                "stock does not answer through llama-server: {why}"
            ));
        }
    };
    let answers = match asking.answers(settings, "the winner", ROUNDS)? {
        Ok(answers) => answers,
        Err(Silent::Cancelled) => return Ok(None),
        Err(Silent::Failed(why)) => {
            let reason = format!("llama-server does not answer with these settings: {why}");
            return Ok(Some(OutputCheck::without(OutputStatus::NotServed, reason)));
        }
    };
    let launch = place.launch(settings, Tool::Server, ports)?;
    let compared = answers.iter().enumerate().map(|(i, answer)| {
        let which = i % PROMPTS.len();
        AnswerDifference {
            warm: i >= PROMPTS.len(),
            ..compare(PROMPTS[which].0, &baseline[which], answer)
        }
    });
    Ok(Some(OutputCheck::of(
        compared.collect(),
        &smaller_cache(&launch),
    )))
}

struct Asking<'a> {
    place: &'a Workplace,
    ports: &'a Ports,
    cancel: &'a CancelToken,
    tell: &'a mut dyn FnMut(u64, u64, &str),
    asked: u64,
}

impl Asking<'_> {
    /// Starts a server with these settings, asks it every prompt so many times, and ends it.
    fn answers(
        &mut self,
        settings: &Settings,
        name: &str,
        rounds: u64,
    ) -> Result<Result<Answers, Silent>, JobError> {
        let (place, ports) = (self.place, self.ports);
        let launch = place.launch(settings, Tool::Server, ports)?;
        let sets_context = |a: &String| a == "-c" || a == "--ctx-size";
        let mut extra = vec!["-np".to_owned(), "1".to_owned()];
        if !launch.args.iter().any(sets_context) {
            extra.extend(["-c".to_owned(), CONTEXT.to_string()]);
        }
        let start = ServerStart {
            runtime: place.runtime.clone(),
            model: place.model.path.clone(),
            model_bytes: place.model.file_bytes,
            launch,
            extra,
        };
        self.say(&format!("starting llama-server with {name}"));
        let server = match ports.servers.start(&start, self.cancel, &mut |_| {}) {
            Ok(server) => server,
            Err(_) if self.cancel.is_cancelled() => return Ok(Err(Silent::Cancelled)),
            Err(error) => return Ok(Err(Silent::Failed(error.headline))),
        };
        let answers = self.ask(server.as_ref(), name, rounds);
        server.stop();
        Ok(answers)
    }

    fn ask(&mut self, server: &dyn LiveServer, name: &str, rounds: u64) -> Result<Answers, Silent> {
        let client = server.client();
        let mut answers = Vec::new();
        for (prompt, text) in (0..rounds).flat_map(|_| PROMPTS) {
            if self.cancel.is_cancelled() {
                return Err(Silent::Cancelled);
            }
            self.asked += 1;
            self.say(&format!("{name} answers {prompt}"));
            let request = output_request(text);
            let answer = client.complete(&request, ANSWER_LIMIT, self.cancel, &mut || {});
            let answer = answer.map_err(|e| match e {
                RequestError::Cancelled => Silent::Cancelled,
                RequestError::Failed(failure) => Silent::Failed(server.why(failure).to_string()),
            })?;
            let unusable = || {
                let why = "its answers have no log-probabilities that are numbers";
                Silent::Failed(why.to_owned())
            };
            answers.push(places(&answer).ok_or_else(unusable)?.to_vec());
        }
        let vouched = server
            .vouch()
            .map_err(|f: Failure| Silent::Failed(f.to_string()));
        vouched.map(|()| answers)
    }

    fn say(&mut self, doing: &str) {
        (self.tell)(self.asked, (1 + ROUNDS) * PROMPTS.len() as u64, doing);
    }
}

impl Bench<'_> {
    /// The check as a stage of the job: announced, and its result kept with the session.
    pub(super) fn check_output(
        &mut self,
        settings: &Settings,
        context: &mut JobContext,
    ) -> Result<OutputCheck, Ended> {
        context.emit(EventKind::Stage {
            name: STAGE.to_owned(),
        });
        let cancel = context.cancel.clone();
        let mut tell = |done, total, doing: &str| context.progress(done, total, None, doing);
        let begun = self.ports.clock.elapsed();
        let checked = check(self.place, settings, self.ports, &cancel, &mut tell)?;
        // The servers' time, as a run's: Flux itself only waits.
        self.run_secs += self
            .ports
            .clock
            .elapsed()
            .saturating_sub(begun)
            .as_secs_f64();
        let checked = checked.ok_or_else(|| self.cancelled())?;
        self.tell(&[notice(&checked)], context)?;
        Ok(checked)
    }
}

fn notice(check: &OutputCheck) -> Notice {
    let is_fine = matches!(check.status, OutputStatus::Same);
    Notice {
        level: if is_fine {
            NoticeLevel::Info
        } else {
            NoticeLevel::Warning
        },
        code: "output-check".to_owned(),
        text: check.sentence(),
    }
}
