//! The history: pages, search, numbers of a line, deletion and its undoing.

use flux::domain::types::*;
use flux::ports::*;
use flux::store::{Access, SqliteStore};
use serde_json::json;

use crate::sample::*;

/// A page of the history.
pub fn page(store: &SqliteStore, filter: &SessionFilter) -> SessionPage {
    store.find_sessions(filter).unwrap()
}

fn ids(store: &SqliteStore, filter: &SessionFilter) -> Vec<i64> {
    page(store, filter).lines.iter().map(|l| l.id).collect()
}

/// Sessions 1 to 4, begun at 100 to 400.
fn four(store: &SqliteStore) {
    let sessions = [
        (
            "Qwen3-4B",
            "b11149-vulkan",
            Goal::Generation,
            SessionKind::Tune,
        ),
        ("МОДЕЛЬ 12B", "b11149-cuda", Goal::Prompt, SessionKind::Tune),
        ("Qwen3-8B", "b4-cuda", Goal::Generation, SessionKind::Ab),
        (
            "qwen3-4b",
            "b11149-vulkan",
            Goal::Request,
            SessionKind::Tune,
        ),
    ];
    for (at, (model, runtime, goal, kind)) in (1..).zip(sessions) {
        let mut begun = new_session();
        begun.started_at = Timestamp(100 * at);
        model.clone_into(&mut begun.model.name);
        runtime.clone_into(&mut begun.runtime.name);
        (begun.goal, begun.kind) = (goal, kind);
        if at == 2 {
            begun.fingerprint.hash = "cd".repeat(32);
        }
        assert_eq!(store.begin_session(&begun).unwrap(), at);
        let plan = planned(Stage::Screening, graphics_queue());
        for seq in 0..u32::try_from(at).unwrap() {
            store.append_run(at, seq, &plan, &valid(0)).unwrap();
        }
    }
    let improved = Some(Verdict::Improved);
    store
        .end_session(1, &end(1, SessionState::Done, improved))
        .unwrap();
    store
        .end_session(2, &end(2, SessionState::Cancelled, None))
        .unwrap();
    store
        .end_session(3, &end(3, SessionState::Done, Some(Verdict::Regressed)))
        .unwrap();
    let wide = Settings::stock().with("ubatch", "1024");
    store
        .append_verdict(1, &graphics_queue(), Verdict::Improved, &json!({}))
        .unwrap();
    store
        .append_verdict(3, &wide, Verdict::Regressed, &json!({}))
        .unwrap();
}

#[test]
fn a_filter_finds_what_passes_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    four(&store);
    let all = SessionFilter::default;
    let found = page(&store, &all());
    assert_eq!(ids(&store, &all()), [4, 3, 2, 1]);
    // 1 + 2 + 3 + 4 runs of four samples each.
    assert_eq!((found.total, found.samples), (4, 40));

    let text = |text: &str| {
        let text = text.to_owned();
        ids(&store, &SessionFilter { text, ..all() })
    };
    assert_eq!(text("QWEN3-4b"), [4, 1]);
    assert_eq!(text("модель"), [2]);
    assert_eq!(text("  cuda   qwen3 "), [3]);
    assert_eq!(text("ubatch=1024"), [3]);
    assert_eq!(text("graphics queue generation"), [1]);
    assert_eq!(text("#2"), [2]);
    // The number of a session, and a name with that digit.
    assert_eq!(text("4"), [4, 3, 2, 1]);
    assert_eq!(text("cuda request"), [0; 0]);
    assert_eq!(text("%' OR 1=1 --"), [0; 0]);

    let verdict = Some(Verdict::Regressed);
    assert_eq!(ids(&store, &SessionFilter { verdict, ..all() }), [3]);
    let kind = Some(SessionKind::Tune);
    assert_eq!(ids(&store, &SessionFilter { kind, ..all() }), [4, 2, 1]);
    for (standing, expected) in [
        (Standing::Open, vec![4]),
        (Standing::Ended(SessionState::Done), vec![3, 1]),
        (Standing::Ended(SessionState::Cancelled), vec![2]),
        (Standing::Ended(SessionState::Failed), vec![]),
    ] {
        let standing = Some(standing);
        assert_eq!(ids(&store, &SessionFilter { standing, ..all() }), expected);
    }
    let fingerprint = Some("cd".repeat(32));
    let other = SessionFilter {
        fingerprint,
        ..all()
    };
    assert_eq!(ids(&store, &other), [2]);
    let between = SessionFilter {
        since: Some(Timestamp(200)),
        until: Some(Timestamp(400)),
        ..all()
    };
    assert_eq!(ids(&store, &between), [3, 2]);

    let second = SessionFilter {
        offset: 1,
        limit: 2,
        text: "b11149".to_owned(),
        ..all()
    };
    let found = page(&store, &second);
    assert_eq!(ids(&store, &second), [2, 1]);
    assert_eq!((found.total, found.samples), (3, 4 * (1 + 2 + 4)));
    let beyond = SessionFilter { offset: 9, ..all() };
    assert_eq!(
        (ids(&store, &beyond).len(), page(&store, &beyond).total),
        (0, 4)
    );
}

