//! The engine's own ports under the app: real processes, real sockets, a real kill.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use flux::ports::Store as _;
use flux::wiring::{self, Access, Options};

use crate::app::Stage;
use crate::bench_runs::{alive, wait_until};
use crate::flux_cli::{Bed, FLASH_WINS};

fn ports(bed: &Bed) -> flux::engine::Ports {
    let options = Options {
        data_dir: Some(bed.data.clone()),
        machine: None,
        access: Access::Look,
        flux: Some(env!("CARGO_BIN_EXE_flux").into()),
    };
    let ports = wiring::open(&options).unwrap().ports;
    let new = flux::ports::NewRuntime {
        dir: bed.fake.dir().to_owned(),
        ..Default::default()
    };
    ports.runtimes.add(&new).unwrap();
    ports
}

fn choose(stage: &mut Stage, bed: &Bed) {
    stage.click("Use llama.cpp 0.5.0-dev-vulkan");
    stage.click("Tune");
    stage.dialogs.answer(&bed.model);
    stage.click("Choose a file…");
    stage.click("Next");
    stage.click("Next");
    stage.click("Start measuring");
}

#[test]
fn a_tuning_of_real_processes_is_saved_and_served() {
    let bed = Bed::new(FLASH_WINS);
    let mut stage = Stage::new(ports(&bed));
    choose(&mut stage, &bed);
    stage.until_ended();
    stage.click("Save profile");
    stage.until("Saved as profile");
    stage.click("Run server");
    stage.until("Stop server");
    stage.must_show("Answers on http://127.0.0.1:");
    assert_eq!(running(&bed).len(), 1);
    stage.click("Stop server");
    while stage.shows("Answers on") {
        stage.hear();
    }
    assert!(running(&bed).is_empty());
    stage.click("Run server");
    stage.until("Stop server");
    drop(stage);
    assert!(
        running(&bed).is_empty(),
        "the app is gone, and its server with it"
    );
}

#[test]
fn a_saved_profile_is_checked_through_live_servers() {
    let bed = Bed::new(&format!("pp = 1000000\ntg = 50000\n{FLASH_WINS}"));
    let mut stage = Stage::new(ports(&bed));
    choose(&mut stage, &bed);
    stage.until_ended();
    assert!(
        !stage.shows("Check through a live server"),
        "nothing is saved"
    );
    stage.click("Save profile");
    stage.until("Saved as profile");
    stage.click("Check through a live server");
    stage.until("Change against the baseline so far");
    assert!(!stage.shows("Pause"), "a check is not gone on with");
    stage.until_ended();
    stage.until("Back to the tuning");
    stage.must_show("profile 1 against stock: +");
    stage.must_show("Through a live server");
    stage.must_show("Time to first token");
    stage.must_show("Time of a whole request");
    stage.must_show("Generation");
    let checked = bed.store().session(2).unwrap().unwrap();
    assert_eq!(checked.begun.kind, flux::ports::SessionKind::ServeCheck);
    assert_eq!(
        checked.end.unwrap().verdict,
        Some(flux::domain::types::Verdict::Improved)
    );
    assert!(running(&bed).is_empty());
    stage.click("Back to the tuning");
    stage.until("Run server");
    stage.must_show("Flash attention on: +");
    stage.click("Check through a live server");
    stage.until("Cancel…");
    stage.click("Cancel…");
    stage.click("Stop now");
    stage.until_ended();
    stage.must_show("nothing is concluded from them");
    assert!(running(&bed).is_empty());
    stage.click("Back to the tuning");
    stage.until("Run server");
}

/// Living processes of the bed's programs.
fn running(bed: &Bed) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let programs = processes.filter_map(|process| fs::read_link(process.path().join("exe")).ok());
    programs
        .filter(|exe| exe.starts_with(bed.fake.dir()))
        .collect()
}

#[test]
fn a_tuning_whose_flux_was_killed_is_offered_and_goes_on() {
    let bed = Bed::new(&("sleep_ms_per_rep = 8\n".to_owned() + FLASH_WINS));
    let mut child = bed
        .tune(&["--only", "flash-attn", "--processes", "5"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let runs = lines
        .map_while(Result::ok)
        .filter(|l| l.starts_with("  run "));
    assert_eq!(runs.take(3).count(), 3);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("its children are gone", || alive(&bed.fake).is_empty());
    assert!(bed.store().session(1).unwrap().unwrap().end.is_none());

    let mut stage = Stage::new(ports(&bed));
    stage.click("Tune");
    stage.must_show("A tuning was broken off");
    stage.click("Go on with it");
    stage.until("Save profile");
    stage.click("Step 4, Screening");
    stage.must_show("goes on after the");
}
