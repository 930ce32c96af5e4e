//! The Lab page by role and label: nothing yet, measuring, cancelling, a result, a card that fails, a machine without one.
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
#[path = "support/scripted_lab.rs"]
mod scripted_lab;

use std::sync::Arc;

use eframe::egui::{Key, Modifiers};
use flux::domain::lab::FaultKind;

use app::Stage;
use scripted_engine::{Answer, Desk};
use scripted_lab::{Ends, ItsMemory, ScriptedLab};

const VERDICT: &str = "This driver costs 40.0 µs more per submission (95 % interval 39.7 to 40.3) on the compute-only family";

/// The app on the paper's machine, on its Lab page; the lab ends so.
fn stage(ends: Ends) -> (Desk, Stage) {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("rx580-2048sp");
    desk.ports.telemetry = Arc::new(ItsMemory);
    desk.ports.lab = Arc::new(ScriptedLab(ends));
    let mut stage = Stage::new(desk.ports.clone());
    stage.click("Lab");
    (desk, stage)
}

#[test]
fn a_first_lab_is_measured_and_its_finding_stands_first() {
    let (_desk, mut stage) = stage(Ends::Well);
    stage.must_show("No kernel lab on this machine yet");
    stage.click("Measure the card");
    stage.until(VERDICT);
    assert!(!stage.shows("No kernel lab on this machine yet"));
    stage.must_show("Reading reached 197 GB/s, 88 % of the theoretical peak");
    stage.must_show("Radeon RX 580 2048SP, measured ");
    // Layouts of another format; what the card cannot do is said.
    stage.must_show("the fastest is sub-group for four rows 196.7");
    stage.click("f16");
    stage.must_show("the fastest is sub-group for four rows 192.8");
    stage.must_show("compute only (family 1)");
    // The same in the history.
    stage.click("History");
    stage.must_show("lab");
    stage.click("Lab");
    stage.must_show(VERDICT);
}

#[test]
fn a_running_lab_shows_how_far_it_is_and_can_be_cancelled() {
    let (desk, mut stage) = stage(Ends::Waiting);
    stage.click("Run lab");
    stage.until("Measuring");
    stage.until("copy");
    stage.click("Cancel");
    stage.until("Cancelled: what was measured is in the history");
    stage.must_show("No kernel lab on this machine yet");
    let page = flux::ports::Store::sessions(&*desk.store, 5).unwrap();
    assert_eq!(page.len(), 1);
}

#[test]
fn a_card_that_fails_is_a_result_and_a_lab_that_cannot_begin_an_error() {
    let (_desk, mut stage) = self::stage(Ends::With(FaultKind::DeviceLost));
    stage.click("Run lab");
    stage.until("The card failed: vkQueueSubmit: the device was lost");
    let (_desk, mut stage) = self::stage(Ends::Refused);
    stage.click("Run lab");
    stage.until("There is no GPU to measure; Vulkan lists none");
}

#[test]
fn without_a_gpu_nothing_can_be_run_and_the_page_says_why() {
    let desk = Desk::new(|_| Answer::Valid);
    let mut stage = Stage::new(desk.ports.clone());
    stage.key(Modifiers::NONE, Key::Num6);
    stage.must_show("Vulkan lists no GPU here");
    assert!(!stage.shows("Measure the card"));
}
