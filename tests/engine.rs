//! The protocol's invariants (design section 1, style B2) on a scripted runner and a real store.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;
#[path = "support/scripted_engine.rs"]
mod scripted_engine;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flux::domain::settings::AppSettings;
use flux::domain::telemetry::{HOST, Metric, Reading, SeriesId};
use flux::domain::types::{FailureClass, Stage, Timestamp, Verdict};
use flux::engine::message::{AbRequest, Command, EventKind, Outcome};
use flux::engine::telemetry::forget_old;
use flux::ports::{CancelMode, SessionEnd, SessionState, Store as _};
use serde_json::{Value, json};

use scripted_engine::{Answer, Desk, Gate, finished};

/// Without what differs from one session to the next by nature.
fn comparable(document: &Value) -> Value {
    let mut document = document.clone();
    for key in ["overhead", "model"] {
        document.as_object_mut().unwrap().remove(key);
    }
    document
}

fn done(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Done { result } => result,
        other => panic!("not done: {other:?}"),
    }
}

/// An unbroken session: its document and the stage of each of its runs.
fn unbroken() -> (Value, Vec<Stage>) {
    let desk = Desk::new(|_| Answer::Valid);
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    let document = done(finished(&events, job));
    let runs = desk.store.runs(1).unwrap();
    (document, runs.iter().map(|r| r.planned.stage).collect())
}

#[test]
fn events_are_numbered_one_by_one_and_end_with_the_only_finished() {
    let desk = Desk::new(|_| Answer::Valid);
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    let mut seen = Vec::new();
    loop {
        let event = events.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(event.job, job);
        assert_eq!(event.seq, seen.len() as u64);
        if let EventKind::RunStored { run, seq, .. } = &event.kind {
            // Announced only when it can be read back.
            let stored = desk.store.runs(1).unwrap();
            assert_eq!(stored[*seq as usize].id, *run);
        }
        let is_last = matches!(event.kind, EventKind::Finished(_));
        seen.push(event.kind);
        if is_last {
            break;
        }
    }
    drop(engine);
    assert!(events.try_recv().is_err(), "nothing after the end");
    assert!(matches!(
        &seen[0],
        EventKind::Started { job_kind, session: Some(1), plan, .. } if job_kind == "tune" && !plan.is_empty()
    ));
    let verdicts: Vec<&Value> = seen
        .iter()
        .filter_map(|kind| match kind {
            EventKind::Verdict { confirmation, .. } => Some(confirmation),
            _ => None,
        })
        .collect();
    assert_eq!(verdicts.len(), 1);
    assert_eq!(verdicts[0]["verdict"], json!("improved"));
    let end = desk.store.session(1).unwrap().unwrap().end.unwrap();
    assert_eq!(
        (end.state, end.verdict),
        (SessionState::Done, Some(Verdict::Improved))
    );
    let Some(EventKind::Finished(Outcome::Done { result })) = seen.last() else {
        panic!("not done")
    };
    assert_eq!(end.result, *result, "what is stored is what is printed");
    assert_eq!(
        result["confirmation"], *verdicts[0],
        "and what was announced"
    );
    assert_eq!(result["profile"]["settings"], json!({"flash-attn": "on"}));
    assert_eq!(desk.store.profiles().unwrap().len(), 1);
}

/// Cancels during run `at` (from 0) and returns the runs kept.
fn cancelled_at(at: u32, mode: CancelMode) -> (Desk, u32) {
    let gate = Gate::new(at);
    let desk = Desk::new(gate.script());
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    gate.pass(|| {
        engine.cancel(job, mode);
        // A gentler word never softens a harder one.
        engine.cancel(job, CancelMode::AfterSample);
    });
    let outcome = finished(&events, job);
    let Outcome::Cancelled { kept_runs, session } = outcome else {
        panic!("not cancelled: {outcome:?}")
    };
    assert_eq!(session, Some(1));
    assert_eq!(desk.store.runs(1).unwrap().len(), kept_runs as usize);
    let end = desk.store.session(1).unwrap().unwrap().end.unwrap();
    assert_eq!((end.state, end.verdict), (SessionState::Cancelled, None));
    // An ended job is left alone, and one that never was too.
    engine.cancel(job, CancelMode::Now);
    drop(engine);
    assert!(events.try_recv().is_err());
    (desk, kept_runs)
}

#[test]
fn a_cancel_keeps_the_run_in_progress_or_not_as_asked() {
    assert_eq!(cancelled_at(4, CancelMode::AfterSample).1, 5);
    assert_eq!(cancelled_at(4, CancelMode::Now).1, 4);
    assert_eq!(cancelled_at(0, CancelMode::Now).1, 0);
}

