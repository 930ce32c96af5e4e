//! A tuning stopped in each of the ways there are, and gone on with.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use flux::ports::{SessionState, Store as _};

use flux::ui::{Choice, Chosen, Files};

use crate::app::Stage;
use crate::scripted_engine::{Answer, Desk, Gate};
use crate::started;

/// A run in screening and one in the confirmation.
const PLACES: [u32; 2] = [3, 11];

fn stopped_at(at: u32, answer: &str) -> (Desk, Stage, u32) {
    let gate = Gate::new(at);
    let desk = Desk::new(gate.script());
    let mut stage = started(&desk);
    gate.wait();
    stage.until(&format!("run {} of", at + 1));
    stage.click("Cancel…");
    stage.must_show("Stop this tuning?");
    stage.click(answer);
    gate.open();
    stage.until_ended();
    let kept = u32::try_from(desk.store.runs(1).unwrap().len()).unwrap();
    let end = desk.store.session(1).unwrap().unwrap().end.unwrap();
    assert_eq!(end.state, SessionState::Cancelled);
    (desk, stage, kept)
}

#[test]
fn cancelled_after_this_run_keeps_it() {
    for at in PLACES {
        let (_desk, mut stage, kept) = stopped_at(at, "Stop after this run");
        assert_eq!(kept, at + 1);
        stage.must_show("Cancelled");
        stage.must_show(&format!("{kept} runs kept"));
        stage.click("Start anew");
        stage.must_show("Tune a model");
    }
}

#[test]
fn cancelled_now_keeps_every_run_before() {
    for at in PLACES {
        let (_desk, stage, kept) = stopped_at(at, "Stop now");
        assert_eq!(kept, at);
        stage.must_show(&format!("{kept} runs kept"));
    }
}

#[test]
fn paused_and_gone_on_with_ends_as_an_unbroken_one() {
    let result = |desk: &Desk| {
        let mut end = desk.store.session(1).unwrap().unwrap().end.unwrap().result;
        for key in ["overhead", "model"] {
            end.as_object_mut().unwrap().remove(key);
        }
        end
    };
    let unbroken = Desk::new(|_| Answer::Valid);
    started(&unbroken).until("Save profile");
    for at in PLACES {
        let gate = Gate::new(at);
        let desk = Desk::new(gate.script());
        let mut stage = started(&desk);
        gate.wait();
        // All is heard by then: no row comes under the button.
        stage.until(&format!("run {} of", at + 1));
        stage.click("Pause");
        stage.must_show("Pausing when this run has ended");
        gate.open();
        stage.until_ended();
        stage.must_show("Paused");
        stage.click("Go on");
        stage.until("Save profile");
        assert_eq!(result(&desk), result(&unbroken));
    }
}

#[test]
fn a_window_that_is_to_close_asks_while_it_measures() {
    let gate = Gate::new(2);
    let desk = Desk::new(gate.script());
    let mut stage = started(&desk);
    gate.wait();
    assert!(stage.ask_to_close());
    stage.settle();
    stage.must_show("Flux is still working");
    stage.click("Keep running");
    assert!(!stage.shows("Flux is still working") && !stage.closed);
    assert!(stage.is_measuring());

    assert!(stage.ask_to_close());
    stage.settle();
    stage.click("Stop and close");
    assert!(stage.closed);
    gate.open();
    // The window is gone: its engine ends the run and the session before the process may end.
    drop(stage);
    let end = desk.store.session(1).unwrap().unwrap().end.unwrap();
    assert_eq!(end.state, SessionState::Cancelled);

    let mut idle = Stage::new(desk.ports.clone());
    assert!(!idle.ask_to_close(), "nothing runs: nothing to ask");
    idle.click("Tune");
    idle.must_show("A tuning was broken off");
    idle.click("Go on with it");
    idle.until("Save profile");
    idle.click("Save profile");
    // The model came with the session.
    idle.click("Copy command");
    assert!(idle.copied.unwrap().contains("llama-server"));
}

/// A file dialog with a bug in it: the page that opens it panics.
struct Broken;

impl Files for Broken {
    fn choose(&self, _: Choice, _: Chosen) {
        panic!("a bug");
    }
}

#[test]
fn a_page_that_panics_loses_no_run_and_leaves_no_job() {
    let gate = Gate::new(2);
    let script = gate.script();
    // The run in progress ends as a process does that is told to end now.
    let desk = Desk::new(move |asked| match script(asked) {
        _ if asked.number < 2 => Answer::Valid,
        _ => {
            while !asked.cancel.is_now() {
                std::thread::yield_now();
            }
            Answer::Cancelled
        }
    });
    let mut stage = Stage::over(desk.ports.clone(), Arc::new(Broken));
    let model = desk.bed.model.display().to_string();
    stage.click("Tune");
    stage.type_into("Path of a model file", &model);
    for button in ["Use", "Next", "Next", "Start measuring"] {
        stage.click(button);
    }
    gate.wait();
    stage.click("Machine");
    gate.open();
    let drawn = catch_unwind(AssertUnwindSafe(move || stage.click("Add folder…")));
    assert!(drawn.is_err());
    assert_eq!(desk.store.runs(1).unwrap().len(), 2);
    let end = desk.store.session(1).unwrap().unwrap().end.unwrap();
    assert_eq!(end.state, SessionState::Cancelled);
}
