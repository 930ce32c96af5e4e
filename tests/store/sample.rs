//! Samples of everything a store keeps, and the check that all of it reads back equal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flux::domain::telemetry::{Metric, SeriesId};
use flux::domain::types::*;
use flux::ports::*;
use flux::store::{Access, SqliteStore};
use serde_json::json;

pub fn new_session() -> NewSession {
    serde_json::from_str(include_str!("../fixtures/store/session.json")).unwrap()
}

/// The kept database of format 1.
pub fn v1() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store/v1.db")
}

/// Makes a database of format 2 at `path`: the one of format 1, brought there by the step that was released.
pub fn v2(path: &Path) {
    std::fs::copy(v1(), path).unwrap();
    let shell = rusqlite::Connection::open(path).unwrap();
    shell
        .execute_batch(include_str!("../../src/store/schema_2.sql"))
        .unwrap();
    shell.pragma_update(None, "user_version", 2).unwrap();
}

/// Makes a database of format 4 at `path`, likewise.
pub fn v4(path: &Path) {
    v2(path);
    let shell = rusqlite::Connection::open(path).unwrap();
    for step in [
        include_str!("../../src/store/schema_3.sql"),
        include_str!("../../src/store/schema_4.sql"),
    ] {
        shell.execute_batch(step).unwrap();
    }
    shell.pragma_update(None, "user_version", 4).unwrap();
}

pub fn measuring(dir: &Path) -> SqliteStore {
    SqliteStore::open(dir, Access::Measure).unwrap()
}

pub fn planned(stage: Stage, settings: Settings) -> PlannedRun {
    PlannedRun {
        stage,
        side: (stage == Stage::Confirmation).then_some(Side::B),
        settings,
        repetitions: 3,
        early_stop: None,
        log_buffers: true,
        clients: 1,
        purpose: "it's graphics-queue=on".to_owned(),
    }
}

pub fn graphics_queue() -> Settings {
    Settings::stock().with("graphics-queue", "on")
}

fn with_outcome(outcome: RunOutcome) -> Run {
    Run {
        started_at: Timestamp(1_764_374_400_123),
        wall_secs: 12.345_678_901_234_567,
        outcome,
        buffers: vec![BufferUse {
            device: "Vulkan0".to_owned(),
            model: Bytes(2_497_281_024),
            context: Bytes(1),
            compute: Bytes(0),
        }],
        raw: RawOutput {
            argv: [
                "llama-bench",
                "-m",
                r#"/models/it's a "model" & 100% (v1) #2.gguf"#,
            ]
            .map(str::to_owned)
            .to_vec(),
            env: BTreeMap::from([("GGML_VK_ALLOW_GRAPHICS_QUEUE".to_owned(), "1".to_owned())]),
            stdout:
                "{\"n_gen\": 128}\n\u{3000}модель 模型 👩‍🚀 '; DROP TABLE runs; --\0after a NUL\n"
                    .to_owned(),
            stderr: "ggml_vulkan: Found 1 Vulkan devices:\r\n".repeat(120),
            exit_code: Some(0),
            signal: None,
        },
        telemetry: Some(Box::new(telemetry())),
    }
}

fn telemetry() -> RunTelemetry {
    let power = SeriesId {
        source: "0000:01:00.0".to_owned(),
        metric: Metric::Power,
    };
    let spread = |mean| Spread {
        min: 0.1,
        mean,
        max: 0.1 + 187.2,
    };
    RunTelemetry {
        device: Some(power.source.clone()),
        timed: vec![(power.clone(), spread(0.1 + 0.2))],
        before: vec![(power, spread(11.0))],
        doubts: vec!["throttled for 12 % of the time".to_owned()],
    }
}

fn energy(joules: f64) -> Energy {
    Energy {
        joules,
        method: EnergyMethod::Counter,
        estimated: true,
    }
}

