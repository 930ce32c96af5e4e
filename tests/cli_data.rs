//! Commands over a data folder: scan, models, history, doctor, and every kind of bad input.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use assert_cmd::assert::Assert;
use flux::domain::types::*;
use flux::ports::{NewSession, Store as _};
use flux::store::{Access, MeasureLock, SqliteStore};
use predicates::prelude::PredicateBooleanExt as _;
use predicates::str::{contains, is_empty, starts_with};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder of its own: data below it, no home, no inherited switches.
struct Dir(TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn flux(&self, args: &[&str]) -> Assert {
        self.flux_with(args, &[])
    }

    fn flux_with(&self, args: &[&str], env: &[(&str, &str)]) -> Assert {
        let mut command = Command::cargo_bin("flux").unwrap();
        command
            .current_dir(self.path())
            .env("HOME", self.path())
            .env("XDG_CACHE_HOME", self.path().join("cache"))
            .env_remove("MESA_SHADER_CACHE_DISABLE")
            .env_remove("MESA_SHADER_CACHE_DIR")
            .args(["--data-dir", "data"])
            .args(args)
            .envs(env.iter().copied());
        command.assert()
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.flux(args).code(0).get_output().stdout.clone();
        let document: Value = serde_json::from_slice(&output).unwrap();
        assert_eq!(document["schema"], 1, "{args:?}");
        document
    }

    /// An exported machine: a card without resizable BAR, on battery.
    fn fixture(&self, name: &str) {
        let machine = json!({
            "schema": 1,
            "vulkan": {"status": {"state": "ready", "instance_version": "1.3.217"}, "entries": [{
                "enumeration_index": 0, "name": "AMD Radeon RX 580\u{1b}[2J", "kind": "discrete",
                "vendor_id": 0x1002, "device_id": 0x6fdf, "pci": "0000:01:00.0", "uuid": null, "api_version": "1.3.217",
                "driver": {"id": 1, "id_name": "AMD_PROPRIETARY", "name": "AMD proprietary driver", "info": "22.20.27.09",
                           "version_raw": 8_388_860, "version": "2.0.252"},
                "heaps": [
                    {"size": 8_321_499_136_u64, "budget": null, "usage": null, "device_local": true, "host_visible": false},
                    {"size": 268_435_456, "budget": null, "usage": null, "device_local": true, "host_visible": true}],
                "queue_families": [{"index": 0, "flags": ["graphics", "compute"], "count": 1, "timestamp_bits": 64}],
                "limits": {"max_allocation": null, "max_buffer": null, "max_storage_buffer_range": null,
                           "max_work_group_invocations": 1024, "max_work_group_size": [1024, 1024, 1024],
                           "max_shared_memory": 32768, "subgroup_size": 64, "subgroup_size_range": null, "timestamp_period_ps": 40000},
                "features": {"fp16": false, "int8": true, "storage_16bit": true, "int8_dot_accelerated": false,
                             "cooperative_matrix": false, "cooperative_matrix2": false, "bfloat16": false, "timeline_semaphore": true}
            }]},
            "host": {"cpu": "Intel i7-8700", "physical_cores": 6, "logical_cores": 12, "ram_total": 17_179_869_184_u64,
                     "ram_available": 12_884_901_888_u64, "os": "Windows 11", "kernel": "22631", "arch": "x86_64",
                     "on_battery": true, "power_plan": null, "load_1min_centi": null}
        });
        let dir = self.path().join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("machine.json"), machine.to_string()).unwrap();
    }
}

/// Status 1, nothing on stdout, and exactly one `error:` line.
fn fails_clearly(result: Assert) -> String {
    let result = result
        .code(1)
        .stdout(is_empty())
        .stderr(starts_with("error: "));
    let stderr = String::from_utf8(result.get_output().stderr.clone()).unwrap();
    assert_eq!(stderr.matches("error: ").count(), 1, "{stderr}");
    assert!(
        !stderr.contains("panicked") && !stderr.contains('\u{1b}'),
        "{stderr}"
    );
    stderr
}

