//! Names from outside that carry terminal escapes, control characters, line breaks and direction overrides: shown, never
//! sent, in everything the command line says and writes.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[cfg(feature = "gui")]
#[path = "support/app.rs"]
mod app;
#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;
#[path = "support/lavapipe.rs"]
mod lavapipe;
#[path = "support/scripted_lab.rs"]
mod scripted_lab;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use flux::domain::lab::{Fault, FaultKind, LabEvent, Outcome};
use flux::domain::text::clean;
use flux::engine::Engine;
use flux::engine::lab::LabAsked;
use flux::engine::message::{Command as Job, EventKind};
use flux::gguf::GgufModels;
use flux::ports::{
    CancelToken, Lab, LabRequest, MachineProbe as _, Models as _, PortResult, SessionKind,
    Store as _,
};
use flux::probe::FixtureProbe;
use flux::wiring::{self, Access, Options};
use serde_json::Value;

use fake_runtime::FakeRuntime;
use flux_cli::Bed;
use scripted_lab::{Ends, ScriptedLab};

/// A window title, a cleared screen, an override, a hidden mark, and a line that is nobody's.
const NASTY: &str = "\u{1b}]0;x\u{7}\u{1b}[2J\u{9b}31m\u{202e}\u{200b}\r\nerror: forged\n\u{7f}";
/// How the line that is nobody's begins.
const FORGED: &str = "error: forged";
/// Flash attention is faster, the card's name and the log are nasty.
const RUNTIME: &str = r#"
pp = 20000
tg = 2000
process_sd = 0.004
repetition_sd = 0.01
version = "0.5\u001b[2J\u009b\u202e"
build_commit = "c\u001b[2J\u202e"
[[device]]
id = "Vulkan0"
name = "Card\u001b]0;x\u0007\u009b2J\u202e\u200b"
total_mib = 8192
free_mib = 8000
[[effect]]
when = ["flash_attn=1"]
pp = 1.1
tg = 1.3
"#;

/// Everything a command said is visible, and every line is its own.
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let mut said = String::new();
    for bytes in [output.stdout, output.stderr] {
        let text = String::from_utf8(bytes).unwrap();
        // A byte order mark begins a PowerShell script.
        let text = text.trim_start_matches('\u{feff}');
        assert_visible(text, &format!("{command:?}"));
        said.push_str(text);
    }
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn assert_visible(text: &str, of: &str) {
    for line in text.lines() {
        assert_eq!(line, clean(line), "{of}");
        assert!(!line.starts_with(FORGED), "{of}: {text}");
    }
}

/// The bed with nasty names of its build's folder, its model's file and its model.
fn bed() -> Bed {
    let mut bed = Bed::new(RUNTIME);
    let bytes = fs::read(&bed.model).unwrap();
    bed.fake = FakeRuntime::in_folder(&format!("build{NASTY}"), RUNTIME);
    let model = bed.fake.scratch().join(format!("tiny{NASTY}.gguf"));
    fs::write(&model, bytes).unwrap();
    rename(&model);
    let name = GgufModels.inspect(&model).unwrap().name;
    assert!(name.contains(['\u{1b}', '\n']), "{name:?}");
    bed.data = bed.fake.scratch().join("data");
    bed.model = model;
    bed
}

/// Gives the model in a file another name of the same length.
fn rename(file: &Path) {
    const KEY: &[u8] = b"general.name";
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.windows(KEY.len()).position(|w| w == KEY).unwrap() + KEY.len() + 4;
    let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let nasty = "\u{1b}[2J\n\u{7}\r".bytes().cycle();
    for (byte, new) in bytes[at + 8..at + 8 + length].iter_mut().zip(nasty) {
        *byte = new;
    }
    fs::write(file, bytes).unwrap();
}

/// A card, a feature it lacks, a remark and a fault of nasty words.
struct NastyLab;

impl Lab for NastyLab {
    fn measure(
        &self,
        request: &LabRequest,
        cancel: &CancelToken,
        tell: &mut dyn FnMut(LabEvent),
    ) -> PortResult<()> {
        ScriptedLab(Ends::Well).measure(request, cancel, &mut |mut event| {
            match &mut event {
                LabEvent::Card(card) => NASTY.clone_into(&mut card.name),
                LabEvent::Step { doing, .. } => NASTY.clone_into(doing),
                LabEvent::Kernel(result) => match &mut result.outcome {
                    Outcome::Missing { feature: words } | Outcome::Skipped { reason: words } => {
                        NASTY.clone_into(words);
                    }
                    _ => {}
                },
                _ => {}
            }
            tell(event);
        })?;
        tell(LabEvent::Notice(NASTY.to_owned()));
        tell(LabEvent::Fault(Fault {
            kind: FaultKind::Crash,
            detail: NASTY.to_owned(),
        }));
        Ok(())
    }
}

