//! What looking through 10,000,000 samples in 5,000 sessions costs, by the queries of the command line, of the app and of
//! the planner, against one bound: `cargo bench --bench history`. It prints and asserts no time: a loaded machine is no
//! bug. That no query reads a whole table of runs or samples is a test (`cargo nextest run --test store`).
//! `FLUX_BENCH_DIR` names a folder to keep the store in, and to find it in again.
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark stops at the first surprise"
)]
#![allow(clippy::print_stdout, reason = "it prints a table")]

#[path = "../support/long_history.rs"]
mod long_history;
#[path = "../support/readings.rs"]
mod readings;

use std::path::{Path, PathBuf};
use std::time::Instant;

use flux::domain::types::{Timestamp, Verdict};
use flux::engine::plan::{PlanRequest, base};
use flux::engine::{Ports, chosen, evidence, profiles, resume};
use flux::ports::{
    CancelToken, NewSession, SessionEnd, SessionFilter, SessionKind, SessionState, Store as _,
    SynthRequest,
};
use flux::store::SqliteStore;
use flux::wiring::{self, Access, Options};
use long_history::Size;
use rusqlite::{Connection, params};

/// Most a query may take, milliseconds: more is felt as waiting.
const BOUND_MS: f64 = 100.0;
/// Most of what a plan does before it plans, milliseconds: it reads 100 sessions and fits the speed model to their runs.
const PLAN_BOUND_MS: f64 = 250.0;
/// 4,999 × 50 × 40 + 80 × 40 = 10,001,200 samples.
const SIZE: Size = Size {
    sessions: 5_000,
    runs: 50,
    samples: 40,
    log: 2_000,
    recorded: 200,
    last_runs: 80,
    last_log: 1_000_000,
};
/// Readings of a session: ten minutes of 15 sensors.
const WATCHED_MS: i64 = 600_000;
/// Placements and fits that benchmarks of plans left on this machine.
const PLANNED: u32 = 500;

fn main() {
    // `cargo test --benches` and friends list a target's tests; there are none.
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    let kept = std::env::var_os("FLUX_BENCH_DIR").map(PathBuf::from);
    let scratch = tempfile::tempdir().unwrap();
    let dir = kept.as_deref().unwrap_or(scratch.path());
    let model = dir.join("qwen3-4b.gguf");
    let begun = Instant::now();
    if !model.exists() {
        fill(dir, &model);
    }
    let made = begun.elapsed().as_secs_f64();
    let megabytes = dir.join("flux.db").metadata().unwrap().len() / 1_000_000;
    let ports = open(dir, Access::Look);
    let found = ports
        .store
        .find_sessions(&SessionFilter::default())
        .unwrap();
    println!(
        "{} sessions, {} samples, {} profiles, {megabytes} MB, made in {made:.0} s",
        found.total,
        found.samples,
        ports.store.profiles().unwrap().len()
    );
    println!("{:<58} {:>9} {:>8} {:>7}", "", "median", "bound", "ratio");
    pages(&ports);
    sessions(&ports);
    engine(&ports, &model);
    line("flux data", || {
        ports.store.holdings().unwrap();
    });
    drop(ports);
    upkeep(dir, kept.is_none());
}

fn open(dir: &Path, access: Access) -> Ports {
    let options = Options {
        data_dir: Some(dir.to_owned()),
        machine: Some("h200".into()),
        access,
        flux: None,
    };
    wiring::open(&options).unwrap().ports
}