#[test]
fn a_scan_of_an_exported_machine_is_complete_in_both_forms() {
    let dir = Dir::new();
    dir.fixture("card");
    let document = dir.json(&["scan", "--machine", "card", "--json"]);
    assert_eq!(document["machine"]["simulated"], true);
    assert_eq!(document["gpus"].as_array().unwrap().len(), 1);
    assert_eq!(document["fingerprint"]["hash"].as_str().unwrap().len(), 64);
    assert!(document["fingerprint"]["fields"].is_object());
    assert!(document["changes"].is_null());
    dir.flux(&["scan", "--machine", "card"])
        .code(0)
        .stdout(
            contains("GPU 1: ")
                .and(contains("1002:6fdf"))
                .and(contains("not fp16"))
                .and(contains("resizable BAR off")),
        )
        .stdout(contains("\u{1b}").not());
}

#[test]
fn this_machine_is_scanned_and_a_second_scan_says_what_changed() {
    let dir = Dir::new();
    assert!(dir.json(&["scan", "--json"])["changes"].is_null());
    assert_eq!(dir.json(&["scan", "--json"])["changes"], json!([]));
}

#[test]
fn a_scan_shows_inherited_switches_but_no_secret() {
    let dir = Dir::new();
    dir.flux_with(
        &["scan"],
        &[("GGML_VK_DISABLE_F16", "1"), ("LLAMA_API_KEY", "hunter2")],
    )
    .code(0)
    .stdout(
        contains("GGML_VK_DISABLE_F16=1")
            .and(contains("LLAMA_API_KEY=(hidden)"))
            .and(contains("hunter2").not()),
    );
}

#[test]
fn an_export_is_a_machine_again_and_never_overwrites() {
    let dir = Dir::new();
    let first = dir.json(&["scan", "--export", "here", "--json"]);
    let again = dir.json(&["scan", "--machine", "here", "--json"]);
    assert_eq!(first["fingerprint"]["hash"], again["fingerprint"]["hash"]);
    fails_clearly(dir.flux(&["scan", "--export", "here"]));
}

#[test]
fn an_unknown_machine_is_one_clear_error() {
    let stderr = fails_clearly(Dir::new().flux(&["scan", "--machine", "no-such-machine"]));
    assert!(stderr.contains("no-such-machine"), "{stderr}");
}

#[test]
fn doctor_advises_and_ends_with_0() {
    let dir = Dir::new();
    dir.fixture("card");
    let found = dir.json(&["doctor", "--machine", "card", "--json"]);
    let codes: Vec<&str> = found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["battery", "resizable-bar"]);
    dir.flux_with(&["doctor"], &[("MESA_SHADER_CACHE_DISABLE", "1")])
        .code(0)
        .stdout(contains("MESA_SHADER_CACHE_DISABLE=1"));
}

#[test]
fn a_synthetic_model_is_made_listed_and_never_overwritten() {
    let dir = Dir::new();
    let made = dir.json(&["model", "synth", "tiny", "-o", "tiny.gguf", "--json"]);
    assert_eq!(made["model"]["path"], "tiny.gguf");
    let before = fs::read(dir.path().join("tiny.gguf")).unwrap();
    fails_clearly(dir.flux(&["-q", "model", "synth", "tiny", "-o", "tiny.gguf"]));
    assert_eq!(fs::read(dir.path().join("tiny.gguf")).unwrap(), before);
    dir.flux(&["models", "."])
        .code(0)
        .stdout(contains("tiny.gguf").and(contains("Needs (4096 context)")));
}

/// No file of Windows has such a name.
#[cfg(unix)]
#[test]
fn a_broken_model_says_what_is_wrong_and_its_name_is_harmless() {
    let dir = Dir::new();
    fs::create_dir(dir.path().join("models")).unwrap();
    fs::write(dir.path().join("models/evil\u{1b}]0;x\u{7}.gguf"), b"GGUF").unwrap();
    dir.flux(&["models", "models"])
        .code(0)
        .stdout(contains("1 file cannot be used").and(contains("evil\\u{1b}]0;x\\u{7}.gguf")))
        .stdout(contains("\u{1b}").not());
    let listed = dir.json(&["models", "models", "--json"]);
    assert!(listed["models"][0]["problem"].is_string());
}

