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
#[path = "support/long_history.rs"]
mod long_history;
#[path = "support/scripted_engine.rs"]
mod scripted_engine;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use eframe::egui::accesskit::Role;
use egui_kittest::kittest::Queryable as _;
use flux::domain::types::{FailureClass, SampleUnit, Timestamp, Verdict};
use flux::engine::difference::{Pick, difference};
use flux::engine::message::{Command, Outcome, TuneRequest};
use flux::ports::{CancelMode, NewSession, SessionEnd, SessionState, Store as _};
use flux::store::{Access, SqliteStore};
use flux::ui::Choice;

use app::Stage;
use flux_cli::Bed;
use scripted_engine::{Answer, Desk, Gate, finished};

/// A desk with one session, whose winner is saved.
fn tuned() -> Desk {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("rx580-2048sp");
    tune(&desk);
    desk
}

fn tune(desk: &Desk) {
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    assert!(matches!(finished(&events, job), Outcome::Done { .. }));
}

/// The history page of a desk.
fn history(desk: &Desk) -> Stage {
    let mut stage = Stage::new(desk.ports.clone());
    stage.click("History");
    stage
}

/// A desk over another data folder.
fn over(dir: &Path) -> Desk {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.store = Arc::new(SqliteStore::open(dir, Access::Look).unwrap());
    desk.ports.store = desk.store.clone();
    desk
}

/// Opens a list of choices and takes one.
fn choose(stage: &mut Stage, list: &str, choice: &str) {
    let list = stage.harness.get_by_role_and_label(Role::ComboBox, list);
    list.click();
    stage.settle();
    stage.click(choice);
}

const FIRST: &str = "Session 1, Tiny (random weights), improved";

#[test]
fn an_empty_history_says_what_to_do() {
    let desk = Desk::new(|_| Answer::Valid);
    let mut stage = history(&desk);
    stage.must_show("No session yet");
    stage.must_show("0 sessions · 0 samples");
    stage.click("Tune a model");
    stage.must_show("Choose a file…");
}

#[test]
fn a_session_opens_with_its_evidence_and_a_run_with_its_raw_output() {
    let desk = tuned();
    let mut stage = history(&desk);
    stage.must_show("1 session · ");
    stage.must_show("current");
    stage.click(FIRST);
    for part in [
        "Flash attention on: +30",
        "Session 1: tune for generation",
        "Change against stock",
        "Confirmation, in the order it ran",
        "Every run, tg128",
        "smallest effect this plan could see",
        "Why these settings",
        "Fused attention kernels",
        "Run 4, screening, +30",
        "Checked before saving",
        "Prompt pp512",
        "none of 8 runs",
        "Rejected",
        "no gain",
        "drift 0.0 %",
    ] {
        stage.must_show(part);
    }
    let evidence = flux::engine::evidence::evidence(1, &desk.ports).unwrap();
    let run = "Run 1, Stock, valid";
    assert!(evidence.runs.len() > 12);
    stage.harness.get_by_label(run).scroll_to_me();
    stage.settle();
    stage.click(run);
    stage.must_show("no exit status");
    stage.must_show("Copy raw output");
    stage.click(run);
    assert!(!stage.shows("Copy raw output"));
    stage
        .harness
        .get_by_label("Close the session")
        .scroll_to_me();
    stage.settle();
    stage.click("Close the session");
    assert!(!stage.shows("Why these settings"));
}

#[test]
fn sessions_are_searched_and_filtered() {
    let desk = tuned();
    let mut stage = history(&desk);
    stage.type_into("Search the history", "no such thing");
    stage.must_show("No session passes the filters");
    stage.must_show("0 sessions");
    stage.click("Clear filters");
    stage.must_show(FIRST);
    stage.type_into("Search the history", "flash-attn");
    stage.must_show(FIRST);
    stage.click("Clear filters");
    choose(&mut stage, "Verdict", "regressed");
    stage.must_show("No session passes the filters");
    stage.click("Clear filters");
    choose(&mut stage, "Standing", "with a result");
    stage.must_show(FIRST);
}

