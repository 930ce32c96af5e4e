//! `flux serve-check --speculate` through the real binary on the simulated llama-server, whose guesses are good on code alone.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;

use flux::domain::types::{RunOutcome, Side};
use flux::ports::Store as _;
use serde_json::Value;

use bench_runs::alive;
use flux_cli::{Bed, document, refused};

/// Fast, with processes unlike enough for a spread.
const FAST: &str = "pp = 20000\ntg = 2000\nprocess_sd = 0.004\nrepetition_sd = 0.01\n";

fn text(bed: &Bed, args: &[&str]) -> String {
    let output = bed.flux(args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn code_and_prose_are_judged_apart_with_their_acceptance() {
    let bed = Bed::new(FAST);
    let found = document(&mut bed.serve_check(&["--speculate", "--processes", "4"]));
    let rows = found["live"]["speculation"].as_array().unwrap();
    let of = |row: &Value| {
        (
            row["kind"].as_str().unwrap().to_owned(),
            row["text"].as_str().unwrap().to_owned(),
        )
    };
    assert_eq!(
        rows.iter().map(of).collect::<Vec<_>>(),
        [("ngram-mod", "code"), ("ngram-mod", "prose")].map(|(k, t)| (k.to_owned(), t.to_owned()))
    );
    assert_eq!(rows[0]["verdict"], "improved", "{found}");
    assert_ne!(rows[1]["verdict"], "improved", "{found}");
    let change = rows[0]["comparison"]["change_pct"].as_f64().unwrap();
    assert!((45.0..55.0).contains(&change), "{change}");
    // A warm-up of one request and four servers of two, 64 tokens drafted in each: three quarters right in code, a quarter in
    // prose.
    let guesses = |row: &Value| {
        ["requests", "drafted", "accepted"].map(|n| row["acceptance"][n].as_u64().unwrap())
    };
    assert_eq!(guesses(&rows[0]), [9, 9 * 64, 9 * 48]);
    assert_eq!(guesses(&rows[1]), [9, 9 * 64, 9 * 16]);
    assert_eq!(
        found["reason"],
        "ngram-mod stays off: it helps with code alone"
    );
    assert_eq!(alive(&bed.fake), [0_u32; 0]);

    every_run_is_kept_with_its_text(&bed);
}

/// Both texts, arms told apart by their arguments, and the words everyone reads.
fn every_run_is_kept_with_its_text(bed: &Bed) {
    let mut prompts = Vec::new();
    for run in bed.store().runs(1).unwrap() {
        let RunOutcome::Valid { tests } = &run.run.outcome else {
            panic!("{run:?}")
        };
        let speculates = run
            .run
            .raw
            .argv
            .windows(2)
            .any(|w| w == ["--spec-type", "ngram-mod"]);
        assert_eq!(
            speculates,
            run.planned.side == Some(Side::B),
            "{:?}",
            run.run.raw.argv
        );
        prompts.push(tests[0].record["text"].as_str().unwrap().to_owned());
    }
    assert_eq!(
        prompts.len(),
        20,
        "two warm-ups and four servers per arm, for each text"
    );
    assert_eq!((&*prompts[9], &*prompts[10]), ("code", "prose"));
    for shown in [
        text(bed, &["show", "1"]),
        text(bed, &["report", "1", "-o", "-"]),
    ] {
        assert!(
            shown.contains("75 % of ")
                && shown.contains("25 % of ")
                && shown.contains("ngram-mod stays off"),
            "{shown}"
        );
    }
}

#[test]
fn a_draft_model_is_a_kind_of_its_own() {
    let bed = Bed::new(FAST);
    let draft = bed.model.display().to_string();
    let found = document(&mut bed.serve_check(&["--draft", &draft, "--processes", "3"]));
    assert_eq!(
        found["live"]["speculation"][0]["kind"], "draft-simple",
        "{found}"
    );
    let runs = bed.store().runs(1).unwrap();
    let argv = &runs[1].run.raw.argv;
    assert!(
        argv.windows(4)
            .any(|w| w == ["--spec-type", "draft-simple", "--model-draft", &*draft]),
        "{argv:?}"
    );
    let none = bed
        .serve_check(&["--draft", "/m/none.gguf"])
        .output()
        .unwrap();
    assert_eq!(refused(&none, 2), "there is no draft model: /m/none.gguf");
    let unknown = bed.serve_check(&["--speculate=magic"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn an_answer_said_again_is_no_speed() {
    let act = "[[behaviour]]\ndo = { server = \"replays\" }\n";
    let bed = Bed::new(&format!("{FAST}{act}"));
    let said = refused(
        &bed.serve_check(&["--speculate", "--processes", "4"])
            .output()
            .unwrap(),
        1,
    );
    assert!(
        said.contains("all 64 drafted tokens were accepted: the answer was known before"),
        "{said}"
    );
    assert_eq!(alive(&bed.fake), [0_u32; 0]);
}
