//! The arguments, or what clap says instead of them: help, the version, wrong usage.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::{Error, ErrorKind};
use serde_json::json;

use super::args::Cli;
use super::error::{CliError, Failure};
use super::output::{print_end, say};
use crate::engine::message::USAGE;

/// Reads the command line. What clap has to say itself is said, with `--json` as the one document too.
///
/// # Errors
/// The exit status: 0 after help and version, 2 after wrong usage.
pub fn parse() -> Result<Cli, ExitCode> {
    let args: Vec<OsString> = std::env::args_os().collect();
    let asks_json = args
        .iter()
        .take_while(|a| *a != "--")
        .any(|a| a == "--json");
    read(&args).map_err(|error| {
        let text = error.render().to_string();
        let wrong = CliError::Usage(failure(&error, &text));
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion if asks_json => {}
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                // Nobody is left to tell when that fails.
                let _ = error.print();
            }
            _ => say(&wrong.text()),
        }
        if asks_json {
            let document = match error.kind() {
                ErrorKind::DisplayVersion => json!({ "schema": 1, "version": text.trim_end() }),
                ErrorKind::DisplayHelp => json!({ "schema": 1, "help": text }),
                _ => wrong.document(),
            };
            print_end(Some(&document));
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
    })
}

/// What clap makes of them. `flux help` takes nothing but names of commands: there `--json` is left out.
fn read(args: &[OsString]) -> Result<Cli, Error> {
    Cli::try_parse_from(args).map_err(|error| {
        let others = args.iter().filter(|a| *a != "--json");
        match Cli::try_parse_from(others) {
            Err(help) if help.kind() == ErrorKind::DisplayHelp => help,
            _ => error,
        }
    })
}

/// Clap's text in parts: the sentence after `error: `, what stands below it, where help is. A sentence that ends in a
/// colon names what is wrong in the lines below it: they belong to it.
fn failure(error: &Error, text: &str) -> Failure {
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        .peekable();
    let (headline, causes) = if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    {
        ("a command is missing".to_owned(), Vec::new())
    } else {
        let first = lines.next().unwrap_or_default();
        let mut headline = first.strip_prefix("error: ").unwrap_or(first).to_owned();
        if headline.ends_with(':') {
            let is_named = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("tip:");
            let named: Vec<&str> = std::iter::from_fn(|| lines.next_if(|l| is_named(l))).collect();
            headline = format!("{headline} {}", named.join(", "));
        }
        (headline, lines.map(str::to_owned).collect())
    };
    Failure {
        code: USAGE.to_owned(),
        headline,
        causes,
        hint: Some("`--help` after the command lists what it takes".to_owned()),
    }
}
