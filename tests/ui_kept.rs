//! What a session or another machine left for the history, in the app: a table of speculation, clients per run, imports.
#![cfg(all(feature = "test-support", feature = "gui", target_os = "linux"))]
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

use std::fs;
use std::sync::Arc;

use egui_kittest::kittest::Queryable as _;
use flux::engine::message::{Command, TuneRequest};
use flux::ports::{
    CancelToken, LiveServer, PortError, PortResult, ServerLoading, ServerStart, Servers,
    SessionEnd, Store as _,
};
use flux::store::{Access, SqliteStore};

use app::Stage;
use bench_runs::wait_until;
use flux_cli::{Bed, FLASH_WINS, ONLY_FLASH, document};
use scripted_engine::{Answer, Desk, finished};

/// The history page over a bed's data folder.
fn history(bed: &Bed) -> Stage {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.store = Arc::new(SqliteStore::open(&bed.data, Access::Look).unwrap());
    desk.ports.store = desk.store.clone();
    let mut stage = Stage::new(desk.ports.clone());
    stage.click("History");
    stage
}

const FAST: &str = "pp = 20000\ntg = 2000\nprocess_sd = 0.004\nrepetition_sd = 0.01\n";

#[test]
fn speculation_has_a_table_and_clients_are_told_of_every_run() {
    let bed = Bed::new(FAST);
    document(&mut bed.serve_check(&["--processes", "3", "--speculate"]));
    let clients = ["--settings", "flash-attn=on", "--clients", "1,4"];
    document(bed.serve_check(&["--processes", "3"]).args(clients));
    let mut stage = history(&bed);
    stage.click("Session 1, Tiny (random weights), no verdict");
    for part in [
        "Speculation",
        "ngram-mod",
        "prose",
        "Without → with",
        "75 % of ",
        "25 % of ",
    ] {
        stage.must_show(part);
    }
    // Not the word alone: a verdict is a badge.
    stage.must_show("Improved");
    assert!(!stage.shows("Confirmation, not judged yet"));
    stage.click("Session 2, Tiny (random weights), no verdict");
    stage.must_show(" with 1 client, ");
    assert!(!stage.shows("Screening"), "clients are no ranking");
    stage.must_show("Flash attention on, 1 client");
    stage.must_show("Flash attention on, 4 clients");
    let shown = bed.flux(&["show", "2"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(
        shown.matches("Flash attention on, 4 clients [").count(),
        3,
        "{shown}"
    );
    let csv = bed
        .flux(&["export", "2", "--format", "csv"])
        .output()
        .unwrap();
    let csv = String::from_utf8(csv.stdout).unwrap();
    assert!(csv.lines().next().unwrap().ends_with(",doubts,clients"));
    let of_four = csv.lines().filter(|line| line.ends_with(",4")).count();
    assert!(of_four > 0 && of_four < csv.lines().count(), "{csv}");
}

#[test]
fn an_import_is_listed_forgotten_and_brought_back() {
    let bed = Bed::new(FLASH_WINS);
    document(&mut bed.tune(ONLY_FLASH));
    let profile = bed
        .flux(&["export", "1", "--format", "profile"])
        .output()
        .unwrap();
    let there = Bed::new("");
    let file = there.fake.scratch().join("profile.json");
    fs::write(&file, profile.stdout).unwrap();
    document(there.flux(&["import", "--json"]).arg(&file));
    let mut stage = history(&there);
    stage.click("1 profile");
    stage.must_show("Tiny (random weights) for generation");
    stage.must_show("Measured elsewhere");
    stage.must_show("Flash attention on");
    stage.click("Forget");
    stage.must_show("Import 1 is forgotten");
    stage.must_show("No profile yet");
    assert_eq!(there.store().imports(None).unwrap(), []);
    stage.click("Undo");
    stage.must_show("Measured elsewhere");
    let [back] = &there.store().imports(None).unwrap()[..] else {
        panic!("one is back")
    };
    assert_eq!(back.profile.settings.to_string(), "flash-attn=on");
}

/// Servers that never get ready, for as long as nobody cancels.
struct Loading;

impl Servers for Loading {
    fn start(
        &self,
        _: &ServerStart,
        cancel: &CancelToken,
        _: &mut dyn FnMut(ServerLoading),
    ) -> PortResult<Box<dyn LiveServer>> {
        wait_until("it is cancelled", || cancel.is_cancelled());
        Err(PortError::new("cancelled"))
    }
}

#[test]
fn saving_what_was_never_checked_can_be_stopped() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("rx580-2048sp");
    let (mut engine, events) = desk.engine();
    let Command::Tune(asked) = desk.tune(None) else {
        panic!("a search")
    };
    let asked = TuneRequest {
        save: false,
        ..asked
    };
    let job = engine.submit(Command::Tune(asked)).unwrap();
    finished(&events, job);
    drop(engine);
    // A session of before there was an output check.
    let mut end: SessionEnd = desk.store.session(1).unwrap().unwrap().end.unwrap();
    end.result.as_object_mut().unwrap().remove("output");
    end.result["saveable"] = true.into();
    desk.store.end_session(1, &end).unwrap();
    desk.ports.servers = Arc::new(Loading);
    let mut stage = Stage::new(desk.ports.clone());
    stage.click("History");
    stage.click("Session 1, Tiny (random weights), improved");
    for button in ["Save profile", "Stop saving"] {
        stage.harness.get_by_label(button).click();
        stage.harness.run_steps(2);
    }
    stage.settle();
    stage.must_show("The output check was cancelled: nothing was saved");
    stage.must_show("Save profile");
    assert_eq!(desk.store.profiles().unwrap(), []);
}
