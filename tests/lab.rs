//! The kernel lab from the card to the store and its readers: on lavapipe through the real binary, watched by Vulkan's
//! validation layers, and on a scripted card through the engine.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;
#[path = "support/lavapipe.rs"]
mod lavapipe;
#[path = "support/scripted_engine.rs"]
mod scripted_engine;
#[path = "support/scripted_lab.rs"]
mod scripted_lab;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use flux::domain::fingerprint::fingerprint;
use flux::domain::lab::FaultKind;
use flux::domain::placement::bandwidth::Path as Way;
use flux::engine::bandwidth;
use flux::engine::lab::{LabAsked, LabDocument, queue_verdict};
use flux::engine::message::{Command as Job, Outcome};
use flux::ports::{Lab, SessionKind, SessionState, Store as _};
use serde_json::Value;
use tempfile::TempDir;

use flux_cli::refused;
use scripted_engine::{Answer, Desk, finished};
use scripted_lab::{Ends, ItsMemory, NAME, ScriptedLab};

/// `flux` in a folder of its own that sees only these drivers.
fn flux(dir: &TempDir, drivers: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flux"));
    command
        .current_dir(dir.path())
        .env("HOME", dir.path())
        .env("XDG_CACHE_HOME", dir.path().join("cache"))
        .env("VK_DRIVER_FILES", drivers)
        .env("VK_ICD_FILENAMES", drivers)
        .args(["--data-dir", "data"]);
    command
}

const QUICK: &[&str] = &[
    "lab",
    "--quick",
    "--largest-mib",
    "1",
    "--device",
    "llvmpipe",
];

fn document(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_lab_is_measured_stored_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| flux(&dir, &lavapipe::driver()).args(args).output().unwrap();
    let found = document(&run(&[QUICK, &["--json"]].concat()));
    let lab: LabDocument = serde_json::from_value(found.clone()).unwrap();
    assert_eq!((lab.schema, lab.session), (1, Some(1)));
    assert_eq!(lab.report.fault, None);
    assert_eq!(lab.report.kernels.len(), 27);
    assert!(lab.report.kernels.iter().all(|r| r.rate().is_some()));
    assert!(lab.best_read.unwrap().bytes_per_sec > 0.0);
    let shown = document(&run(&["show", "1", "--json"]));
    assert_eq!(shown["session"]["kind"], "lab");
    assert_eq!(shown["session"]["end"]["result"], found);
    let text = |args: &[&str]| String::from_utf8(run(args).stdout).unwrap();
    let shown = text(&["show", "1"]);
    for part in [
        "Session 1: lab\n",
        "Kernel lab, 2",
        "sub-group for four rows",
        "Ended: done",
    ] {
        assert!(shown.contains(part), "{part:?} is missing from\n{shown}");
    }
    assert!(
        text(&["history"]).contains(" lab   llvmpipe"),
        "{}",
        text(&["history"])
    );
    // A software renderer's memory is RAM: the planner hears nothing of it.
    assert_eq!(
        document(&run(&["scan", "--json"]))["bandwidth"],
        Value::Null
    );
    let report = text(&["report", "1", "-o", "-"]);
    assert!(
        report.contains("Only one queue family computes"),
        "{report}"
    );
}

/// What a hidden command of Flux says on stderr under the validation layers, which must be in place: else their silence
/// says nothing.
fn watched(args: [&str; 2]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let output = flux(&dir, &lavapipe::driver())
        .args(args)
        .env("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation")
        .env("VK_LOADER_DEBUG", "layer")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("Insert instance layer \"VK_LAYER_KHRONOS_validation\""),
        "the layers are needed: apt-get install vulkan-validationlayers\n{said}"
    );
    let complaints: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("VUID-") || line.contains("UNASSIGNED-"))
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    said
}

