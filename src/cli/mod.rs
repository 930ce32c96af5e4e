//! The command line (design section 2): a thin layer over the engine. Results on stdout, all else on stderr.

mod args;
mod commands;
mod error;
mod file;
mod job;
mod output;
mod parse;
mod progress;
mod render;
mod signals;
mod values;

use std::io;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use error::CliResult;
use output::{Output, print_end, say};

/// Runs the command line. 0: ran to its end, whatever the verdict; 1: failed; 2: usage; 130: cancelled.
pub fn main() -> ExitCode {
    let cli = match parse::parse() {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    if cli.global.verbose {
        log_to_stderr();
    }
    signals::survive_file_limits();
    let output = Output::new(&cli.global);
    let data_dir = cli.global.data_dir.clone();
    let error = run(cli, &output).err();
    let error = error.map(|e| e.in_folder(data_dir.as_deref()));
    if let Some(error) = &error {
        say(&error.text());
    }
    if output.json {
        print_end(error.as_ref().map(error::CliError::document).as_ref());
    }
    error.map_or(ExitCode::SUCCESS, |error| ExitCode::from(error.status()))
}

fn run(cli: args::Cli, output: &Output) -> CliResult {
    // The window ends by itself; what another Flux asks for ends with it.
    if cli
        .command
        .as_ref()
        .is_some_and(args::Action::is_for_people)
    {
        signals::install(output.json)?;
    }
    commands::run(cli, output)
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
