//! The history and what a session found, by role and label only: lists, filters, evidence, comparison, files, profiles.
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
use scripted_engine::{Answer, Desk, finished};

fn tuned() -> Desk {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("rx580-2048sp");
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    finished(&events, job);
    desk
}

#[test]
fn a_session_opens_with_its_evidence() {
    let desk = tuned();
    let mut stage = Stage::new(desk.ports.clone());
    stage.click("History");
    stage.save("/tmp/session/history.png");
    println!("{}", stage.words());
}

#[test]
fn wizard_result() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("rx580-2048sp");
    let mut stage = Stage::sized(
        desk.ports.clone(),
        eframe::egui::vec2(1280.0, 2000.0),
        eframe::egui::Theme::Dark,
        1.0,
    );
    stage.click("Tune");
    stage.dialogs.answer(&desk.bed.model);
    stage.click("Choose a file…");
    stage.click("Next");
    stage.click("Next");
    stage.click("Start measuring");
    stage.until("Save profile");
    stage.save("/tmp/session/result.png");
}
