//! llama.cpp's own settings files (b11149) change no measurement of Flux's, and are told of: through the real binary,
//! and with the real llama-server that `.ci/test` brings.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use flux::ports::{MachineProbe as _, Store as _};
use flux::probe::{MachineReader, SystemRoot};
use serde_json::Value;

use flux_cli::{Bed, FLASH_WINS, document};

/// The user's file below the home of the bed's commands.
fn write(bed: &Bed, text: &str) -> PathBuf {
    let dir = bed.fake.scratch().join(".config/llama.cpp");
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join("config.ini");
    fs::write(&path, text).unwrap();
    path
}

/// A command of the bed's whose settings are in its home.
fn at_home(mut command: Command) -> Command {
    command.env_remove("XDG_CONFIG_HOME");
    command
}

fn told(document: &Value, list: &str, code: &str) -> Vec<Value> {
    let all = document[list].as_array().unwrap().iter();
    all.filter(|f| f["code"] == code).cloned().collect()
}

#[test]
fn the_users_file_is_kept_from_every_run_and_told() {
    let bed = Bed::new(FLASH_WINS);
    let tune = |bed: &Bed| {
        let only = ["--only", "flash-attn", "--processes", "4"];
        document(&mut at_home(bed.tune(&only)))
    };
    tune(&bed);
    assert!(
        bed.store()
            .runs(1)
            .unwrap()
            .iter()
            .all(|r| !r.run.raw.env.contains_key("XDG_CONFIG_HOME")),
        "nothing to keep away from"
    );
    let path = write(&bed, "ctx-size = 4352\n[*]\napi-key = s3cret\n");
    let found = document(&mut at_home(bed.flux(&["doctor", "--json"])));
    let [finding] = &told(&found, "findings", "llama-config")[..] else {
        panic!("{found}")
    };
    assert_eq!(finding["level"], "info");
    let title = format!(
        "llama-server takes ctx-size, api-key from your settings file: {}",
        path.display()
    );
    assert_eq!(finding["title"], title.as_str());
    assert!(!found.to_string().contains("s3cret"), "{found}");

    let tuned = tune(&bed);
    let session = tuned["session"].as_i64().unwrap();
    let store = bed.store();
    for run in store.runs(session).unwrap() {
        assert_eq!(run.run.raw.env["XDG_CONFIG_HOME"], "/dev/null");
    }
    let notices = store.notices(session).unwrap();
    let notice = notices.iter().find(|n| n.code == "llama-config").unwrap();
    assert_eq!(notice.text, format!("{title}; no run of Flux reads it"));
    let profile = tuned["profile"].as_object().unwrap();
    assert_eq!(
        profile["env"],
        serde_json::json!({}),
        "no part of what was found"
    );

    // What is served is the user's own affair, and said.
    let mut run = at_home(bed.flux(&["run", "--json", "--runtime"]));
    run.arg(bed.fake.dir()).arg("-m").arg(&bed.model);
    let plan = document(&mut run);
    let [notice] = &told(&plan, "notices", "llama-config")[..] else {
        panic!("{plan}")
    };
    assert_eq!(
        (&notice["level"], &notice["text"]),
        (&"warning".into(), &title.as_str().into())
    );
    assert_eq!(plan["env"], serde_json::json!({}));
}

#[test]
fn the_line_that_stops_llama_server_is_named() {
    let bed = Bed::new("");
    let path = write(&bed, "ctx-size = 4352\n ubatch-size = 64\n");
    let found = document(&mut at_home(bed.flux(&["doctor", "--json"])));
    let title = format!(
        "llama-server stops at line 2 of your settings file: {}",
        path.display()
    );
    assert_eq!(
        told(&found, "findings", "llama-config")[0]["title"],
        title.as_str()
    );
}

#[test]
fn the_systems_file_is_a_warning() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("etc/llama.cpp")).unwrap();
    fs::write(
        root.path().join("etc/llama.cpp/config.ini"),
        "ubatch-size = 64\n",
    )
    .unwrap();
    let machine = MachineReader::with_root(SystemRoot::at(root.path())).machine();
    let found = flux::domain::doctor::findings(&machine, &flux::domain::doctor::Facts::default());
    let finding = found
        .iter()
        .find(|f| f.title.contains("/etc/llama.cpp/config.ini"))
        .unwrap();
    assert_eq!(finding.level, flux::domain::doctor::Level::Warning);
    assert!(
        finding
            .title
            .contains("takes ubatch-size from this machine's settings file")
    );
}

/// One real build is enough: what it does with the file is read in its log and its context.
#[test]
fn a_real_llama_server_reads_the_file_and_flux_keeps_it_away() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-runtimes");
    let mut builds: Vec<PathBuf> = fs::read_dir(&root)
        .map(|dir| dir.map(|e| e.unwrap().path()).collect())
        .unwrap_or_default();
    builds.sort();
    let build = builds.pop().unwrap_or_else(|| {
        panic!(
            "no llama.cpp in {}: run `.ci/test` once, it brings one",
            root.display()
        )
    });
    let bed = Bed::new("");
    write(&bed, "ubatch-size = 77\nno-such-setting = 1\n");
    let ask = |command: &mut Command| {
        let output = command.output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    // By itself it takes it, before it looks for a model.
    let mut alone = Command::new(build.join("llama-server"));
    alone.args(["-m", "none.gguf", "--verbosity", "4", "--port", "1"]);
    let said = ask(at_home(alone).env("HOME", bed.fake.scratch()));
    assert!(said.contains("using config file: "), "{said}");

    let mut check = at_home(bed.flux(&["serve-check", "--json", "--device", "cpu"]));
    check.arg("--runtime").arg(&build).arg("-m").arg(&bed.model);
    check.args(["--settings", "threads=1", "--reps", "1", "--processes", "3"]);
    check.args(["--prompt-tokens", "128", "--gen-tokens", "32"]);
    let session = document(&mut check)["session"].as_i64().unwrap();
    let runs = bed.store().runs(session).unwrap();
    for run in &runs {
        let raw = &run.run.raw;
        assert_eq!(raw.env["XDG_CONFIG_HOME"], "/dev/null");
        assert!(!raw.stderr.contains("using config file"), "{}", raw.stderr);
    }
    // A warm-up is asked for its log.
    let log = &runs[0].run.raw.stderr;
    let micro_batch = log.lines().find(|l| l.contains("n_ubatch ")).unwrap();
    assert!(!micro_batch.trim_end().ends_with("= 77"), "{micro_batch}");
}
