//! `flux` without a command opens the desktop app; this is where it is plugged in.

use clap::CommandFactory as _;

use crate::cli::args::Cli;
use crate::cli::error::{CliError, CliResult};

/// Opens the app.
///
/// # Errors
/// Always, while no app is built in: a usage error that lists the commands.
pub fn run() -> CliResult {
    let commands: Vec<String> = Cli::command()
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| command.get_name().to_owned())
        .collect();
    Err(
        CliError::usage("the desktop app is not built into this binary; name a command")
            .cause(commands.join(", "))
            .hint("`flux quickstart` does everything once, `flux help` explains each command"),
    )
}
