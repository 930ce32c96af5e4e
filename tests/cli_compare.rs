//! `flux compare`: the JSON contract, the words, bad files, and a reader that goes away.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command as StdCommand, Stdio};

use assert_cmd::Command;
use predicates::prelude::PredicateBooleanExt as _;
use predicates::str::{contains, is_empty, starts_with};
use serde_json::{Value, json};

/// One llama-bench record per run, tg128, with these rates; whole nanoseconds.
fn jsonl(dir: &Path, name: &str, rates: &[f64]) -> PathBuf {
    let path = dir.join(name);
    let lines: Vec<String> = rates
        .iter()
        .map(|rate| {
            let ns = (128.0 * 1e9 / rate) as u64;
            json!({"build_commit": "abc", "build_number": 11149, "model_type": "test", "n_prompt": 0, "n_gen": 128,
                   "n_depth": 0, "samples_ns": [ns, ns], "samples_ts": [rate, rate], "avg_ns": ns, "avg_ts": rate})
            .to_string()
        })
        .collect();
    fs::write(&path, lines.join("\n")).unwrap();
    path
}

fn compare(base: &Path, cand: &Path, more: &[&str]) -> assert_cmd::assert::Assert {
    Command::cargo_bin("flux")
        .unwrap()
        .arg("compare")
        .args([base, cand])
        .args(more)
        .assert()
}

#[test]
fn the_document_has_the_contracts_keys_and_the_right_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let base = jsonl(dir.path(), "a.jsonl", &[10.0, 10.1, 9.9, 10.0]);
    let cand = jsonl(dir.path(), "b.jsonl", &[15.0, 15.1, 14.9, 15.0]);
    let output = compare(&base, &cand, &["--json"])
        .code(0)
        .stderr(is_empty())
        .get_output()
        .stdout
        .clone();
    let document: Value = serde_json::from_slice(&output).unwrap();
    assert_eq!(document["schema"], 1);
    let metric = &document["metrics"]["tg128"];
    for key in [
        "baseline",
        "candidate",
        "change_pct",
        "ci95_pct",
        "hedges_g",
        "t",
        "df",
        "p",
        "verdict",
        "reason",
    ] {
        assert!(!metric[key].is_null(), "{key}");
    }
    assert_eq!(metric["verdict"], "improved");
    assert_eq!(metric["baseline"]["n"], 4);
    // Means 10 and 15; both sample variances are 0.02 / 3, so t = 5 / sqrt(2 × 0.02 / 3 / 4) and df = 6.
    let close =
        |value: &Value, expected: f64| (value.as_f64().unwrap() / expected - 1.0).abs() < 1e-6;
    assert!(close(&metric["change_pct"], 50.0), "{metric}");
    assert!(
        close(&metric["t"], 5.0 / (2.0 * 0.02 / 3.0 / 4.0_f64).sqrt()),
        "{metric}"
    );
    assert!(close(&metric["df"], 6.0), "{metric}");
    assert!(
        close(
            &metric["baseline"]["cv_pct"],
            100.0 * (0.02_f64 / 3.0).sqrt() / 10.0
        ),
        "{metric}"
    );
}

#[test]
fn the_text_begins_with_the_verdict_and_a_regression_is_still_status_0() {
    let dir = tempfile::tempdir().unwrap();
    let base = jsonl(dir.path(), "a.jsonl", &[15.0, 15.1, 14.9, 15.0]);
    let cand = jsonl(dir.path(), "b.jsonl", &[10.0, 10.1, 9.9, 10.0]);
    compare(&base, &cand, &[])
        .code(0)
        .stdout(starts_with("tg128  Regressed: −33.3 % (95 % CI −"));
}

#[test]
fn one_run_against_four_is_inconclusive() {
    let dir = tempfile::tempdir().unwrap();
    let base = jsonl(dir.path(), "a.jsonl", &[10.0]);
    let cand = jsonl(dir.path(), "b.jsonl", &[15.0, 15.1, 14.9, 15.0]);
    compare(&base, &cand, &[])
        .code(0)
        .stdout(starts_with("tg128  Inconclusive: ").and(contains("1 run: at least 3 are needed")));
}

#[test]
fn bad_files_end_in_one_clear_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let good = jsonl(dir.path(), "a.jsonl", &[10.0, 10.1, 9.9]);
    let missing = dir.path().join("missing\u{1b}[31m.jsonl");
    let text = dir.path().join("notes.txt");
    fs::write(&text, "no record here").unwrap();
    compare(&good, &missing, &[])
        .code(1)
        .stdout(is_empty())
        .stderr(
            starts_with("error: cannot read ")
                .and(contains("missing\\u{1b}[31m.jsonl"))
                .and(contains("\u{1b}").not()),
        );
    compare(&good, &text, &[])
        .code(1)
        .stdout(is_empty())
        .stderr(starts_with("error: no llama-bench record in "));
    compare(&good, dir.path(), &["--json"])
        .code(1)
        .stdout(contains("\"headline\":\"cannot read "))
        .stderr(starts_with("error: cannot read "));
}

#[test]
fn files_without_a_common_test_are_an_error_that_names_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let base = jsonl(dir.path(), "a.jsonl", &[10.0, 10.1, 9.9]);
    let cand = dir.path().join("b.jsonl");
    let record = json!({"n_prompt": 512, "n_gen": 0, "n_depth": 0, "samples_ns": [1_000_000], "build_commit": "abc", "build_number": 1});
    fs::write(&cand, record.to_string()).unwrap();
    compare(&base, &cand, &[]).code(1).stderr(
        starts_with("error: no test is in both files\n")
            .and(contains("tg128 is in the baseline only")),
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let base = jsonl(dir.path(), "a.jsonl", &[10.0, 10.1, 9.9]);
    let mut child = StdCommand::new(env!("CARGO_BIN_EXE_flux"))
        .args(["compare", "--json"])
        .args([&base, &base])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.stderr.is_empty());
}

#[test]
fn nothing_is_written_to_a_data_folder() {
    let dir = tempfile::tempdir().unwrap();
    let base = jsonl(dir.path(), "a.jsonl", &[10.0, 10.1, 9.9]);
    let data = dir.path().join("data");
    compare(&base, &base, &["--data-dir", data.to_str().unwrap()]).code(0);
    assert!(!data.exists());
}

/// The verdict and interval that the fixtures' README states for the graphics queue on an H200.
#[test]
fn a_real_pair_gets_the_verdict_its_readme_states() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/h200");
    let (base, cand) = (
        fixtures.join("ab-vk-gq.A.jsonl"),
        fixtures.join("ab-vk-gq.B.jsonl"),
    );
    let output = compare(&base, &cand, &["--json"])
        .code(0)
        .get_output()
        .stdout
        .clone();
    let document: Value = serde_json::from_slice(&output).unwrap();
    let metric = &document["metrics"]["tg128"];
    let near = |value: &Value, expected: f64| (value.as_f64().unwrap() - expected).abs() < 0.006;
    assert!(near(&metric["change_pct"], -1.65), "{metric}");
    assert!(near(&metric["ci95_pct"][0], -4.30), "{metric}");
    assert!(near(&metric["ci95_pct"][1], 1.08), "{metric}");
    assert_eq!(metric["verdict"], "inconclusive");
    compare(&base, &cand, &[]).code(0).stdout(contains(
        "tg128  Inconclusive: −2 % (95 % CI −4 to +1), 4 + 4 runs",
    ));
}
