//! What Flux starts on Windows ends with it: Job Objects, looked at from outside.
#![cfg(all(windows, feature = "test-support"))]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;

use std::path::Path;
use std::process::{Command, Stdio};

use flux::domain::types::{FailureClass, RunOutcome};
use flux::ports::{CancelMode, CancelToken, Runner as _};
use flux::runtime::process::guard_children;

use bench_runs::{alive, failed_as, request, run, runner, wait_until};
use fake_runtime::FakeRuntime;

#[test]
fn a_cancelled_run_leaves_nobody() {
    let fake = FakeRuntime::new("sleep_ms_per_rep = 60000\n");
    let cancel = CancelToken::new();
    let run = runner().run(&request(&fake), &cancel, &mut |_| {
        assert_eq!(alive(&fake).len(), 1);
        cancel.cancel(CancelMode::Now);
    });
    assert_eq!(run.outcome, RunOutcome::Cancelled);
    wait_until("the child is gone", || alive(&fake).is_empty());
}

#[test]
fn a_grandchild_goes_with_its_parent() {
    for then in ["\"hang\"", "{ exit = 0 }"] {
        let script = format!("[[behaviour]]\ndo = \"grandchild\"\n[[behaviour]]\ndo = {then}\n");
        let fake = FakeRuntime::new(&script);
        let mut request = request(&fake);
        request.time_limit_secs = 2.0;
        let run = run(&request);
        if then == "\"hang\"" {
            failed_as(&run, FailureClass::TimedOut);
        }
        wait_until("the grandchild is gone", || alive(&fake).is_empty());
    }
}

/// Started again as a Flux of its own, which the test then kills: with a child in a job and one that is in none but Flux's.
#[test]
fn a_killed_flux_takes_its_children_along() {
    const INNER: &str = "FLUX_TEST_INNER_PROGRAM";
    if let Some(program) = std::env::var_os(INNER) {
        guard_children(Path::new(""));
        let mut other = Command::new(program).arg("--sleep").spawn().unwrap();
        let fake = FakeRuntime::new("");
        let mut request = request(&fake);
        request.runtime.bench = std::env::var_os(INNER).map(Into::into);
        run(&request);
        other.wait().unwrap();
        return;
    }
    let fake = FakeRuntime::new("[[behaviour]]\ndo = \"hang\"\n");
    let mut inner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_flux_takes_its_children_along"])
        .env(INNER, fake.dir().join("llama-bench.exe"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("both children run", || alive(&fake).len() == 2);
    inner.kill().unwrap();
    inner.wait().unwrap();
    wait_until("both are gone", || alive(&fake).is_empty());
}
