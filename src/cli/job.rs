//! One job from submission to its one end: events to progress, signals to cancellation, outcome to result.

use crossbeam_channel::{Receiver, never, select};
use serde_json::Value;

use crate::engine::Engine;
use crate::engine::Ports;
use crate::engine::message::{Command, Event, EventKind, JobId, Outcome};
use crate::ports::CancelMode;

use super::error::{CliError, CliResult};
use super::output::{Output, say};
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
    /// Starts an engine and listens for signals.
    ///
    /// # Errors
    /// No signal handler could be installed.
    pub fn start(ports: Ports) -> CliResult<Self> {
        let signals = signals::listen()?;
        let (engine, events) = Engine::new(ports);
        Ok(Self {
            engine,
            events,
            signals,
        })
    }

    /// The ports, for queries between jobs.
    pub fn ports(&self) -> &Ports {
        self.engine.ports()
    }

    /// Runs a job to its end and returns the document it ends with.
    ///
    /// # Errors
    /// The job failed or was cancelled; a cancel is explained on stderr before this returns.
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
                say(&cancelled_words(kind, kept_runs, session));
                Err(CliError::Cancelled)
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
    /// Measures.
    Ab,
    /// Makes a file, a build, or a profile of the machine.
    Other,
}

impl Kind {
    const fn of(command: &Command) -> Self {
        match command {
            Command::Tune(_) => Self::Tune,
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

fn cancelled_words(kind: Kind, kept_runs: u32, session: Option<i64>) -> String {
    let Some(id) = session else {
        return "cancelled: nothing was kept".to_owned();
    };
    // A session that is no sequence of runs keeps what was measured all the same.
    if matches!(kind, Kind::Other) {
        return format!("cancelled: what was measured is kept; see it with `flux show {id}`");
    }
    let next = match kind {
        Kind::Tune => format!("go on with `flux tune --resume {id}`"),
        _ => format!("see them with `flux show {id}`"),
    };
    let runs = count(u64::from(kept_runs), "run");
    format!("cancelled: {runs} kept in session {id}; {next}")
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
        assert_eq!(
            cancelled_words(Kind::Tune, 12, Some(5)),
            "cancelled: 12 runs kept in session 5; go on with `flux tune --resume 5`"
        );
        assert_eq!(
            cancelled_words(Kind::Other, 0, Some(5)),
            "cancelled: what was measured is kept; see it with `flux show 5`"
        );
    }
}
