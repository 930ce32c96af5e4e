//! Bandwidths from measurement to store to display: the meter on real folders, the job, `flux scan --bandwidth`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/lavapipe.rs"]
mod lavapipe;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use assert_cmd::Command;
use assert_cmd::assert::Assert;
use flux::bandwidth::{Devices, DevicesReport, DevicesRequest, Meter};
use flux::domain::placement::bandwidth::{Bandwidth, BandwidthProfile, Path as Way};
use flux::domain::types::{Bytes, Timestamp};
use flux::engine::bandwidth::BandwidthAsked;
use flux::engine::message::{Command as Job, EventKind, Outcome};
use flux::engine::scan::scan;
use flux::engine::{Engine, Ports};
use flux::ports::*;
use flux::wiring::{self, Access, Options};
use predicates::prelude::PredicateBooleanExt as _;
use predicates::str::contains;
use serde_json::Value;
use tempfile::TempDir;

/// A card that is never there.
struct Card;

impl Devices for Card {
    fn measure(&self, request: &DevicesRequest, _: &CancelToken) -> DevicesReport {
        DevicesReport {
            paths: vec![Bandwidth {
                path: Way::Upload,
                device: Some("card".to_owned()),
                samples: vec![12e9],
                bytes: request.size.0,
                threads: 1,
            }],
            notices: vec!["the card is simulated".to_owned()],
        }
    }
}

fn request(disk: &Path) -> BandwidthRequest {
    BandwidthRequest {
        at: Timestamp(7),
        disk: disk.to_owned(),
        scratch: disk.to_owned(),
        ram_available: Bytes::mib(8),
        size: Bytes::mib(1),
        software: false,
        seed: 1,
    }
}

fn files(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn every_path_is_measured_and_nothing_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut told = Vec::new();
    let profile = Meter::new(Card)
        .measure(&request(dir.path()), &CancelToken::new(), &mut |at| {
            told.push((at.done, at.total));
        })
        .unwrap();
    assert_eq!(profile.measured_at, Timestamp(7));
    for (way, device, repetitions) in [
        (Way::RamRead, None, 7),
        (Way::DiskSequential, None, 5),
        (Way::DiskRandom, None, 5),
        #[cfg(target_os = "linux")]
        (Way::DiskBuffered, None, 5),
        (Way::Upload, Some("card"), 1),
    ] {
        let found = profile.get(way, device).unwrap();
        assert_eq!(found.samples.len(), repetitions, "{way:?}");
        assert!(found.samples.iter().all(|s| *s > 0.0), "{way:?}");
    }
    // A quarter of the free RAM.
    assert_eq!(profile.get(Way::RamRead, None).unwrap().bytes, 2 << 20);
    assert_eq!(profile.streaming.unwrap().samples.len(), 3);
    assert!(
        profile
            .notices
            .contains(&"the card is simulated".to_owned())
    );
    assert!(told.windows(2).all(|w| w[0].0 + 1 == w[1].0), "{told:?}");
    assert!(told.iter().all(|(done, total)| done < total));
    assert_eq!(files(dir.path()), 0);
}

#[test]
fn a_cancel_at_any_step_keeps_nothing_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for last in 0..8 {
        let token = CancelToken::new();
        let mut begun = 0;
        let result = Meter::new(Card).measure(&request(dir.path()), &token, &mut |at| {
            begun += 1;
            if at.done >= last {
                token.cancel(CancelMode::AfterSample);
            }
        });
        assert_eq!(
            result.unwrap_err().headline,
            "the measurement of bandwidths was cancelled, nothing of it was kept"
        );
        assert!(begun <= last + 1, "{begun} steps began");
        assert_eq!(files(dir.path()), 0);
    }
}

#[test]
fn a_disk_that_cannot_be_measured_is_a_notice_and_the_rest_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let profile = Meter::new(Card)
        .measure(
            &request(&dir.path().join("gone/model.gguf")),
            &CancelToken::new(),
            &mut |_| {},
        )
        .unwrap();
    assert!(profile.get(Way::RamRead, None).is_some());
    assert!(profile.get(Way::DiskSequential, None).is_none());
    assert!(profile.get(Way::Upload, Some("card")).is_some());
    let told = |n: &&String| n.starts_with("the disk was not measured: no temporary file can be");
    assert_eq!(profile.notices.iter().filter(told).count(), 1);
    assert_eq!(profile.streaming, None);
}

/// A meter that waits for its cancel.
struct Patient;

impl BandwidthMeter for Patient {
    fn measure(
        &self,
        _: &BandwidthRequest,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(BandwidthProgress),
    ) -> PortResult<BandwidthProfile> {
        progress(BandwidthProgress {
            done: 0,
            total: 1,
            doing: "waiting",
        });
        while !cancel.is_cancelled() {
            std::thread::yield_now();
        }
        Err(PortError::new("cancelled"))
    }
}

fn ports(data: &Path) -> Ports {
    let options = Options {
        data_dir: Some(data.to_owned()),
        machine: None,
        access: Access::Look,
        flux: Some(env!("CARGO_BIN_EXE_flux").into()),
    };
    wiring::open(&options).unwrap().ports
}

