//! `--json` promises one document on stdout, whatever happens: of every command, through the real binary.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Output, Stdio};

use flux::store::{Access, SqliteStore};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use bench_runs::wait_until;
use flux_cli::{Bed, FLASH_WINS, document, refused};

/// Every command, as far as its database: `MODEL` stands for the model, `NONE` for a file that is not there.
const COMMANDS: &[&[&str]] = &[
    &["quickstart", "MODEL"],
    &["scan"],
    &["runtime", "list"],
    &["runtime", "add", "NONE"],
    &["runtime", "install"],
    &["runtime", "remove", "none"],
    &["models", "NONE"],
    &["model", "synth", "tiny", "-o", "NONE"],
    &["tune", "-m", "MODEL"],
    &["tune", "-m", "MODEL", "--dry-run"],
    &["tune", "--resume"],
    &["plan", "-m", "MODEL"],
    &["plan", "-m", "MODEL", "--bench"],
    &["ab", "stock", "flash-attn=on", "-m", "MODEL"],
    &["compare", "NONE", "NONE"],
    &["run", "-m", "MODEL"],
    &["lab"],
    &["serve-check", "-m", "MODEL"],
    &["monitor"],
    &["history"],
    &["data"],
    &["data", "compact"],
    &["show", "1"],
    &["export", "1"],
    &["import", "-"],
    &["report", "1"],
    &["doctor"],
];

/// The command with `--json`.
fn asked(bed: &Bed, words: &[&str]) -> Command {
    let none = bed.fake.scratch().join("none");
    let word = |word: &&str| match *word {
        "MODEL" => bed.model.display().to_string(),
        "NONE" => none.display().to_string(),
        word => word.to_owned(),
    };
    let words: Vec<String> = words.iter().map(word).collect();
    let mut command = bed.flux(&["--json"]);
    command.args(words).stdin(Stdio::null());
    command
}

/// The one document of an output.
fn one(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {text:?}\n{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(document["schema"], 1);
    document
}

#[test]
fn the_commands_above_are_all_there_are() {
    let bed = Bed::new("");
    let help = one(&asked(&bed, &["--help"]).output().unwrap());
    let help = help["help"].as_str().unwrap();
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let mut named: Vec<&str> = list
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !["", "help"].contains(name))
        .collect();
    named.sort_unstable();
    let mut known: Vec<&str> = COMMANDS.iter().map(|words| words[0]).collect();
    known.sort_unstable();
    known.dedup();
    assert_eq!(named, known);
}

#[test]
fn wrong_usage_is_a_document_of_every_command() {
    let bed = Bed::new("");
    let mut wrong: Vec<Vec<&str>> = COMMANDS
        .iter()
        .map(|words| [*words, &["--no-such-option"]].concat())
        .collect();
    for words in [
        &["nonsense"][..],
        &["tune"],
        &["tune", "-m", "x", "--goal", "beauty"],
        &["compare", "only-one.jsonl"],
        &["export", "five"],
        &["plan", "-m"],
        // Refused by Flux itself, for two results want one stdout.
        &["export", "1", "--format", "csv"],
        &["report", "1", "-o", "-"],
        &["monitor", "--csv", "-"],
        // The desktop app prints nothing.
        &[],
    ] {
        wrong.push(words.to_vec());
    }
    for words in wrong {
        let output = asked(&bed, &words).output().unwrap();
        refused(&output, 2);
        assert_eq!(one(&output)["error"]["code"], "usage", "{words:?}");
    }
    let bare = asked(&bed, &["runtime"]).output().unwrap();
    assert_eq!(bare.status.code(), Some(2));
    assert_eq!(one(&bare)["error"]["headline"], "a command is missing");
    // After `--` it is an argument of the server's.
    let given_on = Command::new(env!("CARGO_BIN_EXE_flux"))
        .args(["run", "--", "--json"])
        .output()
        .unwrap();
    assert_eq!(
        (given_on.status.code(), given_on.stdout.len()),
        (Some(2), 0)
    );
    let version = one(&asked(&bed, &["--version"]).output().unwrap());
    assert!(version["version"].as_str().unwrap().starts_with("flux "));
}

#[test]
fn the_sentence_of_wrong_usage_names_what_is_wrong() {
    let bed = Bed::new("");
    for (words, named) in [
        (&["tune"][..], "--model <FILE>"),
        (&["import"], "<FILE>"),
        (&["compare", "only-one.jsonl"], "<CAND>"),
        (&["tune", "-m", "x", "--goal", "beauty"], "'beauty'"),
        (&["tune", "-m", "x", "--reps", "0"], "--reps"),
        (&["tune", "-m", "x", "--processes", "2"], "--processes"),
        (&["tune", "--resume", "1", "--goal", "prompt"], "--goal"),
        (&["nonsense"], "'nonsense'"),
        (&["show", "1", "--no-such-option"], "'--no-such-option'"),
    ] {
        let output = asked(&bed, words).output().unwrap();
        let document = one(&output);
        let headline = document["error"]["headline"].as_str().unwrap();
        assert!(
            headline.contains(named) && !headline.ends_with(':'),
            "{words:?}: {headline}"
        );
    }
}

