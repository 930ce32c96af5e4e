//! What looking through a long history costs, against the bound of the desktop app: `cargo bench --bench history`.
//! It prints and asserts no time: a loaded machine is no bug.
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark stops at the first surprise"
)]
#![allow(clippy::print_stdout, reason = "it prints a table")]

#[path = "../support/long_history.rs"]
mod long_history;

use std::time::Instant;

use flux::ports::{SessionFilter, Store};
use flux::store::{Access, SqliteStore};
use long_history::Size;

/// Most a page may take, milliseconds: more is seen as a stutter.
const BOUND_MS: f64 = 50.0;

fn main() {
    // `cargo test --benches` and friends list a target's tests; there are none.
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    let size = Size {
        sessions: 5_000,
        runs: 25,
        samples: 8,
        last_runs: 80,
        last_log: 1_000_000,
    };
    let dir = tempfile::tempdir().unwrap();
    long_history::write(dir.path(), 11, &size);
    let megabytes = dir.path().join("flux.db").metadata().unwrap().len() / 1_000_000;
    let store = SqliteStore::open(dir.path(), Access::Look).unwrap();
    let all = SessionFilter::default();
    let found = store.find_sessions(&all).unwrap();
    println!(
        "{} sessions, {} samples, {megabytes} MB",
        found.total, found.samples
    );
    println!("{:<44} {:>9} {:>9}", "", "median", "bound");
    let search = |text: &str| SessionFilter {
        text: text.to_owned(),
        ..SessionFilter::default()
    };
    let (rare, common) = (search("#17 lfm2"), search("gemma generation ubatch=1024"));
    let pages = [
        ("first page", all),
        ("text, rare", rare),
        ("text, common", common),
    ];
    for (what, filter) in pages {
        line(what, || store.find_sessions(&filter).unwrap().lines.len());
    }
    let last = i64::from(size.sessions);
    line("a session of 80 runs, without output", || {
        assert!(store.session(last).unwrap().is_some());
        store.run_heads(last).unwrap().len()
    });
    line("the same with all output (80 MB)", || {
        store.runs(last).unwrap().len()
    });
}

/// A row: the median of seven.
fn line(what: &str, mut work: impl FnMut() -> usize) {
    let mut ms: Vec<f64> = (0..7)
        .map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    ms.sort_by(f64::total_cmp);
    println!("{what:<44} {:>6.1} ms {BOUND_MS:>6.0} ms", ms[3]);
}
