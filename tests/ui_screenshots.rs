//! The README's pictures, drawn from a recorded real session that the engine runs again (tests/recorded): never stale,
//! never invented. `UPDATE_SNAPSHOTS=1` draws them anew.
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
#[path = "support/measured_placements.rs"]
mod measured_placements;
#[path = "support/replay.rs"]
mod replay;
#[path = "support/scripted_engine.rs"]
mod scripted_engine;
#[path = "support/scripted_lab.rs"]
mod scripted_lab;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use eframe::egui::{Theme, Vec2};
use egui_kittest::SnapshotOptions;
use flux::domain::types::Timestamp;
use flux::engine::lab::LabAsked;
use flux::engine::message::Command;

use app::{Stage, TARGET};
use replay::Replay;
use scripted_engine::{Answer, Desk, finished};
use scripted_lab::RecordedLab;

/// How long a picture may take to come about.
const PATIENCE: Duration = Duration::from_secs(30);
/// A moment after the recording: 2026-11-30 14:12 UTC.
const NOW: Timestamp = Timestamp(1_796_047_920_000);
/// Pixels per point of the pictures.
const SCALE: f32 = 1.5;

/// The desk of the recording; the run at `held` waits until the pictures of that moment are drawn.
fn desk(held: usize) -> (Desk, Held) {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.as_recorded_on("h200", NOW);
    let (reached, arrived) = bounded(1);
    let (release, go) = bounded::<()>(1);
    desk.ports.runner = Arc::new(Replay::new(1).held_at(held, move |_| {
        reached.send(()).unwrap();
        go.recv_timeout(PATIENCE).unwrap();
    }));
    (desk, Held { arrived, release })
}

/// The moment a run waits in.
struct Held {
    arrived: Receiver<()>,
    release: Sender<()>,
}

/// Chooses the recorded model.
fn choose(stage: &mut Stage, desk: &Desk) {
    stage.click("Tune");
    stage.dialogs.answer(desk.synthesised("qwen3-4b"));
    stage.click("Choose a file…");
}

/// Compares with the picture of this name under `screenshots/`, or draws it anew.
fn picture(stage: &mut Stage, name: &str) {
    let options = SnapshotOptions::new()
        .output_path("screenshots")
        .threshold(1.0)
        .max_failed_pixels(10);
    stage.harness.snapshot_options(name, &options);
}

/// A stage for pictures.
fn stage(desk: &Desk, theme: Theme) -> Stage {
    Stage::sized(desk.ports.clone(), TARGET, theme, SCALE)
}

#[test]
fn machine() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.as_recorded_on("h200", NOW);
    let mut stage = stage(&desk, Theme::Dark);
    picture(&mut stage, "machine-dark");
    stage.theme(Theme::Light);
    picture(&mut stage, "machine-light");
}

/// A lab recorded on the machine of this fixture.
const LAB: (&str, &str) = ("lab-h200.json", "h200");

#[test]
fn lab() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.as_recorded_on(LAB.1, NOW);
    desk.ports.lab = Arc::new(RecordedLab::load(LAB.0));
    let (mut engine, events) = desk.engine();
    let job = engine.submit(Command::Lab(LabAsked::default())).unwrap();
    finished(&events, job);
    drop(engine);
    let size = Vec2::new(TARGET.x, 1400.0);
    let mut stage = Stage::sized(desk.ports.clone(), size, Theme::Dark, SCALE);
    stage.click("Lab");
    stage.until("Queue families");
    picture(&mut stage, "lab-dark");
    stage.theme(Theme::Light);
    picture(&mut stage, "lab-light");
}

#[test]
fn tuning() {
    let (desk, moment) = desk(12);
    let mut stage = stage(&desk, Theme::Dark);
    choose(&mut stage, &desk);
    stage.click("Next");
    picture(&mut stage, "tune-goal-dark");
    stage.click("Next");
    picture(&mut stage, "tune-candidates-dark");
    stage.click("Start measuring");
    moment.arrived.recv_timeout(PATIENCE).unwrap();
    stage.until("2 of 3");
    picture(&mut stage, "tune-screening-dark");
    moment.release.send(()).unwrap();
    stage.until("Save profile");
    picture(&mut stage, "tune-result-dark");
}

#[test]
fn confirming() {
    let (desk, moment) = desk(38);
    let mut stage = stage(&desk, Theme::Light);
    choose(&mut stage, &desk);
    stage.click("Next");
    stage.click("Next");
    stage.click("Start measuring");
    moment.arrived.recv_timeout(PATIENCE).unwrap();
    stage.until("5 of 12: pp512 2 of 3");
    picture(&mut stage, "tune-confirmation-light");
    moment.release.send(()).unwrap();
    stage.until("Save profile");
    picture(&mut stage, "tune-result-light");
}