#[test]
fn a_line_has_the_numbers_of_the_judgement_that_counts() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    let id = store.begin_session(&new_session()).unwrap();
    let line = || store.sessions(1).unwrap().remove(0);
    let plain = line();
    assert_eq!((plain.primary, plain.change_pct), (None, None));
    assert_eq!((plain.settings, plain.profile), (None, None));

    let detail = |change: serde_json::Value, interval: serde_json::Value| {
        json!({"primary": "tg128", "metrics": {
            "pp512": {"confirmed": {"change_pct": 9.0, "ci95_pct": null}},
            "tg128": {"confirmed": {"change_pct": change, "ci95_pct": interval}}}})
    };
    // Without runs a change is unknown, and is stored as null.
    let unknown = detail(json!(null), json!(null));
    store
        .append_verdict(id, &Settings::stock(), Verdict::Inconclusive, &unknown)
        .unwrap();
    let shown = line();
    assert_eq!(shown.primary.as_deref(), Some("tg128"));
    assert_eq!((shown.change_pct, shown.ci95_pct), (None, None));
    assert_eq!(shown.settings, Some(Settings::stock()));

    let won = detail(json!(68.3), json!([67.9, 68.8]));
    let verdict = store
        .append_verdict(id, &graphics_queue(), Verdict::Improved, &won)
        .unwrap();
    let plan = planned(Stage::Screening, graphics_queue());
    let run = store.append_run(id, 0, &plan, &valid(0)).unwrap();
    let profile = store.save_profile(&profile(id, verdict, run)).unwrap();
    // Judged after the winner, and not saved: the line is about the winner.
    store
        .append_verdict(id, &Settings::stock(), Verdict::Inconclusive, &unknown)
        .unwrap();
    let shown = line();
    assert_eq!(shown.change_pct, Some(68.3));
    assert_eq!(shown.ci95_pct, Some([67.9, 68.8]));
    assert_eq!(shown.settings, Some(graphics_queue()));
    assert_eq!(shown.profile, Some(profile));
}

#[test]
fn a_deleted_session_is_listed_nowhere_and_comes_back_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    let filled = fill(&store);
    let other = fill(&store);
    store
        .set_deleted(filled.session, true, Timestamp(50))
        .unwrap();
    for access in [Access::Measure, Access::Look] {
        let store = SqliteStore::open(dir.path(), access).unwrap();
        assert_eq!(ids(&store, &SessionFilter::default()), [other.session]);
        assert_eq!(page(&store, &SessionFilter::default()).samples, 8);
        let profiles = store.profiles().unwrap();
        assert_eq!(profiles.len(), 1);
        assert_eq!(profiles[0].id, other.profile);
        // By its number it still answers: that is how it is shown before it is restored.
        assert!(store.session(filled.session).unwrap().is_some());
    }
    store
        .set_deleted(other.session, true, Timestamp(60))
        .unwrap();
    assert_eq!(store.sessions(9).unwrap(), []);
    // The last mark counts, whatever its clock said.
    store
        .set_deleted(filled.session, false, Timestamp(40))
        .unwrap();
    assert_filled(&store, &filled);
    let unknown = store.set_deleted(99, true, Timestamp(1)).unwrap_err();
    assert!(
        unknown
            .headline
            .starts_with("the database refused the entry"),
        "{unknown:?}"
    );
}

#[test]
fn heads_of_runs_and_raw_output_make_the_runs() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    let filled = fill(&store);
    let heads = store.run_heads(filled.session).unwrap();
    let put_together: Vec<StoredRun> = heads
        .into_iter()
        .map(|head| StoredRun {
            id: head.id,
            seq: head.seq,
            planned: head.planned,
            run: Run {
                started_at: head.started_at,
                wall_secs: head.wall_secs,
                outcome: head.outcome,
                buffers: head.buffers,
                raw: store.raw(head.id).unwrap().unwrap(),
                telemetry: head.telemetry,
            },
        })
        .collect();
    assert_eq!(put_together, store.runs(filled.session).unwrap());
    assert_eq!(store.raw(99).unwrap(), None);
    assert_eq!(store.run_heads(99).unwrap(), []);
}
