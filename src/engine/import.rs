//! A profile that came from elsewhere: read, held against this machine, kept.

use serde::{Deserialize, Serialize};

use crate::domain::fingerprint::{diff, fingerprint, of_fields};
use crate::domain::handover::{SharedProfile, read};
use crate::domain::types::{FieldChange, Fingerprint, Machine, Runtime};
use crate::ports::ImportedProfile;

use super::Ports;
use super::message::JobError;
use super::report::SCHEMA;
use super::settings::{AgainstStock, against_stock};

/// What an import came to; the document of `flux import --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Import {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Its number among imports.
    pub id: i64,
    /// The profile.
    pub profile: SharedProfile,
    /// What stock has instead.
    pub stock: Vec<AgainstStock>,
    /// It was measured on this machine and a build that is here: it applies as one's own.
    pub holds: bool,
    /// Where it was measured and what is here, field by field.
    pub differs: Vec<FieldChange>,
}

/// Reads a document and keeps it for `flux run` and `flux tune`.
///
/// # Errors
/// It is no profile, of a newer Flux, or says what this Flux could not have chosen: nothing is kept then. The store
/// cannot be written.
pub fn import(text: &str, ports: &Ports) -> Result<Import, JobError> {
    let space = ports.space.current();
    let mut profile =
        read(text, &space).map_err(|e| JobError::new("import", e.to_string()).hint(e.hint()))?;
    // What was measured where is told by the fields; a key beside them could be another machine's.
    profile.fingerprint = of_fields(profile.fingerprint.fields);
    let id = ports.store.append_import(ports.clock.now(), &profile)?;
    let here = here(&profile, &ports.probe.machine(), &ports.runtimes.list());
    let holds = here.hash == profile.fingerprint.hash;
    Ok(Import {
        schema: SCHEMA,
        id,
        stock: against_stock(&profile.settings, &space),
        differs: if holds {
            Vec::new()
        } else {
            diff(&profile.fingerprint, &here)
        },
        holds,
        profile,
    })
}

/// An import that is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// It, with its number.
    #[serde(flatten)]
    pub import: ImportedProfile,
    /// It was measured on this machine and a build that is here.
    pub holds: bool,
}

/// What `flux import --list` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Imports {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Newest first.
    pub imports: Vec<Kept>,
}

/// Every import, held against a machine and its builds (of a scan).
///
/// # Errors
/// The store cannot be read.
pub fn imports(
    machine: &Machine,
    runtimes: &[Runtime],
    ports: &Ports,
) -> Result<Vec<Kept>, JobError> {
    let kept = |import: ImportedProfile| Kept {
        holds: here(&import.profile, machine, runtimes).hash == import.profile.fingerprint.hash,
        import,
    };
    let imports = ports.store.imports(None)?;
    Ok(imports.into_iter().map(kept).collect())
}

/// Undoes an import.
///
/// # Errors
/// There is none of this number; the store cannot be written.
pub fn undo(import: i64, ports: &Ports) -> Result<(), JobError> {
    if ports.store.remove_import(import)? {
        return Ok(());
    }
    let headline = format!("there is no import {import}");
    Err(JobError::new("no-import", headline).hint("`flux import --list` shows them all"))
}

/// This machine with the build it was measured with, else with the best that is here.
fn here(profile: &SharedProfile, machine: &Machine, known: &[Runtime]) -> Fingerprint {
    let measured = known.iter().find(|r| r.digest == profile.build.digest);
    let runtime = measured.or_else(|| known.first());
    let machine = Machine {
        runtimes: runtime.cloned().into_iter().collect(),
        ..machine.clone()
    };
    fingerprint(&machine, runtime)
}
