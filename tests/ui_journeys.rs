//! Journeys through the app, found by role and label only: the accessibility test comes with them.
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

use app::Stage;
use scripted_engine::{Answer, Desk};

#[test]
fn from_a_first_run_to_a_saved_profile() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("rx580-2048sp");
    let mut stage = Stage::new(desk.ports.clone());
    stage.save("/tmp/shot-machine.png");
    stage.click("Tune");
    stage.save("/tmp/shot-model.png");
    stage.dialogs.answer(&desk.bed.model);
    stage.click("Choose a file…");
    stage.save("/tmp/shot-model2.png");
    stage.click("Next");
    stage.save("/tmp/shot-goal.png");
    stage.click("Next");
    stage.save("/tmp/shot-candidates.png");
    stage.click("Start measuring");
    stage.until("Save profile");
    stage.save("/tmp/shot-result.png");
}