#[test]
fn a_cancel_during_the_confirmation_keeps_samples_and_saves_no_profile() {
    let (_, stages) = unbroken();
    let is_confirmation = |s: &&Stage| **s == Stage::Confirmation;
    let first = stages.iter().position(|s| is_confirmation(&s)).unwrap();
    let last = stages.iter().rposition(|s| is_confirmation(&s)).unwrap();
    assert_eq!(last + 1, stages.len(), "the session ends with it");
    for at in [first, last] {
        for mode in [CancelMode::AfterSample, CancelMode::Now] {
            let (desk, kept) = cancelled_at(u32::try_from(at).unwrap(), mode);
            let expected = at + usize::from(mode == CancelMode::AfterSample);
            assert_eq!(kept as usize, expected);
            assert_eq!(desk.store.profiles().unwrap(), []);
        }
    }
}

#[test]
fn a_resumed_session_ends_exactly_as_an_unbroken_one() {
    let (whole, stages) = unbroken();
    let last = u32::try_from(stages.len() - 1).unwrap();
    for (at, mode) in [
        (0, CancelMode::Now),
        (5, CancelMode::AfterSample),
        (last, CancelMode::Now),
        (last, CancelMode::AfterSample),
    ] {
        let (desk, kept) = cancelled_at(at, mode);
        let (mut engine, events) = desk.engine();
        let job = engine.submit(desk.tune(Some(1))).unwrap();
        let document = done(finished(&events, job));
        assert_eq!(comparable(&document), comparable(&whole), "broken at {at}");
        // Ten seconds each, which this command did not spend.
        let earlier = document["overhead"]["earlier_run_secs"].as_f64();
        let unspent = earlier.unwrap_or(0.0) - 10.0 * f64::from(kept);
        assert!(unspent.abs() < 1e-9, "{earlier:?} of {kept} runs");
        assert_eq!(desk.store.sessions(9).unwrap().len(), 1);
        assert_eq!(desk.store.verdicts(1).unwrap().len(), 1);
        // Done is done.
        let again = engine.submit(desk.tune(Some(1))).unwrap();
        let Outcome::Failed { error } = finished(&events, again) else {
            panic!("resumed a finished session")
        };
        assert_eq!(error.code, "not-resumable");
    }
}

#[test]
fn a_panic_fails_the_job_alone_and_the_session_can_be_resumed() {
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = Arc::clone(&broken);
    let desk = Desk::new(move |run| {
        assert!(
            !(run.number == 3 && is_broken.swap(false, Ordering::SeqCst)),
            "a bug"
        );
        Answer::Valid
    });
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    let Outcome::Failed { error } = finished(&events, job) else {
        panic!("not failed")
    };
    assert_eq!(error.code, "panicked");
    assert!(error.headline.ends_with("a bug"), "{}", error.headline);
    assert_eq!(desk.store.runs(1).unwrap().len(), 3);
    let again = engine.submit(desk.tune(Some(1))).unwrap();
    assert_eq!(done(finished(&events, again))["verdict"], "improved");
}

#[test]
fn a_session_that_went_on_has_no_end_until_it_ends_again() {
    let desk = Desk::new(|_| panic!("as sudden as a kill"));
    let (mut engine, events) = desk.engine();
    let mut breaks_off = |resume| {
        let job = engine.submit(desk.tune(resume)).unwrap();
        assert!(matches!(finished(&events, job), Outcome::Failed { .. }));
        desk.store.session(1).unwrap().unwrap().end
    };
    assert_eq!(breaks_off(None), None);
    let cancelled = SessionEnd {
        ended_at: Timestamp(1),
        state: SessionState::Cancelled,
        verdict: None,
        result: serde_json::Value::Null,
    };
    desk.store.end_session(1, &cancelled).unwrap();
    assert_eq!(breaks_off(Some(1)), None);
    assert_eq!(desk.store.sessions(9).unwrap()[0].state, None);
}

#[test]
fn a_baseline_that_does_not_run_fails_the_session_with_advice() {
    let desk = Desk::new(|_| Answer::Fails(FailureClass::OutOfMemory));
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    let Outcome::Failed { error } = finished(&events, job) else {
        panic!("not failed")
    };
    assert_eq!(error.code, "nothing-runs");
    assert_eq!(
        error.hint.as_deref(),
        Some(FailureClass::OutOfMemory.advice())
    );
    let end = desk.store.session(1).unwrap().unwrap().end.unwrap();
    assert_eq!(end.state, SessionState::Failed);
    assert_eq!(desk.store.profiles().unwrap(), []);
}

