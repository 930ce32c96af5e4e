//! Bad input and a hostile surrounding through the real binary: one clear sentence, the right exit status, nothing
//! half-written (issue "It must show").
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use flux::ports::Store as _;

use bench_runs::{alive, wait_until};
use flux_cli::{Bed, FLASH_WINS, ONLY_FLASH, document, names, refused};

/// User and group "nobody": what root may read, they may not.
const NOBODY: u32 = 65534;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The command without root's rights to read and write everything.
fn unprivileged<'c>(bed: &Bed, command: &'c mut Command) -> &'c mut Command {
    mode(bed.fake.scratch(), 0o777);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn no_session(bed: &Bed) {
    assert_eq!(bed.store().sessions(9).unwrap(), []);
    assert_eq!(bed.fake.processes(), 0, "nothing was measured");
}

/// Case C25: libraries of one version beside a running driver of another.
#[test]
fn c25_a_driver_updated_without_a_restart_measures_nothing() {
    let bed = Bed::new("");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/machines/h200");
    let text = fs::read_to_string(fixture.join("machine.json")).unwrap();
    let mut machine: serde_json::Value = serde_json::from_str(&text).unwrap();
    machine["system_gpus"][0]["pending_driver"] = "590.44.01".into();
    let updated = bed.fake.scratch().join("updated");
    fs::create_dir(&updated).unwrap();
    fs::write(updated.join("machine.json"), machine.to_string()).unwrap();
    let updated = updated.to_str().unwrap();
    let mut tune = bed.tune(&["--machine", updated]);
    let output = tune.output().unwrap();
    assert_eq!(
        refused(&output, 1),
        "the driver of the GPU at 0000:00:06.0 was updated to 590.44.01 while 580.159.04 still runs"
    );
    let stderr = String::from_utf8_lossy(&output.stderr).to_lowercase();
    assert!(stderr.contains("restart the machine"), "{stderr}");
    no_session(&bed);
    let found = document(&mut bed.flux(&["doctor", "--machine", updated, "--json"]));
    let codes = found["findings"].as_array().unwrap().iter();
    assert!(
        codes
            .map(|f| &f["code"])
            .any(|code| code == "driver-update"),
        "{found}"
    );
}

#[test]
fn a_model_that_is_none_begins_no_session() {
    let bed = Bed::new("");
    let dir = bed.fake.scratch().to_owned();
    let whole = fs::read(&bed.model).unwrap();
    fs::write(dir.join("text.gguf"), "this is no model").unwrap();
    fs::write(dir.join("empty.gguf"), "").unwrap();
    fs::write(dir.join("cut.gguf"), &whole[..whole.len() / 2]).unwrap();
    fs::create_dir(dir.join("folder.gguf")).unwrap();
    for name in [
        "missing.gguf",
        "text.gguf",
        "empty.gguf",
        "cut.gguf",
        "folder.gguf",
    ] {
        let model = dir.join(name);
        let mut command = bed.flux(&["tune", "--json", "--runtime"]);
        command.arg(bed.fake.dir()).arg("-m").arg(&model);
        let said = refused(&command.output().unwrap(), 1);
        assert!(said.contains(name), "{said}");
        no_session(&bed);
    }
}

#[test]
fn what_may_not_be_read_is_one_sentence() {
    let bed = Bed::new("");
    mode(&bed.model, 0o000);
    let said = refused(
        &unprivileged(&bed, &mut bed.tune(ONLY_FLASH))
            .output()
            .unwrap(),
        1,
    );
    assert!(said.contains("tiny.gguf"), "{said}");
    let locked = bed.fake.scratch().join("locked");
    fs::create_dir(&locked).unwrap();
    mode(&locked, 0o000);
    let folder = locked.to_str().unwrap();
    for args in [&["models", folder][..], &["runtime", "add", folder]] {
        let output = unprivileged(&bed, &mut bed.flux(args)).output().unwrap();
        let said = refused(&output, 1);
        assert!(said.contains("locked"), "{said}");
    }
    mode(&locked, 0o755);
}

