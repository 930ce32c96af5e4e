//! A clock on the wall that is set, summer time, a machine that wakes up: it steps back and forth by hours while a session
//! is measured, and nothing measured is any different (issue "Trust", part 1).
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;
#[path = "support/scripted_engine.rs"]
mod scripted_engine;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use flux::domain::telemetry::{HOST, Metric, SeriesId};
use flux::domain::types::{Goal, RunOutcome, Timestamp, Verdict};
use flux::engine::message::{Command, EventKind, Outcome, TuneRequest};
use flux::engine::report::TuneDocument;
use flux::ports::{Clock, Store as _, Telemetry, TelemetrySource};
use flux::runtime::bench::BenchRunner;
use scripted_engine::Desk;

/// Joules per second of the processor.
const WATTS: f64 = 50.0;
/// 128 tokens in 20 ms of the 30 ms that a repetition takes; flash attention needs 30 % less time.
const SCRIPT: &str = "process_sd = 0.01\ntg = 6400.0\npp = 25600.0\nsleep_ms_per_rep = 30\n\n[[effect]]\nwhen = [\"flash_attn=1\"]\ntg = 1.3\n";
const HOUR_MS: i64 = 3_600_000;

/// Goes back by an hour at most looks and forward by two days at every fortieth, while time passes as it does.
struct Jumping {
    begun: Instant,
    looks: AtomicI64,
}

impl Clock for Jumping {
    fn now(&self) -> Timestamp {
        let look = self.looks.fetch_add(1, Ordering::SeqCst);
        Timestamp(1_764_374_400_000 - look * HOUR_MS + (look / 40) * 48 * HOUR_MS)
    }

    fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}

struct Package;

impl TelemetrySource for Package {
    fn name(&self) -> &'static str {
        "package"
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        let series = SeriesId {
            source: HOST.to_owned(),
            metric: Metric::CpuPower,
        };
        vec![(series, WATTS)]
    }
}

struct OnePackage;

impl Telemetry for OnePackage {
    fn sources(&self) -> Vec<Box<dyn TelemetrySource>> {
        vec![Box::new(Package)]
    }
}

#[test]
fn no_duration_is_of_the_clock_on_the_wall() {
    let mut desk = Desk::running(SCRIPT);
    let clock = Arc::new(Jumping {
        begun: Instant::now(),
        looks: AtomicI64::new(0),
    });
    desk.ports.clock = clock.clone();
    desk.ports.runner = Arc::new(BenchRunner::new(clock.clone()));
    desk.ports.telemetry = Arc::new(OnePackage);
    let (mut engine, events) = desk.engine();
    engine
        .submit(Command::Tune(TuneRequest {
            goal: Goal::Energy,
            processes: Some(4),
            only: vec!["flash-attn".to_owned()],
            ..TuneRequest::new(desk.bed.model.clone())
        }))
        .unwrap();
    let result = loop {
        match events.recv().unwrap().kind {
            EventKind::Progress { eta_secs, .. } => {
                let left = eta_secs.unwrap_or(0.0);
                assert!((0.0..60.0).contains(&left), "{left} s left");
            }
            EventKind::Finished(Outcome::Done { result }) => break result,
            EventKind::Finished(other) => panic!("{other:?}"),
            _ => {}
        }
    };
    let passed = clock.elapsed().as_secs_f64();
    drop(engine);
    let document: TuneDocument = serde_json::from_value(result).unwrap();
    assert_eq!(
        document.verdict,
        Some(Verdict::Improved),
        "{}",
        document.reason
    );
    let overhead = document.overhead.unwrap();
    assert!(
        overhead.wall_secs > overhead.run_secs && overhead.wall_secs <= passed,
        "{overhead:?}"
    );

    let session = document.session.unwrap();
    let runs = desk.store.runs(session).unwrap();
    assert!(
        runs.windows(2)
            .any(|two| two[0].run.started_at > two[1].run.started_at)
    );
    let walls: f64 = runs.iter().map(|run| run.run.wall_secs).sum();
    assert!(runs.iter().all(|run| run.run.wall_secs > 0.0) && walls <= passed);
    for run in &runs {
        let RunOutcome::Valid { tests } = &run.run.outcome else {
            panic!("{:?}", run.run.outcome)
        };
        let generation = tests.iter().find(|test| test.test.n_gen == 128).unwrap();
        let joules = generation.energy.as_ref().unwrap().joules(false);
        for (joules, ns) in joules.into_iter().zip(&generation.samples_ns) {
            let wanted = WATTS * *ns as f64 / 1e9;
            assert!(
                (joules / wanted - 1.0).abs() < 0.05,
                "{joules} J, not {wanted}"
            );
        }
    }
    let all = (Timestamp(i64::MIN / 4), Timestamp(i64::MAX / 4));
    let kept = desk.store.telemetry(session, all.0, all.1).unwrap();
    assert!(
        !kept.is_empty()
            && kept
                .iter()
                .all(|reading| (reading.value - WATTS).abs() < 1e-9)
    );
}
