//! One job from submission to its one end: events to progress, signals to cancellation, outcome to result.

use crossbeam_channel::{Receiver, never, select};
use serde_json::Value;

use crate::engine::Engine;
use crate::engine::Ports;
use crate::engine::message::{Command, Event, EventKind, JobId, Outcome};
use crate::ports::CancelMode;

use super::error::{CliError, CliResult, Kept};
use super::output::Output;
use super::progress::Progress;
use super::signals::{self, Request};
use crate::domain::text::count;

/// An engine with its stream of events and the signals meant for it. Dropping it ends what still runs.
pub struct Jobs {
    engine: Engine,
    events: Receiver<Event>,
    signals: Receiver<Request>,
}

impl Jobs {
    /// Starts an engine and takes the signals.
    pub fn start(ports: Ports) -> Self {
        let signals = signals::listen();
        let (engine, events) = Engine::new(ports);
        Self {
            engine,
            events,
            signals,
        }
    }

    /// The ports, for queries between jobs.
    pub fn ports(&self) -> &Ports {
        self.engine.ports()
    }

    /// Runs a job to its end and returns the document it ends with.
    ///
    /// # Errors
    /// The job failed or was cancelled.
    pub fn run(&mut self, command: Command, output: &Output) -> CliResult<Value> {
        let kind = Kind::of(&command);
        let job = self.engine.submit(command)?;
        let mut progress = Progress::new(output);
        let outcome = self.follow(job, kind, &mut progress);
        progress.end();
        match outcome {
            Outcome::Done { result } => Ok(result),
            Outcome::Failed { error } => Err(error.into()),
            Outcome::Cancelled { kept_runs, session } => {
                Err(CliError::Cancelled(kept(kind, kept_runs, session)))
            }
        }
    }

    fn follow(&self, job: JobId, kind: Kind, progress: &mut Progress) -> Outcome {
        let mut interrupts = 0;
        let mut signals = self.signals.clone();
        loop {
            select! {
                recv(self.events) -> event => match event {
                    Ok(Event { kind, .. }) => {
                        progress.event(&kind);
                        if let EventKind::Finished(outcome) = kind {
                            return outcome;
                        }
                    }
                    // The engine owns a sender for as long as it lives.
                    Err(_) => return Outcome::Cancelled { kept_runs: 0, session: None },
                },
                recv(signals) -> request => match request {
                    Ok(request) => {
                        interrupts += 1;
                        let (mode, words) = answer(request, interrupts, kind);
                        progress.say(words);
                        self.engine.cancel(job, mode);
                    }
                    Err(_) => signals = never(),
                },
            }
        }
    }
}

/// What the words to a cancel depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Measures, and can be resumed.
    Tune,
    /// The same.
    ServeCheck,
    /// Measures.
    Ab,
    /// Makes a file, a build, or a profile of the machine.
    Other,
}

impl Kind {
    const fn of(command: &Command) -> Self {
        match command {
            Command::Tune(_) => Self::Tune,
            Command::ServeCheck(check) if !check.speculates() => Self::ServeCheck,
            Command::Ab(_) | Command::Plan(_) | Command::ServeCheck(_) => Self::Ab,
            Command::Bandwidth(_)
            | Command::Lab(_)
            | Command::Install(_)
            | Command::Synth(_)
            | Command::Serve(_) => Self::Other,
        }
    }
}

/// What a signal means, and what the user is told.
fn answer(request: Request, interrupts: u32, kind: Kind) -> (CancelMode, &'static str) {
    match request {
        Request::Interrupt if interrupts == 1 && kind != Kind::Other => (
            CancelMode::AfterSample,
            "stopping after the run in progress; press Ctrl-C again to stop now",
        ),
        Request::Interrupt | Request::Terminate => (CancelMode::Now, "stopping now"),
    }
}

fn kept(kind: Kind, runs: u32, session: Option<i64>) -> Kept {
    let (words, hint) = match (session, kind) {
        (None, _) => ("nothing was kept".to_owned(), None),
        // A session that is no sequence of runs keeps what was measured all the same.
        (Some(id), Kind::Other) => (
            "what was measured is kept".to_owned(),
            Some(format!("see it with `flux show {id}`")),
        ),
        (Some(id), _) => {
            let runs = count(u64::from(runs), "run");
            let next = match kind {
                Kind::Tune => format!("go on with `flux tune --resume {id}`"),
                Kind::ServeCheck => format!("go on with `flux serve-check --resume {id}`"),
                _ => format!("see them with `flux show {id}`"),
            };
            (format!("{runs} kept in session {id}"), Some(next))
        }
    };
    Kept {
        words: Some(words),
        hint,
        session,
        runs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ctrl_c_waits_for_the_run_and_everything_else_does_not() {
        let mode = |request, interrupts, kind| answer(request, interrupts, kind).0;
        assert_eq!(
            mode(Request::Interrupt, 1, Kind::Tune),
            CancelMode::AfterSample
        );
        assert_eq!(mode(Request::Interrupt, 2, Kind::Tune), CancelMode::Now);
        assert_eq!(mode(Request::Interrupt, 1, Kind::Other), CancelMode::Now);
        assert_eq!(mode(Request::Terminate, 1, Kind::Ab), CancelMode::Now);
    }

    #[test]
    fn a_cancel_says_what_is_kept_and_how_to_go_on() {
        let said = |kind, runs, session| CliError::Cancelled(kept(kind, runs, session)).text();
        assert_eq!(
            said(Kind::Tune, 12, Some(5)),
            "cancelled: 12 runs kept in session 5; go on with `flux tune --resume 5`\n"
        );
        assert_eq!(
            said(Kind::Other, 0, Some(5)),
            "cancelled: what was measured is kept; see it with `flux show 5`\n"
        );
        assert_eq!(said(Kind::Ab, 0, None), "cancelled: nothing was kept\n");
    }
}
