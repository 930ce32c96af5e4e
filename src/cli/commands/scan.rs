//! `flux scan`: this machine, its builds, its fingerprint, and what changed since the last time.

use std::path::Path;

use serde_json::{Value, json};

use crate::cli::args;
use crate::cli::error::CliResult;
use crate::cli::output::Output;
use crate::cli::render::scan::{Scan, full};
use crate::domain::doctor::is_secret;
use crate::domain::fingerprint::{diff, fingerprint};
use crate::domain::machine::gpus;
use crate::domain::text::clean;
use crate::domain::types::{FieldChange, Fingerprint, Machine};
use crate::engine::Ports;
use crate::wiring;

use super::open::Place;

/// Scans, exports where asked, prints.
///
/// # Errors
/// The export cannot be written; the database is of a newer Flux.
pub fn run(args: &args::Scan, place: &Place, output: &Output) -> CliResult {
    let ports = place.look_as(&args.machine, output)?;
    let scan = scan(&ports, output);
    if let Some(dir) = &args.export {
        export(&scan, dir, output)?;
    }
    output.print_either(&document(&scan), || full(&scan, output.style))
}

/// Everything about the machine; remembered, so that the next scan can say what changed.
pub fn scan(ports: &Ports, output: &Output) -> Scan {
    let mut machine = ports.probe.machine();
    let runtimes = ports.runtimes.list();
    let key = fingerprint(&machine, None);
    let changes = if machine.simulated {
        None
    } else {
        remember(ports, &key, output)
    };
    let runtime_fingerprints = runtimes
        .iter()
        .map(|r| fingerprint(&machine, Some(r)))
        .collect();
    hide_secrets(&mut machine);
    Scan {
        gpus: gpus(&machine),
        machine,
        runtimes,
        fingerprint: key,
        runtime_fingerprints,
        changes,
    }
}

/// What changed since the last scan; `None` for a first one. A folder that cannot be written never spoils a scan.
fn remember(ports: &Ports, key: &Fingerprint, output: &Output) -> Option<Vec<FieldChange>> {
    let last = match ports.store.last_scan() {
        Ok(last) => last,
        Err(error) => {
            output.step(&format!("note: {}", clean(&error.headline)));
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

fn export(scan: &Scan, dir: &Path, output: &Output) -> CliResult {
    let path = wiring::export_machine(&scan.machine, &scan.runtimes, dir)?;
    output.step(&format!("written: {}", clean(&path.display().to_string())));
    Ok(())
}

fn document(scan: &Scan) -> Value {
    let with_runtime: Vec<Value> = scan
        .runtimes
        .iter()
        .zip(&scan.runtime_fingerprints)
        .map(|(runtime, key)| json!({ "runtime": runtime.name, "hash": key.hash }))
        .collect();
    json!({
        "schema": 1,
        "machine": scan.machine,
        "gpus": scan.gpus,
        "runtimes": scan.runtimes,
        "fingerprint": { "hash": scan.fingerprint.hash, "fields": fields(&scan.fingerprint) },
        "runtime_fingerprints": with_runtime,
        "changes": scan.changes,
    })
}

/// Fields as an object, in canonical order.
fn fields(key: &Fingerprint) -> Value {
    let pairs = key
        .fields
        .iter()
        .map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    Value::Object(pairs.collect())
}
