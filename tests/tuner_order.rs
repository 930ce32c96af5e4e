//! The exact order of runs for small spaces, and that a resumed session ends as the unbroken one.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use flux::domain::search::{Ab, AbPlan, CandidateStatus, Step, TuneNote, TunePlan, Tuner};
use flux::domain::types::{
    FailureClass, Goal, PlannedRun, Run, RunOutcome, Settings, Side, Stage, Verdict,
};
use proptest::prelude::*;

#[path = "support/sim.rs"]
mod sim;

use sim::{
    Bench, Noise, OrderTest, Truth, failed, finish, plan, run, rx580_plan, settings, tune, word,
};

#[test]
fn baseline_brackets_the_screening_and_a_winner_is_confirmed_interleaved() {
    let outcome = OrderTest::new(&[("a", &["on"]), ("b", &["on"])])
        .truth(|t| t.with("a=on", 1.0, 1.2))
        .expect(&[
            "warm stock",
            "base stock",
            "base stock",
            "screen a=on",
            "screen a=on",
            "base stock",
            "screen a=on b=on",
            "base stock",
            "warm a=on",
            "ABBABAAB",
        ]);
    assert_eq!(outcome.verdict, Some(Verdict::Improved));
    assert_eq!(outcome.winner, Some(settings("a=on")));
    // Run 3 (from 0) is the screening run that brought it in.
    assert_eq!(outcome.introduced_by, vec![("a".to_owned(), 3)]);
    assert_eq!(outcome.confirmations[0].runs.len(), 8);
}

#[test]
fn each_dimension_is_searched_on_top_of_the_best_and_both_earn_their_place() {
    let outcome = OrderTest::new(&[("a", &["on"]), ("b", &["on"])])
        .truth(|t| t.with("a=on", 1.0, 1.2).with("b=on", 1.0, 1.1))
        .expect(&[
            "warm stock",
            "base stock",
            "base stock",
            "screen a=on",
            "screen a=on",
            "base stock",
            "screen a=on b=on",
            "screen a=on b=on",
            "base stock",
            "drop b=on",
            // Without b is a=on, which screening has measured.
            "warm a=on b=on",
            "ABBABAAB",
        ]);
    assert_eq!(outcome.winner, Some(settings("a=on b=on")));
}

#[test]
fn a_setting_that_does_not_earn_its_place_leaves() {
    // b makes up for a: with b, a does nothing.
    let outcome = OrderTest::new(&[("a", &["on"]), ("b", &["on"])])
        .truth(|t| {
            t.with("a=on", 1.0, 1.2)
                .with("b=on", 1.0, 1.5)
                .pair(&["a=on", "b=on"], 1.0, 1.0 / 1.2)
        })
        .expect(&[
            "warm stock",
            "base stock",
            "base stock",
            "screen a=on",
            "screen a=on",
            "base stock",
            "screen a=on b=on",
            "screen a=on b=on",
            "base stock",
            "drop b=on",
            "warm b=on",
            "ABBABAAB",
        ]);
    assert_eq!(outcome.winner, Some(settings("b=on")));
}

#[test]
fn a_pair_that_helps_only_together_is_found() {
    let outcome = OrderTest::new(&[("a", &["on"]), ("b", &["on"]), ("c", &["on"])])
        .truth(|t| t.pair(&["a=on", "c=on"], 1.0, 1.08))
        .run()
        .1;
    assert_eq!(outcome.winner, Some(settings("a=on c=on")));
    let pair = outcome.candidates.iter().find(|c| c.adopted).unwrap();
    assert_eq!(pair.stage, Stage::Pairs);
    // Each setting is introduced by the run of the pair.
    let seq = pair.runs[0];
    assert_eq!(
        outcome.introduced_by,
        vec![("a".to_owned(), seq), ("c".to_owned(), seq)]
    );
}

