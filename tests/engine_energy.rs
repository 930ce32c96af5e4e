//! The energy goal with real processes of the simulated runtime and a sensor of the test's own: what is counted, over which
//! seconds, and what happens where no sensor tells.
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
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use flux::domain::telemetry::{AbsentSensor, HOST, Metric, ProcessorTime, SeriesId};
use flux::domain::types::{EnergyMethod, Goal, RunOutcome, Verdict};
use flux::engine::message::{AbRequest, Command, Outcome, TuneRequest};
use flux::engine::report::{AbDocument, TuneDocument};
use flux::engine::workplace::Workplace;
use flux::ports::{Store as _, Telemetry, TelemetrySource};
use scripted_engine::{Answer, Desk, finished};

/// Joules per second of the processor.
const WATTS: f64 = 50.0;
/// 128 tokens in 20 ms, of the 30 ms that a repetition takes; flash attention needs 30 % less time.
const SCRIPT: &str = "process_sd = 0.01\ntg = 6400.0\npp = 25600.0\nsleep_ms_per_rep = 30\n\n[[effect]]\nwhen = [\"flash_attn=1\"]\ntg = 1.3\n";

fn package(metric: Metric) -> SeriesId {
    SeriesId {
        source: HOST.to_owned(),
        metric,
    }
}

/// A counter read at boundaries only, as the slow ones are.
struct Package(Instant);

impl TelemetrySource for Package {
    fn name(&self) -> &'static str {
        "package"
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        vec![(package(Metric::CpuPower), WATTS)]
    }

    fn at_boundary(&mut self) -> Vec<(SeriesId, f64)> {
        let joules = WATTS * self.0.elapsed().as_secs_f64();
        vec![(package(Metric::CpuEnergy), joules)]
    }
}

struct OnePackage;

impl Telemetry for OnePackage {
    fn sources(&self) -> Vec<Box<dyn TelemetrySource>> {
        vec![Box::new(Package(Instant::now()))]
    }
}

/// Found, and not to be read.
struct Silent;

impl TelemetrySource for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        Vec::new()
    }

    fn absent(&self) -> Vec<AbsentSensor> {
        vec![AbsentSensor {
            series: package(Metric::CpuPower),
            reason: "no permission".to_owned(),
        }]
    }
}

struct NoPackage;

impl Telemetry for NoPackage {
    fn sources(&self) -> Vec<Box<dyn TelemetrySource>> {
        vec![Box::new(Silent)]
    }
}

fn tune(desk: &Desk, goal: Goal) -> Outcome {
    let (mut engine, events) = desk.engine();
    let job = engine
        .submit(Command::Tune(TuneRequest {
            goal,
            processes: Some(4),
            only: vec!["flash-attn".to_owned()],
            ..TuneRequest::new(desk.bed.model.clone())
        }))
        .unwrap();
    finished(&events, job)
}

#[test]
fn fewer_joules_for_a_token_are_found_confirmed_and_stored() {
    let mut desk = Desk::running(SCRIPT);
    desk.ports.telemetry = Arc::new(OnePackage);
    let Outcome::Done { result } = tune(&desk, Goal::Energy) else {
        panic!("it failed")
    };
    let document: TuneDocument = serde_json::from_value(result).unwrap();
    assert_eq!(
        document.verdict,
        Some(Verdict::Improved),
        "{}",
        document.reason
    );
    assert_eq!(document.primary, "energy");
    let profile = document.profile.unwrap();
    assert_eq!(profile.settings.to_string(), "flash-attn=on");
    let stock = document.baseline.unwrap();
    assert!(stock.stock_failure.is_none());

    let runs = desk.store.runs(document.session.unwrap()).unwrap();
    let run = runs.iter().find(|r| r.planned.settings.is_stock()).unwrap();
    let RunOutcome::Valid { tests } = &run.run.outcome else {
        panic!("{:?}", run.run.outcome)
    };
    let generation = tests.iter().find(|t| t.test.n_gen == 128).unwrap();
    let energy = generation.energy.clone().unwrap();
    for (joules, ns) in energy.joules(false).into_iter().zip(&generation.samples_ns) {
        let wanted = WATTS * *ns as f64 / 1e9;
        // Too short for the counter's steps: from power.
        assert!(
            (joules / wanted - 1.0).abs() < 0.05,
            "{joules} J, not {wanted}"
        );
    }
    assert_eq!(energy.device[0].method, EnergyMethod::Integrated);
    assert!(energy.is_estimated(), "20 ms are too short for any sensor");
    let told = run.run.telemetry.clone().unwrap();
    assert_eq!(told.device, None);
    let power = told.timed(&package(Metric::CpuPower)).map(|s| s.mean);
    assert!(power.is_none_or(|p| p == WATTS));
}

