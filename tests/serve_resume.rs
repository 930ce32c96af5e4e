//! `flux serve-check --resume`: a check that was broken off ends as an unbroken one would have.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use flux::ports::Store as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use bench_runs::{alive, wait_until};
use flux_cli::{Bed, document, refused};

/// Flash attention is 30 % faster, between servers that are unlike enough for a spread.
const WINS: &str = "pp = 20000\ntg = 2000\nprocess_sd = 0.004\nrepetition_sd = 0.01\n\
    [[effect]]\nwhen = [\"flash_attn=1\"]\ntg = 1.3\n";

fn check(bed: &Bed, args: &[&str]) -> Command {
    let mut command = bed.flux(&["serve-check", "--json", "--runtime"]);
    command.arg(bed.fake.dir()).arg("-m").arg(&bed.model);
    let small = ["--prompt-tokens", "64", "--gen-tokens", "32", "--reps", "2"];
    command.args(small).args(["--processes", "4"]).args(args);
    command
}

/// Ends the check with this signal once it has announced its third run; what it printed on stdout.
fn broken_off(bed: &Bed, args: &[&str], signal: Signal) -> Vec<u8> {
    let mut command = check(bed, args);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let third = lines.find(|line| line.as_ref().unwrap().starts_with("  run 3 "));
    assert!(third.is_some());
    kill_process(Pid::from_child(&child), signal).unwrap();
    // What is said is taken, or the pipe fills.
    lines.map_while(Result::ok).for_each(drop);
    let output = child.wait_with_output().unwrap();
    wait_until("its server is gone", || alive(&bed.fake).is_empty());
    output.stdout
}

fn resume(bed: &Bed) -> Command {
    bed.flux(&["serve-check", "--json", "--resume"])
}

#[test]
fn a_comparison_goes_on_where_it_was_cancelled_or_killed() {
    const FLASH: &[&str] = &["--settings", "flash-attn=on"];
    for signal in [Signal::TERM, Signal::KILL] {
        let bed = Bed::new(WINS);
        let said = broken_off(&bed, FLASH, signal);
        if signal == Signal::TERM {
            let said: Value = serde_json::from_slice(&said).unwrap();
            let next = format!("go on with {}", bed.hinted("serve-check --resume 1"));
            assert_eq!(said["error"]["hint"], next.as_str());
        }
        let kept = bed.store().runs(1).unwrap();
        assert!((3..10).contains(&kept.len()), "{}", kept.len());
        let found = document(&mut resume(&bed));
        assert_eq!(
            (&found["session"], &found["verdict"]),
            (&1.into(), &"improved".into())
        );
        let store = bed.store();
        assert_eq!(store.sessions(9).unwrap().len(), 1);
        let runs = store.runs(1).unwrap();
        assert_eq!(runs.len(), 10, "two warm-ups and four servers per arm");
        assert_eq!(runs[..kept.len()], kept, "nothing is measured again");
        assert!(
            store
                .notices(1)
                .unwrap()
                .iter()
                .all(|n| n.code != "resumed")
        );
        // It has its result now.
        let again = resume(&bed).output().unwrap();
        assert_eq!(refused(&again, 1), "no unfinished session to go on with");
        let named = resume(&bed).arg("1").output().unwrap();
        assert_eq!(refused(&named, 1), "session 1 has nothing to resume");
    }
}

#[test]
fn several_clients_go_on_too() {
    let bed = Bed::new(WINS);
    let several = ["--settings", "flash-attn=on", "--clients", "1,2"];
    broken_off(&bed, &several, Signal::KILL);
    let found = document(resume(&bed).arg("1"));
    let rows = found["live"]["clients"].as_array().unwrap();
    let servers: Vec<u64> = rows
        .iter()
        .map(|r| r["total"]["n"].as_u64().unwrap())
        .collect();
    assert_eq!(servers, [4, 4]);
    assert_eq!(bed.store().runs(1).unwrap().len(), 9);
}

#[test]
fn what_does_not_go_on_is_said() {
    let bed = Bed::new(WINS);
    broken_off(&bed, &["--speculate"], Signal::KILL);
    let speculation = resume(&bed).output().unwrap();
    assert_eq!(
        refused(&speculation, 1),
        "session 1 compares kinds of speculation, and such a session does not go on"
    );
    let unknown = resume(&bed).arg("7").output().unwrap();
    assert_eq!(refused(&unknown, 1), "no session 7 here");
    let both = resume(&bed).args(["--clients", "2"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2));
    let tune = bed.flux(&["tune", "--resume", "1"]).output().unwrap();
    assert_eq!(refused(&tune, 1), "session 1 is no `flux tune` session");
}