#[test]
fn help_is_a_document_however_it_is_asked_for() {
    for words in [&["help"][..], &["help", "tune"], &["tune", "--help"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flux"));
        let output = command.args(words).arg("--json").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(one(&output)["help"].as_str().unwrap().contains("Usage:"));
    }
}

/// Whether the process handles this signal (`SigCgt`: bit n − 1 stands for signal n).
fn handles(child: &Child, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    caught & (1 << (signal.as_raw() - 1)) != 0
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Starts the command and waits until it hears signals.
fn begun(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_until("it hears signals", || handles(&child, Signal::HUP));
    child
}

/// Every command waits for a database that another program keeps to itself, or for its input, and is ended there.
#[test]
fn a_signal_ends_every_command_with_a_document() {
    let bed = Bed::new("");
    drop(SqliteStore::open(&bed.data, Access::Measure).unwrap());
    let other = rusqlite::Connection::open(bed.data.join("flux.db")).unwrap();
    other
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE;")
        .unwrap();
    let pipe = bed.fake.scratch().join("none");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    let signals = [Signal::INT, Signal::TERM, Signal::HUP];
    let running: Vec<_> = COMMANDS
        .iter()
        .zip(signals.iter().cycle())
        .map(|(words, signal)| (words, signal, begun(asked(&bed, words))))
        .collect();
    for (words, signal, child) in running {
        send(&child, *signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{words:?}");
        let document = one(&output);
        assert_eq!(document["error"]["code"], "cancelled", "{words:?}");
        assert_eq!(document["error"]["headline"], "cancelled");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.ends_with("cancelled\n"), "{words:?}: {said}");
    }
}

#[test]
fn a_cancelled_search_says_in_its_document_what_is_kept() {
    let bed = Bed::new(FLASH_WINS);
    let mut tune = bed.tune(&["--only", "flash-attn", "--processes", "4"]);
    tune.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = tune.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let third = lines.find(|line| line.as_ref().unwrap().starts_with("  run 3 "));
    assert!(third.is_some());
    send(&child, Signal::TERM);
    // What is said is taken, or the pipe fills.
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{rest:?}");
    let document = one(&output);
    let error = &document["error"];
    let kept = error["kept_runs"].as_u64().unwrap();
    assert!(kept >= 3, "{document}");
    assert_eq!(error["session"], 1);
    let next = format!("go on with {}", bed.hinted("tune --resume 1"));
    assert_eq!(error["hint"], next.as_str());
    let headline = format!("cancelled: {kept} runs kept in session 1");
    assert_eq!(error["headline"], headline.as_str());
}

/// Bytes a pipe of Linux holds (`man 7 pipe`).
const PIPE: u64 = 65_536;

/// Models that are none: enough of them to fill the pipe that their list is written to.
fn filling(bed: &Bed) -> Child {
    let dir = bed.fake.scratch().join("models");
    fs::create_dir_all(&dir).unwrap();
    for i in 0..1000 {
        fs::write(dir.join(format!("{i}.gguf")), "none").unwrap();
    }
    let child = begun(asked(bed, &["models", dir.to_str().unwrap()]));
    let pipe = child.stdout.as_ref().unwrap();
    wait_until("the pipe is full", || {
        rustix::io::ioctl_fionread(pipe).unwrap() == PIPE
    });
    child
}

#[test]
fn a_signal_does_not_cut_a_document_that_is_being_written() {
    let bed = Bed::new("");
    for signals in [&[Signal::INT][..], &[Signal::INT, Signal::TERM]] {
        let child = filling(&bed);
        for signal in signals {
            send(&child, *signal);
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{signals:?}");
        let models = one(&output)["models"].as_array().unwrap().len();
        assert_eq!(models, 1000);
    }
}

#[test]
fn a_document_that_nobody_takes_does_not_outlast_a_second_signal() {
    let bed = Bed::new("");
    let mut child = filling(&bed);
    send(&child, Signal::INT);
    send(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// A job's own ear for signals must not swallow them once it is over.
#[test]
fn a_search_s_document_that_nobody_takes_does_not_outlast_a_second_signal() {
    let bed = Bed::new(FLASH_WINS);
    let (_reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&vec![b'\n'; PIPE as usize]).unwrap();
    let mut tune = bed.tune(&["--only", "flash-attn", "--processes", "4"]);
    let mut child = tune.stdout(writer).stderr(Stdio::null()).spawn().unwrap();
    let call = format!("/proc/{}/syscall", child.id());
    wait_until("it writes to stdout", || {
        let call = fs::read_to_string(&call).unwrap();
        call.split(' ').nth(1) == Some("0x1")
    });
    send(&child, Signal::INT);
    send(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn files_that_were_written_are_named() {
    let bed = Bed::new(FLASH_WINS);
    document(&mut bed.tune(&["--only", "flash-attn", "--processes", "4"]));
    let file = bed.fake.scratch().join("it");
    let file = file.to_str().unwrap();
    for words in [
        &["report", "1", "--force", "-o", file][..],
        &["export", "1", "--format", "bash", "--force", "-o", file],
        &["export", "1", "--force", "-o", file],
    ] {
        let written = document(&mut asked(&bed, words));
        assert_eq!(written["written"], file);
    }
    for format in ["json", "profile"] {
        document(&mut asked(&bed, &["export", "1", "--format", format]));
    }
}
