//! Signals: requests to a job that listens (the first Ctrl-C asks for a stop after the run in progress, the second, a
//! termination or a hang-up for a stop now; children are ended by the engine, never left behind), the end of Flux where
//! none does.

use std::sync::{Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::error::{CliError, CliResult, Kept};
use super::output::{is_writing, say, try_print_end, wait_while_read};

/// What the outside world asks of a running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM, SIGHUP. Windows tells a closed console as Ctrl-C, and ends Flux seconds later: the job object its children.
    #[cfg_attr(
        not(any(unix, test)),
        expect(dead_code, reason = "Windows has one event for all")
    )]
    Terminate,
}

/// Requests kept for a reader that is busy drawing; more than this says nothing new.
const CAPACITY: usize = 8;

/// Who is told of signals, from the first to listen on.
static LISTENER: Mutex<Option<Sender<Request>>> = Mutex::new(None);

/// Takes over what signals do: until somebody listens they end Flux with status 130 and, with `json`, its document.
///
/// # Errors
/// The operating system refuses the handler.
pub fn install(json: bool) -> CliResult {
    let mut is_again = false;
    let deliver = move |request| {
        // Who still listens while a result is written has nothing left to stop.
        if !is_writing() && is_told(request) {
            return;
        }
        // The result is waited for, with which Flux ends; asked again, only while somebody takes it.
        if !end(json) {
            if !std::mem::replace(&mut is_again, true) {
                return;
            }
            wait_while_read();
        }
        std::process::exit(CliError::Cancelled(Kept::default()).status().into());
    };
    platform::install(deliver).map_err(|e| CliError::failed("could not listen for Ctrl-C").cause(e))
}

/// Takes the signals until the receiver is dropped.
pub fn listen() -> Receiver<Request> {
    let (sender, receiver) = bounded(CAPACITY);
    *LISTENER.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    receiver
}

/// Whether somebody listens. A full channel already holds the same request.
fn is_told(request: Request) -> bool {
    let listener = LISTENER.lock().unwrap_or_else(PoisonError::into_inner);
    listener
        .as_ref()
        .is_some_and(|sender| !matches!(sender.try_send(request), Err(e) if e.is_disconnected()))
}

/// Says that Flux was ended; `false` where its document is being written or was.
fn end(json: bool) -> bool {
    let cancelled = CliError::Cancelled(Kept::default());
    if json && !try_print_end(&cancelled.document()) {
        return false;
    }
    say(&cancelled.text());
    true
}

/// A file that may not grow any more (`ulimit -f`) is an error of the write, not the end of Flux. Children inherit a signal
/// that is ignored, but not one that is handled.
pub fn survive_file_limits() {
    #[cfg(unix)]
    {
        let reached = std::sync::Arc::default();
        // Refused, the signal ends Flux as it would anyway.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, reached);
    }
}

#[cfg(unix)]
mod platform {
    use super::Request;

    use std::io;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    pub fn install(mut deliver: impl FnMut(Request) + Send + 'static) -> io::Result<()> {
        let ignored = ignored_signals();
        let wanted = [SIGINT, SIGTERM, SIGHUP]
            .into_iter()
            .filter(|signal| ignored & (1 << (signal - 1)) == 0);
        let mut signals = Signals::new(wanted)?;
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in &mut signals {
                    let request = if signal == SIGINT {
                        Request::Interrupt
                    } else {
                        Request::Terminate
                    };
                    deliver(request);
                }
            })?;
        Ok(())
    }

    /// Signals that were ignored when Flux started (`nohup`, a background job of a script) stay ignored.
    fn ignored_signals() -> u64 {
        std::fs::read_to_string("/proc/self/status")
            .map_or(0, |status| super::ignored_mask(&status))
    }
}

#[cfg(not(unix))]
mod platform {
    use super::Request;

    pub fn install(mut deliver: impl FnMut(Request) + Send + 'static) -> Result<(), ctrlc::Error> {
        ctrlc::set_handler(move || deliver(Request::Interrupt))
    }
}

/// `SigIgn` of `/proc/self/status`: bit n − 1 stands for signal n. 0 where it cannot be read.
#[cfg(any(unix, test))]
fn ignored_mask(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read_from_proc() {
        // SIGHUP is 1, SIGPIPE is 13: bits 0 and 12.
        let status =
            "Name:\tflux\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert_eq!(ignored_mask(status), 0x1001);
        assert_eq!(ignored_mask("nothing of the kind"), 0);
    }
}
