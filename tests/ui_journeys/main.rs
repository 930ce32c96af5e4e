//! Journeys through the app, found by role and label only: the accessibility test comes with them.
#![cfg(all(feature = "test-support", feature = "gui"))]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "../support/app.rs"]
mod app;
#[path = "../support/bench_runs.rs"]
mod bench_runs;
#[path = "../support/fake_runtime.rs"]
mod fake_runtime;
#[path = "../support/flux_cli.rs"]
mod flux_cli;
#[path = "../support/scripted_engine.rs"]
mod scripted_engine;

mod first_run;
mod keyboard;
mod placement;
#[cfg(target_os = "linux")]
mod real;
mod sizes;
mod stopping;
mod verdicts;

use app::Stage;
use scripted_engine::Desk;

/// On the wizard's last page before measuring, with the desk's model.
fn ready_to_start(desk: &Desk) -> Stage {
    let mut stage = Stage::new(desk.ports.clone());
    stage.click("Tune");
    stage.dialogs.answer(&desk.bed.model);
    stage.click("Choose a file…");
    stage.click("Next");
    stage.click("Next");
    stage
}

/// Measuring.
fn started(desk: &Desk) -> Stage {
    let mut stage = ready_to_start(desk);
    stage.click("Start measuring");
    stage
}