/// A valid run of two tests; `n` makes it differ from others.
pub fn valid(n: u64) -> Run {
    with_outcome(RunOutcome::Valid {
        tests: vec![
            TestSamples {
                test: TestSpec::prompt(512).at_depth(4096),
                samples_ns: vec![2_000_000_000 + n, 1_600_000_000, 1_600_000_001],
                // 0.1 + 0.2 and the number below need all 17 digits; the seed needs all 64 bits.
                record: json!({"stddev_ts": 0.1 + 0.2, "avg_ts": 273.163_848_173_621_5,
                    "seed": u64::MAX, "z first": 1, "a last": [null, true, "it's"]}),
                energy: None,
            },
            TestSamples {
                test: TestSpec::generation(128),
                samples_ns: vec![1_280_000_000],
                record: json!({"avg_ts": 100.0}),
                energy: Some(TestEnergy {
                    device: vec![energy(120.300_000_000_000_01)],
                    package: vec![energy(0.1 + 0.2)],
                }),
            },
        ],
    })
}

/// One run of every outcome.
fn outcomes() -> Vec<(PlannedRun, Run)> {
    let mut hopeless = planned(Stage::Screening, graphics_queue());
    hopeless.early_stop = Some(EarlyStop {
        max_repetition_secs: vec![(TestSpec::generation(128), 1.1 * 3.3)],
    });
    let stopped = RunOutcome::StoppedEarly {
        test: TestSpec::generation(128),
        repetition_secs: 4.1,
        limit_secs: 1.1 * 3.3,
    };
    let mut failed = with_outcome(RunOutcome::Failed {
        failure: Failure::new(FailureClass::CrashAtExit, "it's dead: signal 11"),
        salvaged: vec![json!({"avg_ts": 0.1 + 0.2}), json!({"samples_ns": [1, 2]})],
    });
    failed.raw.exit_code = None;
    failed.raw.signal = Some(11);
    vec![
        (planned(Stage::Baseline, Settings::stock()), valid(0)),
        (hopeless, with_outcome(stopped)),
        (planned(Stage::Screening, graphics_queue()), failed),
        (planned(Stage::Confirmation, graphics_queue()), valid(1)),
        (
            planned(Stage::Confirmation, Settings::stock()),
            with_outcome(RunOutcome::Cancelled),
        ),
    ]
}

pub fn end(at: i64, state: SessionState, verdict: Option<Verdict>) -> SessionEnd {
    SessionEnd {
        ended_at: Timestamp(at),
        state,
        verdict,
        result: json!({"verdict": verdict, "change_pct": 68.3}),
    }
}

pub fn profile(session: i64, verdict_id: i64, run: i64) -> NewProfile {
    let begun = new_session();
    let launch = |args: &[&str]| Launch {
        args: args.iter().map(|a| (*a).to_owned()).collect(),
        env: BTreeMap::from([("GGML_VK_ALLOW_GRAPHICS_QUEUE".to_owned(), "1".to_owned())]),
    };
    NewProfile {
        profile: Profile {
            id: 0,
            session,
            fingerprint: begun.fingerprint.hash,
            runtime_digest: begun.runtime.digest,
            model_digest: begun.model.digest,
            goal: Goal::Generation,
            settings: graphics_queue(),
            bench: launch(&["-dev", "Vulkan0"]),
            server: launch(&["--device", "Vulkan0"]),
            created_at: Timestamp(1_764_374_500_000),
            simulated: false,
        },
        introduced_by: vec![("graphics-queue".to_owned(), run)],
        verdict_id,
    }
}

pub fn notices() -> [Notice; 2] {
    [
        (NoticeLevel::Warning, "on-battery"),
        (NoticeLevel::Info, "warm-up"),
    ]
    .map(|(level, code)| Notice {
        level,
        code: code.to_owned(),
        text: "it's on battery – 电池".to_owned(),
    })
}

/// Ids of a session with a run of every outcome, notices, a verdict, a profile and two ends.
pub struct Filled {
    pub session: i64,
    pub runs: Vec<i64>,
    pub verdict: i64,
    pub profile: i64,
    /// What the sensors said is among it.
    pub has_sensors: bool,
}