/// The desk with every recorded session in its store.
fn with_history() -> Desk {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.as_recorded_on("h200", NOW);
    let data = desk.bed.fake.scratch().join("recorded");
    replay::restore(&data);
    desk.keeps_its_data_in(&data);
    desk
}

#[test]
fn history() {
    let desk = with_history();
    let mut stage = stage(&desk, Theme::Dark);
    stage.click("History");
    stage.click_part("Today 03:16");
    picture(&mut stage, "history-dark");
    stage.theme(Theme::Light);
    picture(&mut stage, "history-light");
}

#[test]
fn dashboard() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.as_recorded_on("lavapipe", NOW);
    let data = desk.bed.fake.scratch().join("recorded");
    replay::restore_cpu(&data);
    desk.keeps_its_data_in(&data);
    let mut stage = stage(&desk, Theme::Dark);
    stage.click("History");
    stage.click_part("Today 04:40");
    picture(&mut stage, "history-inconclusive-dark");
}

/// Looked at by people, kept nowhere: a benchmark of placements in the history.
#[test]
#[ignore = "draws pictures to look at into the build folder"]
fn a_plan_to_look_at() {
    let mut desk = Desk::new(|_| Answer::Valid);
    // 2026-11-30 23:00 UTC.
    desk.as_recorded_on("h200", Timestamp(1_796_079_600_000));
    let data = desk.bed.fake.scratch().join("recorded");
    replay::unpack(replay::BUDGETS, &data);
    desk.keeps_its_data_in(&data);
    for (name, size) in [
        ("tall", Vec2::new(1280.0, 1400.0)),
        ("small", Vec2::new(900.0, 600.0)),
    ] {
        let mut stage = Stage::sized(desk.ports.clone(), size, Theme::Dark, 1.0);
        stage.click("History");
        stage.click_part("Today 22:34");
        for (theme, word) in [(Theme::Dark, "dark"), (Theme::Light, "light")] {
            stage.theme(theme);
            let folder = env!("CARGO_TARGET_TMPDIR");
            stage.save(&format!("{folder}/plan-{name}-{word}.png"));
        }
    }
}

#[test]
fn energy() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.as_recorded_on("h200", NOW);
    let data = desk.bed.fake.scratch().join("recorded");
    replay::restore_energy(&data);
    desk.keeps_its_data_in(&data);
    let mut stage = stage(&desk, Theme::Dark);
    stage.click("History");
    stage.click_part("Today 13:03");
    stage.click("Show in dashboard");
    picture(&mut stage, "dashboard-dark");
    stage.theme(Theme::Light);
    picture(&mut stage, "dashboard-light");
}

#[test]
fn placement() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.as_recorded_on("h200", NOW);
    let model = desk.synthesised("qwen3-4b");
    measured_placements::store_sweep(&desk.ports, &model);
    let mut stage = stage(&desk, Theme::Dark);
    stage.click("Placement");
    stage.dialogs.answer(model);
    stage.click("Choose a file…");
    stage.click_part("Split by layer, 35 of 36 on GPU, micro-batch 512");
    picture(&mut stage, "placement-dark");
    stage.theme(Theme::Light);
    picture(&mut stage, "placement-light");
}

/// Looked at by people, kept nowhere: the page at both sizes, for a model that fits in part and for one of 94 layers.
#[test]
#[ignore = "draws pictures to look at into the build folder"]
fn placements_to_look_at() {
    for (machine, shape) in [
        ("rx580-2048sp", "gemma3-12b"),
        ("h200", "qwen3-235b-a22b"),
        ("hybrid-laptop", "gpt-oss-20b"),
    ] {
        for (name, size) in [
            ("large", TARGET),
            ("small", Vec2::new(900.0, 600.0)),
            ("tall", Vec2::new(1280.0, 1300.0)),
        ] {
            let mut desk = Desk::new(|_| Answer::Valid);
            desk.moves_to(machine);
            let mut stage = Stage::sized(desk.ports.clone(), size, Theme::Dark, 1.0);
            stage.click("Placement");
            stage.dialogs.answer(desk.synthesised(shape));
            stage.click("Choose a file…");
            for (theme, word) in [(Theme::Dark, "dark"), (Theme::Light, "light")] {
                stage.theme(theme);
                stage.save(&format!(
                    "{}/placement-{shape}-{name}-{word}.png",
                    env!("CARGO_TARGET_TMPDIR")
                ));
            }
        }
    }
}