#[test]
fn a_cancelled_job_ends_as_cancelled_and_stores_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ports = Ports {
        bandwidth: Arc::new(Patient),
        ..ports(dir.path())
    };
    let (mut engine, events) = Engine::new(ports.clone());
    let job = engine
        .submit(Job::Bandwidth(BandwidthAsked::default()))
        .unwrap();
    let busy = engine.submit(Job::Bandwidth(BandwidthAsked::default()));
    assert_eq!(busy.unwrap_err().code, "busy");
    loop {
        match events.recv().unwrap().kind {
            EventKind::Progress { .. } => engine.cancel(job, CancelMode::AfterSample),
            EventKind::Finished(outcome) => {
                assert_eq!(
                    outcome,
                    Outcome::Cancelled {
                        kept_runs: 0,
                        session: None
                    }
                );
                break;
            }
            _ => {}
        }
    }
    assert_eq!(scan(&ports).bandwidth, None);
}

/// `flux` in a folder of its own, seeing only lavapipe or only these drivers.
fn flux(dir: &TempDir, drivers: &Path, args: &[&str]) -> Assert {
    let mut command = Command::cargo_bin("flux").unwrap();
    command
        .current_dir(dir.path())
        .env("HOME", dir.path())
        .env("XDG_CACHE_HOME", dir.path().join("cache"))
        .env("VK_DRIVER_FILES", drivers)
        .env("VK_ICD_FILENAMES", drivers)
        .args(["--data-dir", "data"])
        .args(args);
    command.assert()
}

const QUICK: &[&str] = &["scan", "--json", "--bandwidth", "--transfer-mib", "1"];

fn document(assert: &Assert) -> Value {
    serde_json::from_slice(&assert.get_output().stdout).unwrap()
}

#[test]
fn a_scan_measures_stores_and_shows_and_the_next_one_remembers() {
    let dir = tempfile::tempdir().unwrap();
    let measured = flux(
        &dir,
        &lavapipe::driver(),
        &[QUICK, &["--software"]].concat(),
    )
    .code(0)
    .stderr(contains("reading RAM with all threads"));
    let measured = document(&measured);
    let profile: BandwidthProfile = serde_json::from_value(measured["bandwidth"].clone()).unwrap();
    let device = profile.paths.iter().find_map(|p| p.device.clone()).unwrap();
    assert!(device.starts_with("llvmpipe"), "{device}");
    for (way, bytes) in [
        // Read and written, four times in one submission.
        (Way::DeviceCopy, 8 << 20),
        (Way::Upload, 1 << 20),
        (Way::Download, 1 << 20),
    ] {
        let found = profile.get(way, Some(&device)).unwrap();
        assert_eq!((found.samples.len(), found.bytes), (7, bytes), "{way:?}");
        assert!(found.samples.iter().all(|s| s.is_finite() && *s > 0.0));
    }
    assert!(profile.notices.contains(&format!(
        "{device} is a software renderer: its memory is RAM, copied by the CPU"
    )));

    let again = document(&flux(&dir, &lavapipe::driver(), &["scan", "--json"]).code(0));
    assert_eq!(again["bandwidth"], measured["bandwidth"]);
    flux(&dir, &lavapipe::driver(), &["scan"])
        .code(0)
        .stdout(contains("Bandwidth, measured 2").and(contains("Weights on this disk: at most")));
    // Another machine's key has none.
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/machines/none");
    let args = ["scan", "--json", "--machine", fixture.to_str().unwrap()];
    let other = document(&flux(&dir, &lavapipe::driver(), &args).code(0));
    assert_eq!(other["bandwidth"], Value::Null);
}

#[test]
fn without_vulkan_the_host_is_measured_and_the_reason_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let found = flux(&dir, Path::new("/nonexistent/none.json"), QUICK).code(0);
    let profile: BandwidthProfile =
        serde_json::from_value(document(&found)["bandwidth"].clone()).unwrap();
    assert!(profile.get(Way::RamRead, None).is_some());
    assert!(profile.paths.iter().all(|p| p.device.is_none()));
    let told = |n: &&String| n.starts_with("no GPU was measured, Vulkan is not there: ");
    assert_eq!(profile.notices.iter().filter(told).count(), 1);
    // A software renderer nobody asked for is left alone, without a word.
    let found = flux(&dir, &lavapipe::driver(), QUICK).code(0);
    let text = document(&found)["bandwidth"].to_string();
    assert!(!text.contains("llvmpipe"), "{text}");
}

#[test]
fn what_cannot_be_measured_is_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/machines/none");
    let fixture = fixture.to_str().unwrap();
    let none = Path::new("/nonexistent/none.json");
    for (args, said) in [
        (
            &["--machine", fixture][..],
            "error: bandwidths are measured on this machine, not on an exported one\n",
        ),
        (&["--model", "no.gguf"], "error: no such model or folder ("),
        (&["--transfer-mib", "0"], "0 is not in 1..=4096"),
    ] {
        let args = [&["scan", "--bandwidth"], args].concat();
        flux(&dir, none, &args).code(2).stderr(contains(said));
    }
    flux(&dir, none, &["scan", "--software"]).code(2);
}
