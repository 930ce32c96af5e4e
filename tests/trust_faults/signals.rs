//! Signals one by one: what Flux says, what it keeps, how it goes on.

use flux::ports::{SessionState, Store as _};
use rustix::process::Signal;

use super::flux_cli::{Bed, FLASH_WINS, document};
use super::running_tune::{ONLY, Running, nothing_survives, result_of, unbroken};

/// Milliseconds of one repetition: a signal then comes in the middle of a run.
const REPETITION: &str = "sleep_ms_per_rep = 8\n";

#[test]
fn a_session_is_killed_when_nobody_measures_any_more() {
    let bed = Bed::new(&(REPETITION.to_owned() + FLASH_WINS));
    let mut running = Running::start(&mut bed.tune(ONLY));
    running.hear_of("  run 2");
    let told = |args: &[&str]| {
        let output = bed.flux(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(told(&["history"]).contains("running or killed"));
    assert!(told(&["show", "1"]).contains("Ended: running or killed"));
    let measuring =
        |bed: &Bed| document(&mut bed.flux(&["history", "--json"]))["measuring"].clone();
    assert_eq!(measuring(&bed), true);
    running.signal(Signal::KILL);
    running.end();
    assert_eq!(measuring(&bed), false);
    let listed = told(&["history"]);
    assert!(
        listed.trim_end().ends_with("  killed") && !listed.contains("running"),
        "{listed}"
    );
    assert!(told(&["show", "1"]).contains("Ended: killed"));
    nothing_survives(&bed);
}

/// Sends signals while a run goes on; every one but the last after the word that answers the one before.
fn cancelled(signals: &[Signal], said: &str) {
    let bed = Bed::new(&(REPETITION.to_owned() + FLASH_WINS));
    let mut running = Running::start(&mut bed.tune(ONLY));
    running.hear_of("  run 5");
    for signal in signals {
        running.signal(*signal);
        running.hear_of("stopping ");
    }
    let end = running.end();
    assert_eq!(end.status.code(), Some(130), "{}", end.words());
    let said = end.heard.iter().any(|line| line.starts_with(said));
    assert!(said, "{}", end.words());
    nothing_survives(&bed);
    let (_, runs) = end.announced();
    let last = end.heard.last().unwrap();
    let next = bed.hinted("tune --resume 1");
    let words = format!("cancelled: {runs} runs kept in session 1; go on with {next}");
    assert_eq!(*last, words);
    let store = bed.store();
    let end = store.session(1).unwrap().unwrap().end.unwrap();
    assert_eq!(end.state, SessionState::Cancelled);
    assert_eq!(store.profiles().unwrap(), []);
    let kept = store.runs(1).unwrap();
    assert_eq!(kept.len(), runs);
    for run in kept {
        assert!(!run.run.raw.argv.is_empty() && run.run.wall_secs > 0.0);
    }
    drop(store);
    let resumed = document(&mut bed.flux(&["tune", "--resume", "--json"]));
    assert_eq!(result_of(&resumed), unbroken());
    let store = bed.store();
    assert_eq!(store.sessions(9).unwrap().len(), 1, "one session goes on");
    assert_eq!(store.profiles().unwrap().len(), 1);
    assert_eq!(store.verdicts(1).unwrap().len(), 1);
    nothing_survives(&bed);
}

#[test]
fn a_terminated_tune_is_cancelled_at_once_and_resumes() {
    cancelled(&[Signal::TERM], "stopping now");
}

#[test]
fn an_interrupted_tune_ends_after_its_run_and_resumes() {
    cancelled(&[Signal::INT], "stopping after the run in progress");
}

#[test]
fn a_second_interrupt_ends_the_run_too() {
    cancelled(&[Signal::INT, Signal::INT], "stopping now");
}
