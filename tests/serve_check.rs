//! `flux serve-check` and measuring without llama-bench through the real binary, on the simulated llama-server.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use flux::domain::types::{FailureClass, RunOutcome, Side, TestSpec};
use flux::ports::{CancelToken, Runner as _, SessionKind, Store as _};
use flux::runtime::server::ServerRunner;
use serde_json::Value;

use bench_runs::{RealClock, alive, request, wait_until};
use fake_runtime::FakeRuntime;
use flux_cli::{Bed, FLASH_WINS, document, refused};

/// Fast enough for many requests, slow enough for the clock.
const FAST: &str = "pp = 20000\ntg = 2000\n";
/// The smallest check that can be judged.
const SMALL: &[&str] = &[
    "--prompt-tokens",
    "64",
    "--gen-tokens",
    "32",
    "--reps",
    "2",
    "--processes",
    "4",
];

fn check(bed: &Bed, args: &[&str]) -> Command {
    let mut command = bed.flux(&["serve-check", "--json", "--runtime"]);
    command.arg(bed.fake.dir()).arg("-m").arg(&bed.model);
    let is_set = |flag: &&[&str]| !args.contains(&flag[0]);
    let small = SMALL.chunks(2).filter(is_set).flatten();
    command.args(small).args(args);
    command
}

