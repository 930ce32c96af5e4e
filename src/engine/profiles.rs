//! Every stored profile, and whether it holds on this machine as it is now.

use std::path::PathBuf;

use crate::domain::fingerprint::{diff, fingerprint};
use crate::domain::server_args::LOOPBACK;
use crate::domain::text::native_command;
use crate::domain::types::{FieldChange, Machine, Profile, Runtime};
use crate::ports::NewSession;

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
    let mut lines = Vec::new();
    for profile in ports.store.profiles()? {
        let Some(session) = ports.store.session(profile.session)? else {
            continue;
        };
        let begun = session.begun;
        lines.push(ProfileLine {
            standing: standing(&profile, machine, runtimes, ports)?,
            command: server_command(&begun, &profile),
            model: begun.model.name,
            model_path: begun.model.path,
            runtime: begun.runtime.name,
            profile,
        });
    }
    Ok(lines)
}

fn standing(
    profile: &Profile,
    machine: &Machine,
    runtimes: &[Runtime],
    ports: &Ports,
) -> Result<Standing, JobError> {
    if profile.simulated && !machine.simulated {
        return Ok(Standing::Simulated);
    }
    let measured = runtimes.iter().find(|r| r.digest == profile.runtime_digest);
    let runtime = measured.or_else(|| runtimes.first());
    let mut machine = machine.clone();
    machine.runtimes = runtime.cloned().into_iter().collect();
    let now = fingerprint(&machine, runtime);
    if now.hash == profile.fingerprint {
        return Ok(Standing::Current);
    }
    let then = ports.store.fingerprint(&profile.fingerprint)?;
    let changes = then.map_or_else(Vec::new, |then| diff(&then, &now));
    Ok(Standing::Stale(changes))
}

/// The command that serves a session's model with a profile of it, as a shell takes it.
pub fn server_command(begun: &NewSession, profile: &Profile) -> String {
    let server = begun.runtime.server.as_ref();
    let mut words = vec![
        server.map_or_else(
            || "llama-server".to_owned(),
            |path| path.display().to_string(),
        ),
        "--model".to_owned(),
        begun.model.path.display().to_string(),
        "--host".to_owned(),
        LOOPBACK.to_owned(),
    ];
    words.extend(profile.server.args.iter().cloned());
    native_command(&begun.runtime.environment(&profile.server.env), &words)
}