#[test]
fn a_data_folder_that_may_not_be_written_stops_a_measurement_before_it_begins() {
    let bed = Bed::new("");
    fs::create_dir(&bed.data).unwrap();
    mode(&bed.data, 0o555);
    let said = refused(
        &unprivileged(&bed, &mut bed.tune(ONLY_FLASH))
            .output()
            .unwrap(),
        1,
    );
    assert!(said.contains("data"), "{said}");
    assert_eq!(bed.fake.processes(), 0);
    assert_eq!(bed.files(), [""; 0]);
    fs::remove_dir(&bed.data).unwrap();
    fs::write(&bed.data, "a file").unwrap();
    let folder = format!(
        "a file stands where the data folder should be: {}",
        bed.data.display()
    );
    for words in [&["history"][..], &["scan"], &["data"], &["runtime", "list"]] {
        let output = bed.flux(words).arg("--json").output().unwrap();
        assert_eq!(refused(&output, 1), folder, "{words:?}");
    }
    assert_eq!(refused(&bed.tune(ONLY_FLASH).output().unwrap(), 1), folder);
}

#[test]
fn a_folder_of_something_else_is_no_runtime() {
    let bed = Bed::new("");
    let program = |name: &str, text: &str| {
        let dir = bed.fake.scratch().join(name);
        fs::create_dir(&dir).unwrap();
        let path = dir.join("llama-bench");
        fs::write(&path, text).unwrap();
        mode(&path, 0o755);
        dir
    };
    let dirs = [
        program("other", "#!/bin/sh\necho 'hello, world'\n"),
        program(
            "failing",
            "#!/bin/sh\necho 'no such library' >&2\nexit 127\n",
        ),
        program("not-a-program", "neither ELF nor script"),
        bed.fake.scratch().join("missing"),
    ];
    for dir in &dirs {
        let mut add = bed.flux(&["runtime", "add"]);
        refused(&add.arg(dir).output().unwrap(), 1);
        let mut tune = bed.flux(&["tune", "--runtime"]);
        tune.arg(dir).arg("-m").arg(&bed.model);
        let said = refused(&tune.output().unwrap(), 1);
        let name = dir.file_name().unwrap().to_str().unwrap();
        assert!(said.contains(name), "{said}");
        no_session(&bed);
    }
    let listed = document(&mut bed.flux(&["runtime", "list", "--json"]));
    let known = listed["runtimes"].as_array().unwrap();
    let in_scratch = |r: &serde_json::Value| {
        Path::new(r["dir"].as_str().unwrap()).starts_with(bed.fake.scratch())
    };
    assert!(!known.iter().any(in_scratch), "{known:?}");
}

#[test]
fn two_do_not_measure_on_one_data_folder_but_anyone_may_look() {
    let bed = Bed::new("[[behaviour]]\ndo = \"hang\"\n");
    let mut first = bed
        .tune(ONLY_FLASH)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(first.stderr.take().unwrap()).lines();
    let began = lines.map_while(Result::ok).find(|l| l == "session 1 began");
    assert!(began.is_some());
    let said = refused(&bed.tune(ONLY_FLASH).output().unwrap(), 1);
    let expected = format!(
        "another Flux (process {}) is measuring with this data folder: {}",
        first.id(),
        bed.data.display()
    );
    assert_eq!(said, expected);
    // What is wrong with a request is said first, whoever measures.
    for wrong in [
        &["tune", "--only", "nonsense"][..],
        &["ab", "stock", "nonsense=1"],
        &["plan", "--bench", "--goal", "energy"],
        &["serve-check", "--settings", "nonsense=1"],
        &[
            "serve-check",
            "--settings",
            "flash-attn=on",
            "--speculate",
            "nonsense",
        ],
    ] {
        let mut command = bed.flux(wrong);
        command.arg("--runtime").arg(bed.fake.dir());
        command.arg("-m").arg(&bed.model);
        let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
        assert!(
            !said.contains("another Flux") && said.contains("error: "),
            "{wrong:?}: {said}"
        );
    }
    let history = document(&mut bed.flux(&["history", "--json"]));
    assert_eq!(history["sessions"].as_array().unwrap().len(), 1);
    assert!(history["sessions"][0]["state"].is_null(), "it still runs");
    document(&mut bed.flux(&["scan", "--json"]));
    first.kill().unwrap();
    first.wait().unwrap();
    wait_until("its child is gone", || alive(&bed.fake).is_empty());
}