/// Makes the store as one exported machine would have filled it in years, and a model to plan for.
fn fill(dir: &Path, model: &Path) {
    let empty = tempfile::tempdir().unwrap();
    let ports = open(empty.path(), Access::Measure);
    let request = SynthRequest {
        shape: "qwen3-4b".to_owned(),
        output: model.to_owned(),
        sparse: true,
        seed: 1,
    };
    ports
        .models
        .synthesise(&request, &CancelToken::new(), &mut |_, _| {})
        .unwrap();
    let plan = base(&PlanRequest::new(model.to_owned()), &ports).unwrap();
    let mut begun = long_history::begun();
    begun.fingerprint = plan.fingerprint.clone();
    begun.runtime = plan.runtime.unwrap();
    begun.machine = plan.machine;
    begun.simulated = true;
    long_history::write(dir, 11, &SIZE, &begun);
    let hash = &begun.fingerprint.hash;
    let database = Connection::open(dir.join("flux.db")).unwrap();
    database.pragma_update(None, "synchronous", "off").unwrap();
    // Every improved session saved its winner, one session in 50 was deleted.
    let more = "
        INSERT INTO profiles (session, fingerprint, runtime_digest, model_digest, goal, bench, server, created_at, simulated,
            verdict)
        SELECT v.session, s.fingerprint, 'r', 'm', s.goal, '{\"args\":[],\"env\":{}}', '{\"args\":[],\"env\":{}}', 0, 1, v.id
        FROM verdicts v JOIN sessions s ON s.id = v.session WHERE v.verdict = 'improved';
        INSERT INTO profile_settings SELECT p.id, 'ubatch', '1024', r.id
        FROM profiles p JOIN runs r ON r.session = p.session AND r.seq = 1;
        INSERT INTO session_marks (session, at, deleted) SELECT id, 0, 1 FROM sessions WHERE id % 50 = 0 AND id < 5000;";
    database.execute_batch(more).unwrap();
    watched(&database, &begun);
    for at in 0..PLANNED {
        let document = serde_json::json!({ "prediction_error": null, "constants": vec![1.5; 100] });
        let placement = "INSERT INTO placements (at, fingerprint, model_digest, document) VALUES (?1, ?2, 'm', ?3)";
        let fit = "INSERT INTO fits (created_at, fingerprint, document) VALUES (?1, ?2, ?3)";
        for sql in [placement, fit] {
            database
                .execute(sql, params![at, hash, document.to_string()])
                .unwrap();
        }
    }
    database
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
}

/// Gives every session the readings of one that was really watched.
fn watched(database: &Connection, begun: &NewSession) {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), Access::Measure).unwrap();
    let session = store.begin_session(begun).unwrap();
    let taken = readings::Sensors::new(0).take(WATCHED_MS);
    store.append_telemetry(session, &taken).unwrap();
    let end = SessionEnd {
        ended_at: Timestamp(WATCHED_MS),
        state: SessionState::Done,
        verdict: None,
        result: serde_json::Value::Null,
    };
    store.end_session(session, &end).unwrap();
    drop(store);
    let source = dir.path().join("flux.db");
    let attach = "ATTACH ?1 AS source";
    database
        .execute(attach, [source.to_str().unwrap()])
        .unwrap();
    let copy = "
        INSERT INTO telemetry_series SELECT * FROM source.telemetry_series;
        INSERT INTO telemetry_blocks SELECT (s.id - 1) * n.blocks + b.id, s.id, b.series,
            b.from_at + s.started_at / 128000 * 128000, b.to_at + s.started_at / 128000 * 128000, b.readings, b.lowest,
            b.highest, b.total, b.latest, b.parts
        FROM sessions s, source.telemetry_blocks b, (SELECT max(id) AS blocks FROM source.telemetry_blocks) n;
        INSERT INTO telemetry_data SELECT (s.id - 1) * n.blocks + d.block, d.packed
        FROM sessions s, source.telemetry_data d, (SELECT max(id) AS blocks FROM source.telemetry_blocks) n;";
    database.execute_batch(copy).unwrap();
}

