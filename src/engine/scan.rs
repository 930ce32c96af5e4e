//! `flux scan`: this machine, its builds, its fingerprint, and what changed since the last time (paper section 2.2).

use std::path::{Path, PathBuf};

use crate::domain::doctor::is_secret;
use crate::domain::fingerprint::{diff, fingerprint};
use crate::domain::machine::{Gpu, gpus};
use crate::domain::placement::bandwidth::BandwidthProfile;
use crate::domain::types::{FieldChange, Fingerprint, Machine, Runtime};
use crate::ports::{Notice, NoticeLevel, PortResult};

use super::{Ports, bandwidth};

/// Everything a scan found out.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// Raw readings, secrets hidden.
    pub machine: Machine,
    /// GPUs, one per card.
    pub gpus: Vec<Gpu>,
    /// Builds, the best first.
    pub runtimes: Vec<Runtime>,
    /// The machine's key.
    pub fingerprint: Fingerprint,
    /// The key with each build, in the order of `runtimes`.
    pub runtime_fingerprints: Vec<Fingerprint>,
    /// What changed since the last scan; `None` where there is none to compare with.
    pub changes: Option<Vec<FieldChange>>,
    /// What its memories were last measured to deliver.
    pub bandwidth: Option<BandwidthProfile>,
    /// What the user should know of the scan itself.
    pub notices: Vec<Notice>,
}

/// Reads the machine; remembers it, so that the next scan can say what changed. Blocks for as long as the drivers and
/// builds take to answer: seconds, the first time.
pub fn scan(ports: &Ports) -> Scan {
    let mut machine = ports.probe.machine();
    let runtimes = ports.runtimes.list();
    let key = fingerprint(&machine, None);
    let mut notices = Vec::new();
    let changes = if machine.simulated {
        None
    } else {
        remember(ports, &key, &mut notices)
    };
    let runtime_fingerprints = runtimes
        .iter()
        .map(|r| fingerprint(&machine, Some(r)))
        .collect();
    hide_secrets(&mut machine);
    let bandwidth = bandwidth::stored(ports, &key).unwrap_or_else(|error| {
        notices.push(Notice {
            level: NoticeLevel::Info,
            code: "no-bandwidth".to_owned(),
            text: error.headline,
        });
        None
    });
    Scan {
        bandwidth,
        gpus: gpus(&machine),
        machine,
        runtimes,
        fingerprint: key,
        runtime_fingerprints,
        changes,
        notices,
    }
}

/// Writes a scan down into `dir` with what the sensors read, secrets hidden, and returns its file.
///
/// # Errors
/// The folder holds something already, or cannot be written.
pub fn export(scan: &Scan, dir: &Path, ports: &Ports) -> PortResult<PathBuf> {
    let file = ports.probe.export(&scan.machine, &scan.runtimes, dir)?;
    ports.telemetry.capture(dir)?;
    Ok(file)
}

/// What changed since the last scan; `None` for a first one. A folder that cannot be written never spoils a scan.
fn remember(
    ports: &Ports,
    key: &Fingerprint,
    notices: &mut Vec<Notice>,
) -> Option<Vec<FieldChange>> {
    let last = match ports.store.last_scan() {
        Ok(last) => last,
        Err(error) => {
            notices.push(Notice {
                level: NoticeLevel::Info,
                code: "no-last-scan".to_owned(),
                text: error.headline,
            });
            return None;
        }
    };
    if last.as_ref().is_none_or(|last| last.hash != key.hash)
        && let Err(error) = ports.store.remember_scan(ports.clock.now(), key)
    {
        tracing::debug!(%error, "the scan is not remembered");
    }
    last.map(|last| diff(&last, key))
}

/// Keys and tokens are shown by name only.
fn hide_secrets(machine: &mut Machine) {
    for (name, value) in &mut machine.inherited_env {
        if is_secret(name) {
            "(hidden)".clone_into(value);
        }
    }
}
