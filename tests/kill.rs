//! Flux ended at any moment of a tune: no child survives, no announced run is lost, and `--resume` ends as an unbroken
//! session would have (issue "It must show"; design section 5).
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use flux::ports::{SessionState, Store as _};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use bench_runs::{alive, wait_until};
use flux_cli::{Bed, FLASH_WINS, document};

/// Milliseconds of one repetition: a session of some 25 processes then lasts about three seconds.
const REPETITION: &str = "sleep_ms_per_rep = 8\n";
/// What is tuned.
const ONLY: &[&str] = &["--only", "flash-attn", "--processes", "5"];
/// Sessions of a test, kills in each, and lines of stderr after which a kill comes at the latest: a session has over 40.
const SESSIONS: u64 = 2;
const KILLS: usize = 3;
const LINES: usize = 12;
/// A kill comes up to so long after its line: longer than a process of the simulated runtime takes.
const AFTER_LINE: Duration = Duration::from_millis(120);

fn bed() -> Bed {
    Bed::new(&(REPETITION.to_owned() + FLASH_WINS))
}

/// A running Flux and its stderr, line by line.
struct Running {
    child: Child,
    lines: Receiver<String>,
    heard: Vec<String>,
}

impl Running {
    fn start(bed: &Bed, args: &[&str]) -> Self {
        // A session that goes on takes no other orders than to go on.
        let mut command = match args {
            [] => bed.tune(ONLY),
            resume => bed.flux(&[&["tune", "--json"], resume].concat()),
        };
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        std::thread::Builder::new()
            .spawn(move || {
                for line in stderr.lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            })
            .unwrap();
        Self {
            child,
            lines,
            heard: Vec::new(),
        }
    }

    /// Hears `lines` lines and goes on hearing for `more`.
    fn hear(&mut self, lines: usize, more: Duration) {
        self.heard.extend(self.lines.iter().take(lines));
        let until = Instant::now() + more;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.heard.push(line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Waits for a line that contains `text`.
    fn hear_of(&mut self, text: &str) {
        for line in &self.lines {
            let found = line.contains(text);
            self.heard.push(line);
            if found {
                return;
            }
        }
        panic!("never said: {text}\n{}", self.heard.join("\n"));
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its exit status, and all it said.
    fn end(mut self) -> (Option<i32>, Vec<String>) {
        let status = self.child.wait().unwrap();
        self.heard.extend(self.lines.iter());
        (status.code(), self.heard)
    }
}

/// Number of the last run that was announced: `  run 7 (flash-attn=on): …` is stored at place 6.
fn announced(lines: &[String]) -> usize {
    lines
        .iter()
        .filter_map(|line| {
            let rest = line.strip_prefix("  run ")?;
            rest.split(' ').next()?.parse().ok()
        })
        .max()
        .unwrap_or(0)
}

/// The runs of the newest session, which must be in order, whole, and no fewer than announced.
fn stored(bed: &Bed, announced: usize) -> usize {
    let store = bed.store();
    let Some(line) = store.sessions(1).unwrap().into_iter().next() else {
        assert_eq!(announced, 0);
        return 0;
    };
    let runs = store.runs(line.id).unwrap();
    for (place, run) in runs.iter().enumerate() {
        assert_eq!(run.seq as usize, place);
        assert!(!run.run.raw.argv.is_empty() && run.run.wall_secs > 0.0);
    }
    assert!(
        (announced..=announced + 1).contains(&runs.len()),
        "{announced} announced, {} stored",
        runs.len()
    );
    runs.len()
}

fn nothing_survives(bed: &Bed) {
    wait_until("every child is gone", || alive(&bed.fake).is_empty());
}

/// What must not depend on where a session was broken.
fn result_of(document: &Value) -> [Value; 4] {
    let profile = &document["profile"];
    [
        document["verdict"].clone(),
        profile["settings"].clone(),
        profile["args"].clone(),
        profile["env"].clone(),
    ]
}

fn unbroken() -> [Value; 4] {
    // The same noise, without the waiting.
    let bed = Bed::new(FLASH_WINS);
    let result = result_of(&document(&mut bed.tune(ONLY)));
    assert_eq!(result[0], "improved");
    assert_eq!(result[1], serde_json::json!({"flash-attn": "on"}));
    result
}

/// Ends the newest session and asserts that it is what an unbroken one is.
fn resumes_to(bed: &Bed, unbroken: &[Value; 4]) {
    let resumed = document(&mut bed.flux(&["tune", "--resume", "--json"]));
    assert_eq!(result_of(&resumed), *unbroken);
    let store = bed.store();
    assert_eq!(store.sessions(9).unwrap().len(), 1, "one session goes on");
    assert_eq!(store.profiles().unwrap().len(), 1);
    assert_eq!(store.verdicts(1).unwrap().len(), 1);
    nothing_survives(bed);
}

/// Kills sessions of `seed` at random moments, each several times.
fn kills(seed: u64) {
    let unbroken = unbroken();
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..SESSIONS {
        let bed = bed();
        let mut known = 0;
        for _ in 0..KILLS {
            let is_begun = bed.data.exists() && !bed.store().sessions(1).unwrap().is_empty();
            let resume: &[&str] = if is_begun { &["--resume"] } else { &[] };
            let mut running = Running::start(&bed, resume);
            running.hear(random.usize(0..LINES), AFTER_LINE.mul_f64(random.f64()));
            assert!(running.child.try_wait().unwrap().is_none(), "killed alive");
            running.signal(Signal::KILL);
            let (_, heard) = running.end();
            nothing_survives(&bed);
            known = stored(&bed, announced(&heard).max(known));
        }
        if known == 0 {
            continue;
        }
        resumes_to(&bed, &unbroken);
    }
}

#[test]
fn a_killed_tune_resumes_to_the_same_result_1() {
    kills(1);
}

#[test]
fn a_killed_tune_resumes_to_the_same_result_2() {
    kills(2);
}

#[test]
fn a_killed_tune_resumes_to_the_same_result_3() {
    kills(3);
}

#[test]
fn a_killed_tune_resumes_to_the_same_result_4() {
    kills(4);
}

#[test]
fn a_session_is_killed_when_nobody_measures_any_more() {
    let bed = bed();
    let mut running = Running::start(&bed, &[]);
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
    let bed = bed();
    let mut running = Running::start(&bed, &[]);
    running.hear_of("  run 5");
    for signal in signals {
        running.signal(*signal);
        running.hear_of("stopping ");
    }
    let (status, heard) = running.end();
    assert_eq!(status, Some(130), "{heard:?}");
    assert!(heard.iter().any(|line| line.starts_with(said)), "{heard:?}");
    nothing_survives(&bed);
    let runs = stored(&bed, announced(&heard));
    let last = heard.last().unwrap();
    let words =
        format!("cancelled: {runs} runs kept in session 1; go on with `flux tune --resume 1`");
    assert_eq!(*last, words);
    let store = bed.store();
    let end = store.session(1).unwrap().unwrap().end.unwrap();
    assert_eq!(end.state, SessionState::Cancelled);
    assert_eq!(store.profiles().unwrap(), []);
    drop(store);
    resumes_to(&bed, &unbroken());
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