fn pages(ports: &Ports) {
    let all = SessionFilter::default();
    let search = |text: &str| SessionFilter {
        text: text.to_owned(),
        ..SessionFilter::default()
    };
    let pages = [
        ("History: first page", all.clone()),
        (
            "History: last page",
            SessionFilter {
                offset: 4_850,
                ..all.clone()
            },
        ),
        ("History: text, rare", search("#17 lfm2")),
        (
            "History: text, common",
            search("gemma generation ubatch=1024"),
        ),
        (
            "History: verdict and kind",
            SessionFilter {
                verdict: Some(Verdict::Improved),
                kind: Some(SessionKind::Ab),
                ..all.clone()
            },
        ),
        (
            "flux history -n 5000",
            SessionFilter {
                limit: 5_000,
                ..all
            },
        ),
    ];
    for (what, filter) in pages {
        line(what, || {
            ports.store.find_sessions(&filter).unwrap();
        });
    }
    let machine = ports.probe.machine();
    line("History: profiles with what became of them", || {
        profiles::profiles(&machine, &machine.runtimes, ports).unwrap();
    });
}

fn sessions(ports: &Ports) {
    let (middle, last) = (2_501, i64::from(SIZE.sessions));
    let store = &ports.store;
    line("flux show, flux export, flux report: 50 runs", || {
        evidence::evidence(middle, ports).unwrap();
    });
    line("the same in the app", || {
        evidence::without_raw(middle, ports).unwrap();
    });
    line("in the app: 80 runs with logs of 80 MB", || {
        evidence::without_raw(last, ports).unwrap();
    });
    line("Dashboard: replay of a session", || {
        let (from, to) = store.telemetry_span(middle).unwrap().unwrap();
        store.telemetry_window(middle, from, to, 600).unwrap();
    });
    let saved = store.profiles().unwrap()[500].clone();
    line("flux run --explain: profile and what it rests on", || {
        store.profiles().unwrap();
        store.introductions(saved.id).unwrap();
        store.confirmation_of(saved.id).unwrap();
    });
}

fn engine(ports: &Ports, model: &Path) {
    let store = &ports.store;
    let first = store.session(1).unwrap().unwrap().begun;
    let (known, here) = (first.model, &first.fingerprint);
    line("flux tune: what a plan chose here", || {
        chosen::chosen(here, &known, true, ports).unwrap();
    });
    line("flux tune --resume: the last broken off", || {
        resume::broken_off(ports).unwrap();
    });
    let plan = "flux plan: all it knows, the speed model fitted to it";
    within(PLAN_BOUND_MS, plan, || {
        base(&PlanRequest::new(model.to_owned()), ports).unwrap();
    });
    line("flux plan: placements and fits", || {
        store.placements(&here.hash, None).unwrap();
        store.fits(&here.hash).unwrap();
    });
}

/// What has no bound: the check before measuring, and what is done to a whole store on its owner's word. A store that is
/// kept is only looked at.
fn upkeep(dir: &Path, may_change: bool) {
    let timed = |what: &str, work: &mut dyn FnMut()| {
        let begun = Instant::now();
        work();
        println!("{what:<58} {:>6.0} ms", begun.elapsed().as_secs_f64() * 1e3);
    };
    let mut ports = None;
    timed(
        "opening to measure, the whole database checked",
        &mut || {
            ports = Some(open(dir, Access::Measure));
        },
    );
    let store = ports.unwrap().store;
    let half = Timestamp(i64::from(SIZE.sessions) / 2 * 60_000);
    timed("flux data compact --dry-run", &mut || {
        store.erasable(half).unwrap();
    });
    if !may_change {
        return;
    }
    timed("readings of half the sessions forgotten", &mut || {
        store.forget_telemetry(half).unwrap();
    });
    let before = store.holdings().unwrap().bytes;
    timed("flux data compact", &mut || {
        store.compact(half).unwrap();
    });
    let now = store.holdings().unwrap();
    println!("{before} before, {} after", now.bytes);
    assert_eq!(now.samples, 9_803_200, "no listed sample is erased");
}

/// A row: the median of seven.
fn line(what: &str, work: impl FnMut()) {
    within(BOUND_MS, what, work);
}

fn within(bound: f64, what: &str, mut work: impl FnMut()) {
    let mut ms: Vec<f64> = (0..7)
        .map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    ms.sort_by(f64::total_cmp);
    let median = ms[3];
    let ratio = median / bound;
    println!("{what:<58} {median:>6.1} ms {bound:>5.0} ms {ratio:>7.2}");
}