#[test]
fn the_validation_layers_have_nothing_to_say() {
    let request = r#"{"device":"llvmpipe","quick":true,"largest":262144,"seed":1}"#;
    let said = watched(["vulkan-lab", request]);
    assert!(said.contains(r#""operation":"mat-vec""#), "{said}");
    watched(["vulkan-bandwidth", r#"{"software":true,"size":1048576}"#]);
}

#[test]
fn a_lab_without_a_card_is_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let run = |drivers: &Path, args: &[&str]| flux(&dir, drivers).args(args).output().unwrap();
    let voodoo = ["lab", "--device", "Voodoo"];
    let said = refused(&run(&lavapipe::driver(), &voodoo), 1);
    assert!(
        said.starts_with("no card is called Voodoo; Vulkan lists llvmpipe"),
        "{said}"
    );
    let said = refused(&run(&lavapipe::driver(), &["lab"]), 1);
    assert!(
        said.starts_with("there is no GPU to measure; Vulkan lists llvmpipe"),
        "{said}"
    );
    let said = refused(&run(Path::new("/nonexistent/none.json"), &["lab"]), 1);
    assert!(
        said.starts_with("no GPU can be measured, Vulkan is not there: "),
        "{said}"
    );
}

/// A desk whose lab ends so, and how its job ended.
fn lab(ends: Ends) -> (Desk, Outcome) {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("rx580-2048sp");
    desk.ports.telemetry = Arc::new(ItsMemory);
    desk.ports.lab = Arc::new(ScriptedLab(ends)) as Arc<dyn Lab>;
    let (mut engine, events) = desk.engine();
    let job = engine.submit(Job::Lab(LabAsked::default())).unwrap();
    let outcome = finished(&events, job);
    (desk, outcome)
}

fn done(outcome: Outcome) -> LabDocument {
    match outcome {
        Outcome::Done { result } => serde_json::from_value(result).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The paper's card: 197.3 GB/s of 224, from clock and width of its memory.
#[test]
fn a_lab_feeds_the_planner_and_explains_the_queue() {
    let (desk, outcome) = lab(Ends::Well);
    let document = done(outcome);
    let best = document.best_read.as_ref().unwrap();
    assert!(
        (best.bytes_per_sec / 197.3e9 - 1.0).abs() < 0.01,
        "{best:?}"
    );
    assert!(
        (best.share_of_peak.unwrap() - 0.88).abs() < 0.01,
        "{best:?}"
    );
    let verdict = "this driver costs 40.0 µs more per submission (95 % interval 39.7 to 40.3) on the compute-only family";
    assert_eq!(document.queues.as_ref().unwrap().verdict, verdict);
    assert_eq!(
        queue_verdict(&desk.ports).unwrap().unwrap(),
        format!("{NAME}: {verdict} (session 1)")
    );
    let key = fingerprint(&desk.ports.probe.machine(), None);
    let profile = bandwidth::stored(&desk.ports, &key).unwrap().unwrap();
    let read = profile.get(Way::DeviceRead, Some(NAME)).unwrap();
    assert!((read.median() - best.bytes_per_sec).abs() < 1.0);
    assert_eq!(read.samples.len(), 7);
    let line = &desk.store.sessions(5).unwrap()[0];
    assert_eq!((line.kind, line.model.as_str()), (SessionKind::Lab, NAME));
}

#[test]
fn a_card_that_fails_is_a_result_with_all_that_came_before() {
    for kind in [
        FaultKind::DeviceLost,
        FaultKind::OutOfMemory,
        FaultKind::Crash,
    ] {
        let (desk, outcome) = lab(Ends::With(kind));
        let document = done(outcome);
        assert_eq!(document.report.fault.as_ref().unwrap().kind, kind);
        // Three kernels at four sizes, and no dispatches.
        assert_eq!(document.report.kernels.len(), 12);
        assert_eq!(document.queues, None);
        assert!(
            document.sentence().starts_with(
                "The card failed: vkQueueSubmit: the device was lost. Reading reached"
            ),
            "{}",
            document.sentence()
        );
        assert_eq!(queue_verdict(&desk.ports).unwrap(), None);
    }
}

#[test]
fn a_cancelled_lab_keeps_what_it_measured_and_tells_the_planner_nothing() {
    let (desk, outcome) = lab(Ends::Cancelled);
    let Outcome::Cancelled {
        session: Some(id), ..
    } = outcome
    else {
        panic!("{outcome:?}")
    };
    let end = desk.store.session(id).unwrap().unwrap().end.unwrap();
    assert_eq!(end.state, SessionState::Cancelled);
    let document: LabDocument = serde_json::from_value(end.result).unwrap();
    assert_eq!(document.report.kernels.len(), 12);
    let key = fingerprint(&desk.ports.probe.machine(), None);
    assert_eq!(bandwidth::stored(&desk.ports, &key).unwrap(), None);
}

#[test]
fn a_lab_that_cannot_begin_fails_and_stores_nothing() {
    let (desk, outcome) = lab(Ends::Refused);
    let Outcome::Failed { error } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        error.headline,
        "there is no GPU to measure; Vulkan lists none"
    );
    assert_eq!(desk.store.sessions(5).unwrap().len(), 0);
}
