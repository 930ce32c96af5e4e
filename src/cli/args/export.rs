//! The arguments of `flux export` and `flux import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::domain::handover::Form;
use crate::report::Format;

/// `flux export`.
#[derive(Debug, Args)]
pub struct Export {
    /// Session
    pub id: i64,
    /// What was measured (json, csv), or the profile it saved
    #[arg(long, value_enum, default_value_t = ExportFormat::Json)]
    pub format: ExportFormat,
    /// Port of a started server [default: 8080]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Hide home folders, user names and this machine's name
    #[arg(long)]
    pub redact: bool,
    /// File to write; stdout without one
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace a file that exists
    #[arg(long)]
    pub force: bool,
}

/// `flux import`.
#[derive(Debug, Args)]
pub struct Import {
    /// File with the profile, - for stdin
    #[arg(required_unless_present_any = ["list", "undo"])]
    pub file: Option<PathBuf>,
    /// Show what was imported instead
    #[arg(long, conflicts_with = "file")]
    pub list: bool,
    /// Forget an import instead: its number, as --list shows it
    #[arg(long, value_name = "N", conflicts_with_all = ["file", "list"])]
    pub undo: Option<i64>,
}

/// Formats of `flux export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Everything that was measured
    Json,
    /// One line per sample
    Csv,
    /// The profile, for `flux import` on another machine; names nobody
    Profile,
    /// A script that starts llama-server with the profile
    Bash,
    /// The same for PowerShell
    Powershell,
    /// A preset: llama-server --models-preset FILE
    Preset,
    /// A llama-swap configuration
    LlamaSwap,
    /// A systemd user unit
    Systemd,
    /// A Docker Compose file with llama.cpp's own image
    Compose,
}

impl From<ExportFormat> for Format {
    fn from(format: ExportFormat) -> Self {
        match format {
            ExportFormat::Json => Self::Json,
            ExportFormat::Csv => Self::Csv,
            ExportFormat::Profile => Self::Profile,
            ExportFormat::Bash => Self::Start(Form::Bash),
            ExportFormat::Powershell => Self::Start(Form::Powershell),
            ExportFormat::Preset => Self::Start(Form::Preset),
            ExportFormat::LlamaSwap => Self::Start(Form::LlamaSwap),
            ExportFormat::Systemd => Self::Start(Form::Systemd),
            ExportFormat::Compose => Self::Start(Form::Compose),
        }
    }
}
