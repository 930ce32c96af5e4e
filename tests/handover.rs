//! A profile handed over: scripts run by a real shell, documents taken over by another Flux, and nobody named in what is
//! shared.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use flux::domain::handover::{Form, Handover, Word};
use flux::domain::redact::Redaction;
use flux::domain::text::Shell;
use flux::domain::types::Backend;
use proptest::prelude::*;
use serde_json::Value;

use bench_runs::CARD_TOML;
use flux_cli::{Bed, FLASH_WINS, ONLY_FLASH, document, refused};

/// Names that have broken a script somewhere.
const ODD: [&str; 7] = [
    "a b.gguf",
    "it's a \"model\".gguf",
    "$HOME ${PATH} $(id) `id`.gguf",
    "100%d %%.gguf",
    "new\nline\ttab.gguf",
    "Größe 模型 🦙.gguf",
    "-n;#&|<>*?[x]{a,b}!\\.gguf",
];

/// A server that writes down its words and llama.cpp's variables, each ended by a zero byte.
fn fake_server(path: &Path) {
    let script =
        "#!/bin/sh\nprintf '%s\\0' \"$0\" \"$@\"\nenv -0 | grep -z -E '^(GGML|LLAMA)_' | sort -z\n";
    fs::write(path, script).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// What the server wrote down, run by bash in a shell where llama.cpp's variables are set.
fn heard(bash: &[&str], home: &Path) -> Vec<String> {
    let mut command = Command::new("bash");
    command.args(bash).env("HOME", home);
    command
        .env("GGML_VK_DISABLE_F16", "1")
        .env("LLAMA_ARG_HOST", "0.0.0.0");
    let output = command.env("LLAMA_API_KEY", "a key").output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

fn handed(server: Word, model: Word, value: Word) -> Handover {
    Handover {
        about: vec!["one\ntwo $(touch /tmp/never)".to_owned()],
        name: "Tiny".to_owned(),
        server,
        model: vec![model],
        args: ["-ot", "^blk\\.(0|1)$=CPU", "-nkvo"]
            .map(Word::exact)
            .to_vec(),
        env: BTreeMap::from([("GGML_X".to_owned(), value)]),
        backend: Backend::Cpu,
        is_nvidia: false,
        port: 9001,
    }
}

#[test]
fn bash_starts_the_server_with_exactly_these_words() {
    for odd in ODD {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home of $USER");
        fs::create_dir(&home).unwrap();
        let server = home.join(odd);
        fake_server(&server);
        let server = server.to_str().unwrap();
        let model = format!("/models/{odd}");
        let words = [
            server,
            "--model",
            &model,
            "--host",
            "127.0.0.1",
            "--port",
            "9001",
            "-ot",
            "^blk\\.(0|1)$=CPU",
            "-nkvo",
            "--alias",
            "x y",
        ];
        let set = [
            "GGML_X".to_owned() + "=" + odd,
            "LLAMA_API_KEY=a key".to_owned(),
        ];
        let expected: Vec<&str> = words
            .into_iter()
            .chain(set.iter().map(String::as_str))
            .collect();
        let hidden = Redaction::new(home.to_str(), None, None);
        for server in [Word::exact(server), Word::redacted(server, &hidden)] {
            let script = dir.path().join("start.sh");
            let h = handed(server, Word::exact(&model), Word::exact(odd));
            fs::write(&script, h.write(Form::Bash).unwrap()).unwrap();
            let said = heard(&[script.to_str().unwrap(), "--alias", "x y"], &home);
            assert_eq!(said, expected, "{odd}");
        }
        let env = BTreeMap::from([("GGML_X".to_owned(), odd.to_owned())]);
        let all: Vec<String> = words.map(str::to_owned).to_vec();
        let line = Shell::Bash.command(&env, &all).unwrap();
        assert_eq!(heard(&["-c", &line], &home)[..words.len()], words, "{line}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn bash_reads_any_words_back(words in prop::collection::vec("(?s)[^\0]{0,16}", 1..40)) {
        let mut all = vec!["printf".to_owned(), "%s\\0".to_owned()];
        all.extend(words.iter().cloned());
        let line = Shell::Bash.command(&BTreeMap::new(), &all).unwrap();
        prop_assert_eq!(heard(&["-c", &line], Path::new("/")), words, "{}", line);
    }
}

const FORMS: [&str; 6] = [
    "bash",
    "powershell",
    "preset",
    "llama-swap",
    "systemd",
    "compose",
];

#[test]
fn a_session_is_handed_over_in_every_form() {
    let bed = Bed::tuned();
    let model = bed.model.to_str().unwrap();
    for form in FORMS {
        let text = bed.export(&["--format", form, "--port", "9001"]);
        for needed in [
            "flash-attn",
            "9001",
            "Flash attention on",
            "stock has: Flash attention auto",
        ] {
            assert!(text.contains(needed), "{form}: {needed} in {text}");
        }
        assert!(text.contains(model), "{form}: {text}");
    }
    let session: Value = serde_json::from_str(&bed.export(&[])).unwrap();
    assert_eq!(session["session"]["id"], 1, "JSON is still everything");
    let file = bed.fake.scratch().join("unit.service");
    let args = ["--format", "systemd", "-o", file.to_str().unwrap()];
    assert_eq!(bed.export(&args), "");
    assert!(fs::read_to_string(&file).unwrap().contains("\nExecStart="));
    fs::remove_file(&bed.model).unwrap();
    let gone = bed
        .flux(&["-q", "export", "1", "--format", "bash"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(
        gone.status.success() && said.contains("there is no such file any more"),
        "{said}"
    );
}

/// A build whose llama-server writes down what it is started with, and answers as the simulated one does.
fn listening() -> Bed {
    let bed = Bed::new("");
    let dir = bed.fake.dir();
    let real = dir.join("real");
    fs::create_dir(&real).unwrap();
    fs::rename(dir.join("llama-server"), real.join("llama-server")).unwrap();
    fs::copy(dir.join("fake-bench.toml"), real.join("fake-bench.toml")).unwrap();
    let server = dir.join("llama-server");
    fake_server(&server);
    let script = fs::read_to_string(&server).unwrap();
    let asked = "case \"$1\" in --help|--version|--list-devices)\n\
                 exec \"$(dirname \"$0\")/real/llama-server\" \"$1\";; esac\n";
    fs::write(&server, script.replacen('\n', &format!("\n{asked}"), 1)).unwrap();
    bed
}

#[test]
fn a_key_comes_by_the_environment_or_by_a_file_and_nothing_else_of_llama_cpps_does() {
    let bed = listening();
    let run = |args: &[&str]| {
        let mut run = bed.flux(&["-q", "run", "--runtime"]);
        run.arg(bed.fake.dir()).arg("-m").arg(&bed.model).args(args);
        run.env("LLAMA_API_KEY", "hunter2")
            .env("LLAMA_ARG_HOST", "0.0.0.0");
        run.env("GGML_VK_DISABLE_F16", "1").output().unwrap()
    };
    let said = run(&["--", "--port", "9001"]);
    let text = String::from_utf8(said.stdout).unwrap();
    let heard: Vec<&str> = text.split_terminator('\0').collect();
    let model = bed.model.to_str().unwrap();
    assert_eq!(
        heard[1..],
        [
            "--model",
            model,
            "--host",
            "127.0.0.1",
            "--port",
            "9001",
            "LLAMA_API_KEY=hunter2"
        ]
    );
    let keys = bed.fake.scratch().join("keys");
    let with_file = ["--api-key-file", keys.to_str().unwrap()];
    fs::write(&keys, "# no key yet\n\n").unwrap();
    assert!(refused(&run(&with_file), 1).starts_with("no API key is in the file"));
    fs::write(&keys, "one\n").unwrap();
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o644)).unwrap();
    let open = run(&with_file);
    let warned = String::from_utf8_lossy(&open.stderr).into_owned();
    assert!(
        warned.contains("other users of this machine can read the API keys"),
        "{warned}"
    );
    assert!(
        String::from_utf8(open.stdout)
            .unwrap()
            .contains("--api-key-file\0")
    );
    // After -- it is the same file.
    let after: Vec<&str> = std::iter::once("--").chain(with_file).collect();
    let said = String::from_utf8_lossy(&run(&after).stderr).into_owned();
    assert_eq!(said, warned);
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(String::from_utf8_lossy(&run(&with_file).stderr), "");
    let missing = run(&["--api-key-file", "no/such"]);
    assert!(refused(&missing, 1).starts_with("the API keys cannot be read"));
}

#[test]
fn a_secret_an_open_door_and_what_is_no_address_are_refused() {
    let bed = listening();
    let run = |args: &[&str]| {
        let mut run = bed.flux(&["-q", "run", "--runtime"]);
        run.arg(bed.fake.dir()).arg("-m").arg(&bed.model).args(args);
        run.output().unwrap()
    };
    for args in [
        &["--", "--api-key", "hunter2"][..],
        &["--", "--host", "0.0.0.0"],
        &["--host", "a b"],
        &["--", "--host", "a b"],
        &["--", "--port", "99999"],
    ] {
        let output = run(args);
        let error = refused(&output, 2);
        assert!(
            !error.contains("hunter2") && output.stdout.is_empty(),
            "{error}"
        );
    }
}

#[test]
fn a_command_is_printed_for_each_shell() {
    let bed = Bed::tuned();
    let print = |shell: &str, extra: &[&str]| {
        let mut run = bed.flux(&["run", "--print", "--shell", shell, "-m"]);
        run.arg(&bed.model)
            .args(["--runtime"])
            .arg(bed.fake.dir())
            .arg("--")
            .args(extra);
        run.output().unwrap()
    };
    for (shell, start) in [("bash", "/"), ("powershell", "& '/"), ("cmd", "/")] {
        let output = print(shell, &["--alias", "it's 100%"]);
        let line = String::from_utf8(output.stdout).unwrap();
        assert!(
            line.starts_with(start) && line.lines().count() == 1,
            "{line}"
        );
        let notice = String::from_utf8(output.stderr).unwrap();
        assert_eq!(notice, "differs from stock: flash-attn=on (stock: auto)\n");
    }
    let error = refused(&print("cmd", &["--alias", "a\nb"]), 1);
    assert!(error.ends_with("use --shell powershell"), "{error}");
}

#[test]
fn what_has_no_profile_is_not_handed_over() {
    let bed = Bed::new("process_sd = 0.002\n");
    document(&mut bed.tune(ONLY_FLASH));
    for form in ["bash", "profile"] {
        let output = bed
            .flux(&["export", "1", "--format", form])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let why = format!("{} says why", bed.hinted("show 1"));
        assert!(said.contains(&why), "{said}");
        let error = refused(&output, 1);
        assert_eq!(
            error,
            "session 1 saved no profile: there is nothing to hand over"
        );
    }
    let machine = ["--machine", "rx580-2048sp"];
    let simulated = Bed::new(&format!("{FLASH_WINS}{CARD_TOML}"));
    document(simulated.tune(ONLY_FLASH).args(machine));
    let output = simulated
        .flux(&["export", "1", "--format", "profile"])
        .output()
        .unwrap();
    assert!(refused(&output, 1).contains("exported machine"));
}

#[test]
fn nobody_is_named_in_what_is_shared() {
    let mut bed = Bed::new(FLASH_WINS);
    let home = bed.fake.scratch().join("annalena");
    fs::create_dir(&home).unwrap();
    let model = home.join("tiny model.gguf");
    fs::rename(&bed.model, &model).unwrap();
    bed.model = model;
    let machine = sysinfo::System::host_name().unwrap_or_default();
    let names_machine = Redaction::new(None, None, Some(&machine)).text(&machine) != machine;
    let as_anna = |mut command: Command| {
        command.env("HOME", &home).env("USER", "annalena");
        command.env("GGML_CACHE", &home);
        command
    };
    let tune = as_anna(bed.tune(ONLY_FLASH)).output().unwrap();
    assert!(tune.status.success());
    let whole = bed.export(&[]);
    assert!(
        whole.contains("annalena"),
        "without --redact all is as it was"
    );
    let mut shared: Vec<(String, String)> = Vec::new();
    for form in FORMS.into_iter().chain(["json", "csv"]) {
        let output = as_anna(bed.flux(&["export", "1", "--redact", "--format", form])).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        shared.push((form.to_owned(), text));
    }
    for args in [
        &["export", "1", "--format", "profile"][..],
        &["report", "1", "-o", "-"],
    ] {
        let output = as_anna(bed.flux(args)).output().unwrap();
        shared.push((args.join(" "), String::from_utf8(output.stdout).unwrap()));
    }
    let folder = bed.fake.scratch().join("scan");
    let scan = as_anna(bed.flux(&["scan", "--export", folder.to_str().unwrap()]))
        .output()
        .unwrap();
    assert!(scan.status.success());
    shared.push((
        "scan".to_owned(),
        fs::read_to_string(folder.join("machine.json")).unwrap(),
    ));
    for (what, text) in shared {
        assert!(text.len() > 100, "{what}: {text}");
        for secret in ["annalena", home.to_str().unwrap()] {
            assert!(!text.contains(secret), "{what} tells {secret}: {text}");
        }
        assert!(
            !names_machine || !text.contains(&machine),
            "{what} tells {machine}"
        );
    }
    let json = as_anna(bed.flux(&["export", "1", "--redact"]))
        .output()
        .unwrap();
    let redacted: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(redacted["session"]["model"]["path"], "~/tiny model.gguf");
}

/// A user whose name is a word of the document's own.
#[test]
fn a_report_is_written_whatever_the_user_is_called() {
    let bed = Bed::new(FLASH_WINS);
    assert!(bed.tune(ONLY_FLASH).output().unwrap().status.success());
    let mut report = bed.flux(&["report", "1", "-o", "-"]);
    let written = report.env("USER", "generation").output().unwrap();
    let said = String::from_utf8_lossy(&written.stderr);
    assert!(written.status.success(), "{said}");
}
