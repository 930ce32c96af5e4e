//! A long history, the same for a seed, written at once: through the store it would wait for the disk at every run.

use std::path::Path;

use flux::domain::types::{PlannedRun, Settings, Stage};
use flux::ports::NewSession;
use flux::store::{Access, SqliteStore};
use rusqlite::{Connection, Transaction, params};
use serde_json::json;

/// How much of it.
#[derive(Clone, Copy)]
pub struct Size {
    pub sessions: u32,
    /// Runs of each session but the last.
    pub runs: u32,
    /// Samples of each run, over two tests.
    pub samples: u32,
    /// Bytes of each log but those of the last session.
    pub log: usize,
    /// Sessions before the last whose tests have the whole records of llama-bench: elsewhere they would make gigabytes.
    pub recorded: u32,
    /// Runs of the last session.
    pub last_runs: u32,
    /// Bytes of each log of the last session.
    pub last_log: usize,
}

/// Bytes of a session's plan and of its result: about what a real search stores.
const DOCUMENT: usize = 8_000;

const MODELS: [&str; 4] = [
    "Qwen3 4B Q4_K_M",
    "Gemma 3 12B Q4_K_M",
    "LFM2 1.2B Q8_0",
    "Llama 3 8B Q6_K",
];

/// Records of a real llama-bench (Qwen3 4B on an H200): a prompt, a generation.
const RECORDS: &str = include_str!("../fixtures/placement/h200-dense.jsonl");

/// A session as it begins, on the machine of the store's own tests.
pub fn begun() -> NewSession {
    serde_json::from_str(include_str!("../fixtures/store/session.json")).unwrap()
}

/// Makes `dir/flux.db`; every session has the machine and the build of `begun`.
pub fn write(dir: &Path, seed: u64, size: &Size, begun: &NewSession) {
    drop(SqliteStore::open(dir, Access::Measure).unwrap());
    let mut database = Connection::open(dir.join("flux.db")).unwrap();
    database.pragma_update(None, "synchronous", "off").unwrap();
    let tx = database.transaction().unwrap();
    let counting = without_counting(&tx);
    named(&tx, begun);
    let mut random = fastrand::Rng::with_seed(seed);
    for session in 1..=size.sessions {
        let is_last = session == size.sessions;
        write_session(&tx, session, begun, &mut random);
        let runs = if is_last { size.last_runs } else { size.runs };
        for seq in 0..runs {
            let log = if is_last { size.last_log } else { size.log };
            let recorded = session + size.recorded >= size.sessions;
            write_run(
                &tx,
                (session, seq),
                (size.samples, recorded, log),
                &mut random,
            );
        }
        tx.execute(
            "UPDATE session_totals SET runs = ?2, samples = ?3 WHERE session = ?1",
            params![session, runs, runs * size.samples],
        )
        .unwrap();
        judge(&tx, session, &mut random);
    }
    tx.execute_batch(&counting).unwrap();
    tx.commit().unwrap();
    database
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
}

