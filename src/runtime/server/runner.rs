//! Runs measured through a live llama-server (design section 7): one fresh server per run, every prompt a new one, the
//! server's own times for prompt and generation, the client's clock for the first token and the whole request. Also how a
//! build without llama-bench is measured (design section 4).

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::domain::server::{
    ChatMessage, Completion, CompletionRequest, LONGEST_SHORT_PROMPT, LiveRequest, Prompt,
    evidence, exact_text, requests, seed_of,
};
use crate::domain::types::{
    BufferUse, Failure, FailureClass, RawOutput, Run, RunOutcome, RunProgress, RunRequest,
    TestSamples, TestSpec,
};
use crate::ports::{CancelToken, Clock, LiveServer, RequestError, Runner, ServerClient};
use crate::runtime::log::{LogFacts, LogReader};

use super::{Server, ServerRequest, StartError};

/// Tokens of a slot's context beyond prompt and answer: what templates and end tokens take.
const CONTEXT_MARGIN: u32 = 64;
/// Contexts are rounded up to this, as llama.cpp pads them.
const CONTEXT_STEP: u32 = 256;
/// Tokens of the completion that shows a server to be ready (case C07), before anything is counted.
const FIRST_ANSWER: u32 = 8;
/// What it completes: no prompt that is timed begins so.
const FIRST_PROMPT: &str = "Ready?";
/// The log level at which buffers are told, one line per buffer and none per token.
const TELLING: &str = "4";

/// The [`Runner`] of llama-server.
pub struct ServerRunner {
    clock: Arc<dyn Clock>,
}

impl ServerRunner {
    /// A runner that stamps runs with `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock }
    }
}