pub fn fill(store: &SqliteStore) -> Filled {
    let begun = new_session();
    store
        .remember_scan(Timestamp(5), &begun.fingerprint)
        .unwrap();
    let session = store.begin_session(&begun).unwrap();
    let mut runs = Vec::new();
    for (seq, (planned, run)) in (0..).zip(outcomes()) {
        runs.push(store.append_run(session, seq, &planned, &run).unwrap());
    }
    for notice in notices() {
        store.append_notice(session, &notice).unwrap();
    }
    let detail = json!({"ci95_pct": [0.1 + 0.2, 68.8]});
    let verdict = store
        .append_verdict(session, &graphics_queue(), Verdict::Improved, &detail)
        .unwrap();
    let profile = store
        .save_profile(&profile(session, verdict, runs[1]))
        .unwrap();
    let ends = [
        end(9, SessionState::Cancelled, None),
        end(8, SessionState::Done, Some(Verdict::Improved)),
    ];
    for end in ends {
        store.end_session(session, &end).unwrap();
    }
    Filled {
        has_sensors: true,
        session,
        runs,
        verdict,
        profile,
    }
}

/// Formats before 4 keep none.
fn forget_sensors(run: &mut Run) {
    run.telemetry = None;
    if let RunOutcome::Valid { tests } = &mut run.outcome {
        for test in tests {
            test.energy = None;
        }
    }
}

/// What `fill` stored, asked back through every reading call.
pub fn assert_filled(store: &SqliteStore, ids: &Filled) {
    let session = store.session(ids.session).unwrap().unwrap();
    assert_eq!(session.id, ids.session);
    assert_eq!(session.begun, new_session());
    assert_eq!(
        session.end,
        Some(end(8, SessionState::Done, Some(Verdict::Improved))),
        "the last end stored counts, whatever its clock said"
    );
    let runs = store.runs(ids.session).unwrap();
    assert_eq!(runs.iter().map(|r| r.id).collect::<Vec<_>>(), ids.runs);
    assert_eq!(
        runs.iter().map(|r| r.seq).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
    let back: Vec<_> = runs
        .iter()
        .map(|r| (r.planned.clone(), r.run.clone()))
        .collect();
    let mut stored = outcomes();
    if !ids.has_sensors {
        for (_, run) in &mut stored {
            forget_sensors(run);
        }
    }
    assert_eq!(back, stored);
    assert_eq!(store.notices(ids.session).unwrap(), notices());

    let verdict = StoredVerdict {
        id: ids.verdict,
        session: ids.session,
        settings: graphics_queue(),
        verdict: Verdict::Improved,
        detail: json!({"ci95_pct": [0.1 + 0.2, 68.8]}),
    };
    assert_eq!(
        store.verdicts(ids.session).unwrap(),
        std::slice::from_ref(&verdict)
    );
    assert_eq!(store.confirmation_of(ids.profile).unwrap(), Some(verdict));
    let mut kept = profile(ids.session, ids.verdict, ids.runs[1]).profile;
    kept.id = ids.profile;
    assert_eq!(store.profiles().unwrap(), [kept]);
    let why = Introduction {
        dimension: "graphics-queue".to_owned(),
        value: "on".to_owned(),
        run: runs[1].clone(),
    };
    assert_eq!(store.introductions(ids.profile).unwrap(), [why]);

    assert_history(store, ids);
}

/// The history line and the fingerprints of what `fill` stored.
fn assert_history(store: &SqliteStore, ids: &Filled) {
    let begun = new_session();
    let fingerprint = Some(begun.fingerprint.clone());
    assert_eq!(store.last_scan().unwrap(), fingerprint);
    assert_eq!(
        store.fingerprint(&begun.fingerprint.hash).unwrap(),
        fingerprint
    );
    let line = SessionLine {
        id: ids.session,
        kind: SessionKind::Tune,
        started_at: begun.started_at,
        model: "模型 it's".to_owned(),
        runtime: "b11149-vulkan".to_owned(),
        goal: Goal::Generation,
        fingerprint: begun.fingerprint.hash,
        runs: 5,
        state: Some(SessionState::Done),
        verdict: Some(Verdict::Improved),
        simulated: false,
        primary: None,
        change_pct: None,
        ci95_pct: None,
        settings: Some(graphics_queue()),
        profile: Some(ids.profile),
    };
    assert_eq!(store.sessions(10).unwrap(), [line]);
}