#[test]
fn a_second_measuring_job_is_refused_and_other_jobs_are_not() {
    let gate = Gate::new(1);
    let desk = Desk::new(gate.script());
    let (mut engine, events) = desk.engine();
    let first = engine.submit(desk.tune(None)).unwrap();
    gate.pass(|| {
        let TuneLike { tune, ab } = TuneLike::of(&desk);
        for second in [tune, ab] {
            assert_eq!(engine.submit(second).unwrap_err().code, "busy");
        }
        let copy = desk.synth("second.gguf");
        let other = engine.submit(copy).unwrap();
        let outcome = finished(&events, other);
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    });
    done(finished(&events, first));
    let next = engine.submit(desk.tune(None)).unwrap();
    done(finished(&events, next));
}

struct TuneLike {
    tune: Command,
    ab: Command,
}

impl TuneLike {
    fn of(desk: &Desk) -> Self {
        let ab = AbRequest {
            model: desk.bed.model.clone(),
            a: "stock".to_owned(),
            b: "flash-attn=on".to_owned(),
            runtime: None,
            device: None,
            goal: flux::domain::types::Goal::Generation,
            repetitions: None,
            processes: Some(4),
            prompt_tokens: None,
            generated_tokens: None,
            depth: 0,
        };
        Self {
            tune: desk.tune(None),
            ab: Command::Ab(ab),
        }
    }
}

#[test]
fn an_ab_ends_like_any_job_and_saves_no_profile() {
    let desk = Desk::new(|_| Answer::Valid);
    let (mut engine, events) = desk.engine();
    let job = engine.submit(TuneLike::of(&desk).ab).unwrap();
    let document = done(finished(&events, job));
    assert_eq!(document["verdict"], "improved");
    assert_eq!(desk.store.profiles().unwrap(), []);
    let end = desk.store.session(1).unwrap().unwrap().end.unwrap();
    assert_eq!(end.state, SessionState::Done);
}

#[test]
fn an_ab_that_is_cancelled_or_fails_is_ended_so() {
    let gate = Gate::new(3);
    let desk = Desk::new(gate.script());
    let (mut engine, events) = desk.engine();
    let job = engine.submit(TuneLike::of(&desk).ab).unwrap();
    gate.pass(|| engine.cancel(job, CancelMode::Now));
    assert!(matches!(
        finished(&events, job),
        Outcome::Cancelled {
            kept_runs: 3,
            session: Some(1)
        }
    ));
    let desk_failing = Desk::new(|_| Answer::Fails(FailureClass::ModelLoad));
    let (mut engine, events) = desk_failing.engine();
    let job = engine.submit(TuneLike::of(&desk_failing).ab).unwrap();
    let Outcome::Failed { error } = finished(&events, job) else {
        panic!("not failed")
    };
    assert_eq!(error.code, "arm-failed");
    let state = |desk: &Desk| desk.store.session(1).unwrap().unwrap().end.unwrap().state;
    assert_eq!(state(&desk), SessionState::Cancelled);
    assert_eq!(state(&desk_failing), SessionState::Failed);
}

#[test]
fn a_reader_that_is_gone_ends_the_job_quietly() {
    let gate = Gate::new(2);
    let desk = Desk::new(gate.script());
    let (mut engine, events) = desk.engine();
    engine.submit(desk.tune(None)).unwrap();
    gate.pass(|| drop(events));
    // The job ends by itself: a new one is not refused for long.
    bench_runs::wait_until("the session ended", || {
        desk.store.session(1).unwrap().unwrap().end.is_some()
    });
    drop(engine);
    let end = desk.store.session(1).unwrap().unwrap().end.unwrap();
    assert_eq!(end.state, SessionState::Cancelled);
    assert_eq!(desk.store.runs(1).unwrap().len(), 3, "its run is kept");
}

#[test]
fn dropping_the_engine_ends_its_job_even_when_nobody_reads() {
    let desk = Desk::new(|_| Answer::Valid);
    let (mut engine, events) = desk.engine();
    engine.submit(desk.tune_with(None, 150)).unwrap();
    bench_runs::wait_until("the job waits for its reader", || events.is_full());
    let (sender, dropped) = std::sync::mpsc::channel();
    std::thread::Builder::new()
        .spawn(move || {
            drop(engine);
            sender.send(()).unwrap();
        })
        .unwrap();
    dropped
        .recv_timeout(Duration::from_secs(20))
        .expect("the engine is gone");
    let end = desk.store.session(1).unwrap().unwrap().end.unwrap();
    assert_eq!(end.state, SessionState::Cancelled);
}

#[test]
fn another_flux_that_measures_here_is_an_error_before_anything_is_stored() {
    let desk = Desk::new(|_| Answer::Valid);
    let held = desk.store.begin_measuring().unwrap();
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    let Outcome::Failed { error } = finished(&events, job) else {
        panic!("measured all the same")
    };
    assert!(
        error
            .headline
            .contains("is measuring with this data folder")
    );
    drop(held);
    assert_eq!(desk.store.sessions(9).unwrap().len(), 0);
}