#[test]
fn without_a_power_sensor_the_energy_goal_is_refused_with_the_reason() {
    let mut desk = Desk::new(|_| panic!("nothing is to run"));
    desk.ports.telemetry = Arc::new(NoPackage);
    let Outcome::Failed { error } = tune(&desk, Goal::Energy) else {
        panic!("it was accepted")
    };
    assert_eq!(error.code, "no-power");
    assert!(
        error
            .headline
            .ends_with("the power of the processor: no permission")
    );
}

#[test]
fn another_goal_needs_no_sensor() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.ports.telemetry = Arc::new(NoPackage);
    assert!(matches!(
        tune(&desk, Goal::Generation),
        Outcome::Done { .. }
    ));
}

/// Something else keeps the processor busy throughout.
struct Busy;

impl TelemetrySource for Busy {
    fn name(&self) -> &'static str {
        "busy"
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        vec![(package(Metric::CpuLoad), 60.0)]
    }
}

impl Telemetry for Busy {
    fn sources(&self) -> Vec<Box<dyn TelemetrySource>> {
        vec![Box::new(Self)]
    }
}

#[test]
fn a_doubt_is_told_once_and_kept_with_its_run() {
    let mut desk = Desk::running(SCRIPT);
    desk.ports.telemetry = Arc::new(Busy);
    let Outcome::Done { result } = tune(&desk, Goal::Generation) else {
        panic!("it failed")
    };
    let document: TuneDocument = serde_json::from_value(result).unwrap();
    let session = document.session.unwrap();
    let notices = desk.store.notices(session).unwrap();
    let told: Vec<_> = notices
        .iter()
        .filter(|n| n.code == "doubtful-run")
        .collect();
    assert_eq!(told.len(), 1, "{notices:?}");
    assert!(
        told[0]
            .text
            .ends_with(": something else kept the processor 60 % busy before it began"),
        "{}",
        told[0].text
    );
    let runs = desk.store.runs(session).unwrap();
    let doubted = runs.iter().filter_map(|r| r.run.telemetry.as_ref());
    // Our own process before may be what kept the processor busy before all others.
    assert_eq!(doubted.filter(|t| t.doubts.len() == 1).count(), 1);
}

/// The same, told by a system that says whose time the processor's was: between two questions three of ten ticks are
/// somebody else's.
#[derive(Default)]
struct Accounted(AtomicU64);

impl Telemetry for Accounted {
    fn sources(&self) -> Vec<Box<dyn TelemetrySource>> {
        vec![Box::new(Busy)]
    }

    fn processor_time(&self) -> Option<ProcessorTime> {
        let asked = self.0.fetch_add(1, Ordering::SeqCst);
        Some(ProcessorTime {
            total: 1_000 * asked,
            busy: 900 * asked,
            own: 600 * asked,
        })
    }
}

