//! A recorded session run again: the real engine asks, the recording answers, run by run and sample by sample.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use flux::domain::types::{
    RawOutput, Run, RunOutcome, RunProgress, RunRequest, TestSamples, Timestamp,
};
use flux::ports::{CancelToken, Runner};

/// One recorded process.
#[derive(Debug, Clone, Default)]
pub struct RecordedRun {
    /// Settings as `stock` or `dimension=value …`.
    pub settings: String,
    /// Stage in words.
    pub stage: String,
    /// Test label and nanoseconds of its repetitions, in order.
    pub tests: Vec<(String, Vec<u64>)>,
}

/// Reads one of `tests/recorded/*.csv`.
pub fn recording(name: &str) -> Vec<RecordedRun> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/recorded")
        .join(format!("{name}.csv"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut runs: Vec<RecordedRun> = Vec::new();
    // session,run,seq,stage,side,settings,test,repetition,ns,tokens_per_second,outcome
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let seq: usize = fields[2].parse().unwrap();
        assert_eq!(fields[10], "valid", "only whole recordings are replayed");
        if seq == runs.len() {
            runs.push(RecordedRun {
                settings: fields[5].to_owned(),
                stage: fields[3].to_owned(),
                tests: Vec::new(),
            });
        }
        let run = runs.last_mut().unwrap();
        if run.tests.last().is_none_or(|(test, _)| test != fields[6]) {
            run.tests.push((fields[6].to_owned(), Vec::new()));
        }
        let ns = fields[8].parse().unwrap();
        run.tests.last_mut().unwrap().1.push(ns);
    }
    runs
}

/// Answers with a recording. What is asked must be what was recorded.
pub struct Replay {
    runs: Vec<RecordedRun>,
    next: Mutex<usize>,
    began: Timestamp,
    gate: Option<(usize, Box<dyn Fn(&CancelToken) + Send + Sync>)>,
}

impl Replay {
    /// Of this recording, begun at this moment.
    pub fn new(name: &str, began: Timestamp) -> Self {
        Self {
            runs: recording(name),
            next: Mutex::new(0),
            began,
            gate: None,
        }
    }

    /// `hold` is called before run `at`, from 0: the test looks at the app meanwhile.
    pub fn held_at(
        mut self,
        at: usize,
        hold: impl Fn(&CancelToken) + Send + Sync + 'static,
    ) -> Self {
        self.gate = Some((at, Box::new(hold)));
        self
    }
}

impl Runner for Replay {
    fn run(
        &self,
        request: &RunRequest,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Run {
        let at = {
            let mut next = self.next.lock().unwrap();
            *next += 1;
            *next - 1
        };
        if let Some((_, hold)) = self.gate.as_ref().filter(|(place, _)| *place == at) {
            progress(RunProgress {
                test: request.tests[0].to_string(),
                repetition: 2,
                repetitions: request.repetitions,
            });
            hold(cancel);
        }
        let before: u64 = self.runs[..at].iter().map(nanoseconds).sum();
        let recorded = self
            .runs
            .get(at)
            .unwrap_or_else(|| panic!("run {at} was never recorded"));
        let tests = request.tests.iter().map(|test| {
            let label = test.to_string();
            let (_, samples_ns) = recorded
                .tests
                .iter()
                .find(|(known, _)| *known == label)
                .unwrap_or_else(|| panic!("run {at} has no {label}"));
            assert_eq!(
                samples_ns.len(),
                request.repetitions as usize,
                "run {at}: {} recorded, {:?} asked",
                recorded.settings,
                request.launch
            );
            TestSamples {
                test: *test,
                samples_ns: samples_ns.clone(),
                record: serde_json::Value::Null,
            }
        });
        let outcome = if cancel.is_now() {
            RunOutcome::Cancelled
        } else {
            RunOutcome::Valid {
                tests: tests.collect(),
            }
        };
        Run {
            started_at: Timestamp(self.began.0 + (before / 1_000_000) as i64),
            // The recording holds what was timed, not how long the process took around it.
            wall_secs: nanoseconds(recorded) as f64 / 1e9,
            outcome,
            buffers: Vec::new(),
            raw: RawOutput::default(),
        }
    }
}

fn nanoseconds(run: &RecordedRun) -> u64 {
    run.tests.iter().flat_map(|(_, ns)| ns).sum()
}
