//! `flux scan`: this machine, its builds, its fingerprint, and what changed since the last time.

use std::path::Path;

use serde_json::{Value, json};

use crate::cli::args;
use crate::cli::error::CliResult;
use crate::cli::job::Jobs;
use crate::cli::output::Output;
use crate::cli::render::scan::full;
use crate::domain::placement::bandwidth::BandwidthProfile;
use crate::domain::text::clean;
use crate::domain::types::{Bytes, Fingerprint};
use crate::engine::Ports;
use crate::engine::bandwidth::BandwidthAsked;
use crate::engine::message::Command;
use crate::engine::scan::{self, Scan, scan};

use super::open::Place;

/// Measures and exports where asked, scans, prints.
///
/// # Errors
/// The export cannot be written; bandwidths cannot be measured; the database is of a newer Flux.
pub fn run(args: &args::Scan, place: &Place, output: &Output) -> CliResult {
    let ports = place.look_as(&args.machine, output)?;
    let measured = if args.bandwidth {
        Some(measure(args, &ports, output)?)
    } else {
        None
    };
    let mut scan = scan(&ports);
    // A folder that is full keeps nothing; what was measured is shown all the same.
    scan.bandwidth = measured.or(scan.bandwidth);
    for notice in &scan.notices {
        output.notice(notice);
    }
    if let Some(dir) = &args.export {
        export(&scan, dir, &ports, output)?;
    }
    output.print_either(&document(&scan), || full(&scan, output.style))
}

fn measure(args: &args::Scan, ports: &Ports, output: &Output) -> CliResult<BandwidthProfile> {
    let usual = BandwidthAsked::default();
    let asked = BandwidthAsked {
        disk: args.model.clone(),
        software: args.software,
        size: args.transfer_mib.map_or(usual.size, Bytes::mib),
    };
    let mut jobs = Jobs::start(ports.clone());
    let profile = jobs.run(Command::Bandwidth(asked), output)?;
    Ok(serde_json::from_value(profile)?)
}

fn export(scan: &Scan, dir: &Path, ports: &Ports, output: &Output) -> CliResult {
    let path = scan::export(scan, dir, ports)?;
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
        "bandwidth": scan.bandwidth,
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
