//! `flux run`: which profile is applied, which is refused, and what a search does with a stale one.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;
#[path = "support/scripted_engine.rs"]
mod scripted_engine;

use flux::domain::types::{FailureClass, Goal, Stage, Timestamp, Verdict};
use flux::engine::message::{Command, Outcome, TuneRequest};
use flux::engine::report::TuneDocument;
use flux::engine::run::{Access, RunPlan, RunRequest, prepare};
use flux::engine::tune::save_profile;
use flux::ports::{
    CancelToken, Models as _, NoticeLevel, SessionEnd, SessionState, Store as _, SynthRequest,
};
use serde_json::{Value, json};

use scripted_engine::{Answer, Desk, finished};

fn request(desk: &Desk) -> RunRequest {
    RunRequest {
        model: desk.bed.model.clone(),
        runtime: None,
        goal: None,
        stale_ok: false,
        extra: Vec::new(),
        access: Access::default(),
    }
}

fn tuned() -> (Desk, Value) {
    let desk = Desk::new(|_| Answer::Valid);
    let result = tune(&desk);
    (desk, result)
}

fn tune(desk: &Desk) -> Value {
    ended(desk, desk.tune(None))
}

fn ended(desk: &Desk, command: Command) -> Value {
    let (mut engine, events) = desk.engine();
    let job = engine.submit(command).unwrap();
    match finished(&events, job) {
        Outcome::Done { result } => result,
        other => panic!("not done: {other:?}"),
    }
}

/// Stock: only the server, the model, and what the user gave.
fn is_stock(plan: &RunPlan) {
    assert_eq!(plan.argv[1], "--model");
    assert_eq!(plan.argv[3..], ["--host", "127.0.0.1"]);
    assert!(plan.profile.is_none() && plan.env.is_empty() && plan.explanation.is_empty());
    assert_eq!(plan.notices[0].code, "no-profile");
}

#[test]
fn without_a_profile_the_server_is_stock_and_says_so() {
    let desk = Desk::new(|_| Answer::Valid);
    is_stock(&prepare(&request(&desk), &desk.ports).unwrap());
}

#[test]
fn a_profile_is_applied_with_the_run_that_introduced_each_setting() {
    let (desk, result) = tuned();
    let mut asked = request(&desk);
    asked.extra = vec!["--port".to_owned(), "9000".to_owned()];
    let plan = prepare(&asked, &desk.ports).unwrap();
    let rest = ["--host", "127.0.0.1", "--flash-attn", "on"];
    assert_eq!(plan.argv[3..7], rest);
    assert_eq!(plan.argv[7..], ["--port", "9000"]);
    let [other] = plan.stock.as_slice() else {
        panic!("{:?}", plan.stock)
    };
    assert_eq!((other.value.as_str(), other.stock.as_str()), ("on", "auto"));
    assert_eq!(plan.notices, []);
    let [why] = plan.explanation.as_slice() else {
        panic!("{:?}", plan.explanation)
    };
    assert_eq!(
        (why.setting.as_str(), why.value.as_str()),
        ("flash-attn", "on")
    );
    let cited = &desk.store.runs(1).unwrap()[why.run_id as usize - 1];
    assert_eq!(cited.id, why.run_id);
    assert_eq!(cited.planned.stage, Stage::Screening);
    assert_eq!(json!(cited.planned.settings), result["profile"]["settings"]);
    assert!(
        why.confirmation_text.contains("4 + 4 runs"),
        "{}",
        why.confirmation_text
    );
}

#[test]
fn c15_where_stock_does_not_run_and_nothing_beat_what_does_the_server_starts_with_that() {
    let desk = Desk::new(|_| Answer::Fails(FailureClass::DeviceCreation));
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    assert!(matches!(finished(&events, job), Outcome::Failed { .. }));
    // The same place, where a search ended with another baseline than stock and no winner.
    let begun = desk.store.session(1).unwrap().unwrap().begun;
    let session = desk.store.begin_session(&begun).unwrap();
    let end = SessionEnd {
        ended_at: Timestamp(2),
        state: SessionState::Done,
        verdict: Some(Verdict::Unchanged),
        result: json!({"baseline": {"settings": {"flash-attn": "off"}}}),
    };
    desk.store.end_session(session, &end).unwrap();
    let plan = prepare(&request(&desk), &desk.ports).unwrap();
    assert_eq!(plan.argv[5..], ["--flash-attn", "off"]);
    assert!(plan.profile.is_none());
    assert_eq!(plan.notices[0].code, "stock-fails");
    assert_eq!(plan.notices[0].level, NoticeLevel::Warning);
}

