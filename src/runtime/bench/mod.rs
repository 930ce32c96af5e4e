//! Runs llama-bench, one configuration per process (design sections 4 and 5, paper section 3): arguments from the
//! build's own flags, repetitions timed as they run, and an outcome that is either all valid samples or a failure.

mod args;
mod judge;
mod pace;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::types::{
    BufferUse, Failure, FailureClass, RawOutput, Run, RunOutcome, RunProgress, RunRequest,
};
use crate::ports::{CancelToken, Clock, Runner};
use crate::runtime::config::llama_spec;
use crate::runtime::failure::is_vague;
use crate::runtime::log::{LogFacts, LogReader};
use crate::runtime::process::{self, EndReason, Ended, Event, Flow, Stream};

use pace::Pace;

/// Longest time limit that is passed on, seconds: a year; keeps `Duration` from overflowing.
const MAX_LIMIT_SECS: f64 = 365.0 * 86_400.0;

/// The real [`Runner`].
pub struct BenchRunner {
    clock: Arc<dyn Clock>,
}

impl BenchRunner {
    /// A runner that stamps runs and times repetitions with `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock }
    }

    fn attempt(
        &self,
        request: &RunRequest,
        is_verbose: bool,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Attempt {
        let Some(bench) = &request.runtime.bench else {
            return Attempt::not_started(
                RawOutput::default(),
                format!("no llama-bench in {}", request.runtime.dir.display()),
            );
        };
        let plan = match args::plan(request, is_verbose) {
            Ok(plan) => plan,
            Err(failure) => return Attempt::failed(RawOutput::default(), failure),
        };
        let mut spec = llama_spec(bench, request.runtime.environment(&request.launch.env));
        spec.args = plan.args;
        spec.dir = plan.folder;
        spec.time_limit = Some(limit(request.time_limit_secs));
        let raw = RawOutput {
            argv: spec.argv(),
            env: spec.env.clone(),
            ..RawOutput::default()
        };
        // Without progress lines nothing is timed, so nothing is stopped.
        let early_stop = request.early_stop.as_ref().filter(|_| plan.has_progress);
        let mut pace = Pace::new(plan.order, early_stop);
        let mut log = LogReader::new();
        let ended = process::run(&spec, cancel, &mut |event| {
            self.watch(event, &mut pace, &mut log, progress)
        });
        match ended {
            Ok(ended) => Attempt::ended(request, raw, ended, pace, log.finish(), is_verbose)
                .with_doubt(plan.doubt),
            Err(error) => {
                let detail = start_error(&error, &spec.argv()[0]);
                Attempt::not_started(raw, detail)
            }
        }
    }

    fn watch(
        &self,
        event: Event<'_>,
        pace: &mut Pace,
        log: &mut LogReader,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Flow {
        let now = self.clock.elapsed();
        match event {
            Event::Line(Stream::Stderr, line) => {
                log.line(line);
                if let Some(step) = pace.line(line, now) {
                    progress(step);
                }
            }
            // A record is printed when its last repetition is over.
            Event::Line(Stream::Stdout, _) => pace.repetition_ended(now),
            Event::Started(_) | Event::Tick => {}
        }
        if pace.check(now) {
            Flow::Stop
        } else {
            Flow::Continue
        }
    }

    /// Runs a failed arm once more with `-v`: without it llama-bench says "failed to load model" for an exhausted
    /// memory and "failed to create context" for everything. Only the class is taken from it, never samples.
    fn diagnose(&self, request: &RunRequest, cancel: &CancelToken, attempt: &mut Attempt) {
        let again = self.attempt(request, true, cancel, &mut |_| {});
        if let RunOutcome::Failed { failure, .. } = again.outcome
            && let RunOutcome::Failed { failure: known, .. } = &mut attempt.outcome
            && again.raw.exit_code == attempt.raw.exit_code
        {
            *known = failure;
        }
        attempt.raw.stderr += "\n[run again with -v to learn why]\n";
        attempt.raw.stderr += &again.raw.stderr;
    }
}

impl Runner for BenchRunner {
    fn run(
        &self,
        request: &RunRequest,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Run {
        let started_at = self.clock.now();
        let can_say_more = request.runtime.bench_flags.contains("--verbose");
        let is_verbose = request.log_buffers && can_say_more;
        let mut attempt = self.attempt(request, is_verbose, cancel, progress);
        if can_say_more && !is_verbose && attempt.is_vague() && !cancel.is_cancelled() {
            self.diagnose(request, cancel, &mut attempt);
        }
        Run {
            started_at,
            wall_secs: attempt.wall.as_secs_f64(),
            outcome: attempt.outcome,
            buffers: attempt.buffers,
            raw: attempt.raw,
            telemetry: None,
        }
    }
}

/// One process, judged.
struct Attempt {
    outcome: RunOutcome,
    buffers: Vec<BufferUse>,
    raw: RawOutput,
    wall: Duration,
}

impl Attempt {
    fn failed(raw: RawOutput, failure: Failure) -> Self {
        Self {
            outcome: RunOutcome::Failed {
                failure,
                salvaged: Vec::new(),
            },
            buffers: Vec::new(),
            raw,
            wall: Duration::ZERO,
        }
    }

    fn not_started(raw: RawOutput, detail: String) -> Self {
        Self::failed(raw, Failure::new(FailureClass::NotStarted, detail))
    }

    fn ended(
        request: &RunRequest,
        mut raw: RawOutput,
        ended: Ended,
        pace: Pace,
        facts: LogFacts,
        is_verbose: bool,
    ) -> Self {
        let outcome = match ended.reason {
            EndReason::Exited => judge::judge(request, &ended, &facts, is_verbose),
            EndReason::TimedOut => RunOutcome::Failed {
                failure: Failure::new(
                    FailureClass::TimedOut,
                    format!("still running after {:.1} s", ended.wall.as_secs_f64()),
                ),
                salvaged: crate::domain::bench_record::parse(ended.stdout.as_bytes()).salvaged(),
            },
            EndReason::Stopped => pace.into_stopped().unwrap_or(RunOutcome::Cancelled),
            EndReason::Cancelled => RunOutcome::Cancelled,
        };
        raw.exit_code = ended.exit_code;
        raw.signal = ended.signal;
        raw.stdout = ended.stdout;
        raw.stderr = ended.stderr;
        Self {
            outcome,
            buffers: facts.buffers,
            raw,
            wall: ended.wall,
        }
    }

    /// Adds to a model that could not be loaded why that may be.
    fn with_doubt(mut self, doubt: Option<&str>) -> Self {
        if let (RunOutcome::Failed { failure, .. }, Some(doubt)) = (&mut self.outcome, doubt)
            && failure.class == FailureClass::ModelLoad
        {
            failure.detail = format!("{}; {doubt}", failure.detail);
        }
        self
    }

    fn is_vague(&self) -> bool {
        match &self.outcome {
            RunOutcome::Failed { failure, .. } => is_vague(failure),
            _ => false,
        }
    }
}

fn limit(secs: f64) -> Duration {
    Duration::from_secs_f64(secs.clamp(0.0, MAX_LIMIT_SECS))
}

/// `ERROR_BAD_EXE_FORMAT`, `ENOEXEC`.
const BAD_PROGRAM: i32 = if cfg!(windows) { 193 } else { 8 };

fn start_error(error: &io::Error, program: &str) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("the program is gone: {program}"),
        io::ErrorKind::PermissionDenied => format!("no permission to run it: {program}"),
        _ if error.raw_os_error() == Some(BAD_PROGRAM) => {
            format!("this is no program of this system: {program}")
        }
        _ => format!("{error}: {program}"),
    }
}
