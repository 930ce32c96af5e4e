//! Signals as requests to a running job: the first Ctrl-C asks for a stop after the run in progress, the second,
//! a termination or a hang-up for a stop now. Children are ended by the engine, never left behind.

use crossbeam_channel::{Receiver, bounded};

use super::error::{CliError, CliResult};

/// What the outside world asks of a running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM, SIGHUP. Windows tells a closed console as Ctrl-C, and ends Flux seconds later: the job object its children.
    #[cfg_attr(not(unix), expect(dead_code, reason = "Windows has one event for all"))]
    Terminate,
}

/// Requests kept for a reader that is busy drawing; more than this says nothing new.
const CAPACITY: usize = 8;

/// Starts listening; until then signals end Flux at once, which is right for everything that starts no long work.
///
/// # Errors
/// The operating system refuses the handler.
pub fn listen() -> CliResult<Receiver<Request>> {
    platform::listen().map_err(|e| CliError::failed("could not listen for Ctrl-C").cause(e))
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
    use super::{CAPACITY, Receiver, Request, bounded};

    use std::io;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    pub fn listen() -> io::Result<Receiver<Request>> {
        let ignored = ignored_signals();
        let wanted = [SIGINT, SIGTERM, SIGHUP]
            .into_iter()
            .filter(|signal| ignored & (1 << (signal - 1)) == 0);
        let mut signals = Signals::new(wanted)?;
        let (sender, receiver) = bounded(CAPACITY);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in &mut signals {
                    let request = if signal == SIGINT {
                        Request::Interrupt
                    } else {
                        Request::Terminate
                    };
                    // A full channel already holds the same request.
                    let _ = sender.try_send(request);
                }
            })?;
        Ok(receiver)
    }

    /// Signals that were ignored when Flux started (`nohup`, a background job of a script) stay ignored.
    fn ignored_signals() -> u64 {
        std::fs::read_to_string("/proc/self/status")
            .map_or(0, |status| super::ignored_mask(&status))
    }
}

#[cfg(not(unix))]
mod platform {
    use super::{CAPACITY, Receiver, Request, bounded};

    pub fn listen() -> Result<Receiver<Request>, ctrlc::Error> {
        let (sender, receiver) = bounded(CAPACITY);
        ctrlc::set_handler(move || {
            // A full channel already holds the same request.
            let _ = sender.try_send(Request::Interrupt);
        })?;
        Ok(receiver)
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
