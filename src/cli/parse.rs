//! The arguments, or what clap says instead of them: help, the version, wrong usage.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::{Error, ErrorKind};
use serde_json::json;

use super::args::Cli;
use super::error::{CliError, Failure};
use super::output::print_end;
use crate::engine::message::USAGE;

/// Reads the command line. What clap has to say itself is said, with `--json` as the one document too.
///
/// # Errors
/// The exit status: 0 after help and version, 2 after wrong usage.
pub fn parse() -> Result<Cli, ExitCode> {
    let args: Vec<OsString> = std::env::args_os().collect();
    Cli::try_parse_from(&args).map_err(|error| {
        let asks_json = args
            .iter()
            .take_while(|a| *a != "--")
            .any(|a| a == "--json");
        let text = error.render().to_string();
        if error.use_stderr() || !asks_json {
            // Nobody is left to tell when that fails.
            let _ = error.print();
        }
        if asks_json {
            let document = match error.kind() {
                ErrorKind::DisplayVersion => json!({ "schema": 1, "version": text.trim_end() }),
                ErrorKind::DisplayHelp => json!({ "schema": 1, "help": text }),
                _ => CliError::Usage(failure(&error, &text)).document(),
            };
            print_end(Some(&document));
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
    })
}

/// Clap's text in parts: the sentence after `error: `, what stands below it, where help is.
fn failure(error: &Error, text: &str) -> Failure {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let (headline, causes) = if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    {
        ("a command is missing", Vec::new())
    } else {
        let first = lines.next().unwrap_or_default();
        let first = first.strip_prefix("error: ").unwrap_or(first);
        let rest = lines.filter(|line| !line.starts_with("For more information"));
        (first, rest.map(str::to_owned).collect())
    };
    Failure {
        code: USAGE.to_owned(),
        headline: headline.to_owned(),
        causes,
        hint: Some("`--help` after the command lists what it takes".to_owned()),
    }
}