/// A data folder on a disk of its own, where the system lets a test mount one; else files of limited size, which the
/// system answers with another error.
#[test]
fn a_full_disk_is_one_sentence_and_leaves_whole_runs() {
    let bed = Bed::new(FLASH_WINS);
    let tune = bed.tune(ONLY_FLASH);
    let words: Vec<_> = tune.get_args().map(std::ffi::OsStr::to_owned).collect();
    fs::create_dir(&bed.data).unwrap();
    let shell = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-Urm", "sh", "-c", script, env!("CARGO_BIN_EXE_flux")]);
        command.args(&words).current_dir(env!("CARGO_MANIFEST_DIR"));
        command
            .env("HOME", bed.fake.scratch())
            .env("DATA", &bed.data);
        command
    };
    let can_mount = shell("mount -t tmpfs none \"$DATA\"").status();
    let is_own_disk = can_mount.is_ok_and(|s| s.success());
    let keep = bed.fake.scratch().join("kept");
    fs::create_dir(&keep).unwrap();
    let output = if is_own_disk {
        // The disk is gone with its name space: what is on it is copied out.
        let script = "mount -t tmpfs -o size=500k none \"$DATA\" || exit 99; \"$0\" \"$@\"; status=$?; \
                      cp \"$DATA\"/* \"$KEEP\"; exit $status";
        shell(script).env("KEEP", &keep).output().unwrap()
    } else {
        let script = "trap '' XFSZ; ulimit -f 400; \"$0\" \"$@\"; status=$?; cp \"$DATA\"/* \"$KEEP\"; exit $status";
        let mut command = Command::new("sh");
        command
            .args(["-c", script, env!("CARGO_BIN_EXE_flux")])
            .args(&words);
        command
            .env("HOME", bed.fake.scratch())
            .env("DATA", &bed.data);
        command.env("KEEP", &keep).output().unwrap()
    };
    let said = refused(&output, 1);
    if is_own_disk {
        assert!(
            said.starts_with("the disk is full, nothing more was stored: "),
            "{said}"
        );
    }
    assert!(said.contains("flux.db"), "{said}");
    // What was stored is whole, and with space again the session goes on.
    fs::remove_dir_all(&bed.data).unwrap();
    fs::rename(&keep, &bed.data).unwrap();
    let store = bed.store();
    let runs = store.runs(1).unwrap();
    assert!(!runs.is_empty(), "{:?}", names(&bed.data));
    assert_eq!(store.profiles().unwrap(), []);
    drop(store);
    let resumed = document(&mut bed.flux(&["tune", "--resume", "--json"]));
    assert_eq!(resumed["verdict"], "improved");
}

#[test]
fn a_database_of_a_newer_flux_is_refused_and_left_alone() {
    let bed = Bed::new("");
    drop(bed.store());
    let path = bed.data.join("flux.db");
    let database = rusqlite::Connection::open(&path).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    database.close().unwrap();
    let before = fs::read(&path).unwrap();
    for mut command in [
        bed.tune(ONLY_FLASH),
        bed.flux(&["history"]),
        bed.flux(&["scan"]),
    ] {
        let said = refused(&command.output().unwrap(), 1);
        let expected = format!(
            "this database was made by a newer Flux (format 99, this one knows 7): {}",
            path.display()
        );
        assert_eq!(said, expected);
    }
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(bed.fake.processes(), 0);
}

#[test]
fn a_damaged_database_is_set_aside_by_a_tune_and_only_named_by_a_look() {
    let bed = Bed::new(FLASH_WINS);
    drop(bed.store());
    let path = bed.data.join("flux.db");
    let garbage = vec![0x5a; fs::read(&path).unwrap().len()];
    fs::write(&path, &garbage).unwrap();
    let said = refused(&bed.flux(&["history"]).output().unwrap(), 1);
    assert_eq!(said, format!("the database is damaged: {}", path.display()));
    let output = bed.tune(ONLY_FLASH).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(
        stderr.matches("warning: the database was damaged").count(),
        1,
        "{stderr}"
    );
    let aside = bed
        .files()
        .into_iter()
        .find(|n| n.starts_with("flux.db.damaged-"));
    assert_eq!(fs::read(bed.data.join(aside.unwrap())).unwrap(), garbage);
    assert_eq!(bed.store().sessions(9).unwrap().len(), 1);
}
