//! A `flux tune` heard line by line while it runs, and what its end is compared with.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::bench_runs::{alive, wait_until};
use super::flux_cli::{Bed, FLASH_WINS, document};

/// What is tuned: a search of some 20 processes.
pub const ONLY: &[&str] = &["--only", "flash-attn", "--processes", "5"];

/// A running Flux and what it says on stderr.
pub struct Running {
    pub child: Child,
    lines: Receiver<String>,
    pub heard: Vec<String>,
}

impl Running {
    /// Starts it with its stderr heard and its stdout kept for its end.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = lines_of(child.stderr.take().unwrap());
        Self {
            child,
            lines,
            heard: Vec::new(),
        }
    }

    /// Hears `lines` lines and goes on hearing for `more`.
    pub fn hear(&mut self, lines: usize, more: Duration) {
        self.heard.extend(self.lines.iter().take(lines));
        let until = Instant::now() + more;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.heard.push(line),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => {
                    // Its end, or a reader that was sent away: the moment is waited for all the same.
                    std::thread::sleep(left.min(Duration::from_millis(1)));
                    return;
                }
            }
        }
    }

    /// Waits for a line that contains `text`.
    pub fn hear_of(&mut self, text: &str) {
        for line in &self.lines {
            let found = line.contains(text);
            self.heard.push(line);
            if found {
                return;
            }
        }
        panic!("never said: {text}\n{}", self.heard.join("\n"));
    }

    /// What it has announced so far: session and number of the last run.
    pub fn announced(&self) -> (Option<i64>, usize) {
        announced(&self.heard)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Closes both of its pipes.
    pub fn unheard(mut self) -> Self {
        drop(self.child.stdout.take());
        self.lines = channel().1;
        self
    }

    /// Waits for its end.
    pub fn end(mut self) -> End {
        let mut stdout = String::new();
        if let Some(mut pipe) = self.child.stdout.take() {
            pipe.read_to_string(&mut stdout).unwrap();
        }
        let status = self.child.wait().unwrap();
        self.heard.extend(self.lines.iter());
        End {
            status,
            stdout,
            heard: self.heard,
        }
    }
}

/// Its lines, read on a thread so that a silent process can be waited for.
fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::Builder::new()
        .spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    // Dropping the pipe closes it for the writer too.
                    return;
                }
            }
        })
        .unwrap();
    lines
}

/// A Flux that ended, and all it said.
pub struct End {
    pub status: ExitStatus,
    pub stdout: String,
    pub heard: Vec<String>,
}

impl End {
    /// Its words, for a failed assertion.
    pub fn words(&self) -> String {
        format!("{}\n{}", self.status, self.heard.join("\n"))
    }

    /// The one sentence after `error:`.
    pub fn error(&self) -> &str {
        let errors: Vec<&str> = self
            .heard
            .iter()
            .filter_map(|line| line.strip_prefix("error: "))
            .collect();
        assert_eq!(errors.len(), 1, "{}", self.words());
        errors[0]
    }

    /// It was disturbed, but came to its result.
    pub fn came_through(&self) {
        assert_eq!(self.status.code(), Some(0), "{}", self.words());
        let document: Value = serde_json::from_str(&self.stdout).unwrap();
        assert_eq!(document["verdict"], "improved", "{}", self.words());
    }

    /// What it announced: session and number of the last run.
    pub fn announced(&self) -> (Option<i64>, usize) {
        announced(&self.heard)
    }
}

/// The session measured, where its beginning was said, and the number of the last run that was announced:
/// `  run 7 (flash-attn=on): …` is stored at place 6.
fn announced(heard: &[String]) -> (Option<i64>, usize) {
    let session = heard.iter().find_map(|line| {
        let id = line.strip_prefix("session ")?.strip_suffix(" began")?;
        id.parse().ok()
    });
    let runs = heard.iter().filter_map(|line| {
        let rest = line.strip_prefix("  run ")?;
        rest.split(' ').next()?.parse().ok()
    });
    (session, runs.max().unwrap_or(0))
}

/// Nothing that Flux started is alive, nor Flux itself.
pub fn nothing_survives(bed: &Bed) {
    wait_until("every child is gone", || alive(&bed.fake).is_empty());
}

/// What must not depend on where a session was broken.
pub fn result_of(document: &Value) -> [Value; 4] {
    let profile = &document["profile"];
    [
        document["verdict"].clone(),
        profile["settings"].clone(),
        profile["args"].clone(),
        profile["env"].clone(),
    ]
}

/// The result of a session that nothing disturbed.
pub fn unbroken() -> [Value; 4] {
    let bed = Bed::new(FLASH_WINS);
    let result = result_of(&document(&mut bed.tune(ONLY)));
    assert_eq!(result[0], "improved");
    assert_eq!(result[1], serde_json::json!({"flash-attn": "on"}));
    result
}
