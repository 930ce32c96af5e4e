//! The output check before a profile is saved (case C42), through the real binary on the simulated llama-server.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;
#[path = "support/scripted_engine.rs"]
mod scripted_engine;

use flux::engine::message::{Command, EventKind, Outcome, TuneRequest};
use flux::engine::tune::save_profile;
use flux::ports::{CancelToken, SessionEnd, Store as _};
use serde_json::Value;

use bench_runs::alive;
use flux_cli::{Bed, FLASH_WINS, document};
use scripted_engine::Desk;

/// Fast, so that nothing waits.
const FAST: &str = "pp = 20000\ntg = 2000\n";
const WITH_FLASH: &str = "[\"flash_attn=1\"]";

/// A runtime in which flash attention is faster, and its server does this with it.
fn script(act: &str, when: &str) -> String {
    format!("{FAST}{FLASH_WINS}[[behaviour]]\ndo = {{ server = {act} }}\nwhen = {when}\n")
}

/// A search on it, its document, and what it kept.
fn searched(act: &str, when: &str) -> (Bed, Value) {
    let bed = Bed::new(&script(act, when));
    let found = document(&mut bed.tune(&["--only", "flash-attn", "--processes", "4"]));
    assert_eq!(found["verdict"], "improved", "{found}");
    assert_eq!(alive(&bed.fake), [0_u32; 0]);
    let saved = bed.store().profiles().unwrap().len();
    assert_eq!(usize::from(!found["profile"].is_null()), saved, "{found}");
    (bed, found)
}