#[test]
fn the_largest_union_is_repeated_and_narrowed_down() {
    // Small gains of their own fix the order: a b reads +1.0 %, a c +8.9 %, b c +0.6 %; beyond noise is +1.6 %.
    let outcome = OrderTest::new(&[("a", &["on"]), ("b", &["on"]), ("c", &["on"])])
        .truth(|t| {
            t.with("a=on", 1.0, 1.006)
                .with("b=on", 1.0, 1.004)
                .with("c=on", 1.0, 1.002)
                .pair(&["a=on", "c=on"], 1.0, 1.08)
        })
        .expect(&[
            "warm stock",
            "base stock",
            "base stock",
            "screen a=on",
            "base stock",
            "screen b=on",
            "screen c=on",
            "base stock",
            // The best so far, for a firm level to count from.
            "base stock",
            "base stock",
            "pair a=on b=on",
            "pair a=on c=on",
            "pair b=on c=on",
            // Repeated as a union, and again as what it was narrowed down to: a alone is known.
            "pair a=on c=on",
            "pair a=on c=on",
            "warm a=on c=on",
            "ABBABAAB",
        ]);
    assert_eq!(outcome.winner, Some(settings("a=on c=on")));
}

#[test]
fn values_of_one_dimension_are_never_paired_but_each_meets_the_others() {
    let (words, outcome) = OrderTest::new(&[("a", &["1", "2"]), ("b", &["on"])])
        .truth(|t| t.pair(&["a=2", "b=on"], 1.0, 1.08))
        .run();
    assert!(
        words.iter().all(|w| w.matches("a=").count() <= 1),
        "{words:?}"
    );
    assert_eq!(outcome.winner, Some(settings("a=2 b=on")));
}

#[test]
fn nothing_better_ends_unchanged_without_a_confirmation() {
    let outcome = OrderTest::new(&[("a", &["on"])]).expect(&[
        "warm stock",
        "base stock",
        "base stock",
        "screen a=on",
        "base stock",
    ]);
    assert_eq!(outcome.verdict, Some(Verdict::Unchanged));
    assert_eq!(outcome.winner, None);
    assert!(
        outcome
            .reason
            .contains("no candidate beat the baseline by more than 1 %")
    );
}

#[test]
fn c15_stock_fails_and_the_graphics_queue_becomes_the_baseline() {
    let mut plan = rx580_plan();
    plan.processes = Some(4);
    let truth = Truth {
        stock_fails: Some(FailureClass::DeviceCreation),
        ..Truth::rx580()
    };
    let (runs, outcome) = tune(&plan, truth, Noise::QUIET, 1);
    let words: Vec<String> = runs.iter().take(4).map(|(p, _)| word(p)).collect();
    assert_eq!(
        words,
        [
            "warm stock",
            "warm graphics-queue=on",
            "base graphics-queue=on",
            "base graphics-queue=on"
        ]
    );
    let baseline = outcome.baseline.unwrap();
    assert_eq!(baseline.settings, settings("graphics-queue=on"));
    assert_eq!(
        baseline.stock_failure.unwrap().class,
        FailureClass::DeviceCreation
    );
    assert!(
        outcome
            .reason
            .starts_with("stock failed (device could not be created"),
        "{}",
        outcome.reason
    );
    // No percentage is ever against the failed stock: the old gain of the queue is no gain here.
    assert!(
        outcome
            .candidates
            .iter()
            .all(|c| c.change_pct.is_none_or(|p| p < 5.0))
    );
    assert_eq!(outcome.winner, None);
}

#[test]
fn a_gain_over_a_fallback_baseline_says_against_what() {
    let outcome = OrderTest::new(&[("a", &["on"]), ("b", &["on"])])
        .plan(|p| p.fallbacks = vec![settings("a=on")])
        .truth(|t| Truth {
            stock_fails: Some(FailureClass::OutOfMemory),
            ..t.with("b=on", 1.0, 1.2)
        })
        .expect(&[
            "warm stock",
            "warm a=on",
            "base a=on",
            "base a=on",
            // a=on is the baseline itself: nothing to screen.
            "base a=on",
            "screen a=on b=on",
            "screen a=on b=on",
            "base a=on",
            "warm a=on b=on",
            "ABBABAAB",
        ]);
    assert_eq!(outcome.winner, Some(settings("a=on b=on")));
    assert_eq!(
        outcome.introduced_by,
        vec![("a".to_owned(), 2), ("b".to_owned(), 5)]
    );
    let wanted = "stock failed (out of memory: as scripted); the baseline is a=on; ";
    assert!(outcome.reason.starts_with(wanted), "{}", outcome.reason);
}

#[test]
fn no_baseline_at_all_is_a_failure_with_its_class() {
    let mut plan = rx580_plan();
    plan.processes = Some(4);
    let (runs, outcome) = {
        let mut tuner = Tuner::new(plan);
        finish(&mut tuner, |_| failed(FailureClass::ModelLoad))
    };
    assert_eq!(runs.len(), 2);
    assert_eq!(outcome.verdict, None);
    assert_eq!(outcome.failure.unwrap().class, FailureClass::ModelLoad);
    assert!(outcome.reason.contains("no baseline runs here"));
}