fn text(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn without_tokenizer(bed: &Bed) {
    let mut bytes = fs::read(&bed.model).unwrap();
    let key = b"tokenizer.ggml.tokens";
    let at = bytes.windows(key.len()).position(|w| w == key).unwrap();
    bytes[at + key.len() - 1] = b'z';
    fs::write(&bed.model, bytes).unwrap();
}

/// llama-server aborts at its first request.
#[test]
fn a_model_without_a_tokenizer_is_refused_before_a_server_starts() {
    let bed = Bed::new(FAST);
    without_tokenizer(&bed);
    let output = check(&bed, &["--settings", "flash-attn=on"])
        .output()
        .unwrap();
    let error = refused(&output, 1);
    assert!(error.contains("the model has no tokenizer"), "{error}");
    assert!(bed.store().session(1).unwrap().is_none());
}

#[test]
fn settings_are_confirmed_against_stock_in_fresh_servers_with_new_prompts() {
    let bed = Bed::new(&format!("{FAST}{FLASH_WINS}"));
    let found = document(&mut check(&bed, &["--settings", "flash-attn=on"]));
    assert_eq!(found["verdict"], "improved", "{found}");
    assert_eq!(
        (&found["a"]["arm"], &found["b"]["arm"]),
        (&"stock".into(), &"flash-attn=on".into())
    );
    assert_eq!(found["primary"], "tg32 @ d64");
    let metrics = found["confirmation"]["metrics"].as_object().unwrap();
    let labels: Vec<&String> = metrics.keys().collect();
    assert_eq!(labels, ["first token", "pp64", "request", "tg32 @ d64"]);
    let change = metrics["tg32 @ d64"]["change_pct"].as_f64().unwrap();
    assert!((28.0..32.0).contains(&change), "{change}");
    // 64 tokens at 20,000 and 32 at 2,000 tokens per second: 3.2 and 19.2 ms at least, by the client's clock.
    let per_sec = |label: &str| metrics[label]["baseline"]["mean"].as_f64().unwrap();
    assert!((1.0..313.0).contains(&per_sec("first token")), "{found}");
    assert!((1.0..53.0).contains(&per_sec("request")), "{found}");
    assert_eq!(found["live"]["prompt_tokens"], 64);

    let store = bed.store();
    let session = store.session(1).unwrap().unwrap();
    assert_eq!(session.begun.kind, SessionKind::ServeCheck);
    let runs = store.runs(1).unwrap();
    let letter = |side| if side == Some(Side::A) { 'A' } else { 'B' };
    let sides: String = runs.iter().map(|r| letter(r.planned.side)).collect();
    assert_eq!(sides, "ABABBABAAB", "two warm-ups, then interleaved");
    for run in &runs {
        let RunOutcome::Valid { tests } = &run.run.outcome else {
            panic!("{run:?}")
        };
        assert_eq!(tests.len(), 4);
        for asked in tests[0].record["requests"].as_array().unwrap() {
            assert_eq!(
                (&asked["cache_n"], &asked["prompt_n"]),
                (&0.into(), &64.into())
            );
        }
    }
    assert_eq!(alive(&bed.fake), [0_u32; 0]);
    let shown = text(&mut bed.flux(&["show", "1"]));
    assert!(
        shown.contains("first token") && shown.contains("The time itself"),
        "{shown}"
    );
    assert!(text(&mut bed.flux(&["history"])).contains("serve-check"));
    let report = text(&mut bed.flux(&["report", "1", "-o", "-"]));
    assert!(report.contains("first token"), "{report}");
    let csv = text(&mut bed.flux(&["export", "1", "--format", "csv"]));
    assert!(csv.contains("tg32 @ d64"), "{csv}");
}

#[test]
fn the_stored_profile_is_what_is_checked() {
    let bed = Bed::new(&format!("{FAST}{FLASH_WINS}"));
    let output = check(&bed, &[]).output().unwrap();
    assert_eq!(
        refused(&output, 1),
        "this model has no profile on this machine that could be checked against stock"
    );
    let tuned = document(&mut bed.tune(&["--only", "flash-attn", "--processes", "4"]));
    assert_eq!(tuned["profile"]["id"], 1, "{tuned}");
    let found = document(&mut check(&bed, &[]));
    assert_eq!(found["b"]["arm"], "profile 1");
    assert_eq!(found["b"]["settings"]["flash-attn"], "on");
    assert_eq!(
        (&found["verdict"], &found["live"]["profile"]),
        (&"improved".into(), &1.into())
    );
    let few = check(&bed, &["--gen-tokens", "31"]).output().unwrap();
    let usage = refused(&few, 2);
    assert!(
        usage.contains("31 generated tokens give no decode rate"),
        "{usage}"
    );
    let many = check(&bed, &["--prompt-tokens", "1000000"])
        .output()
        .unwrap();
    let usage = refused(&many, 2);
    assert!(usage.contains("and the model's context is "), "{usage}");
}

/// The outcome of the fourth process, the second that counts, where the server does this in it.
fn spoiled(act: &str) -> (FailureClass, Value) {
    let act = format!("[[behaviour]]\ndo = {{ server = \"{act}\" }}\nprocess = 4\n");
    let bed = Bed::new(&format!("{FAST}{FLASH_WINS}{act}"));
    let found = document(&mut check(&bed, &["--settings", "flash-attn=on"]));
    assert_eq!(alive(&bed.fake), [0_u32; 0], "{act}");
    let runs = bed.store().runs(1).unwrap();
    for run in runs.iter().filter(|r| r.seq != 3) {
        assert!(
            matches!(run.run.outcome, RunOutcome::Valid { .. }),
            "{run:?}"
        );
    }
    let RunOutcome::Failed { failure, .. } = &runs[3].run.outcome else {
        panic!("{act}: {:?}", runs[3])
    };
    let failed = &found["confirmation"]["failures"];
    assert_eq!(failed.as_array().unwrap().len(), 1, "{found}");
    (failure.class, found)
}

#[test]
fn c09_what_is_no_sample_is_a_failed_run_and_the_others_count() {
    assert_eq!(spoiled("one-token").0, FailureClass::TooFewTokens);
    let (class, found) = spoiled("caches");
    assert_eq!(class, FailureClass::PromptFromCache);
    let counted = &found["confirmation"]["metrics"]["tg32 @ d64"];
    assert_eq!(
        (&counted["baseline"]["n"], &counted["candidate"]["n"]),
        (&4.into(), &3.into())
    );
}

#[test]
fn a_server_that_fails_leaves_no_sample_and_no_process() {
    assert_eq!(spoiled("hangs-up").0, FailureClass::AnswerBroken);
    assert_eq!(spoiled("garbage").0, FailureClass::AnswerUnreadable);
    assert_eq!(spoiled("switches").0, FailureClass::AnotherServer);
    assert_eq!(spoiled("refuses").0, FailureClass::RequestRefused);
    // After a lost device one more run shows that it came back.
    let (class, found) = spoiled("dies");
    assert_eq!(class, FailureClass::DeviceLostTimeout);
    assert_eq!(found["verdict"], "improved", "{found}");
}

#[test]
fn c07_an_arm_whose_server_never_answers_right_is_not_checked() {
    let act = "[[behaviour]]\ndo = { server = { model = \"/m/other.gguf\" } }\nwhen = [\"flash_attn=1\"]\n";
    let bed = Bed::new(&format!("{FAST}{act}"));
    let output = check(&bed, &["--settings", "flash-attn=on"])
        .output()
        .unwrap();
    let said = refused(&output, 1);
    assert!(said.contains("its model is /m/other.gguf"), "{said}");
    assert_eq!(alive(&bed.fake), [0_u32; 0]);
}

/// Stops a check whose third server does this, and looks at what is left.
fn stopped_while(act: &str) {
    let act = format!("[[behaviour]]\ndo = {{ server = \"{act}\" }}\nprocess = 3\n");
    let bed = Bed::new(&format!("{FAST}{act}"));
    let mut child = check(&bed, &["--settings", "flash-attn=on"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the third server hangs", || bed.fake.processes() == 3);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{act}");
    wait_until("the server ended", || alive(&bed.fake).is_empty());
    let kept = bed.store().runs(1).unwrap();
    assert_eq!(kept.len(), 2, "what was measured is kept");
}

#[test]
fn a_check_that_is_told_to_stop_ends_its_server_whatever_it_does() {
    stopped_while("stalls");
    stopped_while("hangs-loading");
}

#[test]
fn several_clients_share_a_server() {
    let bed = Bed::new("pp = 20000\ntg = 500\n");
    let args = [
        "--settings",
        "stock",
        "--clients",
        "2,1",
        "--processes",
        "3",
    ];
    let found = document(&mut check(&bed, &args));
    let rows = found["live"]["clients"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{found}");
    let mean = |row: usize, name: &str| rows[row][name]["mean"].as_f64().unwrap();
    assert_eq!(
        (&rows[0]["clients"], &rows[1]["clients"]),
        (&1.into(), &2.into())
    );
    // Two together get at most 1.33 times what one gets (the script), and never less for both than for one.
    assert!(mean(1, "total") > mean(0, "total"), "{found}");
    assert!(mean(1, "each") < mean(0, "each"), "{found}");
    assert_eq!(rows[1]["total"]["n"], 3);
    let order: Vec<u32> = bed
        .store()
        .runs(1)
        .unwrap()
        .iter()
        .map(|r| r.planned.clients)
        .collect();
    assert_eq!(
        order,
        [1, 1, 2, 2, 1, 1, 2],
        "a warm-up, then there and back"
    );
    let shown = text(&mut bed.flux(&["show", "1"]));
    assert!(shown.contains("t/s in all"), "{shown}");
    let report = text(&mut bed.flux(&["report", "1", "-o", "-"]));
    assert!(report.contains("t/s in all"), "{report}");
}

#[test]
fn a_build_without_llama_bench_is_tuned_through_its_server() {
    let bed = Bed::new(&format!("{FAST}{FLASH_WINS}"));
    std::fs::remove_file(bed.fake.dir().join("llama-bench")).unwrap();
    let args = [
        "--only",
        "flash-attn",
        "--processes",
        "4",
        "--prompt-tokens",
        "64",
        "--gen-tokens",
        "32",
    ];
    let found = document(&mut bed.tune(&args));
    assert_eq!(found["verdict"], "improved", "{found}");
    assert_eq!(found["primary"], "tg32");
    assert_eq!(found["profile"]["settings"]["flash-attn"], "on");
    let notices = bed.store().notices(1).unwrap();
    let told = notices.iter().find(|n| n.code == "through-server").unwrap();
    assert!(
        told.text
            .contains("has no llama-bench: it is measured by new prompts"),
        "{told:?}"
    );
    let run = &bed.store().runs(1).unwrap()[0];
    assert!(run.run.raw.argv[0].ends_with("llama-server"), "{run:?}");
    let RunOutcome::Valid { tests } = &run.run.outcome else {
        panic!("{run:?}")
    };
    assert_eq!(tests[0].record["source"], "llama-server");
}

/// A plan's benchmark likewise.
#[test]
fn a_build_without_llama_bench_measures_placements_through_its_server() {
    let bed = Bed::new(FAST);
    fs::remove_file(bed.fake.dir().join("llama-bench")).unwrap();
    bed.knows_bandwidths();
    let mut plan = bed.flux(&[
        "plan",
        "--bench",
        "--json",
        "--goal",
        "generation",
        "--runtime",
    ]);
    plan.arg(bed.fake.dir()).arg("-m").arg(&bed.model);
    plan.args([
        "--prompt-tokens",
        "64",
        "--gen-tokens",
        "32",
        "--processes",
        "3",
    ]);
    let found = document(&mut plan);
    assert!(found["bench"]["verdict"].is_string(), "{}", found["bench"]);
    assert!(!found["bench"]["placements"].as_array().unwrap().is_empty());
    let store = bed.store();
    let told = store.notices(1).unwrap();
    assert!(told.iter().any(|n| n.code == "through-server"));
    let runs = store.runs(1).unwrap();
    // Stock, a placement, and the confirmation of three servers per arm.
    assert!(runs.len() >= 8, "{}", runs.len());
    for run in runs {
        assert!(run.run.raw.argv[0].ends_with("llama-server"));
        assert!(matches!(run.run.outcome, RunOutcome::Valid { .. }));
    }
}

/// What neither llama-bench nor llama-server can be asked with.
#[test]
fn a_model_that_no_build_can_be_asked_with_begins_no_session() {
    let bed = Bed::new(FAST);
    without_tokenizer(&bed);
    fs::remove_file(bed.fake.dir().join("llama-bench")).unwrap();
    let error = refused(&bed.tune(&[]).output().unwrap(), 1);
    assert!(
        error.starts_with("the model has no tokenizer, so llama-server can answer nothing with it"),
        "{error}"
    );
    assert!(bed.store().session(1).unwrap().is_none());
}

#[test]
fn text_prompts_have_exactly_the_tokens_asked_for() {
    let fake = FakeRuntime::new(FAST);
    let mut asked = request(&fake);
    asked.tests = vec![
        TestSpec::prompt(200),
        TestSpec::generation(32).at_depth(200),
    ];
    let runner = ServerRunner::new(Arc::new(RealClock(Instant::now())));
    let run = runner.run(&asked, &CancelToken::new(), &mut |_| {});
    let RunOutcome::Valid { tests } = run.outcome else {
        panic!("{run:?}")
    };
    let requests = tests[0].record["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 3);
    for one in requests {
        assert_eq!(
            (&one["prompt_n"], &one["predicted_n"]),
            (&200.into(), &32.into())
        );
    }
    // A template longer than the prompt, and a test that one prompt cannot give.
    asked.tests = vec![TestSpec::prompt(2)];
    let class = |run: flux::domain::types::Run| match run.outcome {
        RunOutcome::Failed { failure, .. } => failure.class,
        other => panic!("{other:?}"),
    };
    let failed = runner.run(&asked, &CancelToken::new(), &mut |_| {});
    assert_eq!(class(failed), FailureClass::RequestRefused);
    asked.tests = vec![TestSpec::prompt(64).at_depth(64)];
    let failed = runner.run(&asked, &CancelToken::new(), &mut |_| {});
    assert_eq!(class(failed), FailureClass::InvalidArgument);
    assert_eq!(alive(&fake), [0_u32; 0]);
}

/// Decoding at no depth needs a short prompt, not one of a certain length.
#[test]
fn a_template_longer_than_a_short_prompt_makes_the_prompt_longer() {
    for (words, prompt) in [(0, 16), (40, 128), (300, 256)] {
        let fake = FakeRuntime::new(&format!("template_words = {words}\n{FAST}"));
        let mut asked = request(&fake);
        asked.tests = vec![TestSpec::generation(32)];
        let runner = ServerRunner::new(Arc::new(RealClock(Instant::now())));
        let run = runner.run(&asked, &CancelToken::new(), &mut |_| {});
        match run.outcome {
            RunOutcome::Valid { tests } => {
                let one = &tests[0].record["requests"][0];
                assert_eq!(one["prompt_n"], prompt);
            }
            RunOutcome::Failed { failure, .. } => {
                assert_eq!((words, failure.class), (300, FailureClass::RequestRefused));
            }
            other => panic!("{other:?}"),
        }
        // What the longest needs is there before it is known.
        let context = run.raw.argv.iter().position(|a| a == "-c").unwrap();
        assert_eq!(run.raw.argv[context + 1], "512");
    }
}
