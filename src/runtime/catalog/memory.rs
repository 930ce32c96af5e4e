//! What the catalogue remembers in `<data>/runtimes.json`: added folders, names by digest, and identifications by
//! folder and file stamp, so that a scan neither runs nor hashes anything that has not changed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::domain::text::shell_command;
use crate::domain::types::Runtime;
use crate::ports::{PortError, PortResult};

/// Version of the file.
const SCHEMA: u32 = 1;

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    schema: u32,
    /// Folders the user added, in order.
    pub(super) added: Vec<Added>,
    /// Name by digest: a build keeps its name wherever it lies.
    pub(super) names: BTreeMap<String, String>,
    /// Identifications by folder, with the environment as a shell has it in front where there is one.
    pub(super) known: BTreeMap<PathBuf, Known>,
}

/// A folder the user added: as text where it has no environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Added {
    /// The build as it is.
    Plain(PathBuf),
    /// The build with variables.
    With {
        /// The folder.
        dir: PathBuf,
        /// The variables.
        env: BTreeMap<String, String>,
    },
}

impl Added {
    pub(super) fn new(dir: PathBuf, env: BTreeMap<String, String>) -> Self {
        if env.is_empty() {
            Self::Plain(dir)
        } else {
            Self::With { dir, env }
        }
    }

    pub(super) fn parts(&self) -> (&Path, BTreeMap<String, String>) {
        match self {
            Self::Plain(dir) => (dir, BTreeMap::new()),
            Self::With { dir, env } => (dir, env.clone()),
        }
    }
}

impl Added {
    pub(super) fn key(&self) -> PathBuf {
        let (dir, env) = self.parts();
        key(dir, &env)
    }
}

/// Where the identification of `dir` with these variables is kept.
pub(super) fn key(dir: &Path, env: &BTreeMap<String, String>) -> PathBuf {
    if env.is_empty() {
        return dir.to_owned();
    }
    let mut key = OsString::from(shell_command(env, &[]));
    key.push(" ");
    key.push(dir);
    key.into()
}

/// One identification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    /// Files and drivers it was made with; another stamp makes it void.
    pub(super) stamp: String,
    /// What came out.
    pub(super) outcome: Outcome,
}

/// What an identification came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// A build.
    Runtime(Box<Runtime>),
    /// No build, and why.
    Refused {
        /// In one sentence.
        headline: String,
        /// What to do.
        hint: Option<String>,
    },
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            schema: SCHEMA,
            added: Vec::new(),
            names: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }
}

impl Memory {
    /// Reads the file; a missing one is empty. A damaged or newer one is set aside, never overwritten.
    pub(super) fn load(file: &Path) -> Self {
        let text = match fs::read(file) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Self::default(),
            Err(error) => {
                tracing::warn!(%error, "the list of llama.cpp builds cannot be read: {}", file.display());
                return Self::default();
            }
        };
        match serde_json::from_slice::<Self>(&text) {
            Ok(memory) if memory.schema == SCHEMA => memory,
            _ => {
                let aside = file.with_extension("json.damaged");
                tracing::warn!(
                    "the list of llama.cpp builds is damaged or of another Flux version and was set aside: {}",
                    aside.display()
                );
                if let Err(error) = fs::rename(file, &aside) {
                    tracing::warn!(%error, "it cannot be set aside");
                }
                Self::default()
            }
        }
    }

    /// Writes the file in one step: a reader or a crash sees the old or the new one.
    pub(super) fn save(&self, file: &Path) -> PortResult<()> {
        let written = || -> io::Result<()> {
            let dir = file.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(dir)?;
            let mut temp = tempfile::NamedTempFile::new_in(dir)?;
            temp.write_all(&serde_json::to_vec_pretty(self)?)?;
            temp.as_file().sync_all()?;
            temp.persist(file)?;
            Ok(())
        };
        written().map_err(|e| {
            PortError::of_data("the list of llama.cpp builds cannot be written", file, &e)
        })
    }

    /// Gives a build the name the user chose.
    ///
    /// # Errors
    /// It could be taken for a folder, or another build has it.
    pub(super) fn rename(&mut self, digest: &str, name: &str) -> PortResult<()> {
        let is_odd = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '/' | '\\');
        if name.is_empty() || name.starts_with(['.', '-']) || name.contains(is_odd) {
            return Err(PortError::new(format!("not a name for a build: {name:?}"))
                .hint("Choose one without spaces and slashes that starts with neither . nor -"));
        }
        if self.names.iter().any(|(d, n)| n == name && d != digest) {
            return Err(
                PortError::new(format!("another llama.cpp build is called {name}"))
                    .hint("Choose another name; `flux runtime list` shows those in use"),
            );
        }
        self.names.insert(digest.to_owned(), name.to_owned());
        Ok(())
    }

    /// The name of a build: the one it had, else `proposed`, with a number where another build has that.
    pub(super) fn name_for(&mut self, digest: &str, proposed: &str) -> String {
        if let Some(name) = self.names.get(digest) {
            return name.clone();
        }
        let is_taken = |name: &String| self.names.values().any(|other| other == name);
        let mut name = proposed.to_owned();
        let mut number = 2;
        while is_taken(&name) {
            name = format!("{proposed}-{number}");
            number += 1;
        }
        self.names.insert(digest.to_owned(), name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_stay() {
        let mut memory = Memory::default();
        assert_eq!(memory.name_for("d1", "b1-cpu"), "b1-cpu");
        assert_eq!(memory.name_for("d2", "b1-cpu"), "b1-cpu-2");
        assert_eq!(memory.name_for("d3", "b1-cpu"), "b1-cpu-3");
        assert_eq!(memory.name_for("d2", "other"), "b1-cpu-2");
        memory.rename("d2", "mine").unwrap();
        assert_eq!(memory.name_for("d2", "other"), "mine");
        memory.rename("d2", "mine").unwrap();
        let taken = memory.rename("d3", "mine").unwrap_err();
        assert_eq!(taken.headline, "another llama.cpp build is called mine");
        for odd in ["", "a b", "a/b", ".", "-x", "a\n"] {
            let error = memory.rename("d3", odd).unwrap_err();
            assert!(error.headline.starts_with("not a name"), "{odd:?}");
        }
    }

    #[test]
    fn it_is_read_back_and_a_damaged_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("runtimes.json");
        assert_eq!(Memory::load(&file), Memory::default());
        let mut memory = Memory::default();
        memory
            .added
            .push(Added::new("/opt/x".into(), BTreeMap::new()));
        let env = BTreeMap::from([("CUDA_VISIBLE_DEVICES".to_owned(), "0".to_owned())]);
        memory.added.push(Added::new("/opt/x".into(), env));
        memory.save(&file).unwrap();
        assert_eq!(Memory::load(&file), memory);
        fs::write(&file, "{").unwrap();
        assert_eq!(Memory::load(&file), Memory::default());
        assert_eq!(
            fs::read_to_string(dir.path().join("runtimes.json.damaged")).unwrap(),
            "{"
        );
    }
}
