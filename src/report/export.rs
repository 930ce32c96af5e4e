//! A session as a file, in the forms that are offered: what was measured, and its profile to start servers with.

use std::path::Path;

use crate::domain::handover::Form;
use crate::domain::text::json;
use crate::engine::Ports;
use crate::engine::evidence::{Evidence, evidence};
use crate::engine::message::JobError;

use super::picture::picture;
use super::{Paths, csv, file, handover, html};

/// Form of a session's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The report.
    Html,
    /// Everything that is stored.
    Json,
    /// One line per sample.
    Csv,
    /// Its charts as one image.
    Chart,
    /// The profile, for another Flux.
    Profile,
    /// The profile, in a form that starts a server.
    Start(Form),
}

impl Format {
    /// What was measured, in every form.
    pub const MEASURED: [Self; 4] = [Self::Html, Self::Chart, Self::Json, Self::Csv];
    /// The profile, in every form.
    pub const PROFILE: [Self; 7] = [
        Self::Start(Form::Bash),
        Self::Start(Form::Powershell),
        Self::Start(Form::Preset),
        Self::Start(Form::LlamaSwap),
        Self::Start(Form::Systemd),
        Self::Start(Form::Compose),
        Self::Profile,
    ];

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Html => "HTML report",
            Self::Json => "JSON",
            Self::Csv => "CSV",
            Self::Chart => "SVG chart",
            Self::Profile => "Profile for another Flux",
            Self::Start(Form::Bash) => "Bash script",
            Self::Start(Form::Powershell) => "PowerShell script",
            Self::Start(Form::Preset) => "llama-server preset",
            Self::Start(Form::LlamaSwap) => "llama-swap configuration",
            Self::Start(Form::Systemd) => "systemd user unit",
            Self::Start(Form::Compose) => "Docker Compose file",
        }
    }

    /// Name of a session's file unless the user says otherwise.
    pub fn file_name(self, session: i64) -> String {
        let ending = match self {
            Self::Html => "html",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Chart => "svg",
            Self::Profile => "profile.json",
            Self::Start(Form::Bash) => "sh",
            Self::Start(Form::Powershell) => "ps1",
            Self::Start(Form::Preset) => "ini",
            Self::Start(Form::LlamaSwap) => "llama-swap.yaml",
            Self::Start(Form::Systemd) => "service",
            Self::Start(Form::Compose) => "compose.yaml",
        };
        format!("flux-session-{session}.{ending}")
    }
}

/// The file's content; `port` is the one a server is started on. A profile for another Flux names nobody whatever
/// `paths` says.
///
/// # Errors
/// As [`html`], nothing was measured that a chart could show, and of the forms of a handover.
pub fn document(
    evidence: &Evidence,
    format: Format,
    port: Option<u16>,
    paths: &Paths,
) -> Result<String, JobError> {
    let failed = |e: serde_json::Error| {
        JobError::new("report", format!("the session cannot be written: {e}"))
    };
    match format {
        Format::Html => html(evidence, paths).map_err(failed),
        Format::Json => json(&paths.shown(evidence).map_err(failed)?)
            .map(|text| text + "\n")
            .map_err(failed),
        Format::Csv => Ok(csv::samples(
            evidence.session.id,
            &paths.shown(evidence).map_err(failed)?.runs,
        )),
        Format::Chart => picture(&paths.shown(evidence).map_err(failed)?),
        Format::Profile => {
            let hidden = Paths::shortened().redaction(evidence).map_err(failed)?;
            handover::shared(evidence, &hidden.unwrap_or_default())
        }
        Format::Start(form) => {
            let hidden = paths.redaction(evidence).map_err(failed)?;
            handover::start(evidence, form, port, hidden.as_ref())
        }
    }
}

/// Writes a session's file, over another one of that name: whoever asks has asked the user. The report hides home
/// folders and names, all else is exact.
///
/// # Errors
/// There is no such session, the store cannot be read, the file cannot be written; as [`document`].
pub fn export(session: i64, format: Format, path: &Path, ports: &Ports) -> Result<(), JobError> {
    let evidence = evidence(session, ports)?;
    let paths = match format {
        Format::Html | Format::Chart => Paths::shortened(),
        _ => Paths::Full,
    };
    let content = document(&evidence, format, None, &paths)?;
    file::write(path, content.as_bytes(), true)
}
