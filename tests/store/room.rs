//! Making a database smaller: what goes, what never does, and what a store says of its size.

use flux::domain::telemetry::{Metric, Reading, SeriesId};
use flux::domain::types::*;
use flux::ports::*;
use flux::store::SqliteStore;
use rusqlite::Connection;

use crate::sample::*;

/// A session begun at this moment, filled, with a long output and one reading.
fn begun_at(store: &SqliteStore, at: i64) -> i64 {
    let mut begun = new_session();
    begun.started_at = Timestamp(at);
    let id = store.begin_session(&begun).unwrap();
    let mut run = valid(0);
    run.raw.stdout = "o".repeat(10_000);
    "short".clone_into(&mut run.raw.stderr);
    let planned = planned(Stage::Screening, graphics_queue());
    let run = store.append_run(id, 0, &planned, &run).unwrap();
    let verdict = store
        .append_verdict(
            id,
            &graphics_queue(),
            Verdict::Improved,
            &serde_json::json!({}),
        )
        .unwrap();
    store.save_profile(&profile(id, verdict, run)).unwrap();
    let reading = Reading {
        series: SeriesId {
            source: "card".to_owned(),
            metric: Metric::Power,
        },
        at: Timestamp(at),
        value: 31.0,
    };
    store.append_telemetry(id, &[reading]).unwrap();
    store
        .end_session(id, &end(at, SessionState::Done, Some(Verdict::Improved)))
        .unwrap();
    id
}

#[test]
fn compacting_erases_what_explains_and_is_old_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    let (old, new) = (begun_at(&store, 1_000), begun_at(&store, 9_000));
    let nothing = store.erasable(Timestamp(1_000)).unwrap();
    assert!(nothing.is_nothing(), "{nothing:?}");
    let expected = Erasable {
        readings: 1,
        outputs: 1,
        output_bytes: Bytes(10_005),
        sessions: 0,
        samples: 0,
    };
    assert_eq!(store.erasable(Timestamp(5_000)).unwrap(), expected);
    let before = (
        store.run_heads(old).unwrap(),
        store.runs(new).unwrap(),
        store.verdicts(old).unwrap(),
        store.profiles().unwrap(),
        store.session(old).unwrap(),
        store.sessions(9).unwrap(),
    );
    let size = store.holdings().unwrap();
    assert_eq!((size.sessions, size.samples, size.readings), (2, 8, 2));
    assert_eq!(size.since, Some(Timestamp(1_000)));

    assert_eq!(store.compact(Timestamp(5_000)).unwrap(), expected);
    let after = (
        store.run_heads(old).unwrap(),
        store.runs(new).unwrap(),
        store.verdicts(old).unwrap(),
        store.profiles().unwrap(),
        store.session(old).unwrap(),
        store.sessions(9).unwrap(),
    );
    assert_eq!(after, before);
    let raw = &store.runs(old).unwrap()[0].run.raw;
    assert_eq!(raw.stdout, "[erased by flux data compact]");
    assert_eq!(raw.stderr, "short");
    assert!(!raw.argv.is_empty());
    assert_eq!(store.telemetry_span(old).unwrap(), None);
    assert!(store.telemetry_span(new).unwrap().is_some());
    let now = store.holdings().unwrap();
    assert_eq!((now.reusable, now.readings), (Bytes(0), 1));
    assert!(now.bytes < size.bytes);
    // Erased once is erased, and evidence is guarded as before.
    assert!(store.erasable(Timestamp(5_000)).unwrap().is_nothing());
    drop(store);
    let database = Connection::open(dir.path().join("flux.db")).unwrap();
    let change = database.execute("UPDATE runs SET stdout = ''", []);
    assert!(change.unwrap_err().to_string().contains("never changed"));
}

#[test]
fn a_deleted_session_goes_whole_when_its_deletion_is_old() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    let sessions: Vec<i64> = (0..4).map(|n| begun_at(&store, 9_000 + n)).collect();
    let [early, late, restored, kept] = sessions[..] else {
        unreachable!()
    };
    store.set_deleted(early, true, Timestamp(100)).unwrap();
    store.set_deleted(late, true, Timestamp(900)).unwrap();
    store.set_deleted(restored, true, Timestamp(100)).unwrap();
    store.set_deleted(restored, false, Timestamp(200)).unwrap();
    let erased = store.compact(Timestamp(500)).unwrap();
    // Four samples in its one run; its output is not old, but goes with it.
    assert_eq!((erased.sessions, erased.samples, erased.outputs), (1, 4, 0));
    assert_eq!(store.session(early).unwrap(), None);
    assert_eq!(store.run_heads(early).unwrap(), []);
    for id in [late, restored, kept] {
        assert_eq!(store.run_heads(id).unwrap().len(), 1);
        assert!(store.telemetry_span(id).unwrap().is_some());
    }
    let held = store.holdings().unwrap();
    assert_eq!((held.sessions, held.deleted, held.samples), (2, 1, 12));
    // Numbers are never used again, and nothing refers to what is gone.
    assert_eq!(begun_at(&store, 9_100), kept + 1);
    drop(store);
    let database = Connection::open(dir.path().join("flux.db")).unwrap();
    let mut check = database.prepare("PRAGMA foreign_key_check").unwrap();
    assert!(check.query([]).unwrap().next().unwrap().is_none());
    let intact: String = database
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(intact, "ok");
}