/// Takes the triggers away that count every sample, and returns what makes them anew.
fn without_counting(tx: &Transaction) -> String {
    let mut again = String::new();
    for name in ["session_totals_count_runs", "session_totals_count_samples"] {
        let sql = "SELECT sql || ';' FROM sqlite_master WHERE name = ?1";
        again += &tx
            .query_row(sql, [name], |row| row.get::<_, String>(0))
            .unwrap();
        tx.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    again
}

fn named(tx: &Transaction, begun: &NewSession) {
    let hash = &begun.fingerprint.hash;
    let fields = serde_json::to_string(&begun.fingerprint.fields).unwrap();
    let insert = |sql: &str, values: &[&str]| {
        tx.execute(sql, rusqlite::params_from_iter(values)).unwrap();
    };
    insert("INSERT INTO fingerprints VALUES (?1, ?2)", &[hash, &fields]);
    let machine = serde_json::to_string(&begun.machine).unwrap();
    insert(
        "INSERT INTO machines (fingerprint, document) VALUES (?1, ?2)",
        &[hash, &machine],
    );
    let runtime = serde_json::to_string(&begun.runtime).unwrap();
    insert(
        "INSERT INTO runtimes (digest, name, document) VALUES (?1, 'b11149-vulkan', ?2)",
        &[&begun.runtime.digest, &runtime],
    );
    for name in MODELS {
        let mut model = begun.model.clone();
        name.clone_into(&mut model.name);
        let model = serde_json::to_string(&model).unwrap();
        insert(
            "INSERT INTO models (digest, name, document) VALUES ('m', ?1, ?2)",
            &[name, &model],
        );
    }
}

fn settings(random: &mut fastrand::Rng) -> Settings {
    let values = [
        ("graphics-queue", "on"),
        ("ubatch", "1024"),
        ("flash-attn", "on"),
    ];
    let (dimension, value) = values[random.usize(..values.len())];
    Settings::stock().with(dimension, value)
}

fn write_session(tx: &Transaction, id: u32, begun: &NewSession, random: &mut fastrand::Rng) {
    let document = json!({ "plan": "x".repeat(DOCUMENT) }).to_string();
    let goals = ["generation", "prompt", "request"];
    let mut insert = tx
        .prepare_cached(
            "INSERT INTO sessions VALUES (?1, ?2, ?3, ?4, 1, 1, ?5, ?6, ?7, ?8, '0.1.0')",
        )
        .unwrap();
    insert
        .execute(params![
            id,
            if random.u8(..5) == 0 { "ab" } else { "tune" },
            i64::from(id) * 60_000,
            begun.fingerprint.hash,
            random.u8(1..=4),
            goals[random.usize(..goals.len())],
            document,
            begun.simulated,
        ])
        .unwrap();
    let mut insert = tx
        .prepare_cached("INSERT INTO arms (session, settings) VALUES (?1, ?2)")
        .unwrap();
    let settings = serde_json::to_string(&settings(random)).unwrap();
    insert.execute(params![id, settings]).unwrap();
}

fn write_run(
    tx: &Transaction,
    (session, seq): (u32, u32),
    (samples, recorded, log): (u32, bool, usize),
    random: &mut fastrand::Rng,
) {
    let tried = settings(random);
    let planned = PlannedRun {
        stage: Stage::Screening,
        side: None,
        // Every fifth is stock, as a search's baselines are.
        settings: if seq % 5 == 0 {
            Settings::stock()
        } else {
            tried
        },
        repetitions: samples / 2,
        early_stop: None,
        log_buffers: false,
        clients: 1,
        purpose: "ubatch=1024".to_owned(),
    };
    let planned = serde_json::to_string(&planned).unwrap();
    let mut insert = tx
        .prepare_cached(
            "INSERT INTO runs (session, seq, arm, planned, started_at, wall_secs, outcome, buffers, argv, env, stdout,
             stderr) VALUES (?1, ?2, ?1, ?3, 0, 12.5, 'valid', '[]', '[]', '{}', '', ?4)",
        )
        .unwrap();
    insert
        .execute(params![session, seq, planned, "e".repeat(log)])
        .unwrap();
    let run = tx.last_insert_rowid();
    let mut test = tx
        .prepare_cached("INSERT INTO run_tests VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6)")
        .unwrap();
    let mut sample = tx
        .prepare_cached("INSERT INTO samples VALUES (?1, ?2, ?3, ?4)")
        .unwrap();
    let records = RECORDS
        .lines()
        .map(|line| if recorded { line } else { "{}" });
    let tests = [(0, "pp512", 512, 0), (1, "tg128", 0, 128)];
    for ((position, label, prompt, generated), record) in tests.into_iter().zip(records) {
        test.execute(params![run, position, label, prompt, generated, record])
            .unwrap();
        for repetition in 0..samples / 2 {
            let ns = random.i64(1_000_000_000..1_100_000_000);
            sample
                .execute(params![run, position, repetition, ns])
                .unwrap();
        }
    }
}

fn judge(tx: &Transaction, session: u32, random: &mut fastrand::Rng) {
    let verdicts = ["improved", "regressed", "unchanged", "inconclusive"];
    let verdict = verdicts[random.usize(..verdicts.len())];
    let change = random.f64() * 40.0 - 10.0;
    let detail = json!({"primary": "tg128", "runs": vec![change; 100], "metrics": {
        "tg128": {"confirmed": {"change_pct": change, "ci95_pct": [change - 1.0, change + 1.0]}}}});
    tx.execute(
        "INSERT INTO verdicts (session, arm, verdict, detail) VALUES (?1, ?1, ?2, ?3)",
        params![session, verdict, detail.to_string()],
    )
    .unwrap();
    let result = json!({ "document": "y".repeat(DOCUMENT) }).to_string();
    tx.execute(
        "INSERT INTO session_ends (session, ended_at, state, verdict, result) VALUES (?1, 1, 'done', ?2, ?3)",
        params![session, verdict, result],
    )
    .unwrap();
}
