//! What the desktop app costs, each against its bound: `cargo bench --bench ui --features test-support`.
//! It prints and asserts no time: a loaded machine is no bug. The lines of the real window need Xvfb and xdotool.
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark stops at the first surprise"
)]
#![allow(clippy::print_stdout, reason = "it prints a table")]

#[path = "../support/app.rs"]
mod app;
#[path = "../support/bench_runs.rs"]
mod bench_runs;
#[path = "../support/fake_runtime.rs"]
mod fake_runtime;
#[path = "../support/flux_cli.rs"]
mod flux_cli;
#[path = "../support/long_history.rs"]
mod long_history;
#[path = "../support/screen.rs"]
mod screen;
#[path = "../support/scripted_engine.rs"]
mod scripted_engine;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::{Duration, Instant};

use app::Stage;
use eframe::egui::{self, Pos2, RequestRepaintInfo};
use flux::domain::telemetry::{Metric, Reading, SeriesId};
use flux::domain::types::{PlannedRun, Settings, Stage as Phase, Timestamp};
use flux::engine::message::{CandidateResult, Event, EventKind, JobId};
use flux::engine::telemetry::Tick;
use flux::store::{Access, SqliteStore};
use flux::ui::{App, Message};
use flux::wiring::{self, Options};
use flux_cli::Bed;
use long_history::Size;
use screen::{Screen, Window};
use scripted_engine::{Answer, Desk, Gate};

/// Bounds: a frame's work, p99, milliseconds; start to first frame, milliseconds; memory, megabytes; a core while
/// nothing happens, percent; frames in a second while a run is measured.
const FRAME_MS: f64 = 4.0;
const START_MS: f64 = 500.0;
const MEMORY_MB: f64 = 200.0;
const IDLE_PCT: f64 = 1.0;
const FRAMES_PER_SEC: f64 = 4.0;
/// Frames measured of each page.
const FRAMES: usize = 300;
/// The ranking's size.
const CANDIDATES: u32 = 200;
const REPETITIONS: u32 = 20;
/// An hour at 250 ms.
const HOUR_TICKS: i64 = 4 * 3_600;
/// How long a tuning is watched.
const MEASURING: Duration = Duration::from_secs(10);
/// How long the idle window is watched.
const IDLE: Duration = Duration::from_secs(10);

/// 5 000 sessions with a million samples.
const HISTORY: Size = Size {
    sessions: 5_000,
    runs: 25,
    samples: 8,
    log: 200,
    recorded: 0,
    last_runs: 80,
    last_log: 10_000,
};

fn main() {
    // `cargo test --benches` and friends list a target's tests; there are none.
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    println!(
        "{:<44} {:>9} {:>9} {:>9} {:>7}",
        "", "median", "p99", "bound", "ratio"
    );
    placement();
    pages();
    repaints();
    match Screen::open() {
        Some(screen) => window(&screen),
        None => println!("start, memory and idle need a screen"),
    }
}

/// A row of the table.
fn row(what: &str, median: Option<f64>, value: f64, bound: f64, unit: &str) {
    let median = median.map_or_else(String::new, |m| format!("{m:.2} {unit}"));
    println!(
        "{what:<44} {median:>9} {:>9} {:>9} {:>6.2}x",
        format!("{value:.2} {unit}"),
        format!("{bound:.0} {unit}"),
        value / bound
    );
}

/// Every page, with all that may be on it.
fn pages() {
    let gate = Gate::new(1);
    let mut desk = Desk::new(gate.script());
    desk.moves_to("rx580-2048sp");
    long_history::write(&desk.bed.data, 11, &HISTORY, &long_history::begun());
    desk.ports.store = Arc::new(SqliteStore::open(&desk.bed.data, Access::Measure).unwrap());
    let mut stage = Stage::new(desk.ports.clone());
    for page in [
        "Machine",
        "Tune",
        "Dashboard",
        "Placement",
        "History",
        "Lab",
        "Settings",
    ] {
        stage.click(page);
        frames(page, &mut stage);
    }
    stage.click("Dashboard");
    let now = jiff::Timestamp::now().as_millisecond();
    let hour = (-HOUR_TICKS..0).map(|number| tick(now, number)).collect();
    stage.harness.state_mut().take(Message::Readings(hour));
    stage.click("1 h");
    let mut next = 0_i64..;
    frames_with("Dashboard, an hour of 8 series", &mut stage, |app| {
        let tick = tick(now, next.next().unwrap());
        app.take(Message::Readings(vec![tick]));
    });
    stage.click("Tune");
    stage.dialogs.answer(&desk.bed.model);
    stage.click("Choose a file…");
    stage.click("Next");
    frames("Tune, goal", &mut stage);
    stage.click("Next");
    frames("Tune, candidates", &mut stage);
    stage.click("Start measuring");
    gate.wait();
    stage.until("run 2 of");
    load(&mut stage);
    frames("Tune, screening of 200 x 20", &mut stage);
    confirm(&mut stage);
    frames("Tune, confirmation of 50 + 50", &mut stage);
    gate.open();
    stage.until_ended();
    frames("Tune, result", &mut stage);
}

