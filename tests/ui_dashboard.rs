//! The Dashboard page: scripted sensors live, a stored session again; found by role and label.
#![cfg(all(feature = "test-support", feature = "gui"))]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/app.rs"]
mod app;
#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;
#[path = "support/scripted_engine.rs"]
mod scripted_engine;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use app::Stage;
use eframe::egui::accesskit::Toggled;
use eframe::egui::{Key, Modifiers, Theme, vec2};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use flux::domain::settings::AppSettings;
use flux::domain::telemetry::{AbsentSensor, HOST, Metric, Reading, SeriesId};
use flux::domain::types::{
    PlannedRun, RawOutput, Run, RunOutcome, Settings, Side, Stage as RunStage, Timestamp,
};
use flux::engine::Ports;
use flux::engine::message::{Event, EventKind};
use flux::engine::telemetry::Tick;
use flux::ports::{CancelMode, Clock, Store as _, Telemetry, TelemetrySource};
use flux::ui::Message;
use scripted_engine::{Answer, Desk, Gate, finished};

const PATIENCE: Duration = Duration::from_secs(20);
/// 2026-11-30 00:00 UTC.
const BEGIN: i64 = 1_795_996_800_000;
const CARD: &str = "0000:01:00.0";

struct HandClock(AtomicI64, Instant);

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        self.1.elapsed()
    }
}

/// Ticks one by one; the clock goes on by 100 ms with each, and stands when they are over.
struct Script(Arc<HandClock>, Vec<Vec<(SeriesId, f64)>>, Vec<AbsentSensor>);

impl Telemetry for Script {
    fn sources(&self) -> Vec<Box<dyn TelemetrySource>> {
        vec![Box::new(Self(
            self.0.clone(),
            self.1.clone(),
            self.2.clone(),
        ))]
    }
}

impl TelemetrySource for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        if self.1.is_empty() {
            return Vec::new();
        }
        self.0.0.fetch_add(100, Ordering::SeqCst);
        self.1.remove(0)
    }

    fn absent(&self) -> Vec<AbsentSensor> {
        self.2.clone()
    }
}

fn series(source: &str, metric: Metric) -> SeriesId {
    SeriesId {
        source: source.to_owned(),
        metric,
    }
}

/// Ports whose sensors follow a script, every 100 ms.
fn scripted(desk: &Desk, script: Vec<Vec<(SeriesId, f64)>>) -> Ports {
    scripted_from(BEGIN, desk, script, Vec::new())
}

fn scripted_from(
    begin: i64,
    desk: &Desk,
    script: Vec<Vec<(SeriesId, f64)>>,
    absent: Vec<AbsentSensor>,
) -> Ports {
    let clock = Arc::new(HandClock(AtomicI64::new(begin), Instant::now()));
    let settings = AppSettings {
        telemetry_interval_ms: 100,
        ..AppSettings::default()
    };
    desk.ports.settings.save(&settings).unwrap();
    Ports {
        clock: clock.clone(),
        telemetry: Arc::new(Script(clock, script, absent)),
        ..desk.ports.clone()
    }
}

/// Lets the sensors speak until the page shows it.
fn sense_until(stage: &mut Stage, label: &str) {
    for _ in 0..100 {
        if stage.shows(label) {
            return;
        }
        let app = stage.harness.state_mut();
        let readings = app.link().sense(PATIENCE).expect("sensors are read");
        app.take(readings);
        stage.harness.run_steps(2);
    }
    stage.must_show(label);
}

fn card_desk() -> Desk {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("rx580-2048sp");
    desk
}