fn text(bed: &Bed, args: &[&str]) -> String {
    let output = bed.flux(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn c42_fast_garbage_is_not_saved_and_everyone_is_told() {
    let (bed, found) = searched("\"nonsense\"", WITH_FLASH);
    assert_eq!(found["profile"], Value::Null);
    assert_eq!(found["saveable"], Value::Null, "nor later");
    assert_eq!(found["output"]["status"], "differs");
    let answers = found["output"]["answers"].as_array().unwrap();
    assert_eq!(answers.len(), 6, "three prompts, the second time warm");
    assert_eq!(answers[0]["parting"]["token"], 1);
    let said = "faster, but the output differs: not saved (log-probabilities differ by ";
    let notices = bed.store().notices(1).unwrap();
    let kept = notices.iter().find(|n| n.code == "output-check").unwrap();
    assert!(kept.text.starts_with(said), "{kept:?}");
    for shown in [
        text(&bed, &["show", "1"]),
        text(&bed, &["report", "1", "-o", "-"]),
        text(&bed, &["export", "1"]),
    ] {
        assert!(shown.contains("faster, but the output differs"), "{shown}");
    }
}

#[test]
fn rounding_and_near_ties_are_no_difference() {
    let (_, found) = searched("\"rounds\"", WITH_FLASH);
    assert_eq!(
        (&found["output"]["status"], &found["profile"]["id"]),
        (&"same".into(), &1.into())
    );
    let mean = found["output"]["mean"].as_f64().unwrap();
    assert!((0.005..0.02).contains(&mean), "{found}");
    let (_, found) = searched("\"takes-the-other\"", WITH_FLASH);
    assert_eq!(
        (&found["output"]["status"], &found["profile"]["id"]),
        (&"same".into(), &1.into())
    );
    let parting = &found["output"]["answers"][0]["parting"];
    assert_eq!(parting["token"], 6, "{found}");
    assert!(
        (parting["gap"].as_f64().unwrap() - 0.05).abs() < 1e-9,
        "{found}"
    );
    assert!(
        found["output"]["reason"]
            .as_str()
            .unwrap()
            .contains("goes another way at token 6")
    );
}

#[test]
fn what_is_wrong_only_in_a_warm_server_is_found() {
    let (_, found) = searched("\"nonsense-when-warm\"", WITH_FLASH);
    assert_eq!(found["output"]["status"], "differs");
    let of = |warm: bool| {
        let answers = found["output"]["answers"].as_array().unwrap().iter();
        answers
            .filter(move |a| a["warm"] == warm)
            .map(|a| a["largest"].as_f64().unwrap())
    };
    assert!(
        of(false).all(|d| d < 1e-9) && of(true).all(|d| d > 1.5),
        "{found}"
    );
}

#[test]
fn a_coarse_answer_without_a_smaller_cache_is_a_mismatch() {
    assert_eq!(
        searched("\"coarse\"", WITH_FLASH).1["output"]["status"],
        "differs"
    );
}

#[test]
fn what_no_server_runs_is_not_saved() {
    let reason = |act: &str| {
        let (_, found) = searched(act, WITH_FLASH);
        assert_eq!(
            (&found["output"]["status"], &found["profile"]),
            (&"not-served".into(), &Value::Null)
        );
        found["output"]["reason"].as_str().unwrap().to_owned()
    };
    let other = reason("{ model = \"/m/other.gguf\" }");
    assert!(
        other.contains("llama-server does not answer with these settings")
            && other.contains("/m/other.gguf"),
        "{other}"
    );
    let lost = reason("\"dies\"");
    assert!(lost.contains("device lost"), "{lost}");
    assert!(reason("\"not-numbers\"").contains("no log-probabilities that are numbers"));
}

#[test]
fn where_stock_says_nothing_the_winner_is_saved_with_a_notice() {
    let (bed, found) = searched("\"not-numbers\"", "[\"!flash_attn=1\"]");
    assert_eq!(
        (&found["output"]["status"], &found["profile"]["id"]),
        (&"skipped".into(), &1.into())
    );
    let notices = bed.store().notices(1).unwrap();
    let kept = notices.iter().find(|n| n.code == "output-check").unwrap();
    assert!(
        kept.text
            .starts_with("the output was not compared with stock's: stock does not answer"),
        "{kept:?}"
    );
}

#[test]
fn a_build_without_a_server_saves_with_a_notice() {
    let bed = Bed::new(&format!("{FAST}{FLASH_WINS}"));
    std::fs::remove_file(bed.fake.dir().join("llama-server")).unwrap();
    let found = document(&mut bed.tune(&["--only", "flash-attn", "--processes", "4"]));
    assert_eq!(
        (&found["output"]["status"], &found["profile"]["id"]),
        (&"skipped".into(), &1.into())
    );
    assert!(
        found["output"]["reason"]
            .as_str()
            .unwrap()
            .ends_with("this build has no llama-server")
    );
}

/// What stops stock too says nothing of the winner: tokenizers without merges read prompts of one token per byte, and both
/// servers refused them.
#[test]
fn what_neither_answers_is_not_the_winners_fault() {
    let (_, found) = searched("\"not-numbers\"", "[]");
    assert_eq!(
        (&found["output"]["status"], &found["profile"]["id"]),
        (&"skipped".into(), &1.into())
    );
}

/// A search whose winner is to be saved later, as the app asks for it; the document, and the desk.
fn unsaved(act: &str) -> (Desk, Value) {
    let desk = Desk::running(&script(act, WITH_FLASH));
    let (mut engine, events) = desk.engine();
    let Command::Tune(request) = desk.tune(None) else {
        unreachable!()
    };
    let request = TuneRequest {
        save: false,
        ..request
    };
    engine.submit(Command::Tune(request)).unwrap();
    let mut stages = Vec::new();
    loop {
        match events
            .recv_timeout(std::time::Duration::from_mins(1))
            .unwrap()
            .kind
        {
            EventKind::Stage { name } => stages.push(name),
            EventKind::Finished(Outcome::Done { result }) => {
                assert_eq!(
                    stages.last().unwrap(),
                    "output check",
                    "announced: {stages:?}"
                );
                return (desk, result);
            }
            EventKind::Finished(other) => panic!("{other:?}"),
            _ => {}
        }
    }
}

#[test]
fn saving_later_goes_by_the_check_that_was_made() {
    let (desk, found) = unsaved("\"rounds\"");
    assert_eq!(
        (&found["saveable"], &found["output"]["status"]),
        (&true.into(), &"same".into())
    );
    let processes = desk.bed.fake.processes();
    assert_eq!(
        save_profile(1, &desk.ports, &CancelToken::new())
            .unwrap()
            .id,
        1
    );
    assert_eq!(desk.bed.fake.processes(), processes, "nothing runs again");

    let (desk, found) = unsaved("\"nonsense\"");
    assert_eq!(
        (&found["saveable"], &found["output"]["status"]),
        (&Value::Null, &"differs".into())
    );
    let refused = save_profile(1, &desk.ports, &CancelToken::new()).unwrap_err();
    assert_eq!(refused.code, "output-differs");
    assert!(
        refused
            .headline
            .starts_with("faster, but the output differs: not saved")
    );
    assert_eq!(desk.store.profiles().unwrap(), []);
}

#[test]
fn a_session_of_before_the_check_is_checked_when_it_is_saved() {
    let (desk, _) = unsaved("\"nonsense\"");
    let mut end: SessionEnd = desk.store.session(1).unwrap().unwrap().end.unwrap();
    let result = end.result.as_object_mut().unwrap();
    result.remove("output");
    result.insert("saveable".to_owned(), true.into());
    desk.store.end_session(1, &end).unwrap();
    let refused = save_profile(1, &desk.ports, &CancelToken::new()).unwrap_err();
    assert_eq!(refused.code, "output-differs");
    assert_eq!(desk.store.profiles().unwrap(), []);
    let kept = desk.store.session(1).unwrap().unwrap().end.unwrap().result;
    assert_eq!(
        (&kept["output"]["status"], &kept["saveable"]),
        (&"differs".into(), &Value::Null)
    );
}
