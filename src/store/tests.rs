//! What shows only from inside: the writing connection's promises, a disk that fills up, the query plan.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Transaction;
use rusqlite::trace::{TraceEvent, TraceEventCodes};

use crate::domain::types::{
    Fingerprint, PlannedRun, RawOutput, Run, RunOutcome, Settings, Stage, TestSamples, TestSpec,
    Timestamp,
};
use crate::ports::{NewSession, SessionFilter, Store};

use super::{Access, SqliteStore};

fn session() -> NewSession {
    serde_json::from_str(include_str!("../../tests/fixtures/store/session.json")).unwrap()
}

fn planned() -> PlannedRun {
    PlannedRun {
        stage: Stage::Baseline,
        side: None,
        settings: Settings::stock(),
        repetitions: 3,
        early_stop: None,
        log_buffers: false,
        clients: 1,
        purpose: "baseline 1 of 3".to_owned(),
    }
}

fn run(log_bytes: usize) -> Run {
    Run {
        started_at: Timestamp(1_764_374_400_000),
        wall_secs: 4.25,
        outcome: RunOutcome::Valid {
            tests: vec![TestSamples {
                test: TestSpec::generation(128),
                samples_ns: vec![1_280_000_000, 1_290_000_000],
                record: serde_json::json!({"n_gen": 128}),
                energy: None,
            }],
        },
        buffers: Vec::new(),
        raw: RawOutput {
            argv: vec!["llama-bench".to_owned()],
            env: BTreeMap::new(),
            stdout: String::new(),
            stderr: "x".repeat(log_bytes),
            exit_code: Some(0),
            signal: None,
        },
        telemetry: None,
    }
}

fn limit_pages(store: &SqliteStore, spare: i64) {
    let limit = move |tx: &Transaction| {
        let now: i64 = tx.pragma_query_value(None, "page_count", |row| row.get(0))?;
        let set = format!("PRAGMA max_page_count = {}", now + spare);
        tx.query_row(&set, [], |row| row.get::<_, i64>(0))
    };
    store.write(limit).unwrap();
}

#[test]
fn a_commit_is_on_the_medium_before_it_returns() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), Access::Measure).unwrap();
    let ask = |tx: &Transaction, pragma| tx.pragma_query_value(None, pragma, |row| row.get(0));
    let (mode, synchronous, keys): (String, i64, bool) = store
        .write(move |tx| {
            let mode = tx.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
            Ok((mode, ask(tx, "synchronous")?, ask(tx, "foreign_keys")? == 1))
        })
        .unwrap();
    // sqlite.org/pragma.html: synchronous 2 is FULL, which syncs the log at every commit.
    assert_eq!((mode.as_str(), synchronous, keys), ("wal", 2, true));
}

#[test]
fn a_full_disk_is_one_sentence_and_stores_nothing_half() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), Access::Measure).unwrap();
    let id = store.begin_session(&session()).unwrap();
    store.append_run(id, 0, &planned(), &run(10)).unwrap();

    limit_pages(&store, 4);
    let error = store
        .append_run(id, 1, &planned(), &run(1_000_000))
        .unwrap_err();
    let path = dir.path().join("flux.db");
    assert_eq!(
        error.headline,
        format!(
            "the disk is full, nothing more was stored: {}",
            path.display()
        )
    );
    assert_eq!(error.hint.as_deref(), Some("free space there"));
    let kept = store.runs(id).unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].run, run(10));

    limit_pages(&store, 1_000_000);
    store
        .append_run(id, 1, &planned(), &run(1_000_000))
        .unwrap();
    assert_eq!(store.runs(id).unwrap()[1].run, run(1_000_000));
}

#[test]
fn a_database_that_cannot_be_written_still_answers() {
    let dir = tempfile::tempdir().unwrap();
    // No file of Windows has a question mark in its name.
    let asks = if cfg!(windows) { "" } else { "?" };
    let path = dir.path().join(format!("it's 100% #2{asks} ж.db"));
    let seen = Fingerprint {
        hash: "ab".repeat(32),
        fields: vec![("gpu".to_owned(), "1002:6fdf".to_owned())],
    };
    {
        let store = SqliteStore::open(dir.path(), Access::Measure).unwrap();
        store.remember_scan(Timestamp(1), &seen).unwrap();
    }
    std::fs::rename(dir.path().join("flux.db"), &path).unwrap();
    let reader = super::open::unchanging(&path).unwrap_or_else(|_| panic!("does not open"));
    assert_eq!(super::read::last_scan(&reader).unwrap(), Some(seen));
    let write = reader.execute("DELETE FROM scans", []).unwrap_err();
    assert_eq!(
        write.sqlite_error_code(),
        Some(rusqlite::ErrorCode::ReadOnly)
    );
}

