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

use flux::domain::telemetry::{HOST, Metric, Reading, SeriesId};
use flux::domain::types::{Goal, Run, RunOutcome, Timestamp, Verdict};
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

/// A desk on this clock, with this sensor.
fn desk(clock: &Arc<Jumping>) -> Desk {
    let mut desk = Desk::running(SCRIPT);
    desk.ports.clock = clock.clone();
    desk.ports.runner = Arc::new(BenchRunner::new(clock.clone()));
    desk.ports.telemetry = Arc::new(OnePackage);
    desk
}

/// Tunes to the end, with a plausible time left at every moment.
fn tune(desk: &Desk) -> TuneDocument {
    let (mut engine, events) = desk.engine();
    let request = TuneRequest {
        goal: Goal::Energy,
        processes: Some(4),
        only: vec!["flash-attn".to_owned()],
        ..TuneRequest::new(desk.bed.model.clone())
    };
    engine.submit(Command::Tune(request)).unwrap();
    loop {
        match events.recv().unwrap().kind {
            EventKind::Progress { eta_secs, .. } => {
                let left = eta_secs.unwrap_or(0.0);
                assert!((0.0..60.0).contains(&left), "{left} s left");
            }
            EventKind::Finished(Outcome::Done { result }) => {
                return serde_json::from_value(result).unwrap();
            }
            EventKind::Finished(other) => panic!("{other:?}"),
            _ => {}
        }
    }
}

/// Energy goes by the repetitions' own seconds.
fn has_its_energy(run: &Run) {
    let RunOutcome::Valid { tests } = &run.outcome else {
        panic!("{:?}", run.outcome)
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

#[test]
fn no_duration_is_of_the_clock_on_the_wall() {
    let clock = Arc::new(Jumping {
        begun: Instant::now(),
        looks: AtomicI64::new(0),
    });
    let desk = desk(&clock);
    let document = tune(&desk);
    let passed = clock.elapsed().as_secs_f64();
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
    let stored = desk.store.runs(session).unwrap();
    let runs: Vec<Run> = stored.into_iter().map(|stored| stored.run).collect();
    let steps_back = |two: &[Run]| two[0].started_at > two[1].started_at;
    assert!(runs.windows(2).any(steps_back));
    let walls: f64 = runs.iter().map(|run| run.wall_secs).sum();
    assert!(walls <= passed && runs.iter().all(|run| run.wall_secs > 0.0));
    runs.iter().for_each(has_its_energy);
    let (from, to) = (Timestamp(i64::MIN / 4), Timestamp(i64::MAX / 4));
    let kept = desk.store.telemetry(session, from, to).unwrap();
    let is_read = |reading: &Reading| (reading.value - WATTS).abs() < 1e-9;
    assert!(!kept.is_empty() && kept.iter().all(is_read));
}
