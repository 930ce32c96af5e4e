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
#[path = "support/replay.rs"]
mod replay;
#[path = "support/scripted_engine.rs"]
mod scripted_engine;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use eframe::egui::Theme;
use egui_kittest::SnapshotOptions;
use flux::domain::types::Timestamp;

use app::{Stage, TARGET};
use replay::Replay;
use scripted_engine::{Answer, Desk};

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
    stage.click("Show in dashboard");
    picture(&mut stage, "dashboard-dark");
}