/// The placement page of a model of 94 layers and 128 experts while a slider is dragged from end to end and back.
fn placement() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("rx580-2048sp");
    let mut stage = Stage::new(desk.ports.clone());
    stage.click("Placement");
    stage.dialogs.answer(desk.synthesised("qwen3-235b-a22b"));
    stage.click("Choose a file…");
    frames("Placement, 94 layers", &mut stage);
    for slider in ["Layers on the GPU", "Context"] {
        let rect = stage.rect(slider);
        let at = |x: f32| Pos2::new(rect.left() + rect.width() * x, rect.bottom() - 6.0);
        stage.harness.drag_at(at(0.5));
        let mut moves = 0_u32..;
        let drag = |stage: &mut Stage| {
            // There and back in sixty frames.
            let phase = (moves.next().unwrap() % 60) as f32 / 30.0;
            let moved =
                egui::Event::PointerMoved(at(if phase < 1.0 { phase } else { 2.0 - phase }));
            stage.harness.input_mut().events.push(moved);
        };
        frames_moved(&format!("Placement, dragging {slider}"), &mut stage, drag);
        stage.harness.drop_at(at(0.5));
        stage.settle();
    }
}

/// Logic, pages and tessellation, without a GPU.
fn frames(what: &str, stage: &mut Stage) {
    frames_with(what, stage, |_| {});
}

/// The same with something new before each.
fn frames_with(what: &str, stage: &mut Stage, mut news: impl FnMut(&mut App)) {
    frames_moved(what, stage, |stage| news(stage.harness.state_mut()));
}

/// The same with the user doing something before each.
fn frames_moved(what: &str, stage: &mut Stage, mut before: impl FnMut(&mut Stage)) {
    let mut ms: Vec<f64> = (0..FRAMES)
        .map(|_| {
            let begun = worked();
            before(stage);
            stage.harness.run_steps(1);
            let output = stage.harness.output();
            let meshes = stage
                .harness
                .ctx
                .tessellate(output.shapes.clone(), output.pixels_per_point);
            std::hint::black_box(meshes);
            (worked() - begun) * 1e3
        })
        .collect();
    ms.sort_by(f64::total_cmp);
    row(
        what,
        Some(ms[FRAMES / 2]),
        ms[FRAMES * 99 / 100],
        FRAME_MS,
        "ms",
    );
}

/// Seconds this thread was on a processor.
fn worked() -> f64 {
    // Linux brings its count up to date when a thread gives way.
    std::thread::yield_now();
    cpu_secs(Path::new("/proc/thread-self/schedstat"))
}

/// Seconds on a processor, as Linux counts them for one thread.
fn cpu_secs(schedstat: &Path) -> f64 {
    let text = std::fs::read_to_string(schedstat).unwrap();
    let ns = text.split(' ').next().unwrap();
    ns.parse::<f64>().unwrap() / 1e9
}

/// The readings of the `number`th quarter of a second after `now`.
fn tick(now: i64, number: i64) -> Tick {
    const METRICS: [Metric; 8] = [
        Metric::Power,
        Metric::CoreClock,
        Metric::MemoryClock,
        Metric::Temperature,
        Metric::VramUsed,
        Metric::GpuLoad,
        Metric::CpuLoad,
        Metric::RamUsed,
    ];
    let at = Timestamp(now + number * 250);
    let value = 50.0 + (number as f64 / 37.0).sin() * 20.0;
    let reading = |metric| Reading {
        at,
        series: SeriesId {
            source: "gpu0".to_owned(),
            metric,
        },
        value,
    };
    Tick {
        at,
        readings: METRICS.map(reading).into(),
        cost: Duration::ZERO,
        absent: Arc::default(),
    }
}

/// As if the job that runs had told this.
fn tell(stage: &mut Stage, kind: EventKind) {
    let job = stage.harness.state().state().job.as_ref().unwrap().id;
    tell_of(stage, job, kind);
}

fn tell_of(stage: &mut Stage, job: JobId, kind: EventKind) {
    let event = Event {
        job,
        seq: 0,
        at: Timestamp(1),
        kind,
    };
    stage.harness.state_mut().take(Message::Event(event));
}

fn stored(seq: u32, planned: PlannedRun) -> EventKind {
    let rate = |n: u32| 20.0 + f64::from(seq % 17) + 0.01 * f64::from(n);
    let scores: Vec<f64> = (0..REPETITIONS).map(rate).collect();
    EventKind::RunStored {
        run: i64::from(seq) + 1,
        seq,
        planned: Box::new(planned),
        metrics: [("tg128".to_owned(), rate(0))].into(),
        scores,
        energy: Vec::new(),
        failure: None,
        wall_secs: 1.0,
    }
}

fn planned(stage: Phase, settings: Settings) -> PlannedRun {
    PlannedRun {
        stage,
        side: None,
        settings,
        repetitions: REPETITIONS,
        early_stop: None,
        log_buffers: false,
        clients: 1,
        purpose: "measured".to_owned(),
    }
}