#[test]
fn other_machines_are_let_in_only_where_asked_for_and_it_is_said() {
    let desk = Desk::new(|_| Answer::Valid);
    let mut asked = request(&desk);
    asked.extra = vec!["--host".to_owned(), "0.0.0.0".to_owned()];
    let error = prepare(&asked, &desk.ports).unwrap_err();
    assert_eq!(error.code, "usage");
    assert!(error.headline.contains("would let other machines in"));
    assert!(error.hint.unwrap().contains("flux run --host 0.0.0.0"));

    let mut asked = request(&desk);
    asked.access.host = Some("0.0.0.0".to_owned());
    let plan = prepare(&asked, &desk.ports).unwrap();
    assert_eq!(plan.argv[3..], ["--host", "0.0.0.0"]);
    let warning = plan.notices.last().unwrap();
    assert_eq!(
        (warning.code.as_str(), warning.level),
        ("reachable", NoticeLevel::Warning)
    );
    assert!(warning.text.contains("every machine") && warning.text.contains("without an API key"));
    asked.access.key_in_env = true;
    let plan = prepare(&asked, &desk.ports).unwrap();
    assert!(plan.notices.last().unwrap().text.contains("unencrypted"));
    assert!(plan.argv.iter().all(|word| !word.contains("api")));

    asked.extra = vec!["--host".to_owned(), "::1".to_owned()];
    let error = prepare(&asked, &desk.ports).unwrap_err();
    assert!(error.headline.contains("given twice"));
    asked.access = Access::default();
    let plan = prepare(&asked, &desk.ports).unwrap();
    assert_eq!(plan.argv[3..], ["--host", "::1"], "the user's own word");
}

#[test]
fn a_key_never_reaches_the_argument_list() {
    let desk = Desk::new(|_| Answer::Valid);
    let mut asked = request(&desk);
    asked.extra = vec!["--api-key".to_owned(), "hunter2".to_owned()];
    let error = prepare(&asked, &desk.ports).unwrap_err();
    assert!(!format!("{error:?}").contains("hunter2"));
    assert!(error.hint.unwrap().contains("LLAMA_API_KEY"));
    asked.extra.clear();
    asked.access.api_key_file = Some("/etc/keys".into());
    let plan = prepare(&asked, &desk.ports).unwrap();
    assert_eq!(plan.argv[5..], ["--api-key-file", "/etc/keys"]);
}

#[test]
fn arguments_that_win_over_the_profile_are_named() {
    let (desk, _) = tuned();
    let mut asked = request(&desk);
    asked.extra = ["-fa", "off", "-ngl", "3", "--port", "9000"]
        .map(str::to_owned)
        .to_vec();
    let plan = prepare(&asked, &desk.ports).unwrap();
    let told: Vec<&str> = plan.notices.iter().map(|n| n.text.as_str()).collect();
    assert_eq!(
        told,
        [
            "-fa off after -- wins over the profile's --flash-attn on: that was not measured",
            "-ngl 3 after -- moves what the profile left to llama.cpp: that was not measured",
        ]
    );
    asked.goal = Some(Goal::Prompt);
    let stock = prepare(&asked, &desk.ports).unwrap();
    assert_eq!(stock.notices.len(), 1, "stock has nothing to win over");
}

#[test]
fn a_profile_is_for_its_goal_and_its_model() {
    let (desk, _) = tuned();
    let mut asked = request(&desk);
    asked.goal = Some(Goal::Prompt);
    let stock = prepare(&asked, &desk.ports).unwrap();
    is_stock(&stock);
    assert_eq!(
        stock.notices[0].text,
        "no profile for the prompt goal, but --goal generation has one: stock settings (measure with `flux tune --goal prompt`)"
    );
    let other = desk.bed.fake.scratch().join("other.gguf");
    let synth = SynthRequest {
        shape: "qwen3-0.6b".to_owned(),
        output: other.clone(),
        sparse: true,
        seed: 0,
    };
    let models = flux::gguf::GgufModels;
    models
        .synthesise(&synth, &flux::ports::CancelToken::new(), &mut |_, _| {})
        .unwrap();
    asked = request(&desk);
    asked.model = other;
    let stock = prepare(&asked, &desk.ports).unwrap();
    is_stock(&stock);
    assert!(
        stock.notices[0]
            .text
            .starts_with("no profile for this model on this machine")
    );
}

#[test]
fn a_stale_profile_is_refused_until_the_user_says_otherwise() {
    let (mut desk, _) = tuned();
    desk.moves_to("rtx-4070");
    let error = prepare(&request(&desk), &desk.ports).unwrap_err();
    assert_eq!(error.code, "stale-profile");
    assert!(
        error
            .headline
            .starts_with("profile 1 is stale: changed since it was measured: ")
    );
    assert!(error.headline.contains("CPU"), "{}", error.headline);
    assert!(error.hint.unwrap().contains("--stale-ok"));
    let mut asked = request(&desk);
    asked.stale_ok = true;
    let plan = prepare(&asked, &desk.ports).unwrap();
    assert_eq!(plan.profile.unwrap().id, 1);
    assert_eq!(plan.notices[0].level, NoticeLevel::Warning);
    assert_eq!(plan.notices[0].code, "stale-profile");
}