#[test]
fn c14_after_a_lost_device_stock_must_work_before_the_next_candidate() {
    let outcome = OrderTest::new(&[("a", &["on"]), ("b", &["on"])])
        .truth(|t| t.failing("a=on", FailureClass::DeviceLostTimeout))
        .expect(&[
            "warm stock",
            "base stock",
            "base stock",
            "screen a=on",
            "base stock", // the probe
            "base stock",
            "screen b=on",
            "base stock",
        ]);
    let lost = &outcome.candidates[0];
    assert_eq!(lost.status, CandidateStatus::Failed);
    assert_eq!(
        lost.reason.as_deref(),
        Some("device lost: timeout: as scripted")
    );
    assert_eq!(lost.change_pct, None);
}

#[test]
fn c14_a_device_that_does_not_come_back_stops_the_session() {
    let mut plan = plan(&[("a", &["on"]), ("b", &["on"])]);
    plan.processes = Some(4);
    let mut bench = Bench::new(Truth::neutral(1000.0, 100.0), Noise::QUIET, plan.tests(), 1);
    let mut lost = false;
    let (runs, outcome) = finish(&mut Tuner::new(plan.clone()), |p| {
        lost |= !p.settings.is_stock();
        if lost {
            failed(FailureClass::DeviceLost)
        } else {
            bench.run(p)
        }
    });
    // Warm-up, two baselines, the candidate, the probe; b is never tried.
    assert_eq!(runs.len(), 5);
    assert_eq!(outcome.verdict, None);
    assert!(
        outcome.reason.contains("did not come back"),
        "{}",
        outcome.reason
    );
    assert_eq!(outcome.candidates.len(), 1);
}

#[test]
fn c41_every_confirmed_configuration_is_warmed_up_in_a_process_of_its_own() {
    let (runs, _) = tune(
        &OrderTest::new(&[("a", &["on"])]).plan,
        Truth::neutral(1000.0, 100.0).with("a=on", 1.0, 1.3),
        Noise::QUIET,
        1,
    );
    for side in [Side::A, Side::B] {
        let first = runs
            .iter()
            .position(|(p, _)| p.stage == Stage::Confirmation && p.side == Some(side));
        let arm = &runs[first.unwrap()].0.settings;
        let warm = runs
            .iter()
            .position(|(p, _)| p.stage == Stage::WarmUp && p.settings == *arm);
        assert!(warm.unwrap() < first.unwrap());
        let warm = &runs[warm.unwrap()].0;
        assert_eq!((warm.repetitions, warm.log_buffers), (1, true));
    }
}

#[test]
fn a_stale_profile_is_tried_first_and_the_outcome_says_what_became_of_it() {
    for (gain, reproduced) in [(1.2, true), (1.0, false)] {
        let (words, outcome) = OrderTest::new(&[("a", &["on"]), ("b", &["on"])])
            .plan(|p| p.first_candidate = Some(settings("b=on")))
            .truth(|t| t.with("b=on", 1.0, gain))
            .run();
        assert_eq!(words[3], "screen b=on");
        let stale = outcome.stale.unwrap();
        assert_eq!(stale.reproduced, reproduced, "{}", stale.text);
        assert_eq!(outcome.winner.is_some(), reproduced);
    }
}

#[test]
fn next_asks_the_same_until_it_is_answered_and_a_cancelled_run_is_asked_again() {
    let mut tuner = Tuner::new(plan(&[("a", &["on"])]));
    let first = tuner.next();
    assert_eq!(tuner.next(), first);
    assert!(tuner.record(&run(RunOutcome::Cancelled, 0.5)).is_empty());
    assert_eq!(tuner.next(), first);
}

