//! The store: everything reads back as it was stored, nothing is changed, several may use it at once.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

mod damage;
mod history;
mod placements;
mod processes;
#[path = "../support/readings.rs"]
mod readings;
mod room;
mod sample;
mod telemetry;

use std::fs;
use std::path::Path;

use flux::domain::types::*;
use flux::ports::*;
use flux::store::{Access, SqliteStore};
use history::page;
use rusqlite::Connection;
use sample::*;
use serde_json::json;

#[test]
fn everything_reads_back_as_it_was_stored() {
    let dir = tempfile::tempdir().unwrap();
    // No file of Windows has a double quote in its name.
    let quoted = if cfg!(windows) { "data" } else { "\"data\"" };
    let folder = dir
        .path()
        .join(format!("it's a {quoted} folder %20 #2 – данные"));
    let ids = {
        let store = measuring(&folder);
        assert_eq!(store.opened().notices, []);
        let ids = fill(&store);
        assert_filled(&store, &ids);
        ids
    };
    assert!(
        !folder.join("flux.db-wal").exists(),
        "closed without a log left"
    );
    for access in [Access::Measure, Access::Look] {
        assert_filled(&SqliteStore::open(&folder, access).unwrap(), &ids);
    }
}

#[test]
fn an_empty_store_answers_with_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), Access::Look).unwrap();
    assert_eq!(store.opened().notices, []);
    assert_eq!(store.last_scan().unwrap(), None);
    assert_eq!(store.session(1).unwrap(), None);
    assert_eq!(store.confirmation_of(1).unwrap(), None);
    assert_eq!(store.fingerprint("ab").unwrap(), None);
    assert_eq!(store.sessions(10).unwrap(), []);
    assert_eq!(store.runs(1).unwrap(), []);
    assert_eq!(store.profiles().unwrap(), []);
    assert_eq!(store.introductions(1).unwrap(), []);
}

/// Session 2, which had ended, is open until it ends again; session 3, which had not, stays as it was.
fn goes_on(store: &SqliteStore) {
    let open = SessionFilter {
        standing: Some(Standing::Open),
        limit: 10,
        ..SessionFilter::default()
    };
    for had_ended in [true, false] {
        assert_eq!(store.resume_session(2, Timestamp(3)).unwrap(), had_ended);
        assert!(!store.resume_session(3, Timestamp(3)).unwrap());
        assert_eq!(store.session(2).unwrap().unwrap().end, None);
        let found = store.find_sessions(&open).unwrap().lines;
        for id in [2, 3] {
            let line = found.iter().find(|l| l.id == id).unwrap();
            assert_eq!((line.state, line.verdict), (None, None));
        }
    }
}

#[test]
fn the_newest_comes_first_and_a_resumed_session_ends_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    let mut begun = new_session();
    for (id, started) in [(1, 30), (2, 10), (3, 20)] {
        begun.started_at = Timestamp(started);
        begun.machine.host.ram_available = Bytes::gib(u64::try_from(started).unwrap());
        assert_eq!(store.begin_session(&begun).unwrap(), id);
    }
    store
        .append_run(2, 0, &planned(Stage::WarmUp, graphics_queue()), &valid(0))
        .unwrap();
    store
        .end_session(2, &end(1, SessionState::Cancelled, None))
        .unwrap();
    let line = |id| {
        let lines = store.sessions(10).unwrap();
        lines.into_iter().find(|l| l.id == id).unwrap()
    };
    assert_eq!(line(2).state, Some(SessionState::Cancelled));
    goes_on(&store);
    store
        .end_session(2, &end(2, SessionState::Done, Some(Verdict::Unchanged)))
        .unwrap();
    assert_eq!(line(2).state, Some(SessionState::Done));
    assert_eq!(line(2).verdict, Some(Verdict::Unchanged));
    assert_eq!((line(2).runs, line(3).runs, line(3).state), (1, 0, None));
    let ids: Vec<i64> = store.sessions(2).unwrap().iter().map(|l| l.id).collect();
    assert_eq!(ids, [3, 2]);
    let ram = store
        .session(2)
        .unwrap()
        .unwrap()
        .begun
        .machine
        .host
        .ram_available;
    assert_eq!(ram, Bytes::gib(10), "each session keeps its own readings");

    let verdict = store
        .append_verdict(2, &graphics_queue(), Verdict::Improved, &json!(null))
        .unwrap();
    let first = store.save_profile(&profile(2, verdict, 1)).unwrap();
    let second = store.save_profile(&profile(2, verdict, 1)).unwrap();
    let ids: Vec<i64> = store.profiles().unwrap().iter().map(|p| p.id).collect();
    assert_eq!(ids, [second, first]);

    let changed = Fingerprint {
        hash: "cd".repeat(32),
        fields: vec![("driver".to_owned(), "Mesa 25".to_owned())],
    };
    store
        .remember_scan(Timestamp(9), &begun.fingerprint)
        .unwrap();
    store.remember_scan(Timestamp(3), &changed).unwrap();
    assert_eq!(store.last_scan().unwrap(), Some(changed));
}