#[test]
fn bad_models_fail_clearly_everywhere() {
    let dir = Dir::new();
    fs::write(dir.path().join("notes.gguf"), b"this is no model").unwrap();
    for model in ["missing.gguf", "notes.gguf"] {
        for args in [
            &["-q", "tune", "-m", model][..],
            &["-q", "tune", "--dry-run", "-m", model],
            &["-q", "ab", "stock", "flash-attn=on", "-m", model],
            &["-q", "run", "--print", "-m", model],
            &["-q", "models", model],
            &["-q", "doctor", "-m", model],
            &["-q", "quickstart", model],
        ] {
            fails_clearly(dir.flux(args));
        }
    }
}

#[test]
fn an_unreadable_folder_and_a_folder_without_llama_cpp_fail_clearly() {
    let dir = Dir::new();
    fs::create_dir(dir.path().join("empty")).unwrap();
    let stderr = fails_clearly(dir.flux(&["models", "no-such-folder"]));
    assert!(stderr.contains("no-such-folder"), "{stderr}");
    fails_clearly(dir.flux(&["runtime", "add", "empty"]));
    fails_clearly(dir.flux(&["runtime", "remove", "no-such-build"]));
}

#[test]
fn an_empty_history_is_no_error_and_unknown_sessions_are() {
    let dir = Dir::new();
    dir.json(&["scan", "--json"]);
    dir.flux(&["history"])
        .code(0)
        .stdout(contains("No sessions yet"));
    assert_eq!(dir.json(&["history", "--json"])["sessions"], json!([]));
    fails_clearly(dir.flux(&["show", "99"]));
    fails_clearly(dir.flux(&["export", "99", "--format", "csv", "-o", "out.csv"]));
    assert!(!dir.path().join("out.csv").exists());
    fails_clearly(dir.flux(&["-q", "tune", "--resume"]));
}

#[test]
fn a_folder_without_data_is_said_to_be_so_and_left_alone() {
    let dir = Dir::new();
    for args in [&["history"][..], &["show", "1"], &["export", "1"]] {
        let stderr = fails_clearly(dir.flux(args));
        assert!(stderr.starts_with("error: Flux has kept nothing in this folder: data\n"));
    }
    assert!(!dir.path().join("data").exists());
}

#[test]
fn with_json_an_error_is_a_document_too() {
    let dir = Dir::new();
    let failed = dir.flux(&["run", "-m", "missing.gguf", "--json"]).code(1);
    let output = failed.stderr(starts_with("error: ")).get_output().clone();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = &document["error"];
    assert_eq!(
        (&document["schema"], &error["code"]),
        (&json!(1), &json!("failed"))
    );
    let said = format!("error: {}\n", error["headline"].as_str().unwrap());
    assert!(String::from_utf8(output.stderr).unwrap().starts_with(&said));
    assert!(error["cause"].is_array());
}