/// Keeps such a lab among the sessions of the bed.
fn nasty_lab(bed: &Bed) {
    let options = Options {
        data_dir: Some(bed.data.clone()),
        machine: None,
        access: Access::Measure,
        flux: None,
    };
    let mut ports = wiring::open(&options).unwrap().ports;
    ports.lab = Arc::new(NastyLab);
    let (mut engine, events) = Engine::new(ports);
    engine.submit(Job::Lab(LabAsked::default())).unwrap();
    let is_end = |kind: &EventKind| matches!(kind, EventKind::Finished(_));
    assert!(events.iter().any(|event| is_end(&event.kind)));
}

/// Every text of an exported machine that may be any text, made nasty.
fn nasty_machine(dir: &Path) -> PathBuf {
    let text = fs::read_to_string("tests/fixtures/machines/hybrid-laptop/machine.json").unwrap();
    let mut machine: Value = serde_json::from_str(&text).unwrap();
    let file = dir.join("machine.json");
    let mut changed = 0;
    for path in leaves(&machine, String::new()) {
        let mut with = machine.clone();
        let leaf = with.pointer_mut(&path).unwrap();
        *leaf = Value::String(format!("{}{NASTY}", leaf.as_str().unwrap()));
        fs::write(&file, with.to_string()).unwrap();
        // Words of a fixed list and addresses are refused.
        if FixtureProbe::load(&file).is_ok() {
            machine = with;
            changed += 1;
        }
    }
    assert!(changed > 20, "{changed}");
    fs::write(&file, machine.to_string()).unwrap();
    file
}