#[test]
fn an_entry_that_does_not_fit_is_refused_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    let plan = planned(Stage::Screening, graphics_queue());
    let place = dir.path().join("flux.db");
    let refused = format!("the database refused the entry: {}", place.display());
    let unknown = store.append_run(7, 0, &plan, &valid(0)).unwrap_err();
    assert_eq!(unknown.headline, refused);

    let session = store.begin_session(&new_session()).unwrap();
    let run = store.append_run(session, 0, &plan, &valid(0)).unwrap();
    let twice = store.append_run(session, 0, &plan, &valid(1)).unwrap_err();
    assert_eq!(twice.headline, refused);
    assert_eq!(
        twice.cause[0],
        "UNIQUE constraint failed: runs.session, runs.seq"
    );

    // Numbers that JSON or SQLite cannot hold would read back as others.
    let mut endless = plan.clone();
    endless.early_stop = Some(EarlyStop {
        max_repetition_secs: vec![(TestSpec::generation(128), f64::INFINITY)],
    });
    assert!(store.append_run(session, 1, &endless, &valid(1)).is_err());
    let mut timeless = valid(1);
    timeless.wall_secs = f64::NAN;
    assert!(store.append_run(session, 1, &plan, &timeless).is_err());
    assert!(
        store
            .append_run(session, 1, &plan, &valid(u64::MAX / 2))
            .is_err()
    );
    assert_eq!(store.runs(session).unwrap().len(), 1);

    let verdict = store
        .append_verdict(session, &graphics_queue(), Verdict::Improved, &json!({}))
        .unwrap();
    let mut unexplained = profile(session, verdict, run);
    unexplained.introduced_by.clear();
    let error = store.save_profile(&unexplained).unwrap_err();
    assert_eq!(error.cause[0], "no run introduced graphics-queue");
    assert_eq!(store.profiles().unwrap(), []);
}

#[test]
fn a_stranger_reads_rates_with_plain_sql() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    fill(&store);
    let shell = Connection::open(dir.path().join("flux.db")).unwrap();
    let sql = "SELECT stage, side, test, settings, rate FROM sample_rates WHERE seq = 3";
    let mut statement = shell.prepare(sql).unwrap();
    let rows: Vec<(String, String, String, String, f64)> = statement
        .query_map([], |r| {
            Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(rows.len(), 4);
    for (stage, side, _, settings, _) in &rows {
        assert_eq!((stage.as_str(), side.as_str()), ("confirmation", "B"));
        assert_eq!(settings, r#"{"graphics-queue":"on"}"#);
    }
    // 512 tokens in 1.6 s; 128 tokens in 1.28 s.
    assert_eq!((rows[1].2.as_str(), rows[1].4), ("pp512 @ d4096", 320.0));
    assert_eq!((rows[3].2.as_str(), rows[3].4), ("tg128", 100.0));
}

fn tables(shell: &Connection) -> Vec<String> {
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut names = shell.prepare(sql).unwrap();
    let names = names.query_map([], |r| r.get(0)).unwrap();
    names.map(Result::unwrap).collect()
}

#[test]
fn evidence_is_never_changed() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    let ids = fill(&store);
    let shell = Connection::open(dir.path().join("flux.db")).unwrap();
    shell
        .execute_batch(
            "INSERT INTO session_marks (session, at, deleted) VALUES (1, 0, 0);
             INSERT INTO telemetry (session, at, source, key, value) VALUES (1, 0, 'amdgpu', 'power_w', 87.0);
             INSERT INTO telemetry_series (source, key) VALUES ('amdgpu', 'power_w');
             INSERT INTO telemetry_blocks SELECT 1, 1, id, 0, 0, 1, 87.0, 87.0, 87.0, 87.0, x'' FROM telemetry_series;
             INSERT INTO telemetry_data (block, packed) VALUES (1, x'');
             INSERT INTO placements (at, fingerprint, model_digest, document) SELECT 0, hash, 'm', '{}' FROM fingerprints;
             INSERT INTO bandwidths (fingerprint, measured_at, document) SELECT hash, 0, '{}' FROM fingerprints;
             INSERT INTO imports (imported_at, model_digest, document) VALUES (0, 'm', '{}');
             INSERT INTO fits (fingerprint, created_at, document) SELECT hash, 0, '{}' FROM fingerprints;",
        )
        .unwrap();
    let mut tables = tables(&shell);
    assert_eq!(tables.len(), 26);
    // Counted from the others: no evidence.
    tables.retain(|table| table != "session_totals");
    for table in tables {
        let column: String = shell
            .query_row(
                &format!("SELECT name FROM pragma_table_info('{table}')"),
                [],
                |r| r.get(0),
            )
            .unwrap();
        let change = format!("UPDATE {table} SET {column} = {column}");
        let error = shell.execute(&change, []).unwrap_err();
        assert_eq!(error.to_string(), "evidence is never changed", "{table}");
    }
    assert_filled(&store, &ids);
}

#[test]
fn readers_see_whole_runs_while_one_writes() {
    const RUNS: u32 = 40;
    let dir = tempfile::tempdir().unwrap();
    let writer = measuring(dir.path());
    let session = writer.begin_session(&new_session()).unwrap();
    let looker = SqliteStore::open(dir.path(), Access::Look).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seq in 0..RUNS {
                let plan = planned(Stage::Screening, graphics_queue());
                writer
                    .append_run(session, seq, &plan, &valid(u64::from(seq)))
                    .unwrap();
            }
        });
        let mut seen = 0;
        while seen < RUNS as usize {
            for store in [&looker, &writer] {
                let runs = store.runs(session).unwrap();
                assert!(runs.len() >= seen, "a run that was seen stays");
                for (seq, run) in (0..).zip(&runs) {
                    assert_eq!((run.seq, &run.run), (seq, &valid(u64::from(seq))));
                }
                seen = runs.len();
            }
        }
    });
    looker.append_notice(session, &notices()[0]).unwrap();
    assert_eq!(writer.notices(session).unwrap(), notices()[..1]);
}