#[test]
fn tiles_show_what_the_sensors_say_and_nothing_else() {
    let desk = card_desk();
    let tick = |watts: f64, load: f64, ram: f64| {
        vec![
            (series(CARD, Metric::Power), watts),
            (series(HOST, Metric::CpuLoad), load),
            (series(HOST, Metric::RamUsed), ram * 1_073_741_824.0),
        ]
    };
    let script = vec![
        tick(60.0, 10.0, 4.0),
        tick(121.0, 30.0, 5.0),
        tick(87.0, 50.0, 9.0),
    ];
    let mut stage = Stage::new(scripted(&desk, script));
    stage.click("Dashboard");
    stage.click("1 min");
    sense_until(&mut stage, "max 9.00");
    for words in [
        "87 W",
        "min 60 · mean 89 · max 121",
        "50 %",
        "min 10 · mean 30 · max 50",
        "9.00 GiB",
        "min 4.00 · mean 6.00 · max 9.00",
        "Every 100 ms · sampling costs",
        "shaded: a run is being measured",
        "Power: 87.0 W now, between 60.0 and 121.0 W",
    ] {
        stage.must_show(words);
    }
    for words in [
        "Temperature",
        "VRAM",
        "Core clock",
        "No readings here",
        "Live",
    ] {
        assert!(!stage.shows(words), "{words}");
    }
}

#[test]
fn a_machine_without_gpu_sensors_says_so_in_one_line() {
    let desk = card_desk();
    let load = vec![vec![(series(HOST, Metric::CpuLoad), 7.0)]];
    let mut stage = Stage::new(scripted(&desk, load));
    stage.click("Dashboard");
    sense_until(&mut stage, "7 %");
    stage.must_show("No readings here · AMD Radeon RX 580 2048SP: no sensor that Flux can read");
    assert!(!stage.shows("Power"));
}

#[test]
fn several_gpus_stand_apart_and_absent_sensors_say_why() {
    const SECOND: &str = "0000:00:02.0";
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("hybrid-laptop");
    let tick = vec![
        (series(CARD, Metric::Power), 87.0),
        (series(CARD, Metric::CoreClock), 1284.0),
        (series(CARD, Metric::MemoryClock), 1750.0),
        (series(CARD, Metric::Throttled), 0.0),
        (series(CARD, Metric::Temperature), 63.0),
        (series(CARD, Metric::HotSpot), 71.0),
        (series(CARD, Metric::FanSpeed), 1420.0),
        (series(CARD, Metric::VramUsed), 4.0 * 1_073_741_824.0),
        (series(SECOND, Metric::GpuLoad), 3.0),
        (series(HOST, Metric::CpuLoad), 18.0),
        (series(HOST, Metric::CpuPower), 41.0),
    ];
    let absent = vec![AbsentSensor {
        series: series(SECOND, Metric::Power),
        reason: "no permission".to_owned(),
    }];
    let mut stage = Stage::new(scripted_from(BEGIN, &desk, vec![tick], absent));
    stage.click("Dashboard");
    sense_until(&mut stage, "87 W");
    for words in [
        "NVIDIA GeForce RTX 4080 Laptop GPU",
        "Intel(R) UHD Graphics",
        "Processor and memory",
        "GPU board",
        "no throttling",
        "hot spot 71 °C",
        "7.74 GiB free",
        "package 41 W",
        "No readings here · Intel(R) UHD Graphics: no power: no permission",
    ] {
        stage.must_show(words);
    }
}

#[test]
fn energy_is_a_goal_only_where_something_tells_power() {
    let desk = card_desk();
    let load = vec![vec![(series(HOST, Metric::CpuLoad), 7.0)]];
    let reason = "no permission";
    let card = AbsentSensor {
        series: series(CARD, Metric::Power),
        reason: reason.to_owned(),
    };
    let package = AbsentSensor {
        series: series(HOST, Metric::CpuPower),
        reason: reason.to_owned(),
    };
    let powered = vec![
        (series(CARD, Metric::Power), 30.0),
        (series(HOST, Metric::CpuPower), 9.0),
        (series(HOST, Metric::CpuLoad), 7.0),
    ];
    for (script, absent, is_open) in [
        (load, vec![card, package], false),
        (vec![powered], Vec::new(), true),
    ] {
        let mut stage = Stage::new(scripted_from(BEGIN, &desk, script, absent));
        stage.click("Dashboard");
        sense_until(&mut stage, "7 %");
        stage.click("Tune");
        stage.dialogs.answer(&desk.bed.model);
        stage.click("Choose a file…");
        stage.click("Next");
        assert_eq!(stage.shows(" needs the power of the "), !is_open);
        assert_eq!(stage.shows(": no permission"), !is_open);
        stage.click("Energy");
        let energy = stage.harness.get_by_label("Energy");
        let chosen = energy.accesskit_node().toggled() == Some(Toggled::True);
        assert_eq!(chosen, is_open);
    }
}