fn leaves(value: &Value, at: String) -> Vec<String> {
    match value {
        Value::String(_) => vec![at],
        Value::Array(items) => {
            let each = items.iter().enumerate();
            each.flat_map(|(n, v)| leaves(v, format!("{at}/{n}")))
                .collect()
        }
        Value::Object(fields) => {
            let each = fields.iter();
            each.flat_map(|(k, v)| leaves(v, format!("{at}/{k}")))
                .collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn a_machine_of_nasty_names_is_shown_harmless() {
    let bed = Bed::new("");
    let file = nasty_machine(bed.fake.scratch());
    assert!(
        FixtureProbe::load(&file)
            .unwrap()
            .machine()
            .host
            .cpu
            .contains('\u{1b}')
    );
    for command in [
        &["scan", "--machine"][..],
        &["scan", "--json", "--machine"],
        &["doctor", "--machine"],
        &["doctor", "--json", "--machine"],
    ] {
        assert!(
            said(bed.flux(command).arg(&file)).contains("x\\u"),
            "{command:?}"
        );
    }
    for command in [&["plan"][..], &["plan", "--json"]] {
        let mut plan = bed.flux(command);
        said(plan.arg("--machine").arg(&file).arg("-m").arg(&bed.model));
    }
    let exported = bed.fake.scratch().join("exported");
    let mut export = bed.flux(&["scan", "--machine"]);
    said(export.arg(&file).arg("--export").arg(&exported));
    assert_visible(
        &fs::read_to_string(exported.join("machine.json")).unwrap(),
        "export",
    );
}

/// Commands that take a build and a model.
const ON_A_MODEL: &[&[&str]] = &[
    &["run", "--print"],
    &["run", "--print", "--json"],
    &["run", "--print", "--shell", "powershell"],
    &["run", "--print", "--shell", "cmd"],
    &["run", "--explain", "--print"],
    &["plan"],
    &["plan", "--json"],
    &["tune", "--dry-run", "-v"],
    &["tune", "--json", "--dry-run"],
];
/// Commands that take neither.
const COMMANDS: &[&[&str]] = &[
    &["history"],
    &["history", "--json"],
    &["show", "1"],
    &["show", "1", "-v"],
    &["show", "1", "--json"],
    &["show", "2"],
    &["report", "1", "-o", "-"],
    &["report", "2", "-o", "-"],
    &["runtime", "list"],
    &["runtime", "list", "--json"],
    &["scan", "-v"],
    &["scan", "--json"],
    &["monitor", "--samples", "2"],
    &["monitor", "--samples", "2", "--json"],
    &["monitor", "--samples", "2", "--csv", "-"],
    &["runtime", "remove", NASTY],
    &["tune", "--only", NASTY],
    &["compare", NASTY, NASTY],
    &["import", NASTY],
    &["models", NASTY],
    &["lab", "--device", NASTY],
    &["lab", "--json", "--device", NASTY],
    &["quickstart", NASTY],
    &["serve-check", "-m", NASTY],
];

#[test]
fn names_of_files_models_builds_and_devices_are_shown_harmless() {
    let bed = bed();
    let with = |args: &[&str]| {
        let mut command = bed.flux(args);
        command
            .arg("--runtime")
            .arg(bed.fake.dir())
            .arg("-m")
            .arg(&bed.model);
        command
    };
    for name in ["mine", NASTY] {
        let mut add = bed.flux(&["runtime", "add", "--name", name]);
        said(add.arg(bed.fake.dir()));
    }
    let tuned = said(&mut with(&[
        "tune",
        "--only",
        "flash-attn",
        "--processes",
        "4",
    ]));
    assert!(tuned.contains("Improved"), "{tuned}");
    let ab = ["ab", "stock", "flash-attn=on", "--processes", "3", "-v"];
    said(&mut with(&ab));
    for args in ON_A_MODEL {
        said(&mut with(args));
    }
    for args in COMMANDS {
        said(&mut bed.flux(args));
    }
    for args in [&["models"][..], &["models", "--json"]] {
        said(bed.flux(args).arg(bed.fake.scratch()));
    }
    for form in [
        "json",
        "csv",
        "profile",
        "bash",
        "powershell",
        "preset",
        "llama-swap",
        "systemd",
        "compose",
    ] {
        said(&mut bed.flux(&["export", "1", "--format", form]));
        said(&mut bed.flux(&["export", "1", "--redact", "--format", form]));
    }
}

/// Forms of a session that are written for every kind of it.
const OF_ANY_SESSION: &[&[&str]] = &[
    &["show"],
    &["show", "-v"],
    &["show", "--json"],
    &["report", "-o", "-"],
    &["export", "--format", "json"],
    &["export", "--format", "csv"],
];

fn session_is_shown_harmless(bed: &Bed, session: &str) -> String {
    let mut all = String::new();
    for args in OF_ANY_SESSION {
        let mut args = args.to_vec();
        args.insert(1, session);
        all += &said(&mut bed.flux(&args));
    }
    all
}

#[test]
fn a_card_of_nasty_names_is_shown_harmless() {
    let bed = Bed::new(RUNTIME);
    nasty_lab(&bed);
    let shown = session_is_shown_harmless(&bed, "1");
    assert!(shown.contains("The card failed: \\u{1b}]0;x"), "{shown}");
    let history = said(&mut bed.flux(&["history"]));
    assert!(history.contains("lab   \\u{1b}]0;x"), "{history}");
    said(&mut bed.flux(&["history", "--json"]));
    // What the planner and `--explain` hear of it.
    for args in [&["plan"][..], &["run", "--print", "--explain"]] {
        let mut command = bed.flux(args);
        command.arg("--runtime").arg(bed.fake.dir());
        said(command.arg("-m").arg(&bed.model));
    }
    let asked = said(
        bed.flux(&["lab", "--device", NASTY])
            .env("VK_DRIVER_FILES", lavapipe::driver())
            .env("VK_ICD_FILENAMES", lavapipe::driver()),
    );
    assert!(asked.contains("no card is called \\u{1b}]0;x"), "{asked}");
}

#[test]
fn a_check_in_live_servers_shows_nasty_names_harmless() {
    let bed = bed();
    let small = "--prompt-tokens 64 --gen-tokens 32 --reps 2 --processes 3";
    let mut args = vec!["serve-check", "--settings", "flash-attn=on"];
    args.extend(small.split(' '));
    for form in [&["-v"][..], &["--json"]] {
        let mut check = bed.flux(&[&args, form].concat());
        check.arg("--runtime").arg(bed.fake.dir());
        let checked = said(check.arg("-m").arg(&bed.model));
        assert!(checked.contains("first token"), "{checked}");
    }
    session_is_shown_harmless(&bed, "1");
    let mut wrong = bed.flux(&["serve-check", "--settings", NASTY, "--runtime"]);
    said(wrong.arg(bed.fake.dir()).arg("-m").arg(&bed.model));
    let mut wrong = bed.flux(&["serve-check", "--draft", NASTY, "--runtime"]);
    said(wrong.arg(bed.fake.dir()).arg("-m").arg(&bed.model));
}

#[test]
fn a_quickstart_shows_nasty_names_harmless() {
    let bed = bed();
    let mut add = bed.flux(&["runtime", "add", "--name", NASTY]);
    said(add.arg(bed.fake.dir()));
    let mut add = bed.flux(&["runtime", "add", "--name", "mine"]);
    said(add.arg(bed.fake.dir()));
    let mut quickstart = bed.flux(&["quickstart", "--time-limit", "1s"]);
    let started = said(quickstart.arg(&bed.model));
    assert!(started.contains("4 of 4"), "{started}");
    let session = bed.store().session(1).unwrap().unwrap();
    assert_eq!(session.begun.kind, SessionKind::Tune);
    session_is_shown_harmless(&bed, "1");
}

#[test]
fn a_profile_of_nasty_words_is_shown_harmless() {
    let bed = bed();
    let profile = serde_json::json!({
        "schema": 1, "kind": "flux-profile", "flux_version": NASTY, "goal": "generation",
        "settings": {"flash-attn": "on"}, "confirmed": NASTY, "created_at": i64::MAX,
        "model": {"name": NASTY, "digest": "ab".repeat(32)},
        "build": {"number": u64::MAX, "commit": NASTY, "digest": "cd".repeat(32), "backends": ["vulkan"]},
        "fingerprint": {"hash": "ef".repeat(32), "fields": [[NASTY, NASTY], ["GPU 1", NASTY]]},
    });
    let file = bed.fake.scratch().join("profile.json");
    fs::write(&file, profile.to_string()).unwrap();
    for args in [&["import"][..], &["import", "--json"]] {
        assert!(said(bed.flux(args).arg(&file)).contains("0;x"));
    }
    for args in [
        &["run", "--print"][..],
        &["run", "--print", "--stale-ok"],
        &["run", "--print", "--json"],
    ] {
        let mut run = bed.flux(args);
        said(
            run.arg("--runtime")
                .arg(bed.fake.dir())
                .arg("-m")
                .arg(&bed.model),
        );
    }
    for (key, value) in [("kind", NASTY), ("goal", NASTY)] {
        let mut wrong = profile.clone();
        wrong[key] = value.into();
        fs::write(&file, wrong.to_string()).unwrap();
        assert!(said(bed.flux(&["import"]).arg(&file)).contains("error: "));
    }
    for settings in [
        serde_json::json!({"flash-attn": NASTY}),
        serde_json::json!({NASTY: "on"}),
        serde_json::json!({"placement": NASTY}),
        serde_json::json!({"placement": format!("fit={NASTY}")}),
    ] {
        let mut wrong = profile.clone();
        wrong["settings"] = settings;
        fs::write(&file, wrong.to_string()).unwrap();
        assert!(said(bed.flux(&["import"]).arg(&file)).contains("not one that Flux knows"));
    }
}

#[cfg(feature = "gui")]
#[test]
fn every_page_of_the_app_shows_them_harmless() {
    let bed = bed();
    let mut add = bed.flux(&["runtime", "add", "--name", "mine"]);
    said(add.arg(bed.fake.dir()));
    let mut tune = bed.flux(&[
        "tune",
        "--only",
        "flash-attn",
        "--processes",
        "4",
        "--runtime",
    ]);
    said(tune.arg(bed.fake.dir()).arg("-m").arg(&bed.model));
    nasty_lab(&bed);
    for machine in [None, Some(nasty_machine(bed.fake.scratch()))] {
        let options = Options {
            data_dir: Some(bed.data.clone()),
            machine: machine.clone(),
            access: Access::Measure,
            flux: None,
        };
        let mut stage = app::Stage::new(wiring::open(&options).unwrap().ports);
        let mut seen = String::new();
        for page in [
            "Machine",
            "Tune",
            "Dashboard",
            "Placement",
            "Lab",
            "Settings",
            "History",
        ] {
            stage.click(page);
            stage.settle();
            seen += &stage.words();
        }
        for session in ["Session 1, ", "Session 2, "] {
            stage.click_part(session);
            stage.settle();
            seen += &stage.words();
        }
        assert_visible(&seen, "the app");
        // The model's name, and the machine's.
        assert!(seen.contains("\\u{1b}[2J"), "{seen}");
        assert!(machine.is_none() || seen.contains("\\u{1b}]0;x"), "{seen}");
    }
}