#[test]
fn a_deleted_session_goes_with_its_profile_and_comes_back() {
    let desk = tuned();
    let mut stage = history(&desk);
    stage.must_show("profile current");
    stage.click(FIRST);
    stage.click("Delete");
    stage.must_show("Session 1 is deleted, and its profile with it");
    stage.must_show("No session yet");
    stage.must_show("No profile yet");
    stage.click("Undo");
    stage.must_show(FIRST);
    stage.must_show("profile current");
}

#[test]
fn a_session_is_written_in_every_form() {
    let desk = tuned();
    let dir = tempfile::tempdir().unwrap();
    let mut stage = history(&desk);
    stage.click(FIRST);
    let mut write = |form: &str, name: &str| -> String {
        let path = dir.path().join(name);
        stage.dialogs.answer(&path);
        stage.click("Export");
        stage.click(form);
        stage.must_show("Written to ");
        let asked = stage.dialogs.asked.lock().unwrap().last().cloned();
        let (_, ending) = name.split_once('.').unwrap();
        assert_eq!(
            asked,
            Some(Choice::Save(format!("flux-session-1.{ending}")))
        );
        fs::read_to_string(path).unwrap()
    };
    let page = write("HTML report…", "a.html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<h1>Flash attention on: +30"));
    let table = write("CSV…", "a.csv");
    let samples = desk
        .store
        .find_sessions(&flux::ports::SessionFilter::default());
    // A head, then a line for each sample: every run is valid.
    assert_eq!(table.lines().count() as u64, 1 + samples.unwrap().samples);
    let document: serde_json::Value = serde_json::from_str(&write("JSON…", "a.json")).unwrap();
    assert_eq!(document["session"]["id"], 1);
    let evidence = flux::engine::evidence::evidence(1, &desk.ports).unwrap();
    assert_eq!(document, serde_json::to_value(evidence).unwrap());
    // Its profile, in every form that starts a server, and for another Flux.
    for (form, name, part) in [
        ("Bash script…", "a.sh", "--flash-attn on"),
        ("PowerShell script…", "a.ps1", "'--flash-attn', 'on'"),
        ("llama-server preset…", "a.ini", "flash-attn = on"),
        (
            "llama-swap configuration…",
            "a.llama-swap.yaml",
            "--flash-attn on",
        ),
        ("systemd user unit…", "a.service", "--flash-attn on"),
        (
            "Docker Compose file…",
            "a.compose.yaml",
            "- \"--flash-attn\"",
        ),
        (
            "Profile for another Flux…",
            "a.profile.json",
            "\"flash-attn\": \"on\"",
        ),
    ] {
        let text = write(form, name);
        assert!(text.contains(part), "{form}: {text}");
    }
}

#[test]
fn a_session_without_a_profile_offers_what_was_measured_alone() {
    let desk = Desk::new(|_| Answer::Valid);
    let Command::Tune(mut request) = desk.tune(None) else {
        panic!("no search")
    };
    request.save = false;
    let (mut engine, events) = desk.engine();
    let job = engine.submit(Command::Tune(request)).unwrap();
    finished(&events, job);
    let mut stage = history(&desk);
    stage.click(FIRST);
    stage.click("Export");
    stage.must_show("HTML report…");
    assert!(!stage.shows("Bash script…"));
}

#[test]
fn two_sessions_are_compared_without_a_verdict() {
    let desk = tuned();
    tune(&desk);
    let mut stage = history(&desk);
    stage.click("Compare two");
    stage.must_show("Choose the first session");
    stage.click(FIRST);
    stage.must_show("Choose the second session");
    stage.click("Session 2, Tiny (random weights), improved");
    for part in [
        "A: session 1",
        "B: session 2",
        "These runs did not take turns",
        "It is no verdict",
    ] {
        stage.must_show(part);
    }
    stage.must_show("The same machine, driver and llama.cpp");
    stage.must_show("no difference that matters");
    // The baseline of the first against the candidate of the second: 30 % in generation, and flash attention differs.
    choose(&mut stage, "What of A", "Baseline: Stock");
    stage.must_show("B was faster");
    stage.must_show("Flash attention");
    assert!(!stage.shows("These runs took turns"));
    stage.click("Stop comparing");
    assert!(!stage.shows("A: session 1"));
}

