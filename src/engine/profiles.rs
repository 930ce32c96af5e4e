//! Every stored profile, and whether it holds on this machine as it is now.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::domain::fingerprint::{diff, fingerprint};
use crate::domain::server_args::LOOPBACK;
use crate::domain::text::native_command;
use crate::domain::types::{FieldChange, Fingerprint, Machine, ModelInfo, Profile, Runtime};
use crate::domain::windows_path;
use crate::ports::{Measured, NewSession};

use super::Ports;
use super::message::JobError;

/// Whether a profile holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Machine and build are those it was measured on.
    Current,
    /// What changed since; empty where the fingerprint it was measured on is not stored any more.
    Stale(Vec<FieldChange>),
    /// Made on an exported machine: never applied to a real one.
    Simulated,
}

/// A profile with what is needed to use it or to measure it again.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileLine {
    /// The profile.
    pub profile: Profile,
    /// Whether it holds.
    pub standing: Standing,
    /// Name of its model.
    pub model: String,
    /// File of its model.
    pub model_path: PathBuf,
    /// Name of the build it was measured with.
    pub runtime: String,
    /// The command that serves its model with it, as a shell takes it.
    pub command: String,
}

/// Profiles, newest first, against a machine and its builds (of a scan). A profile is held against the build it was
/// measured with; where that is gone, against the first.
///
/// # Errors
/// The store cannot be read.
pub fn profiles(
    machine: &Machine,
    runtimes: &[Runtime],
    ports: &Ports,
) -> Result<Vec<ProfileLine>, JobError> {
    let measured = ports.store.measured_with()?;
    let mut held = Held::new(machine, runtimes);
    let mut lines = Vec::new();
    for profile in ports.store.profiles()? {
        let Some(Measured { runtime, model }) = measured.get(&profile.session) else {
            continue;
        };
        lines.push(ProfileLine {
            standing: held.standing(&profile, ports)?,
            command: command(runtime, model, &profile),
            model: model.name.clone(),
            model_path: model.path.clone(),
            runtime: runtime.name.clone(),
            profile,
        });
    }
    Ok(lines)
}

/// The machine as it is now, held against what profiles were measured on. Thousands of profiles share a few builds and
/// fingerprints: each is looked at once.
struct Held<'a> {
    machine: &'a Machine,
    runtimes: &'a [Runtime],
    /// Fingerprints of now, by the digest of a build.
    now: BTreeMap<String, Fingerprint>,
    /// What changed, by the fingerprint measured on and the one of now.
    changes: BTreeMap<(String, String), Vec<FieldChange>>,
}

impl<'a> Held<'a> {
    const fn new(machine: &'a Machine, runtimes: &'a [Runtime]) -> Self {
        Self {
            machine,
            runtimes,
            now: BTreeMap::new(),
            changes: BTreeMap::new(),
        }
    }

    fn standing(&mut self, profile: &Profile, ports: &Ports) -> Result<Standing, JobError> {
        if profile.simulated && !self.machine.simulated {
            return Ok(Standing::Simulated);
        }
        let (machine, runtimes) = (self.machine, self.runtimes);
        let now = self.now.entry(profile.runtime_digest.clone());
        let now = now.or_insert_with_key(|digest| {
            let measured = runtimes.iter().find(|r| r.digest == *digest);
            let runtime = measured.or_else(|| runtimes.first());
            let mut machine = machine.clone();
            machine.runtimes = runtime.cloned().into_iter().collect();
            fingerprint(&machine, runtime)
        });
        if now.hash == profile.fingerprint {
            return Ok(Standing::Current);
        }
        let key = (profile.fingerprint.clone(), now.hash.clone());
        if !self.changes.contains_key(&key) {
            let then = ports.store.fingerprint(&profile.fingerprint)?;
            let changes = then.map_or_else(Vec::new, |then| diff(&then, now));
            self.changes.insert(key.clone(), changes);
        }
        Ok(Standing::Stale(self.changes[&key].clone()))
    }
}

/// The command that serves a session's model with a profile of it, as a shell takes it.
pub fn server_command(begun: &NewSession, profile: &Profile) -> String {
    command(&begun.runtime, &begun.model, profile)
}

fn command(runtime: &Runtime, model: &ModelInfo, profile: &Profile) -> String {
    let server = runtime.server.as_ref();
    let mut words = vec![
        server.map_or_else(
            || "llama-server".to_owned(),
            |path| path.display().to_string(),
        ),
        "--model".to_owned(),
        windows_path::argument(&model.path).display().to_string(),
        "--host".to_owned(),
        LOOPBACK.to_owned(),
    ];
    words.extend(profile.server.args.iter().cloned());
    native_command(&runtime.environment(&profile.server.env), &words)
}