impl Runner for ServerRunner {
    fn run(
        &self,
        request: &RunRequest,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Run {
        let (started_at, begun) = (self.clock.now(), Instant::now());
        let mut facts = LogFacts::default();
        let (mut outcome, raw) = match requests(&request.tests) {
            Err(failure) => (failed(failure), RawOutput::default()),
            Ok(asks) => served(request, &asks, begun, cancel, progress),
        };
        if request.log_buffers {
            let mut log = LogReader::new();
            raw.stderr.lines().for_each(|line| log.line(line));
            facts = log.finish();
        }
        if let (RunOutcome::Valid { .. }, Err(failure)) = (&outcome, used_gpu(request, &facts)) {
            outcome = failed(failure);
        }
        let buffers: Vec<BufferUse> = facts.buffers;
        Run {
            started_at,
            wall_secs: begun.elapsed().as_secs_f64(),
            outcome,
            buffers,
            raw,
            telemetry: None,
        }
    }
}

fn failed(failure: Failure) -> RunOutcome {
    RunOutcome::Failed {
        failure,
        salvaged: Vec::new(),
    }
}

/// A GPU run must show the GPU at work where its log tells (case C21).
fn used_gpu(request: &RunRequest, facts: &LogFacts) -> Result<(), Failure> {
    let told = !facts.buffers.is_empty() && !facts.has_gpu_buffers();
    if request.gpu_required && (facts.no_usable_gpu || told) {
        let detail = "no buffer of the model is on a GPU";
        return Err(Failure::new(FailureClass::GpuNotUsed, detail));
    }
    Ok(())
}

/// Starts the server, measures, and ends it.
fn served(
    request: &RunRequest,
    asks: &[LiveRequest],
    begun: Instant,
    cancel: &CancelToken,
    progress: &mut dyn FnMut(RunProgress),
) -> (RunOutcome, RawOutput) {
    let extra = extra(request, asks);
    let asked = ServerRequest {
        runtime: &request.runtime,
        model: &request.model,
        model_bytes: request.live.model_bytes,
        launch: &request.launch,
        extra: &extra,
    };
    let server = match Server::start(&asked, cancel, &mut |_| {}) {
        Ok(server) => server,
        Err(StartError::Cancelled) => return (RunOutcome::Cancelled, RawOutput::default()),
        Err(StartError::Failed {
            failure,
            last_lines,
        }) => {
            let raw = RawOutput {
                stderr: last_lines.join("\n"),
                ..RawOutput::default()
            };
            return (failed(failure), raw);
        }
    };
    let mut measuring = Measuring {
        request,
        client: LiveServer::client(&server),
        cancel,
        deadline: begun + Duration::from_secs_f64(request.time_limit_secs.clamp(0.0, MAX_SECS)),
        asked: 0,
        progress,
    };
    let measured = measuring.all(asks);
    let outcome = match measured {
        Ok(tests) => match server.vouch() {
            Ok(()) => RunOutcome::Valid { tests },
            Err(failure) => failed(failure),
        },
        Err(Stop::Cancelled) => RunOutcome::Cancelled,
        Err(Stop::TooSlow(outcome)) => *outcome,
        Err(Stop::Failed(failure)) => failed(server.why(failure)),
    };
    (outcome, Box::new(server).stop())
}

/// Keeps `Duration` from overflowing: a day.
const MAX_SECS: f64 = 86_400.0;

/// A context that holds every request, in as many slots as there are clients; the settings' own context wins.
fn extra(request: &RunRequest, asks: &[LiveRequest]) -> Vec<String> {
    let room = |ask: &LiveRequest| {
        let is_free = ask.takes_any_short_prompt();
        ask.generated
            + if is_free {
                LONGEST_SHORT_PROMPT
            } else {
                ask.prompt
            }
    };
    let longest = asks.iter().map(room).max();
    let slot = (longest.unwrap_or(0) + CONTEXT_MARGIN).next_multiple_of(CONTEXT_STEP);
    let clients = request.live.clients.max(1);
    let mut extra = vec!["-np".to_owned(), clients.to_string()];
    let sets_context = |a: &String| a == "-c" || a == "--ctx-size";
    if !request.launch.args.iter().any(sets_context) {
        extra.extend(["-c".to_owned(), (slot * clients).to_string()]);
    }
    let verbosity = "--verbosity";
    if request.log_buffers && request.runtime.server_flags.contains(verbosity) {
        extra.extend([verbosity, TELLING].map(str::to_owned));
    }
    extra
}

/// Why measuring ended early.
enum Stop {
    Cancelled,
    Failed(Failure),
    /// A repetition passed its early-stop limit.
    TooSlow(Box<RunOutcome>),
}

impl From<RequestError> for Stop {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Cancelled => Self::Cancelled,
            RequestError::Failed(failure) => Self::Failed(failure),
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The samples of one shape of request: by test, and the evidence of each request.
struct Samples {
    ns: Vec<Vec<u64>>,
    batches: Vec<u64>,
    requests: Vec<Json>,
}

struct Measuring<'a> {
    request: &'a RunRequest,
    client: Arc<dyn ServerClient>,
    cancel: &'a CancelToken,
    deadline: Instant,
    /// Requests made so far: each has a seed of its own.
    asked: u64,
    progress: &'a mut dyn FnMut(RunProgress),
}

impl Measuring<'_> {
    /// Every test, in the order asked for.
    fn all(&mut self, asks: &[LiveRequest]) -> Result<Vec<TestSamples>, Stop> {
        let prompt = Prompt::Text(FIRST_PROMPT.to_owned());
        let first = CompletionRequest::new(prompt, FIRST_ANSWER, 0);
        let left = self.left()?;
        let answer = self
            .client
            .complete(&first, left, self.cancel, &mut || {})?;
        if answer.timings.predicted_n.is_none_or(|n| n == 0) {
            let detail = "it generated nothing when it was asked whether it is ready";
            return Err(Failure::new(FailureClass::TooFewTokens, detail).into());
        }
        let mut found = Vec::new();
        for ask in asks {
            let ask = &self.possible(ask)?;
            let samples = self.shape(ask)?;
            let evidence = json!({"source": "llama-server", "text": self.request.live.text, "requests": samples.requests});
            let of = |(test, samples_ns): (TestSpec, Vec<u64>)| TestSamples {
                test,
                samples_ns,
                record: evidence.clone(),
                energy: None,
            };
            found.extend(ask.tests.iter().copied().zip(samples.ns).map(of));
            let clients = self.request.live.clients;
            if clients > 1 {
                let batch = TestSpec {
                    n_prompt: ask.prompt * clients,
                    n_gen: ask.generated * clients,
                    n_depth: 0,
                };
                found.push(of((batch, samples.batches)));
            }
        }
        let place = |t: &TestSamples| {
            let asked = self.request.tests.iter().position(|a| *a == t.test);
            asked.unwrap_or(usize::MAX)
        };
        found.sort_by_key(place);
        Ok(found)
    }

    /// The request with a prompt that can be made of this model's tokens, where its length is free.
    fn possible(&self, ask: &LiveRequest) -> Result<LiveRequest, Stop> {
        let mut ask = ask.clone();
        let seed = self.request.live.seed;
        if ask.takes_any_short_prompt() && self.exact(seed, ask.prompt)?.is_none() {
            while ask.prompt < LONGEST_SHORT_PROMPT / 2 && self.exact(seed, ask.prompt)?.is_none() {
                ask.prompt *= 2;
            }
            // Another text may need a little more than this one.
            ask.prompt *= 2;
        }
        Ok(ask)
    }

    /// Every repetition of one shape.
    fn shape(&mut self, ask: &LiveRequest) -> Result<Samples, Stop> {
        let mut samples = Samples {
            ns: vec![Vec::new(); ask.tests.len()],
            batches: Vec::new(),
            requests: Vec::new(),
        };
        for repetition in 1..=self.request.repetitions {
            let prompts: Result<Vec<CompletionRequest>, Stop> =
                (0..self.request.live.clients.max(1))
                    .map(|_| self.fresh(ask))
                    .collect();
            let prompts = prompts?;
            // Counters are read at each: the longest test stands for those that begin with it.
            if let Some(test) = ask.sent().next() {
                self.tell(test, repetition);
            }
            let begun = Instant::now();
            let answers = match prompts.as_slice() {
                [one] => vec![self.one(ask, one, repetition)?],
                many => self.together(many)?,
            };
            samples.batches.push(ns(begun.elapsed()));
            for answer in &answers {
                for (all, one) in samples.ns.iter_mut().zip(ask.samples(answer)?) {
                    all.push(one);
                }
                samples.requests.push(evidence(answer));
            }
        }
        Ok(samples)
    }