#[test]
fn arms_and_single_runs_of_one_session_are_compared() {
    let desk = tuned();
    let found = difference([(1, Pick::Baseline), (1, Pick::Candidate)], &desk.ports).unwrap();
    assert!(found.interleaved && !found.other_model && found.fields.is_empty());
    let labels: Vec<&str> = found
        .metrics
        .iter()
        .map(|(test, _)| test.as_str())
        .collect();
    assert_eq!(labels, ["tg128", "pp512"]);
    let generation = &found.metrics[0].1;
    assert!((generation.change_pct - 30.0).abs() < 1.0, "{generation:?}");
    assert_eq!((generation.baseline.n, generation.candidate.n), (4, 4));
    assert_eq!(found.settings[0].dimension, "flash-attn");
    assert_eq!(found.settings[0].values, [None, Some("on".to_owned())]);
    let found = difference([(1, Pick::Run(0)), (1, Pick::Run(1))], &desk.ports).unwrap();
    assert!(!found.interleaved);
    let (_, single) = &found.metrics[0];
    assert_eq!(
        (single.verdict, single.unit),
        (Verdict::Inconclusive, SampleUnit::Runs)
    );
    assert_eq!(single.reason, "1 run: at least 3 are needed in each arm");
    difference([(1, Pick::Baseline), (9, Pick::Baseline)], &desk.ports).unwrap_err();
}

#[test]
fn a_stale_profile_is_shown_with_what_changed_and_is_measured_again() {
    let mut desk = tuned();
    // Its graphics driver was updated.
    desk.tells_otherwise(|machine| {
        for entry in &mut machine.vulkan.entries {
            "22.40".clone_into(&mut entry.driver.info);
        }
    });
    let mut stage = Stage::new(desk.ports.clone());
    // Where the app opens: the rail's foot.
    stage.must_show("profile stale: driver 22.20");
    stage.click("History");
    stage.must_show("Profile 1 is stale: driver 22.20");
    stage.click("1 profile");
    stage.must_show("Tiny (random weights) for generation");
    stage.must_show("→ 22.40");
    assert!(!stage.shows("Run server"));
    stage.click("Sessions");
    stage.click("Measure again");
    stage.must_show("Tiny (random weights), ");
    stage.must_show("Next");
    assert_eq!(stage.harness.state().state().page, flux::ui::Page::Tune);
}

#[test]
fn a_failed_session_says_why_and_a_cancelled_one_goes_on() {
    let desk = Desk::new(|_| Answer::Fails(FailureClass::OutOfMemory));
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    finished(&events, job);
    let mut stage = history(&desk);
    stage.click("Session 1, Tiny (random weights), failed");
    stage.must_show("Failed: ");
    stage.must_show("out of memory");
    assert!(
        !stage.shows("Go on"),
        "nothing runs there, so nothing can go on"
    );

    let gate = Gate::new(8);
    let desk = Desk::new(gate.script());
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    gate.pass(|| engine.cancel(job, CancelMode::AfterSample));
    finished(&events, job);
    drop(engine);
    let mut stage = history(&desk);
    stage.click("Session 1, Tiny (random weights), cancelled");
    stage.must_show("Cancelled: no result, 9 runs kept");
    stage.must_show("Every finished run is kept");
    stage.click("Go on");
    stage.until("Save profile");
    stage.must_show("Flash attention on: +30");
}

#[test]
fn an_inconclusive_comparison_is_a_result_with_words_of_its_own() {
    let bed = Bed::new("process_sd = 0.2\nrepetition_sd = 0.05\n");
    let mut ab = bed.flux(&["ab", "stock", "flash-attn=on", "--processes", "4", "--json"]);
    ab.arg("--runtime")
        .arg(bed.fake.dir())
        .arg("-m")
        .arg(&bed.model);
    assert_eq!(flux_cli::document(&mut ab)["verdict"], "inconclusive");
    let desk = over(&bed.data);
    let mut stage = history(&desk);
    stage.click("Session 1, Tiny (random weights), inconclusive");
    for part in [
        "flash-attn=on against stock: ",
        "Not decided",
        "That is a result too",
        "more processes per arm",
        "Also measured",
    ] {
        stage.must_show(part);
    }
    assert!(!stage.shows("Save profile") && !stage.shows("Why these settings"));
}

