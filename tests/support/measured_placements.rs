//! Real placements measured on an NVIDIA H200 (`tests/fixtures/placement`), put into a store as if they were measured there.

use std::fs;
use std::path::Path;

use flux::domain::bench_record;
use flux::domain::types::{
    PlannedRun, RawOutput, Run, RunOutcome, Settings, Stage, TestSamples, Timestamp,
};
use flux::engine::Ports;
use flux::engine::plan::{PlanRequest, base};
use flux::ports::{NewSession, SessionEnd, SessionKind, SessionState};

/// Stores the sweep of layers of the dense model as one session of the first build of `ports`.
pub fn store_sweep(ports: &Ports, model: &Path) {
    let request = PlanRequest {
        runtime: Some(ports.runtimes.list()[0].name.clone()),
        ..PlanRequest::new(model.to_owned())
    };
    let place = base(&request, ports).unwrap();
    let at = ports.clock.now();
    let session = NewSession {
        kind: SessionKind::Plan,
        started_at: at,
        fingerprint: place.fingerprint,
        machine: place.machine,
        runtime: place.runtime.unwrap(),
        model: place.layout.info,
        goal: request.goal,
        config: serde_json::Value::Null,
        simulated: false,
        flux_version: "0.1.0".to_owned(),
    };
    let session = ports.store.begin_session(&session).unwrap();
    for (seq, (name, tests)) in (0..).zip(sweep()) {
        let words = name.replace("ngl", "ngl=");
        let planned = PlannedRun {
            stage: Stage::Screening,
            side: None,
            settings: Settings::stock().with("placement", &words),
            repetitions: 3,
            early_stop: None,
            log_buffers: false,
            clients: 1,
            purpose: "measured".to_owned(),
        };
        let run = Run {
            started_at: at,
            wall_secs: 10.0,
            outcome: RunOutcome::Valid { tests },
            buffers: Vec::new(),
            raw: RawOutput::default(),
            telemetry: None,
        };
        ports
            .store
            .append_run(session, seq, &planned, &run)
            .unwrap();
    }
    let end = SessionEnd {
        ended_at: Timestamp(at.0 + 1),
        state: SessionState::Done,
        verdict: None,
        result: serde_json::Value::Null,
    };
    ports.store.end_session(session, &end).unwrap();
}

/// Runs of the sweep by name, in the file's order.
fn sweep() -> Vec<(String, Vec<TestSamples>)> {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/placement/h200-dense.jsonl");
    let mut runs: Vec<(String, Vec<TestSamples>)> = Vec::new();
    for record in bench_record::parse(&fs::read(file).unwrap()).records {
        let name = record.raw["run"].as_str().unwrap().to_owned();
        if !name.starts_with("ngl") {
            continue;
        }
        let samples = TestSamples {
            test: record.test,
            samples_ns: record.samples_ns,
            record: record.raw,
            energy: None,
        };
        match runs.last_mut() {
            Some((last, tests)) if *last == name => tests.push(samples),
            _ => runs.push((name, vec![samples])),
        }
    }
    runs
}