#[test]
fn a_stale_profiles_settings_are_tried_first_and_said_to_be_reproduced_or_not() {
    let (mut desk, _) = tuned();
    desk.moves_to("rtx-4070");
    let result = tune(&desk);
    assert_eq!(
        result["candidates"][0]["settings"],
        json!({"flash-attn": "on"})
    );
    assert_eq!(
        result["stale_profile"]["reproduced"], true,
        "{}",
        result["stale_profile"]
    );
    let plan = prepare(&request(&desk), &desk.ports).unwrap();
    assert_eq!(plan.profile.unwrap().id, 2, "the new one, without a word");
    assert_eq!(plan.notices, []);
    // Back on the first machine the first profile is fresh again.
    desk.moves_to("none");
    let plan = prepare(&request(&desk), &desk.ports).unwrap();
    assert_eq!(plan.profile.unwrap().id, 1);
}

#[test]
fn a_session_is_not_resumed_on_another_machine() {
    let mut desk = Desk::new(|asked| {
        asked.cancel.cancel(flux::ports::CancelMode::AfterSample);
        Answer::Valid
    });
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    assert!(matches!(finished(&events, job), Outcome::Cancelled { .. }));
    desk.moves_to("rtx-4070");
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(Some(1))).unwrap();
    let Outcome::Failed { error } = finished(&events, job) else {
        panic!("resumed")
    };
    assert_eq!(error.code, "fingerprint-changed");
    assert!(error.headline.contains("CPU"), "{}", error.headline);
    let end = desk.store.session(1).unwrap().unwrap().end.unwrap();
    assert_eq!(
        end.state,
        flux::ports::SessionState::Cancelled,
        "left as it was"
    );
}

/// The same search, left unsaved.
fn unsaved(desk: &Desk) -> Command {
    let Command::Tune(mut request) = desk.tune(None) else {
        panic!("no search")
    };
    request.save = false;
    Command::Tune(request)
}

#[test]
fn a_winner_left_unsaved_is_saved_later_exactly_as_a_search_saves_it() {
    let (saving, saved) = tuned();
    let desk = Desk::new(|_| Answer::Valid);
    let result = ended(&desk, unsaved(&desk));
    assert_eq!(result["saveable"], true);
    assert!(result["profile"].is_null() && saved.get("saveable").is_none());
    assert_eq!(desk.store.profiles().unwrap(), []);
    let document: TuneDocument = serde_json::from_value(result.clone()).unwrap();
    assert_eq!(json!(document), result, "nothing is lost in reading");
    assert!(document.sentence().starts_with("Flash attention on: +"));
    assert!(document.judgement().ends_with(" · not saved yet"));

    let profile = save_profile(1, &desk.ports, &CancelToken::new()).unwrap();
    assert_eq!(
        desk.store.profiles().unwrap(),
        std::slice::from_ref(&profile)
    );
    let usual = &saving.store.profiles().unwrap()[0];
    assert_eq!(profile.settings, usual.settings);
    assert_eq!(
        (&profile.bench, &profile.server),
        (&usual.bench, &usual.server)
    );
    let stored = desk.store.session(1).unwrap().unwrap().end.unwrap().result;
    assert_eq!(stored["profile"], saved["profile"]);
    assert!(stored.get("saveable").is_none());
    let plan = prepare(&request(&desk), &desk.ports).unwrap();
    assert_eq!(plan.explanation.len(), 1, "with its evidence");
    // Once is enough.
    assert_eq!(
        save_profile(1, &desk.ports, &CancelToken::new()).unwrap(),
        profile
    );
    assert_eq!(desk.store.profiles().unwrap().len(), 1);
}

#[test]
fn without_a_winner_nothing_can_be_saved() {
    let desk = Desk::new(|asked| {
        asked.cancel.cancel(flux::ports::CancelMode::AfterSample);
        Answer::Valid
    });
    let error = save_profile(1, &desk.ports, &CancelToken::new()).unwrap_err();
    assert_eq!(error.headline, "no session 1 here");
    let (mut engine, events) = desk.engine();
    let job = engine.submit(unsaved(&desk)).unwrap();
    assert!(matches!(finished(&events, job), Outcome::Cancelled { .. }));
    let error = save_profile(1, &desk.ports, &CancelToken::new()).unwrap_err();
    assert_eq!(error.code, "no-winner");
    assert_eq!(desk.store.profiles().unwrap(), []);
}

#[test]
fn a_request_stored_by_an_older_flux_is_one_that_saves() {
    let mut stored = json!(TuneRequest::new("a.gguf".into()));
    stored.as_object_mut().unwrap().remove("save");
    let read: TuneRequest = serde_json::from_value(stored).unwrap();
    assert!(read.save);
}

#[test]
fn an_export_into_a_file_is_said_as_a_document() {
    let (desk, _) = tuned();
    let file = desk.bed.fake.scratch().join("session.json");
    let mut export = desk.bed.flux(&["export", "1", "--json", "-o"]);
    let said = flux_cli::document(export.arg(&file));
    assert_eq!(said, json!({"schema": 1, "written": file}));
    let written: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let read = flux::engine::evidence::evidence(1, &desk.ports).unwrap();
    assert_eq!(written, json!(read));
}