#[test]
fn work_beside_a_run_is_told_of_runs_that_follow_each_other() {
    let mut desk = Desk::running(SCRIPT);
    desk.ports.telemetry = Arc::new(Accounted::default());
    let Outcome::Done { result } = tune(&desk, Goal::Generation) else {
        panic!("it failed")
    };
    let document: TuneDocument = serde_json::from_value(result).unwrap();
    let runs = desk.store.runs(document.session.unwrap()).unwrap();
    let sensed: Vec<_> = runs
        .iter()
        .filter_map(|r| r.run.telemetry.as_ref())
        .collect();
    assert!(sensed.len() > 1);
    for telemetry in sensed {
        assert_eq!(
            telemetry.doubts,
            ["something else kept the processor 30 % busy while it ran"]
        );
    }
}

#[test]
fn of_several_devices_the_first_named_is_the_one_whose_sensors_count() {
    let mut desk = Desk::new(|_| panic!("nothing is to run"));
    desk.moves_to("hybrid-laptop");
    desk.lists(&[
        ("Vulkan0", "Intel(R) UHD Graphics"),
        ("Vulkan1", "NVIDIA GeForce RTX 4080 Laptop GPU"),
    ]);
    let sensors_of = |device: Option<&str>| {
        let place = Workplace::read(&desk.bed.model, None, device, None, &desk.ports);
        place.unwrap().sensors()
    };
    let (intel, nvidia) = (Some("0000:00:02.0"), Some("0000:01:00.0"));
    for (device, sensors) in [
        (None, intel),
        (Some("Vulkan1"), nvidia),
        (Some("Vulkan1,Vulkan0"), nvidia),
        (Some("Vulkan0,Vulkan1"), intel),
        (Some("cpu"), None),
    ] {
        assert_eq!(sensors_of(device).as_deref(), sensors, "{device:?}");
    }
}

/// A card that holds its clocks down throughout.
struct HeldDown;

impl TelemetrySource for HeldDown {
    fn name(&self) -> &'static str {
        "held-down"
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        let series = SeriesId {
            source: "0000:01:00.0".to_owned(),
            metric: Metric::Throttled,
        };
        vec![(series, 1.0)]
    }

    fn at_boundary(&mut self) -> Vec<(SeriesId, f64)> {
        self.sample()
    }
}

impl Telemetry for HeldDown {
    fn sources(&self) -> Vec<Box<dyn TelemetrySource>> {
        vec![Box::new(Self)]
    }
}

/// Processes that differ by 20 % decide nothing: where the card held its clocks down, that is offered as the reason.
#[test]
fn clocks_held_down_are_offered_as_the_reason_of_a_spread() {
    let told_with = |script: &str| {
        let mut desk = Desk::running(&format!("{script}{}", bench_runs::CARD_TOML));
        desk.lists(&[bench_runs::CARD]);
        desk.moves_to("rx580-2048sp");
        desk.ports.telemetry = Arc::new(HeldDown);
        let (mut engine, events) = desk.engine();
        let ab = AbRequest {
            model: desk.bed.model.clone(),
            a: "stock".to_owned(),
            b: "flash-attn=on".to_owned(),
            runtime: None,
            device: None,
            goal: Goal::Generation,
            repetitions: None,
            processes: Some(4),
            prompt_tokens: None,
            generated_tokens: None,
            depth: 0,
        };
        let job = engine.submit(Command::Ab(ab)).unwrap();
        let Outcome::Done { result } = finished(&events, job) else {
            panic!("it failed")
        };
        let document: AbDocument = serde_json::from_value(result).unwrap();
        let session = document.session.unwrap();
        let notices = desk.store.notices(session).unwrap();
        let reasons = notices.into_iter().filter(|n| n.code == "held-down");
        // Of four processes an arm, and one each before that showed how long they take.
        assert_eq!(desk.store.runs(session).unwrap().len(), 10);
        (
            document.verdict,
            reasons.map(|n| n.text).collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        told_with(&SCRIPT.replace("process_sd = 0.01", "process_sd = 0.2")),
        (
            Some(Verdict::Inconclusive),
            vec!["the GPU held its clocks down in 10 of 10 runs: that may be why".to_owned()]
        )
    );
    // What is decided needs no excuse.
    assert_eq!(told_with(SCRIPT), (Some(Verdict::Improved), Vec::new()));
}