    fn one(
        &mut self,
        ask: &LiveRequest,
        asked: &CompletionRequest,
        repetition: u32,
    ) -> Result<Completion, Stop> {
        let left = self.left()?;
        let stop = self.early_stop(ask);
        let limit = stop.map_or(left, |(_, secs)| left.min(Duration::from_secs_f64(secs)));
        let begun = Instant::now();
        let client = Arc::clone(&self.client);
        let mut is_first = true;
        let answer = client.complete(asked, limit, self.cancel, &mut || {
            if std::mem::take(&mut is_first) {
                for test in ask.decoded() {
                    self.tell(test, repetition);
                }
            }
        });
        match (answer, stop) {
            (Err(RequestError::Failed(failure)), Some((test, limit_secs)))
                if failure.class == FailureClass::TimedOut =>
            {
                Err(Stop::TooSlow(Box::new(RunOutcome::StoppedEarly {
                    test,
                    repetition_secs: begun.elapsed().as_secs_f64(),
                    limit_secs,
                })))
            }
            (answer, _) => Ok(answer?),
        }
    }

    /// Several clients at once; all are waited for.
    fn together(&self, asked: &[CompletionRequest]) -> Result<Vec<Completion>, Stop> {
        let left = self.left()?;
        let (client, cancel) = (&self.client, self.cancel);
        std::thread::scope(|scope| {
            let one = |request| {
                let named = std::thread::Builder::new().name("client".to_owned());
                named.spawn_scoped(scope, move || {
                    client.complete(request, left, cancel, &mut || {})
                })
            };
            let clients: Result<Vec<_>, _> = asked.iter().map(one).collect();
            let clients =
                clients.map_err(|e| Failure::new(FailureClass::NotStarted, e.to_string()))?;
            let answers: Vec<_> = clients
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join)
                .collect();
            answers
                .into_iter()
                .map(|answer| match answer {
                    Ok(answer) => Ok(answer?),
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        })
    }

    /// A request that nobody has made before.
    fn fresh(&mut self, ask: &LiveRequest) -> Result<CompletionRequest, Stop> {
        let seed = self.next_seed();
        let prompt = Prompt::Chat(vec![ChatMessage::user(self.text(seed, ask.prompt)?)]);
        Ok(CompletionRequest::new(prompt, ask.generated, seed as u32))
    }

    /// What a user says so that, with the chat template around it, it is so many tokens; `None` where nothing is.
    fn exact(&self, seed: u64, tokens: u32) -> Result<Option<String>, Stop> {
        Ok(exact_text(
            self.request.live.text,
            seed,
            tokens,
            &mut |text| {
                let said = [ChatMessage::user(text)];
                let whole = self.client.apply_template(&said, self.cancel)?;
                let tokens = self.client.tokenize(&whole, self.cancel)?;
                Ok::<u32, RequestError>(u32::try_from(tokens.len()).unwrap_or(u32::MAX))
            },
        )?)
    }

    /// The same, or why there is none.
    fn text(&self, seed: u64, tokens: u32) -> Result<String, Stop> {
        self.exact(seed, tokens)?.ok_or_else(|| {
            let detail = format!(
                "no prompt of exactly {tokens} tokens can be made: the chat template and what a user asks take more; ask for longer prompts"
            );
            Failure::new(FailureClass::RequestRefused, detail).into()
        })
    }

    fn next_seed(&mut self) -> u64 {
        self.asked += 1;
        seed_of(&[self.request.live.seed, self.asked])
    }

    fn tell(&mut self, test: TestSpec, repetition: u32) {
        (self.progress)(RunProgress {
            test: test.to_string(),
            repetition,
            repetitions: self.request.repetitions,
        });
    }

    fn left(&self) -> Result<Duration, Failure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let secs = self.request.time_limit_secs;
            let detail = format!("still running after {secs:.1} s");
            return Err(Failure::new(FailureClass::TimedOut, detail));
        }
        Ok(left)
    }

    /// The test of this shape whose limit comes first, and the limit, seconds.
    fn early_stop(&self, ask: &LiveRequest) -> Option<(TestSpec, f64)> {
        let limits = self.request.early_stop.as_ref()?.max_repetition_secs.iter();
        let of_shape = limits.filter(|(test, _)| ask.tests.contains(test));
        of_shape.copied().min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos())
        .unwrap_or(u64::MAX)
        .max(1)
}