#[cfg(unix)]
#[test]
fn a_read_only_data_folder_does_not_stop_a_scan() {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = Dir::new();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o555)).unwrap();
    dir.flux(&["scan"]).code(0).stdout(contains("Fingerprint "));
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A long write is ended by SIGTERM: status 130, said, and nothing half-written stays.
#[cfg(unix)]
#[test]
fn a_termination_ends_a_job_at_once_and_leaves_nothing() {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::process::{Command as StdCommand, Stdio};

    use rustix::process::{Pid, Signal, kill_process};

    let dir = Dir::new();
    let mut child = StdCommand::new(env!("CARGO_BIN_EXE_flux"))
        .current_dir(dir.path())
        .args([
            "--data-dir",
            "data",
            "model",
            "synth",
            "qwen3-8b",
            "-o",
            "big.gguf",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("writing random weights") {
        line.clear();
        assert_ne!(
            stderr.read_line(&mut line).unwrap(),
            0,
            "ended before it wrote anything"
        );
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(
        rest.contains("stopping now") && rest.contains("cancelled: nothing was kept"),
        "{rest}"
    );
    let left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name != "data")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A folder with one old session: begun in 1970, with an output worth erasing.
fn with_an_old_session(dir: &Dir) {
    let store = SqliteStore::open(&dir.path().join("data"), Access::Measure).unwrap();
    let begun = include_str!("fixtures/store/session.json");
    let mut begun: NewSession = serde_json::from_str(begun).unwrap();
    begun.started_at = Timestamp(1_000);
    let id = store.begin_session(&begun).unwrap();
    let planned = PlannedRun {
        stage: Stage::Baseline,
        side: None,
        settings: Settings::stock(),
        repetitions: 3,
        early_stop: None,
        log_buffers: false,
        clients: 1,
        purpose: "baseline 1 of 3".to_owned(),
    };
    let run = Run {
        started_at: Timestamp(1_000),
        wall_secs: 1.0,
        outcome: RunOutcome::Cancelled,
        buffers: Vec::new(),
        raw: RawOutput {
            stderr: "e".repeat(20_480),
            ..RawOutput::default()
        },
        telemetry: None,
    };
    store.append_run(id, 0, &planned, &run).unwrap();
}

#[test]
fn data_says_what_is_kept_and_compacts_only_when_told_to() {
    let dir = Dir::new();
    fails_clearly(dir.flux(&["data"]));
    fails_clearly(dir.flux(&["data", "compact", "--yes"]));
    assert!(!dir.path().join("data").exists(), "nothing was made");
    with_an_old_session(&dir);

    let held = dir.json(&["data", "--json"]);
    assert_eq!(held["database"]["sessions"], 1);
    assert_eq!(held["telemetry_days"], 30);
    dir.flux(&["data"]).code(0).stdout(
        contains("sessions  1, since 1970-01-01 00:00 UTC").and(contains("kept for 30 days")),
    );
    // Nobody can be asked here: nothing is erased without a word.
    let unasked = dir.flux(&["data", "compact"]).code(2).stdout(is_empty());
    unasked.stderr(contains("nothing was erased").and(contains("--yes")));
    let would = dir.json(&["data", "compact", "--dry-run", "--json"]);
    assert_eq!(would["would_erase"]["outputs"], 1);
    assert_eq!(would["would_erase"]["output_bytes"], 20_480);
    dir.flux(&["data", "compact", "--dry-run"]).code(0).stdout(
        contains("To be erased for good, all older than 90 days:")
            .and(contains("what the processes of 1 run printed, 20.0 KiB"))
            .and(contains("Kept: every sample")),
    );
    assert_eq!(
        dir.json(&["show", "1", "--json"])["runs"][0]["run"]["raw"]["stderr"],
        "e".repeat(20_480)
    );

    let erased = dir.json(&["data", "compact", "--yes", "--json"]);
    assert_eq!(erased["erased"]["outputs"], 1);
    assert!(erased["bytes"].as_u64() < erased["bytes_before"].as_u64());
    let shown = dir.json(&["show", "1", "--json"]);
    assert_eq!(
        shown["runs"][0]["run"]["raw"]["stderr"],
        "[erased by flux data compact]"
    );
    dir.flux(&["data", "compact", "--yes", "-q"])
        .code(0)
        .stdout(contains("Nothing was erased"));
    let much = dir.flux(&["data", "compact", "--older-than", "-1"]);
    much.code(2);
}

#[test]
fn nothing_is_compacted_under_a_measurement() {
    let dir = Dir::new();
    with_an_old_session(&dir);
    let _measuring = MeasureLock::acquire(&dir.path().join("data")).unwrap();
    let told = fails_clearly(dir.flux(&["data", "compact", "--yes"]));
    assert!(
        told.contains("is measuring with this data folder"),
        "{told}"
    );
    assert_eq!(
        dir.json(&["data", "compact", "--dry-run", "--json"])["would_erase"]["outputs"],
        1
    );
}