/// Another GPU's power is no help: the build uses the first that it lists.
#[test]
fn energy_asks_for_the_power_of_the_gpu_that_will_be_tuned() {
    const INTEL: &str = "0000:00:02.0";
    let intel = ("Vulkan0", "Intel(R) UHD Graphics");
    let nvidia = ("Vulkan1", "NVIDIA GeForce RTX 4080 Laptop GPU");
    let reason = "Energy needs the power of Intel(R) UHD Graphics: no permission";
    for (devices, is_open) in [([intel, nvidia], false), ([nvidia, intel], true)] {
        let mut desk = Desk::new(|_| Answer::Valid);
        desk.moves_to("hybrid-laptop");
        desk.lists(&devices);
        let tick = vec![
            (series(CARD, Metric::Power), 30.0),
            (series(HOST, Metric::CpuLoad), 7.0),
        ];
        let absent = vec![AbsentSensor {
            series: series(INTEL, Metric::Power),
            reason: "no permission".to_owned(),
        }];
        let mut stage = Stage::new(scripted_from(BEGIN, &desk, vec![tick], absent));
        stage.click("Dashboard");
        sense_until(&mut stage, "7 %");
        stage.click("Tune");
        stage.dialogs.answer(&desk.bed.model);
        stage.click("Choose a file…");
        stage.click("Next");
        assert_eq!(stage.shows(reason), !is_open);
    }
}

fn planned(stage: RunStage, side: Option<Side>, settings: Settings) -> PlannedRun {
    PlannedRun {
        stage,
        side,
        settings,
        repetitions: 3,
        early_stop: None,
        log_buffers: false,
        clients: 1,
        purpose: "flash-attn=on".to_owned(),
    }
}

/// A session of five runs of 20 s, each after a pause of 10 s, with readings every half second; one minute is missing.
fn stored_session(desk: &Desk, gate: &Gate) -> i64 {
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    gate.pass(|| engine.cancel(job, CancelMode::Now));
    finished(&events, job);
    let store = &desk.store;
    let mut begun = store.session(1).unwrap().unwrap().begun;
    begun.started_at = Timestamp(BEGIN);
    let session = store.begin_session(&begun).unwrap();
    let arm = Settings(BTreeMap::from([("flash-attn".to_owned(), "on".to_owned())]));
    for seq in 0..5 {
        let side = Some(if seq % 2 == 0 { Side::A } else { Side::B });
        let run = Run {
            started_at: Timestamp(BEGIN + 10_000 + i64::from(seq) * 30_000),
            wall_secs: 20.0,
            outcome: RunOutcome::Cancelled,
            buffers: Vec::new(),
            raw: RawOutput::default(),
            telemetry: None,
        };
        let planned = planned(RunStage::Confirmation, side, arm.clone());
        store.append_run(session, seq, &planned, &run).unwrap();
    }
    let mut readings = Vec::new();
    for half in 0..360_i64 {
        let at = Timestamp(BEGIN + half * 500);
        let secs = half / 2;
        if (165..175).contains(&secs) {
            continue;
        }
        let busy = secs < 160 && (secs + 20) % 30 < 20 && secs >= 10;
        let wobble = f64::from(u8::try_from(half * 37 % 11).unwrap());
        for (source, metric, idle, work) in [
            (CARD, Metric::Power, 28.0, 112.0),
            (CARD, Metric::CoreClock, 300.0, 1284.0),
            (CARD, Metric::Temperature, 44.0, 61.0),
            (CARD, Metric::VramUsed, 0.6e9, 2.9e9),
            (CARD, Metric::GpuLoad, 1.0, 88.0),
            (CARD, Metric::Throttled, 0.0, 0.0),
            (HOST, Metric::CpuLoad, 4.0, 18.0),
            (HOST, Metric::RamUsed, 6.1e9, 7.9e9),
        ] {
            let value = if busy { work } else { idle };
            let flag = metric == Metric::Throttled;
            let value = if flag {
                0.0
            } else {
                value * (1.0 + wobble / 100.0)
            };
            let series = series(source, metric);
            readings.push(Reading { series, at, value });
        }
    }
    store.append_telemetry(session, &readings).unwrap();
    session
}