#[test]
fn a_page_of_the_history_reads_no_table_from_end_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), Access::Measure).unwrap();
    let plan = |connection: &rusqlite::Connection| {
        let explain = format!("EXPLAIN QUERY PLAN {}", super::history::IN_BRIEF);
        let mut statement = connection.prepare(&explain)?;
        let steps = statement.query_map([None::<i64>; 6], |row| row.get::<_, String>(3))?;
        steps.collect::<rusqlite::Result<Vec<_>>>()
    };
    let steps = store.read(plan).unwrap();
    let of_table = |s: &&String| s.starts_with("SCAN") && !s.contains("subquery");
    let scans: Vec<_> = steps.iter().filter(of_table).collect();
    // Sessions are walked in brief, newest first, and marks by session; all else is found by key.
    assert_eq!(
        scans,
        [
            "SCAN s USING COVERING INDEX sessions_in_brief",
            "SCAN session_marks USING COVERING INDEX session_marks_by_session",
        ],
        "{steps:#?}"
    );
    assert!(
        !steps.iter().any(|s| s.contains("TEMP B-TREE")),
        "{steps:#?}"
    );
}

thread_local! {
    static ASKED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape of a trace callback"
)]
fn note(event: TraceEvent) {
    if let TraceEvent::Stmt(_, sql) = event {
        ASKED.with_borrow_mut(|asked| asked.insert(sql.to_owned()));
    }
}

/// All that a store can be asked, once.
fn ask_everything(store: &SqliteStore, id: i64) {
    let (from, to) = (Timestamp(0), Timestamp(i64::MAX));
    store.last_scan().unwrap();
    store.find_sessions(&SessionFilter::default()).unwrap();
    store.session(id).unwrap();
    store.config(id).unwrap();
    store.runs(id).unwrap();
    store.run_heads(id).unwrap();
    store.run_heads_with(id, "placement").unwrap();
    store.raw(1).unwrap();
    store.telemetry(id, from, to).unwrap();
    store.telemetry_span(id).unwrap();
    store.telemetry_window(id, from, to, 100).unwrap();
    store.notices(id).unwrap();
    store.verdicts(id).unwrap();
    store.profiles().unwrap();
    store.measured_with().unwrap();
    store.imports(Some("ab")).unwrap();
    store.fingerprint("ab").unwrap();
    store.introductions(1).unwrap();
    store.confirmation_of(1).unwrap();
    store.bandwidth("ab").unwrap();
    store.placements("ab", None).unwrap();
    store.placements("ab", Some("cd")).unwrap();
    store.fits("ab").unwrap();
    store.holdings().unwrap();
    store.erasable(to).unwrap();
}

/// What may be walked through has a row per session, profile, import or sensor, or is an index of few bytes a row. Runs, tests,
/// samples, outputs and readings are found by key alone: the plans do not depend on how many there are.
#[test]
fn no_question_reads_runs_or_samples_from_end_to_end() {
    const WALKED: [&str; 14] = [
        "CONSTANT ROW",
        "json_each VIRTUAL TABLE",
        "s",
        "m",
        "p",
        "f",
        "sessions",
        "session_marks",
        "session_totals",
        "profiles",
        "imports",
        "telemetry_series",
        "telemetry_blocks USING COVERING INDEX",
        "telemetry USING COVERING INDEX",
    ];
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), Access::Measure).unwrap();
    let id = store.begin_session(&session()).unwrap();
    store.append_run(id, 0, &planned(), &run(10)).unwrap();
    let reader = store.reader.lock().unwrap();
    reader.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(note));
    drop(reader);
    ask_everything(&store, id);
    let asked = ASKED.take();
    let reader = store.reader.lock().unwrap();
    let mut looked = 0;
    for sql in asked.iter().filter(|sql| sql.starts_with("SELECT")) {
        let mut plan = reader
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        let mut steps = plan.raw_query();
        while let Some(step) = steps.next().unwrap() {
            let step: String = step.get(3).unwrap();
            let Some(scanned) = step.strip_prefix("SCAN ") else {
                continue;
            };
            let is = |known: &&str| {
                let rest = scanned.strip_prefix(*known);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            };
            let known = scanned.starts_with('(') || WALKED.iter().any(is);
            assert!(known, "{step}: {sql}");
        }
        looked += 1;
    }
    assert!(looked >= 30, "{asked:#?}");
}

#[test]
fn a_write_that_panics_is_rolled_back_and_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), Access::Measure).unwrap();
    let panicked = store.write(|tx| -> rusqlite::Result<()> {
        super::write::session(tx, &session())?;
        std::panic::resume_unwind(Box::new("on purpose"))
    });
    let place = dir.path().join("flux.db");
    let expected = format!(
        "Flux hit a bug while it stored something, which was not stored: {}",
        place.display()
    );
    assert_eq!(panicked.unwrap_err().headline, expected);
    assert_eq!(store.begin_session(&session()).unwrap(), 1);
    assert_eq!(store.sessions(9).unwrap().len(), 1);
}