#[test]
fn hostile_names_are_shown_harmless() {
    let desk = Desk::new(|_| Answer::Valid);
    let mut begun: NewSession =
        serde_json::from_str(include_str!("fixtures/store/session.json")).unwrap();
    begun.model.name = "evil\u{202e}\u{1b}[2J<b>".to_owned();
    begun.runtime.name = "b1\n\u{7}".to_owned();
    let session = desk.store.begin_session(&begun).unwrap();
    let end = SessionEnd {
        ended_at: Timestamp(2),
        state: SessionState::Failed,
        verdict: None,
        result: serde_json::json!({"code": "x", "headline": "bad\u{202e}thing\u{1b}"}),
    };
    desk.store.end_session(session, &end).unwrap();
    let mut stage = history(&desk);
    stage.click("Session 1, evil\\u{202e}\\u{1b}[2J<b>, failed");
    stage.must_show("Failed: bad\\u{202e}thing\\u{1b}");
    assert!(!stage.words().contains(['\u{202e}', '\u{1b}', '\u{7}']));
}

#[test]
fn a_long_history_has_pages() {
    let dir = tempfile::tempdir().unwrap();
    let size = long_history::Size {
        sessions: 120,
        runs: 2,
        samples: 4,
        log: 200,
        recorded: 0,
        last_runs: 3,
        last_log: 100,
    };
    long_history::write(dir.path(), 7, &size, &long_history::begun());
    let desk = over(dir.path());
    let mut stage = history(&desk);
    // 119 sessions of two runs of four samples, and one of three.
    stage.must_show("120 sessions · 964 samples");
    stage.must_show("Session 120, ");
    // The last row of a page that becomes short once a session is open stays in sight, above what it found.
    let row = |stage: &Stage| stage.harness.get_by_label_contains("Session 71, ").rect();
    stage
        .harness
        .get_by_label_contains("Session 71, ")
        .scroll_to_me();
    stage.settle();
    stage.click_part("Session 71, ");
    stage.settle();
    let close = stage.harness.get_by_label("Close the session").rect();
    let first = stage.rect("When");
    assert!(
        first.bottom() <= row(&stage).top(),
        "{first} {}",
        row(&stage)
    );
    assert!(
        row(&stage).bottom() <= close.top(),
        "{} {close}",
        row(&stage)
    );
    stage.click("Close the session");
    let older = |stage: &mut Stage| {
        stage.harness.get_by_label("Older sessions").scroll_to_me();
        stage.settle();
        stage.click("Older sessions");
    };
    stage.must_show("1–50 of 120");
    older(&mut stage);
    stage.must_show("51–100 of 120");
    stage.must_show("Session 70, ");
    older(&mut stage);
    stage.must_show("101–120 of 120");
    assert!(stage.shows("Session 1, ") && !stage.shows("Session 70, "));
}

#[test]
fn an_unsaved_winner_is_saved_from_the_history() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("rx580-2048sp");
    let (mut engine, events) = desk.engine();
    let request = TuneRequest {
        processes: Some(4),
        save: false,
        ..TuneRequest::new(desk.bed.model.clone())
    };
    let job = engine
        .submit(flux::engine::message::Command::Tune(request))
        .unwrap();
    finished(&events, job);
    let mut stage = history(&desk);
    stage.must_show("not saved");
    stage.click(FIRST);
    for part in [
        "screening, +",
        "no further gain",
        "Not tried",
        "for other backends",
    ] {
        stage.must_show(part);
    }
    stage.click("Save profile");
    stage.must_show("Saved as profile 1");
    stage.must_show("profile current");
    stage.must_show("saved as profile 1");
    assert_eq!(desk.store.profiles().unwrap().len(), 1);
}