fn replay_on(size: [f32; 2], theme: Theme) -> Stage {
    let gate = Gate::new(1);
    let mut desk = Desk::new(gate.script());
    desk.moves_to("rx580-2048sp");
    stored_session(&desk, &gate);
    let ports = scripted(&desk, Vec::new());
    let mut stage = Stage::sized(ports, vec2(size[0], size[1]), theme, 1.0);
    stage.click("Dashboard");
    sense_until(&mut stage, "Every 100 ms");
    stage.settle();
    stage.click("Shown");
    stage.click_part("Session 2 · ");
    stage.settle();
    stage
}

#[test]
fn a_stored_session_is_shown_again() {
    let mut stage = replay_on([1280.0, 800.0], Theme::Dark);
    for words in [
        "Session 2 · ",
        "2026-11-30 00:00 UTC · 3 min · shaded: a run was being measured",
        // 100 idle and work values swing by 10 %: the least is the idle one, the greatest 1.1 times the work.
        "min 28 · mean ",
        "max 123",
        "no throttling",
        "of 7.75 GiB",
        "with gaps",
    ] {
        stage.must_show(words);
    }
    assert!(!stage.shows("5 min"));
    stage.click("Shown");
    stage.click("Live");
    stage.must_show("5 min");
    stage.must_show("Every 100 ms");
}

#[test]
fn it_fits_every_window_in_both_themes() {
    for (size, theme) in [
        ([900.0, 600.0], Theme::Dark),
        ([900.0, 600.0], Theme::Light),
        ([1920.0, 1080.0], Theme::Light),
    ] {
        let stage = replay_on(size, theme);
        stage.must_show("CPU load");
        stage.must_fit("Dashboard");
    }
}

/// Other programs take 4 %, a run from the 15th second on the rest.
fn load_at(at: i64) -> Tick {
    let value = if at < BEGIN + 15_000 { 4.0 } else { 40.0 };
    let at = Timestamp(at);
    Tick {
        at,
        readings: vec![Reading {
            series: series(HOST, Metric::CpuLoad),
            at,
            value,
        }],
        cost: Duration::from_micros(40),
        absent: Arc::default(),
    }
}

#[test]
fn the_running_job_and_its_runs_are_on_the_page() {
    let gate = Gate::new(5);
    let mut desk = Desk::new(gate.script());
    desk.moves_to("rx580-2048sp");
    let mut stage = Stage::new(scripted_from(BEGIN + 29_900, &desk, Vec::new(), Vec::new()));
    stage.click("Tune");
    stage.dialogs.answer(&desk.bed.model);
    stage.click("Choose a file…");
    stage.click("Next");
    stage.click("Next");
    stage.click("Start measuring");
    stage.key(Modifiers::NONE, Key::Num3);
    let runs = |stage: &Stage| {
        stage
            .harness
            .state()
            .state()
            .job
            .as_ref()
            .unwrap()
            .runs
            .len()
    };
    // The sixth waits at the gate.
    while runs(&stage) < 5 {
        stage.hear();
    }
    stage.until("Tuning Tiny (random weights): ");
    let job = stage.harness.state().state().job.as_ref().unwrap().id;
    let app = stage.harness.state_mut();
    let ticks = (0..300).map(|at| load_at(BEGIN + at * 100)).collect();
    app.take(Message::Readings(ticks));
    let stored = EventKind::RunStored {
        run: 900,
        seq: 900,
        planned: Box::new(planned(RunStage::Screening, None, Settings::stock())),
        metrics: BTreeMap::new(),
        scores: vec![38.2],
        energy: vec!["tg128 0.448 t/J".to_owned()],
        failure: None,
        wall_secs: 10.0,
    };
    app.take(Message::Event(Event {
        job,
        seq: 900,
        at: Timestamp(BEGIN + 25_000),
        kind: stored,
    }));
    stage.settle();
    stage.must_show("last run");
    stage.must_show("38.2 t/s · tg128 0.448 t/J");
    stage.must_show("run ");
    stage.click("1 min");
    stage.must_show("between runs 4 %");
    gate.pass(|| {});
}
