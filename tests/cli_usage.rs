//! The command line as a contract: exit status, streams, usage errors.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use assert_cmd::Command;
use predicates::prelude::PredicateBooleanExt as _;
use predicates::str::{contains, is_empty, starts_with};

fn flux(args: &[&str]) -> assert_cmd::assert::Assert {
    Command::cargo_bin("flux").unwrap().args(args).assert()
}

#[test]
fn wrong_usage_ends_with_2_and_says_so_on_stderr() {
    for args in [
        &["nonsense"][..],
        &["tune"],
        &["tune", "-m", "x", "--goal", "beauty"],
        &["tune", "-m", "x", "--reps", "0"],
        &["tune", "-m", "x", "--time-limit", "soon"],
        &["tune", "-m", "x", "--request", "1500"],
        &["tune", "-m", "x", "--processes", "2"],
        &["tune", "--resume", "1", "--goal", "prompt"],
        &["tune", "--resume", "1", "--only", "poll"],
        &["ab", "stock", "-m", "x"],
        &["compare", "only-one.jsonl"],
        &["runtime", "install", "--backend", "abacus"],
        &["export", "five"],
        &["export", "5", "--format", "xml"],
        &["model", "synth", "tiny"],
        &["history", "-n", "0"],
    ] {
        flux(args)
            .code(2)
            .stdout(is_empty())
            .stderr(contains("error: "));
    }
}

#[test]
fn help_and_version_are_results() {
    flux(&["--help"])
        .code(0)
        .stdout(contains("quickstart").and(contains("compare")))
        .stderr(is_empty());
    flux(&["--version"]).code(0).stdout(starts_with("flux "));
}

#[cfg(not(feature = "gui"))]
#[test]
fn flux_alone_says_that_the_app_is_not_built_in() {
    flux(&[]).code(2).stdout(is_empty()).stderr(starts_with(
        "error: the desktop app is not built into this binary",
    ));
}

#[test]
fn a_made_up_shape_is_a_usage_error_that_names_the_real_ones() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("m.gguf");
    flux(&[
        "--data-dir",
        data.path().to_str().unwrap(),
        "model",
        "synth",
        "gpt-9",
        "-o",
        file.to_str().unwrap(),
    ])
    .code(2)
    .stderr(contains("no such shape: gpt-9").and(contains("qwen3-4b")));
    assert!(!file.exists());
}
