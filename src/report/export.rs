//! A session as a file, in the forms that are offered.

use std::path::Path;

use crate::engine::Ports;
use crate::engine::evidence::{Evidence, evidence};
use crate::engine::message::JobError;

use super::{Paths, csv, file, html};

/// Form of a session's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The report.
    Html,
    /// Everything that is stored.
    Json,
    /// One line per sample.
    Csv,
}

impl Format {
    /// Every form.
    pub const ALL: [Self; 3] = [Self::Html, Self::Json, Self::Csv];

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Html => "HTML report",
            Self::Json => "JSON",
            Self::Csv => "CSV",
        }
    }

    /// Name of a session's file unless the user says otherwise.
    pub fn file_name(self, session: i64) -> String {
        let ending = match self {
            Self::Html => "html",
            Self::Json => "json",
            Self::Csv => "csv",
        };
        format!("flux-session-{session}.{ending}")
    }
}

/// The file's content; only the report shortens paths.
///
/// # Errors
/// As [`html`].
pub fn document(
    evidence: &Evidence,
    format: Format,
    paths: &Paths,
) -> Result<String, serde_json::Error> {
    match format {
        Format::Html => html(evidence, paths),
        Format::Json => Ok(format!("{}\n", serde_json::to_string_pretty(evidence)?)),
        Format::Csv => Ok(csv::samples(evidence.session.id, &evidence.runs)),
    }
}

/// Writes a session's file, over another one of that name: whoever asks has asked the user.
///
/// # Errors
/// There is no such session, the store cannot be read, the file cannot be written.
pub fn export(session: i64, format: Format, path: &Path, ports: &Ports) -> Result<(), JobError> {
    let evidence = evidence(session, ports)?;
    let content = document(&evidence, format, &Paths::shortened())
        .map_err(|e| JobError::new("report", format!("the session cannot be written: {e}")))?;
    file::write(path, content.as_bytes(), true)
}