fn load(stage: &mut Stage) {
    for id in 1..=CANDIDATES {
        let settings = Settings::stock().with("ubatch", &(id * 8).to_string());
        tell(
            stage,
            stored(id, planned(Phase::Screening, settings.clone())),
        );
        tell(
            stage,
            EventKind::Screened(CandidateResult {
                id,
                settings,
                metrics: [("tg128".to_owned(), 20.0)].into(),
                status: "ok".to_owned(),
                reason: None,
                change_pct: Some(f64::from(id % 9) - 4.0),
            }),
        );
    }
}

fn confirm(stage: &mut Stage) {
    let settings = Settings::stock().with("ubatch", "64");
    tell(
        stage,
        EventKind::ConfirmationPlanned {
            settings: settings.clone(),
            processes: 50,
            repetitions: REPETITIONS,
            smallest_effect_pct: Some(0.8),
        },
    );
    for (seq, side) in (CANDIDATES + 1..).zip(flux::domain::search::interleaved(50)) {
        let run = PlannedRun {
            side: Some(side),
            ..planned(Phase::Confirmation, settings.clone())
        };
        tell(stage, stored(seq, run));
    }
}

/// A tuning of real processes, ten repetitions a second, drawn as a window's event loop would: when a frame is asked
/// for, and when it is due.
fn repaints() {
    let bed = Bed::new("sleep_ms_per_rep = 100\n");
    let options = Options {
        data_dir: Some(bed.data.clone()),
        machine: None,
        access: Access::Look,
        flux: Some(env!("CARGO_BIN_EXE_flux").into()),
    };
    let ports = wiring::open(&options).unwrap().ports;
    let new = flux::ports::NewRuntime {
        dir: bed.fake.dir().to_owned(),
        ..Default::default()
    };
    let name = ports.runtimes.add(&new).unwrap().name;
    let mut stage = Stage::new(ports);
    stage.click(&format!("Use llama.cpp {name}"));
    stage.click("Tune");
    stage.dialogs.answer(&bed.model);
    stage.click("Choose a file…");
    for button in ["Next", "Next", "Start measuring"] {
        stage.click(button);
    }
    stage.until("1 of 3");
    let (ask, asked) = channel();
    let waker = move |info: RequestRepaintInfo| {
        let _ = ask.send(Instant::now() + info.delay);
    };
    stage.harness.ctx.set_request_repaint_callback(waker);
    let (begun, mut due) = (Instant::now(), None::<Instant>);
    let mut frames: Vec<Instant> = Vec::new();
    while begun.elapsed() < MEASURING {
        let wait = due.map_or(MEASURING, |at| at.saturating_duration_since(Instant::now()));
        if let Ok(at) = asked.recv_timeout(wait) {
            due = Some(due.map_or(at, |before| before.min(at)));
        } else {
            due = None;
            frames.push(Instant::now());
            stage.harness.run_steps(1);
        }
    }
    assert!(stage.is_measuring());
    let span = frames[frames.len() - 1] - frames[0];
    let rate = (frames.len() - 1) as f64 / span.as_secs_f64();
    row(
        "frames a second, measuring",
        None,
        rate,
        FRAMES_PER_SEC,
        "/s",
    );
}

/// The real window over the same history.
fn window(screen: &Screen) {
    let dir = tempfile::tempdir().unwrap();
    long_history::write(dir.path(), 11, &HISTORY, &long_history::begun());
    let begun = Instant::now();
    let mut window = Window::open(screen, dir.path(), &[]);
    let opened = begun.elapsed().as_secs_f64() * 1e3;
    let first = window.first_frame_ms as f64;
    row(
        "start to first frame, in the app",
        None,
        first,
        START_MS,
        "ms",
    );
    row(
        "the same, from outside, xdotool included",
        None,
        opened,
        START_MS,
        "ms",
    );
    for page in ["ctrl+2", "ctrl+3", "ctrl+4", "ctrl+5", "ctrl+1"] {
        window.keys(&[page]);
    }
    let process = format!("/proc/{}", window.process.id());
    let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
    let kb = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    row(
        "memory, every page seen",
        None,
        kb("VmRSS") / 1024.0,
        MEMORY_MB,
        "MB",
    );
    row(
        "of it the app's own",
        None,
        kb("RssAnon") / 1024.0,
        MEMORY_MB,
        "MB",
    );
    sleep(Duration::from_secs(1));
    window.frames();
    let before = all_threads(&process);
    sleep(IDLE);
    let share = 100.0 * (all_threads(&process) - before) / IDLE.as_secs_f64();
    row("idle, of one core", None, share, IDLE_PCT, "%");
    let drawn = window.frames() as f64 / IDLE.as_secs_f64();
    row("frames a second, idle", None, drawn, FRAMES_PER_SEC, "/s");
}

fn all_threads(process: &str) -> f64 {
    let tasks = std::fs::read_dir(format!("{process}/task")).unwrap();
    tasks
        .filter_map(Result::ok)
        .map(|task| cpu_secs(&task.path().join("schedstat")))
        .sum()
}
