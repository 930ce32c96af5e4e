//! The command line (design section 2): a thin layer over the engine. Results on stdout, all else on stderr.

mod args;
mod commands;
mod error;
mod file;
mod job;
mod output;
mod progress;
mod render;
mod signals;
mod values;

use std::io;
use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use args::Cli;
use output::{Output, print_json, say};

/// Runs the command line. 0: ran to its end, whatever the verdict; 1: failed; 2: usage; 130: cancelled.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.global.verbose {
        log_to_stderr();
    }
    signals::survive_file_limits();
    let output = Output::new(&cli.global);
    match commands::run(cli, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = error.text();
            if !text.is_empty() {
                say(&text);
            }
            if output.json
                && let Some(document) = error.document()
            {
                // The error is said already; a stdout that cannot be written may be the error itself.
                let _ = print_json(&document);
            }
            ExitCode::from(error.status())
        }
    }
}

/// `-v`: everything of Flux from debug up; `FLUX_LOG` chooses otherwise.
fn log_to_stderr() {
    let filter =
        EnvFilter::try_from_env("FLUX_LOG").unwrap_or_else(|_| EnvFilter::new("flux=debug"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(false)
        // It would complain on stderr too, and panic where that is closed.
        .log_internal_errors(false);
    // Only a second subscriber is refused, and there is none.
    let _ = subscriber.try_init();
}
