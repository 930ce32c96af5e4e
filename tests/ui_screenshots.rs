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
use flux::domain::types::Timestamp;

use app::{Stage, TARGET};
use replay::Replay;
use scripted_engine::{Answer, Desk};

/// How long a picture may take to come about.
const PATIENCE: Duration = Duration::from_secs(30);
/// When the recording began: 2026-11-29 14:12 UTC.
const BEGAN: Timestamp = Timestamp(1_795_961_520_000);

/// The desk of the recording; the run at `held` waits until the pictures of that moment are drawn.
fn desk(held: usize) -> (Desk, Held) {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.as_recorded_on("h200", BEGAN);
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

/// The wizard up to the first run.
fn begin(stage: &mut Stage, desk: &Desk) {
    stage.click("Tune");
    stage.dialogs.answer(desk.synthesised("qwen3-4b"));
    stage.click("Choose a file…");
    stage.click("Next");
    stage.click("Next");
    stage.click("Start measuring");
}

#[test]
fn look() {
    for (held, name) in [(12, "screening"), (38, "confirmation")] {
        let (desk, moment) = desk(held);
        let mut stage = Stage::sized(desk.ports.clone(), TARGET, Theme::Dark, 1.0);
        begin(&mut stage, &desk);
        moment.arrived.recv_timeout(PATIENCE).unwrap();
        stage.drain();
        stage.save(&format!("/tmp/shot-{name}.png"));
        moment.release.send(()).unwrap();
        stage.until("Save profile");
        stage.save("/tmp/shot-result.png");
    }
}