#[test]
fn what_is_read_while_a_session_is_measured_is_stored_with_it() {
    let during = Gate::new(2);
    let desk = Desk::new(during.script());
    let (mut engine, events) = desk.engine();
    let shortest = flux::engine::telemetry::SHORTEST_INTERVAL;
    let ticks = engine.watch(shortest, true).unwrap();
    let tick = || ticks.recv_timeout(Duration::from_secs(20)).unwrap();
    let seven = |reading: &Reading| (7.0..=7.0).contains(&reading.value);
    assert!(tick().readings.iter().all(seven));
    let job = engine.submit(desk.tune(None)).unwrap();
    during.pass(|| {
        // The first may have been read before the job began.
        let _ = (tick(), tick());
    });
    done(finished(&events, job));
    engine.stop_watching();
    assert!(ticks.iter().count() < 100, "its thread has ended");
    let stored = |session| {
        let (from, to) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
        desk.store.telemetry(session, from, to).unwrap()
    };
    let kept = stored(1);
    assert!(!kept.is_empty() && kept.iter().all(seven));
    // Not asked to keep, nothing is kept; and watching anew ends what was before.
    let first = engine.watch(shortest, false).unwrap();
    let second = engine.watch(shortest, false).unwrap();
    assert!(first.iter().count() < 100);
    let job = engine.submit(desk.tune(None)).unwrap();
    done(finished(&events, job));
    let _ = second.recv_timeout(Duration::from_secs(20)).unwrap();
    drop(engine);
    assert!(second.iter().count() < 100);
    assert_eq!(stored(2), []);
}

#[test]
fn old_readings_are_forgotten_as_the_owner_wants() {
    const DAY_MS: i64 = 86_400_000;
    let desk = Desk::new(|_| Answer::Valid);
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    done(finished(&events, job));
    engine.stop_watching();
    let now = desk.ports.clock.now().0;
    let reading = |days: i64| Reading {
        series: SeriesId {
            source: HOST.to_owned(),
            metric: Metric::CpuLoad,
        },
        at: Timestamp(now - days * DAY_MS),
        value: 7.0,
    };
    let readings = [reading(400), reading(31), reading(29)];
    desk.store.append_telemetry(1, &readings).unwrap();
    let oldest = |days: u32| {
        let settings = AppSettings {
            telemetry_days: days,
            ..AppSettings::default()
        };
        desk.ports.settings.save(&settings).unwrap();
        forget_old(&desk.ports).unwrap();
        let (first, _) = desk.store.telemetry_span(1).unwrap().unwrap();
        (now - first.0) / DAY_MS
    };
    assert_eq!(oldest(0), 400, "0 is for ever");
    assert_eq!(oldest(365), 31);
    assert_eq!(oldest(30), 29);
    assert!(!desk.store.runs(1).unwrap().is_empty());
}

#[test]
fn a_session_goes_on_only_with_settings_that_mean_the_same() {
    let gate = Gate::new(2);
    let desk = Desk::new(gate.script());
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    gate.pass(|| engine.cancel(job, CancelMode::Now));
    assert!(matches!(
        finished(&events, job),
        Outcome::Cancelled { kept_runs: 2, .. }
    ));
    let shipped = include_str!("../assets/search-space.toml");
    let file = desk.bed.data.join("own.toml");
    let mut resume_with = |space: &str| {
        std::fs::write(&file, space).unwrap();
        desk.ports.space.install(&file).unwrap();
        let job = engine.submit(desk.tune(Some(1))).unwrap();
        finished(&events, job)
    };
    let refused = |outcome| match outcome {
        Outcome::Failed { error } => (error.code, error.headline),
        other => panic!("not refused: {other:?}"),
    };
    let because = |why: &str| {
        let text = format!("session 1 cannot be resumed: the search space {why}");
        ("space-changed".to_owned(), text)
    };
    let renamed = shipped.replace("id = \"flash-attn\"", "id = \"flash\"");
    let renamed = renamed.replace("flash-attn = [", "flash = [");
    assert_eq!(
        refused(resume_with(&renamed)),
        because("no longer has flash-attn")
    );
    let other = shipped.replace(
        "bench = [\"--flash-attn\", \"on\"]",
        "bench = [\"--flash-attn\", \"1\"]",
    );
    assert_ne!(other, shipped);
    assert_eq!(
        refused(resume_with(&other)),
        because("changed what its settings mean since")
    );
    // Other words, and a dimension more, change nothing for it.
    let more = shipped.replace("summary = \"", "summary = \"Own: ")
        + "\n[[dimension]]\nid = \"x\"\ntitle = \"X\"\nsummary = \"s\"\naffects = \"both\"\n[[dimension.value]]\nid = \"on\"\nenv = { GGML_VK_DISABLE_F16 = \"1\" }\n";
    assert!(matches!(resume_with(&more), Outcome::Done { .. }));
}
