//! A profile handed over to what people start servers with: scripts, llama-server's presets, llama-swap, systemd, Docker
//! Compose, and a document that another Flux reads. Pure text, exact for every path.

mod compose;
mod document;
mod preset;
mod script;
mod swap;
mod systemd;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::domain::redact::Redaction;
use crate::domain::text::{clean, is_unseen};
use crate::domain::types::Backend;

pub use document::{Build, ImportError, KIND, SharedModel, SharedProfile, read};

/// The port that llama-server, llama-swap and their clients take unless told otherwise.
pub const DEFAULT_PORT: u16 = 8080;

/// Forms that start a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A bash script.
    Bash,
    /// A PowerShell script.
    Powershell,
    /// `llama-server --models-preset FILE`.
    Preset,
    /// Configuration of llama-swap.
    LlamaSwap,
    /// A systemd user unit.
    Systemd,
    /// A Docker Compose file.
    Compose,
}

/// A text as it is written down: exact, or with the home folder left to whoever reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The text; where it is in the home, from the separator on.
    text: String,
    in_home: bool,
}

impl Word {
    /// The text as it is.
    pub fn exact(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            in_home: false,
        }
    }

    /// The home folder as a reference to it; what else tells of its owner is hidden.
    pub fn redacted(text: &str, redaction: &Redaction) -> Self {
        let (in_home, text) = match redaction.in_home(text) {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        Self {
            text: redaction.text(text),
            in_home,
        }
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && !self.in_home
    }

    /// Does it begin as a path of Windows does?
    fn is_of_windows(&self) -> bool {
        self.text.starts_with('\\') || self.text.get(1..3).is_some_and(|t| t == ":\\" || t == ":/")
    }
}

/// What is handed over.
#[derive(Debug, Clone, PartialEq)]
pub struct Handover {
    /// What it is and what it holds for, a line each.
    pub about: Vec<String>,
    /// Name of the model.
    pub name: String,
    /// llama-server.
    pub server: Word,
    /// Every file of the model; the first is the one given to llama-server.
    pub model: Vec<Word>,
    /// The profile's arguments.
    pub args: Vec<Word>,
    /// The profile's and the build's variables.
    pub env: BTreeMap<String, Word>,
    /// The backend it was measured on.
    pub backend: Backend,
    /// The GPU is an NVIDIA one.
    pub is_nvidia: bool,
    /// The port on this machine.
    pub port: u16,
}

impl Handover {
    /// The file's content.
    ///
    /// # Errors
    /// In one sentence: what this form has no way to say.
    pub fn write(&self, form: Form) -> Result<String, String> {
        if self.model.is_empty() {
            return Err("the model has no file".to_owned());
        }
        match form {
            Form::Bash => Ok(script::bash(self)),
            Form::Powershell => script::powershell(self),
            Form::Preset => preset::ini(self),
            Form::LlamaSwap => swap::yaml(self),
            Form::Systemd => systemd::unit(self),
            Form::Compose => compose::yaml(self),
        }
    }

    /// The name that programs know the model by: letters, digits, dots and dashes.
    fn id(&self) -> String {
        let mut id = String::new();
        for c in self.name.chars() {
            if c.is_ascii_alphanumeric() || (c == '.' && !id.is_empty()) {
                id.push(c.to_ascii_lowercase());
            } else if !id.is_empty() && !id.ends_with('-') {
                id.push('-');
            }
        }
        let id = id.trim_end_matches(['-', '.']);
        if id.is_empty() { "model" } else { id }.to_owned()
    }

    /// llama-server's arguments on an address and port, the model first.
    fn arguments(&self, host: &str, port: &str) -> Vec<Word> {
        let fixed = ["--host", host, "--port", port].map(Word::exact);
        let model = [Word::exact("--model"), self.model[0].clone()];
        let all = model.into_iter().chain(fixed);
        all.chain(self.args.iter().cloned()).collect()
    }

    /// What it is, as comments.
    fn comments(&self, mark: &str) -> String {
        let lines = self.about.iter().map(|l| format!("{mark} {}\n", clean(l)));
        lines.collect::<Vec<_>>().concat()
    }
}

/// A double-quoted YAML 1.2 scalar, with what is not printable or not seen escaped.
fn yaml_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if is_unseen(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                let _ = match u32::from(c) {
                    n @ ..=0xffff => write!(quoted, "\\u{n:04x}"),
                    n => write!(quoted, "\\U{n:08x}"),
                };
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests;
