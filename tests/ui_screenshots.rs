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

use eframe::egui::Theme;
use flux::domain::types::Timestamp;

use app::{Stage, TARGET};
use replay::Replay;
use scripted_engine::{Answer, Desk};

/// When the recording began: 2026-11-29 14:12 UTC.
const BEGAN: Timestamp = Timestamp(1_795_961_520_000);

fn desk() -> Desk {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.as_recorded_on("h200", BEGAN);
    desk.ports.runner = Arc::new(Replay::new("h200-qwen3-4b-tune", BEGAN));
    desk
}

#[test]
fn look() {
    let desk = desk();
    let mut stage = Stage::sized(desk.ports.clone(), TARGET, Theme::Dark, 1.0);
    stage.click("Tune");
    stage.dialogs.answer(desk.synthesised("qwen3-4b"));
    stage.click("Choose a file…");
    stage.click("Next");
    stage.click("Next");
    stage.save("/tmp/shot-candidates.png");
    stage.click("Start measuring");
    stage.until("Save profile");
    stage.save("/tmp/shot-result.png");
}
