//! The arguments of `flux run`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

use crate::domain::text::Shell;

use super::GoalArg;

/// `flux run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Model file
    #[arg(short, long, value_name = "FILE")]
    pub model: PathBuf,
    /// llama.cpp build: its name or folder
    #[arg(long, value_name = "NAME|DIR")]
    pub runtime: Option<String>,
    /// Which profile, where several goals were tuned
    #[arg(long, value_enum)]
    pub goal: Option<GoalArg>,
    /// Cite for each setting the run and the confirmation that introduced it; starts nothing
    #[arg(long)]
    pub explain: bool,
    /// Print the command; starts nothing
    #[arg(long)]
    pub print: bool,
    /// Shell the printed command is for [default: powershell on Windows, else bash]
    #[arg(long, value_enum)]
    pub shell: Option<ShellArg>,
    /// Listen there instead of on this machine alone; other machines can then use the server
    #[arg(long, value_name = "ADDRESS", value_parser = NonEmptyStringValueParser::new())]
    pub host: Option<String>,
    /// File with the API keys that may use the server, one a line; a single one can come by the environment
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Apply a profile that was measured on another fingerprint
    #[arg(long)]
    pub stale_ok: bool,
    /// Arguments for llama-server
    #[arg(last = true, value_name = "LLAMA-SERVER ARGS")]
    pub server_args: Vec<String>,
}

/// `Shell` as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ShellArg {
    /// bash, zsh and other POSIX shells
    Bash,
    /// PowerShell
    Powershell,
    /// The Windows command prompt
    Cmd,
}

impl From<ShellArg> for Shell {
    fn from(shell: ShellArg) -> Self {
        match shell {
            ShellArg::Bash => Self::Bash,
            ShellArg::Powershell => Self::Powershell,
            ShellArg::Cmd => Self::Cmd,
        }
    }
}