#[test]
fn progress_is_determinate_and_ends_full() {
    let plan = plan(&[("a", &["on"]), ("b", &["on"])]);
    let truth = Truth::neutral(1000.0, 100.0).with("a=on", 1.0, 1.3);
    let mut bench = Bench::new(truth, Noise::QUIET, plan.tests(), 1);
    let mut tuner = Tuner::new(plan);
    let mut done = 0;
    while let Step::Run(planned) = tuner.next() {
        assert_eq!(tuner.progress().done, done);
        assert!(tuner.progress().total > done);
        let notes = tuner.record(&bench.run(&planned));
        if done == 4 {
            // The repeated gain: the candidate is told once, and ranked.
            assert!(matches!(&notes[..], [TuneNote::Screened { candidate }] if candidate.adopted));
            assert_eq!(tuner.ranking()[0].settings, settings("a=on"));
        }
        done += 1;
    }
    assert_eq!(
        (tuner.progress().done, tuner.progress().total),
        (done, done)
    );
    assert!(tuner.progress().eta_secs.is_some_and(|s| s == 0.0));
}

#[test]
fn ab_warms_both_arms_pilots_and_interleaves() {
    let mut plan = AbPlan::new(
        Goal::Generation,
        settings("a=on"),
        settings("b=on"),
        512,
        128,
        0,
        false,
    )
    .unwrap();
    let truth = Truth::neutral(1000.0, 100.0).with("b=on", 1.0, 1.1);
    let mut bench = Bench::new(truth.clone(), Noise::QUIET, plan.objective.tests(), 1);
    let (runs, outcome) = finish(&mut Ab::new(plan.clone()), |p| bench.run(p));
    let words: Vec<String> = runs.iter().map(|(p, _)| word(p)).collect();
    assert_eq!(
        words[..5],
        [
            "warm a=on",
            "warm b=on",
            "base a=on",
            "base a=on",
            "base a=on"
        ]
    );
    assert_eq!(words[5..13].concat(), "ABBABAAB");
    assert!(runs.iter().all(|(p, _)| p.side.is_some()));
    assert_eq!(outcome.verdict, Some(Verdict::Improved));

    plan.processes = Some(4);
    let mut bench = Bench::new(truth, Noise::QUIET, plan.objective.tests(), 1);
    let (runs, _) = finish(&mut Ab::new(plan), |p| bench.run(p));
    assert_eq!(runs.len(), 2 + 8);
}

#[test]
fn ab_says_which_arm_does_not_run() {
    let plan = AbPlan::new(
        Goal::Generation,
        Settings::stock(),
        settings("b=on"),
        512,
        128,
        0,
        false,
    )
    .unwrap();
    let truth = Truth::neutral(1000.0, 100.0).failing("b=on", FailureClass::OutOfMemory);
    let mut bench = Bench::new(truth, Noise::QUIET, plan.objective.tests(), 1);
    let (_, outcome) = finish(&mut Ab::new(plan), |p| bench.run(p));
    assert_eq!(outcome.verdict, None);
    assert!(
        outcome
            .reason
            .starts_with("arm B (b=on) does not run here (out of memory")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// A session cut at any run, its plan and runs read back from JSON, ends exactly as the unbroken one.
    #[test]
    fn a_session_cut_anywhere_resumes_to_the_same_end(seed in 0_u64..1000, cut in 0.0_f64..1.0, real in any::<bool>()) {
        let plan = rx580_plan();
        let truth = if real { Truth::rx580() } else { Truth::neutral(187.0, 22.81) };
        let (runs, unbroken) = tune(&plan, truth, Noise::STUDY, seed);
        let stored = serde_json::to_string(&plan).unwrap();
        let again: TunePlan = serde_json::from_str(&stored).unwrap();
        let cut = (cut * runs.len() as f64) as usize;
        let kept: Vec<(PlannedRun, Run)> = serde_json::from_str(&serde_json::to_string(&runs[..cut]).unwrap()).unwrap();
        let mut tuner = Tuner::resume(again, kept.iter().map(|(p, r)| (p, r))).unwrap();
        let mut rest = runs[cut..].iter();
        let (_, resumed) = finish(&mut tuner, |p| {
            let (planned, run) = rest.next().unwrap();
            assert_eq!(p, planned);
            run.clone()
        });
        prop_assert_eq!(serde_json::to_value(&resumed).unwrap(), serde_json::to_value(&unbroken).unwrap());
    }
}

#[test]
fn runs_of_another_plan_are_refused() {
    let (runs, _) = tune(
        &plan(&[("a", &["on"])]),
        Truth::neutral(1000.0, 100.0),
        Noise::QUIET,
        1,
    );
    let error =
        Tuner::resume(plan(&[("b", &["on"])]), runs.iter().map(|(p, r)| (p, r))).unwrap_err();
    assert_eq!(error.seq, 3);
    assert!(error.to_string().contains("planned b=on, stored a=on"));
}
