//! An exported machine in place of this one, for tests, replays and planning ahead.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::domain::doctor::Facts;
use crate::domain::types::{Host, Machine, Runtime};
use crate::ports::{MachineProbe, PortError, PortResult};

use super::{MACHINE_FILE, SystemRoot};

/// Where the repository keeps its exported machines: a bare name is looked up here too.
const FIXTURES: &str = "tests/fixtures/machines";

/// Answers with an exported machine; everything it says is marked simulated.
#[derive(Debug, Clone)]
pub struct FixtureProbe {
    machine: Machine,
    folder: PathBuf,
}

impl FixtureProbe {
    /// Reads the export in `folder` (or its `machine.json`, or a bare name below the repository's fixtures).
    ///
    /// # Errors
    /// There is none, it is no machine, or a newer Flux wrote it.
    pub fn load(folder: &Path) -> PortResult<Self> {
        let path = locate(folder);
        let text = fs::read_to_string(&path).map_err(|e| {
            let error = PortError::caused(
                format!("the exported machine cannot be read: {}", path.display()),
                &e,
            );
            if e.kind() == ErrorKind::NotFound {
                error.hint("name a folder that `flux scan --export DIR` wrote")
            } else {
                error
            }
        })?;
        Ok(Self {
            machine: parse(&text, &path)?,
            folder: path.parent().map(Path::to_owned).unwrap_or_default(),
        })
    }

    /// Where its sensors' files lie, as far as they were exported.
    pub fn root(&self) -> SystemRoot {
        SystemRoot::at(&self.folder)
    }

    /// The llama.cpp builds the export names; their folders are not on this machine.
    pub fn runtimes(&self) -> &[Runtime] {
        &self.machine.runtimes
    }
}

impl MachineProbe for FixtureProbe {
    fn machine(&self) -> Machine {
        Machine {
            runtimes: Vec::new(),
            ..self.machine.clone()
        }
    }

    fn host(&self) -> Host {
        self.machine.host.clone()
    }

    /// Of this machine, not of the exported one: nothing is known.
    fn facts(&self, _: &Path) -> Facts {
        Facts::default()
    }

    fn export(&self, machine: &Machine, runtimes: &[Runtime], dir: &Path) -> PortResult<PathBuf> {
        super::export(machine, runtimes, dir)
    }
}

fn locate(folder: &Path) -> PathBuf {
    if folder.is_file() {
        return folder.to_owned();
    }
    let named = Path::new(FIXTURES).join(folder);
    let bare = folder.components().count() == 1 && !folder.exists() && named.is_dir();
    if bare {
        named.join(MACHINE_FILE)
    } else {
        folder.join(MACHINE_FILE)
    }
}

fn parse(text: &str, path: &Path) -> PortResult<Machine> {
    let shown = path.display();
    let broken = |e: &serde_json::Error| {
        PortError::caused(format!("not an exported machine: {shown}"), e)
            .hint("write it again with `flux scan --export DIR`")
    };
    let value: serde_json::Value = serde_json::from_str(text).map_err(|e| broken(&e))?;
    // The version first: a newer document may not even have today's fields.
    let schema = value.get("schema").and_then(serde_json::Value::as_u64);
    if let Some(newer) = schema.filter(|s| *s > u64::from(Machine::SCHEMA)) {
        let known = Machine::SCHEMA;
        return Err(PortError::new(format!(
            "the exported machine is from a newer Flux (schema {newer}, this one reads up to {known}): {shown}"
        ))
        .hint("update Flux"));
    }
    let machine: Machine = serde_json::from_value(value).map_err(|e| broken(&e))?;
    Ok(Machine {
        simulated: true,
        ..machine
    })
}