#[test]
fn many_may_open_a_new_folder_at_once() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for access in [Access::Measure, Access::Look].repeat(4) {
            let dir = dir.path();
            scope.spawn(move || {
                let store = SqliteStore::open(dir, access).unwrap();
                store.begin_session(&new_session()).unwrap();
            });
        }
    });
    let store = measuring(dir.path());
    assert_eq!(store.sessions(20).unwrap().len(), 8);
    assert_eq!(store.opened().notices, []);
}

/// Every row of every table of format 1.
fn rows(path: &Path) -> Vec<String> {
    let shell = Connection::open(path).unwrap();
    let later = ["session_marks", "session_totals", "bandwidths"];
    let mut rows = Vec::new();
    for table in tables(&shell) {
        if later.contains(&table.as_str()) {
            continue;
        }
        let mut all = shell.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let width = all.column_count();
        let row = |r: &rusqlite::Row| {
            let values: Vec<rusqlite::types::Value> =
                (0..width).map(|i| r.get(i).unwrap()).collect();
            Ok(format!("{table} {values:?}"))
        };
        rows.extend(all.query_map([], row).unwrap().map(Result::unwrap));
    }
    rows
}

/// `v1.db` is a database of format 1 as `fill` left it when that was the newest. It is never made again.
#[test]
fn a_database_of_format_1_is_brought_to_today_s_without_loss() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flux.db");
    fs::copy(v1(), &path).unwrap();
    let version = || -> i64 {
        let shell = Connection::open(&path).unwrap();
        shell
            .pragma_query_value(None, "user_version", |r| r.get(0))
            .unwrap()
    };
    let before = rows(&path);
    // The session and what it names: 6; ends 2, arms 2, runs 5, tests 4, samples 8, notices 2; verdict, profile and
    // its setting: 3.
    assert_eq!((version(), before.len()), (1, 32));
    let ids = Filled {
        session: 1,
        runs: vec![1, 2, 3, 4, 5],
        verdict: 1,
        profile: 1,
        has_sensors: false,
    };
    let store = measuring(dir.path());
    assert_filled(&store, &ids);
    // Two valid runs of three and one repetitions.
    assert_eq!(page(&store, &SessionFilter::default()).samples, 8);
    assert_eq!((version(), rows(&path)), (7, before));
    store.set_deleted(1, true, Timestamp(1)).unwrap();
    assert_eq!(store.profiles().unwrap(), []);
    store.set_deleted(1, false, Timestamp(2)).unwrap();
    assert_filled(&store, &ids);
}

#[test]
fn a_database_of_format_2_is_brought_to_today_s_without_loss() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flux.db");
    v2(&path);
    let before = rows(&path);
    let store = measuring(dir.path());
    assert_filled(
        &store,
        &Filled {
            session: 1,
            runs: vec![1, 2, 3, 4, 5],
            verdict: 1,
            profile: 1,
            has_sensors: false,
        },
    );
    assert_eq!(rows(&path), before);
    placements::round_trip(&store);
}
