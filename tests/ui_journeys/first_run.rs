//! A newcomer's way: a build, a model, a tuning, a profile, and what one does with it.

use crossbeam_channel::bounded;
use flux::domain::machine::no_gpu;
use flux::domain::search::SearchSpace;
use flux::domain::text::capitalised;
use flux::engine::scan;
use flux::ports::{InstallProgress, PortError, Store as _};

use crate::app::Stage;
use crate::scripted_engine::{Answer, Desk};
use crate::{ready_to_start, started};

fn at(step: &str, fraction: f64) -> InstallProgress {
    InstallProgress {
        step: step.to_owned(),
        fraction: Some(fraction),
    }
}

#[test]
fn from_a_first_run_to_a_saved_profile_and_its_command() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("rx580-2048sp");
    let mut stage = started(&desk);
    stage.until("Save profile");
    stage.must_show("30");
    assert!(!stage.shows("Run server"), "nothing is saved yet");
    stage.click("Save profile");
    stage.must_show("Saved as profile 1");
    assert_eq!(desk.store.profiles().unwrap().len(), 1);
    // Why it is there: what it does, and the run that introduced it.
    let why = desk.store.introductions(1).unwrap();
    stage.must_show("Why these settings");
    stage.must_show(SearchSpace::shipped().describe("flash-attn"));
    stage.must_show(&format!("Run {}, screening", why[0].run.seq + 1));
    stage.click("Copy command");
    let command = stage.copied.clone().expect("something was copied");
    assert!(
        command.contains("llama-server") && command.contains("--flash-attn on"),
        "{command}"
    );
    // And to where servers are started from.
    let script = desk.bed.fake.scratch().join("start.sh");
    stage.dialogs.answer(&script);
    stage.click("Export");
    stage.click("Bash script…");
    stage.must_show("Written to ");
    let script = std::fs::read_to_string(script).unwrap();
    assert!(script.contains("--flash-attn on"), "{script}");
}

#[test]
fn without_a_gpu_the_advice_is_shown_and_the_cpu_can_be_tuned() {
    let desk = Desk::new(|_| Answer::Valid);
    let found = scan::scan(&desk.ports);
    let advice = no_gpu(&found.machine, &found.gpus).unwrap();
    let mut stage = Stage::new(desk.ports.clone());
    stage.must_show("No GPU to tune through Vulkan");
    stage.must_show(&advice.headline);
    for hint in &advice.hints {
        stage.must_show(hint);
    }
    stage.click("Tune");
    stage.dialogs.answer(&desk.bed.model);
    stage.click("Choose a file…");
    stage.click("Next");
    stage.click("Next");
    stage.click("Start measuring");
    stage.until("Save profile");
}

#[test]
fn a_build_is_installed_with_progress_and_used() {
    let mut desk = Desk::new(|_| Answer::Valid);
    let (go_on, may_go_on) = bounded(0);
    desk.lacks_runtime(move |_, progress| {
        progress(at("downloading llama.cpp", 0.4));
        may_go_on.recv().unwrap();
        Ok(())
    });
    let mut stage = Stage::new(desk.ports.clone());
    stage.must_show("no llama.cpp yet");
    stage.must_show("No llama.cpp is known on this machine");
    stage.click("Install");
    stage.until("downloading llama.cpp");
    stage.must_show("Installing llama.cpp");
    go_on.send(()).unwrap();
    stage.until("llama.cpp is installed");
    stage.must_show("Use llama.cpp fake");
    stage.must_show("in use");
    assert!(!stage.shows("no llama.cpp yet"));
}

#[test]
fn an_installation_that_fails_says_why_and_what_to_do() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.lacks_runtime(|_, _| {
        Err(PortError::new("building llama.cpp needs cmake")
            .hint("install it: `apt install cmake`"))
    });
    let mut stage = Stage::new(desk.ports.clone());
    stage.click("Install");
    stage.until("Building llama.cpp needs cmake");
    stage.must_show("Install it: `apt install cmake`");
    stage.click("Install");
    stage.until("Building llama.cpp needs cmake");
}

#[test]
fn an_installation_can_be_cancelled() {
    let mut desk = Desk::new(|_| Answer::Valid);
    let (cancelled, was_cancelled) = bounded(1);
    desk.lacks_runtime(move |cancel, progress| {
        progress(at("compiling", 0.1));
        while !cancel.is_cancelled() {
            std::thread::yield_now();
        }
        cancelled.send(()).unwrap();
        Err(PortError::new("cancelled"))
    });
    let mut stage = Stage::new(desk.ports.clone());
    stage.click("Install");
    stage.until("compiling");
    stage.click("Cancel");
    was_cancelled.recv().unwrap();
    while stage.shows("Installing llama.cpp") {
        stage.hear();
    }
    stage.must_show("No llama.cpp is known on this machine");
    assert!(
        !stage.shows("cancelled"),
        "what one asked for is no failure"
    );
    stage.must_show("Install");
}

#[test]
fn a_model_is_synthesised_and_tuned() {
    let desk = Desk::new(|_| Answer::Valid);
    let mut stage = Stage::new(desk.ports.clone());
    stage.click("Tune");
    stage.click("Synthesise");
    stage.until("is written");
    stage.until("needs about");
    stage.click("Next");
    stage.click("Next");
    stage.click("Start measuring");
    stage.until("Save profile");
}

#[test]
fn a_wrong_path_says_what_is_wrong() {
    let desk = Desk::new(|_| Answer::Valid);
    let mut stage = Stage::new(desk.ports.clone());
    stage.click("Tune");
    stage.type_into("Path of a model file", "/nowhere/model.gguf");
    stage.click("Use");
    stage.must_show("/nowhere/model.gguf");
    let expected = desk
        .ports
        .models
        .inspect(std::path::Path::new("/nowhere/model.gguf"));
    stage.must_show(&capitalised(&expected.unwrap_err().headline));
    stage.must_show("No model chosen yet");
}

#[test]
fn a_second_tuning_is_refused_with_the_reason() {
    use crate::scripted_engine::Gate;
    use eframe::egui::{Key, Modifiers};

    let gate = Gate::new(1);
    let desk = Desk::new(gate.script());
    let mut stage = started(&desk);
    gate.wait();
    stage.key(Modifiers::COMMAND, Key::T);
    stage.must_show("two would measure each other");
    gate.open();
    stage.until("Save profile");

    // Another Flux on the same data folder.
    let mut other = ready_to_start(&desk);
    let _measuring = desk.store.begin_measuring().unwrap();
    other.click("Start measuring");
    other.until_ended();
    other.must_show("Another Flux");
}
