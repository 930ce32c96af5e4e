//! How a command fails: one clear sentence, the causes beneath, what to do next, and the exit status.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::engine::message::{JobError, USAGE};
use crate::ports::PortError;

use crate::domain::text::{clean, shell_command};

/// Why a command did not end with status 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CliError {
    /// Failed: status 1.
    Failed(Failure),
    /// The arguments make no sense together: status 2.
    Usage(Failure),
    /// Ended by the user: status 130.
    Cancelled(Kept),
}

/// What a command that the user ended leaves behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// What is kept, in words.
    pub words: Option<String>,
    /// What to do next.
    pub hint: Option<String>,
    /// The session it is kept in.
    pub session: Option<i64>,
    /// Runs kept there.
    pub runs: u32,
}

impl Kept {
    fn headline(&self) -> String {
        self.words
            .as_ref()
            .map_or_else(|| "cancelled".to_owned(), |w| format!("cancelled: {w}"))
    }
}

/// What is printed of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Stable kebab-case code.
    pub code: String,
    /// What and where, in one sentence; path last.
    pub headline: String,
    /// Causes, outermost first.
    pub causes: Vec<String>,
    /// What to do next.
    pub hint: Option<String>,
}

/// Result of a command.
pub type CliResult<T = ()> = Result<T, CliError>;

impl CliError {
    /// Failed with only a headline.
    pub fn failed(headline: impl Into<String>) -> Self {
        Self::Failed(Failure {
            code: "failed".to_owned(),
            headline: headline.into(),
            causes: Vec::new(),
            hint: None,
        })
    }

    /// Wrong usage, with only a headline.
    pub fn usage(headline: impl Into<String>) -> Self {
        Self::Usage(Failure {
            code: USAGE.to_owned(),
            headline: headline.into(),
            causes: Vec::new(),
            hint: None,
        })
    }

    /// The same error with one more cause.
    #[must_use]
    pub fn cause(mut self, cause: impl Display) -> Self {
        if let Self::Failed(failure) | Self::Usage(failure) = &mut self {
            failure.causes.push(cause.to_string());
        }
        self
    }

    /// The same error with what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Self::Failed(failure) | Self::Usage(failure) = &mut self {
            failure.hint = Some(hint.into());
        }
        self
    }

    /// The same error whose hint names the data folder, where one was named: without it the commands would look elsewhere.
    #[must_use]
    pub fn in_folder(mut self, data_dir: Option<&Path>) -> Self {
        let hint = match &mut self {
            Self::Failed(failure) | Self::Usage(failure) => &mut failure.hint,
            Self::Cancelled(kept) => &mut kept.hint,
        };
        *hint = hint.take().map(|hint| in_folder(&hint, data_dir));
        self
    }

    /// The exit status (design section 2).
    pub const fn status(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Cancelled(_) => 130,
        }
    }

    /// What goes to stdout with `--json`.
    pub fn document(&self) -> Value {
        let error = match self {
            Self::Failed(failure) | Self::Usage(failure) => json!({
                "code": failure.code,
                "headline": failure.headline,
                "cause": failure.causes,
                "hint": failure.hint,
            }),
            Self::Cancelled(kept) => json!({
                "code": "cancelled",
                "headline": kept.headline(),
                "cause": [],
                "hint": kept.hint,
                "session": kept.session,
                "kept_runs": kept.runs,
            }),
        };
        json!({ "schema": 1, "error": error })
    }

    /// What goes to stderr.
    pub fn text(&self) -> String {
        let failure = match self {
            Self::Failed(failure) | Self::Usage(failure) => failure,
            Self::Cancelled(kept) => {
                let next = kept.hint.iter().map(|hint| format!("; {hint}"));
                return kept.headline() + &next.collect::<String>() + "\n";
            }
        };
        let mut text = format!("error: {}\n", clean(&failure.headline));
        for cause in &failure.causes {
            for line in cause.lines() {
                let _ = writeln!(text, "  {}", clean(line));
            }
        }
        if let Some(hint) = &failure.hint {
            let _ = writeln!(text, "hint: {}", clean(hint));
        }
        text
    }
}

/// A text whose commands of Flux's own name the data folder, where one was named.
pub fn in_folder(text: &str, data_dir: Option<&Path>) -> String {
    data_dir.map_or_else(
        || text.to_owned(),
        |dir| {
            let words = ["flux", "--data-dir", &dir.display().to_string()].map(str::to_owned);
            let command = shell_command(&BTreeMap::new(), &words);
            let named = text.replace("`flux ", &format!("`{command} "));
            named.replace(&format!("`{command} help`"), "`flux help`")
        },
    )
}

impl From<PortError> for CliError {
    fn from(error: PortError) -> Self {
        JobError::from(error).into()
    }
}

impl From<JobError> for CliError {
    fn from(error: JobError) -> Self {
        let is_usage = error.code == USAGE;
        let failure = Failure {
            code: error.code,
            headline: error.headline,
            causes: error.cause,
            hint: error.hint,
        };
        if is_usage {
            Self::Usage(failure)
        } else {
            Self::Failed(failure)
        }
    }
}

impl From<serde_json::Error> for CliError {
    fn from(error: serde_json::Error) -> Self {
        Self::failed("the result could not be written as JSON").cause(error)
    }
}

/// Only stdout is written with `?`; files name themselves in their errors.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::failed("could not write to standard output").cause(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headline_causes_and_hint_are_laid_out_for_people() {
        let error = CliError::failed("no such model: /x\u{1b}[31m")
            .cause("No such file\nor directory")
            .hint("check the path");
        assert_eq!(
            error.text(),
            "error: no such model: /x\\u{1b}[31m\n  No such file\n  or directory\nhint: check the path\n"
        );
        assert_eq!(error.status(), 1);
        assert_eq!(
            error.document(),
            json!({"schema": 1, "error": {
                "code": "failed", "headline": "no such model: /x\u{1b}[31m",
                "cause": ["No such file\nor directory"], "hint": "check the path",
            }})
        );
    }

    #[test]
    fn a_cancel_says_what_is_kept_and_ends_with_130() {
        let bare = CliError::Cancelled(Kept::default());
        assert_eq!(bare.text(), "cancelled\n");
        let kept = CliError::Cancelled(Kept {
            words: Some("12 runs kept in session 5".to_owned()),
            hint: Some("go on with `flux tune --resume 5`".to_owned()),
            session: Some(5),
            runs: 12,
        });
        assert_eq!(
            kept.text(),
            "cancelled: 12 runs kept in session 5; go on with `flux tune --resume 5`\n"
        );
        assert_eq!(
            kept.document(),
            json!({"schema": 1, "error": {
                "code": "cancelled", "headline": "cancelled: 12 runs kept in session 5", "cause": [],
                "hint": "go on with `flux tune --resume 5`", "session": 5, "kept_runs": 12,
            }})
        );
        assert_eq!(kept.status(), 130);
        assert_eq!(CliError::usage("x").status(), 2);
    }
}
