//! The rules of the search, one by one, on a scripted bench: guards, memory, early stop, drift, budgets, goals.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::collections::BTreeMap;

use flux::domain::search::plan::LONG_PROMPT;
use flux::domain::search::{CandidateStatus, PlanInput, Rejection, TunePlan, Tuner};
use flux::domain::types::{
    Bytes, FailureClass, Goal, Run, RunOutcome, Side, Stage, TestSpec, Verdict,
};

#[path = "support/sim.rs"]
mod sim;

use sim::{
    Bench, Noise, OrderTest, Truth, failed, finish, offer, plan, rx580_plan, settings, tune,
};

#[test]
fn c40_the_early_stop_allows_for_the_cold_first_repetition() {
    let plan = plan(&[("a", &["on"])]);
    let noise = Noise {
        cold: 0.25,
        ..Noise::QUIET
    };
    let truth = Truth::neutral(1000.0, 50.0).with("a=on", 1.0, 0.65);
    let (runs, outcome) = tune(&plan, truth, noise, 1);
    // 128 tokens at 37.5 t/s are the slowest repetition: 3.413 s; the limit is 1/0.6 of it.
    let candidate = &runs
        .iter()
        .find(|(p, _)| p.stage == Stage::Screening)
        .unwrap()
        .0;
    let limits = &candidate.early_stop.as_ref().unwrap().max_repetition_secs;
    let tg = limits
        .iter()
        .find(|(t, _)| *t == TestSpec::generation(128))
        .unwrap()
        .1;
    assert!((tg - 128.0 / 37.5 / 0.6).abs() < 0.01, "{tg}");
    // 65 % of stock is slow, its cold repetition is not hopeless: it is measured in full.
    assert_eq!(outcome.candidates[0].status, CandidateStatus::Ok);
}

#[test]
fn no_repetition_is_stopped_before_its_log_lines_can_be_trusted() {
    // Repetitions of milliseconds: 512 tokens at 100,000 t/s. The limit is the floor, not 1/0.6 of 5 ms.
    let plan = plan(&[("a", &["on"])]);
    let truth = Truth::neutral(100_000.0, 20_000.0);
    let (runs, _) = tune(&plan, truth, Noise::QUIET, 1);
    let limits = runs
        .iter()
        .filter_map(|(planned, _)| planned.early_stop.as_ref());
    for limit in limits.flat_map(|e| &e.max_repetition_secs) {
        assert!((limit.1 - 2.0).abs() < 1e-12, "{limit:?}");
    }
}

#[test]
fn a_hopeless_candidate_is_stopped_and_says_so() {
    let outcome = OrderTest::new(&[("a", &["on"])])
        .truth(|t| t.with("a=on", 1.0, 0.5))
        .run()
        .1;
    let candidate = &outcome.candidates[0];
    assert_eq!(candidate.status, CandidateStatus::StoppedEarly);
    assert!(
        candidate
            .reason
            .as_ref()
            .unwrap()
            .starts_with("hopeless after one repetition: tg128")
    );
    assert_eq!(candidate.change_pct, None);
}

#[test]
fn a_winner_that_harms_the_guard_is_rejected_and_the_next_finalist_confirmed() {
    let outcome = OrderTest::new(&[("a", &["1", "2"])])
        .truth(|t| t.with("a=1", 0.965, 1.3).with("a=2", 1.0, 1.1))
        .run()
        .1;
    let judged: Vec<(String, Option<Rejection>)> = outcome
        .confirmations
        .iter()
        .map(|c| (c.settings.to_string(), c.rejected))
        .collect();
    assert_eq!(
        judged,
        [
            ("a=1".to_owned(), Some(Rejection::GuardRegressed)),
            ("a=2".to_owned(), None)
        ]
    );
    assert_eq!(outcome.winner, Some(settings("a=2")));

    // So harmful that screening shows it: nothing is built on it, and the unharmed one is confirmed first.
    let outcome = OrderTest::new(&[("a", &["1", "2"])])
        .truth(|t| t.with("a=1", 0.9, 1.3).with("a=2", 1.0, 1.1))
        .run()
        .1;
    assert_eq!(outcome.winner, Some(settings("a=2")));
    assert_eq!(outcome.confirmations.len(), 1);
    let harmed = outcome.candidates[0].reason.as_ref().unwrap();
    assert_eq!(
        harmed,
        "nothing is built on it: a guarded metric changed by −10.0 %"
    );

    let outcome = OrderTest::new(&[("a", &["1"])])
        .truth(|t| t.with("a=1", 0.965, 1.3))
        .run()
        .1;
    assert_eq!(outcome.winner, None);
    assert_eq!(outcome.verdict, Some(Verdict::Regressed));
    assert_eq!(
        outcome.confirmations[0].rejected,
        Some(Rejection::GuardRegressed)
    );
    assert_eq!(outcome.confirmations[0].verdict, Verdict::Improved);
    assert!(
        outcome
            .reason
            .contains("rejected: prompt speed got worse, pp512 −3.5"),
        "{}",
        outcome.reason
    );
}

#[test]
fn a_guard_that_cannot_be_told_from_noise_is_not_saved() {
    // Prompt readings of the candidate scatter by ±8 % around −3 %; generation is steady.
    let mut plan = plan(&[("a", &["on"])]);
    plan.processes = Some(4);
    let truth = Truth::neutral(1000.0, 100.0).with("a=on", 0.97, 1.3);
    let mut bench = Bench::new(truth, Noise::QUIET, plan.tests(), 1);
    let mut confirmed = 0_u32;
    let (_, outcome) = finish(&mut Tuner::new(plan.clone()), |p| {
        let mut run = bench.run(p);
        if p.stage == Stage::Confirmation && p.side == Some(Side::B) {
            confirmed += 1;
            let factor = if confirmed.is_multiple_of(2) {
                1.08
            } else {
                0.92
            };
            scale(&mut run, TestSpec::prompt(512), factor);
        }
        run
    });
    let confirmation = &outcome.confirmations[0];
    assert_eq!(confirmation.rejected, Some(Rejection::GuardUnproven));
    assert_eq!(outcome.verdict, Some(Verdict::Inconclusive));
    assert_eq!(outcome.winner, None);
    assert!(
        outcome
            .reason
            .contains("prompt speed could not be shown to be unharmed")
            && outcome.reason.contains("runs per arm would settle it"),
        "{}",
        outcome.reason
    );
}

/// Makes the samples of one test slower by `factor` in time.
fn scale(run: &mut Run, test: TestSpec, factor: f64) {
    if let RunOutcome::Valid { tests } = &mut run.outcome {
        let samples = &mut tests
            .iter_mut()
            .find(|t| t.test == test)
            .unwrap()
            .samples_ns;
        for ns in samples {
            *ns = (*ns as f64 * factor) as u64;
        }
    }
}

#[test]
fn a_winner_over_the_memory_limit_is_rejected_before_its_confirmation() {
    let outcome = OrderTest::new(&[("a", &["1", "2"])])
        .plan(|p| p.memory_limits = BTreeMap::from([("Vulkan0".to_owned(), Bytes::gib(6))]))
        .truth(|mut t| {
            t.memory.insert("a=1".to_owned(), 7 << 30);
            t.with("a=1", 1.0, 1.3).with("a=2", 1.0, 1.1)
        })
        .expect(&[
            "warm stock",
            "base stock",
            "base stock",
            "screen a=1",
            "screen a=1",
            "base stock",
            "screen a=2",
            "base stock",
            "warm a=1",
            "warm a=2",
            "ABBABAAB",
        ]);
    let rejected = &outcome.confirmations[0];
    assert_eq!(rejected.rejected, Some(Rejection::Memory));
    assert_eq!(rejected.memory[0].used, Bytes::gib(7));
    assert!(
        rejected
            .reason
            .contains("needs 7.00 GiB on Vulkan0, and 6.00 GiB are free")
    );
    assert_eq!(outcome.winner, Some(settings("a=2")));
}

#[test]
fn three_finalists_at_most() {
    let outcome = OrderTest::new(&[("a", &["1", "2", "3", "4"])])
        .plan(|p| p.memory_limits = BTreeMap::from([("Vulkan0".to_owned(), Bytes::gib(3))]))
        .truth(|t| {
            t.with("a=1", 1.0, 1.1)
                .with("a=2", 1.0, 1.2)
                .with("a=3", 1.0, 1.3)
                .with("a=4", 1.0, 1.4)
        })
        .run()
        .1;
    assert_eq!(outcome.confirmations.len(), 3);
    assert_eq!(outcome.winner, None);
    assert_eq!(outcome.verdict, Some(Verdict::Unchanged));
}

#[test]
fn one_failed_run_is_borne_and_two_reject_the_arm() {
    for (failures, rejected) in [(1, None), (2, Some(Rejection::Failed))] {
        let mut plan = plan(&[("a", &["on"])]);
        plan.processes = Some(5);
        let truth = Truth::neutral(1000.0, 100.0).with("a=on", 1.0, 1.3);
        let mut bench = Bench::new(truth, Noise::QUIET, plan.tests(), 1);
        let mut left = failures;
        let (_, outcome) = finish(&mut Tuner::new(plan.clone()), |p| {
            if p.side == Some(Side::B) && p.stage == Stage::Confirmation && left > 0 {
                left -= 1;
                return failed(FailureClass::OutOfMemory);
            }
            bench.run(p)
        });
        let confirmation = &outcome.confirmations[0];
        assert_eq!(confirmation.rejected, rejected);
        assert_eq!(confirmation.failures.len(), failures);
        if rejected.is_none() {
            assert_eq!(confirmation.metrics["tg128"].confirmed.candidate.n, 4);
            assert_eq!(outcome.verdict, Some(Verdict::Improved));
        } else {
            assert!(
                outcome
                    .reason
                    .contains("a=on failed 2 times (out of memory")
            );
            assert_eq!(outcome.winner, None);
        }
    }
}

#[test]
fn c43_micro_batch_is_judged_on_a_prompt_it_reaches() {
    let plan = rx580_plan();
    let labels: Vec<String> = plan.tests().iter().map(ToString::to_string).collect();
    assert_eq!(labels, ["pp512", "tg128", "pp2048"]);
    let ubatch = plan
        .offer
        .dimensions
        .iter()
        .find(|d| d.id == "ubatch")
        .unwrap();
    for value in &ubatch.values {
        assert!(2 * value.id.parse::<u32>().unwrap() <= LONG_PROMPT);
    }
    let refused = plan
        .offer
        .refused
        .iter()
        .find(|r| r.value.as_deref() == Some("2048"))
        .unwrap();
    assert_eq!(
        refused.reason,
        "searched with prompts of 4096 tokens or more: shorter ones hardly fill it"
    );
}

#[test]
fn drift_is_measured_and_readings_are_corrected_for_it() {
    let plan = plan(&[("a", &["1", "2", "3", "4", "5", "6"])]);
    let noise = Noise {
        drift: 0.004,
        ..Noise::QUIET
    };
    let (_, outcome) = tune(&plan, Truth::neutral(1000.0, 100.0), noise, 3);
    // 10 runs lie between the first baseline and the last: 4.0 % of drift, of a level near 1.01.
    let drift = outcome.baseline.as_ref().unwrap().drift_pct.unwrap();
    assert!((3.2..4.4).contains(&drift), "{drift}");
    assert!(outcome.notices.iter().any(|n| n.code == "drift"));
    // The last candidate reads 3 % faster than the start and is not.
    let last = outcome
        .candidates
        .iter()
        .rfind(|c| c.stage == Stage::Screening)
        .unwrap();
    assert!(last.change_pct.unwrap().abs() < 1.0, "{last:?}");
}

#[test]
fn after_the_time_limit_no_candidate_starts_and_the_best_so_far_is_confirmed() {
    let (words, outcome) = OrderTest::new(&[
        ("a", &["on"]),
        ("b", &["on"]),
        ("c", &["on"]),
        ("d", &["on"]),
    ])
    .plan(|p| p.time_limit_secs = Some(20.0))
    .truth(|t| t.with("a=on", 1.0, 1.3).with("d=on", 1.0, 2.0))
    .run();
    assert!(words.iter().all(|w| !w.contains("d=on")), "{words:?}");
    assert_eq!(outcome.winner, Some(settings("a=on")));
    assert!(outcome.notices.iter().any(|n| n.code == "time-limit"));
}

#[test]
fn screening_leaves_enough_processes_for_a_confirmation() {
    let ids: Vec<String> = (0..60).map(|i| format!("d{i}")).collect();
    let dimensions: Vec<(&str, &[&str])> = ids.iter().map(|i| (i.as_str(), &["on"][..])).collect();
    let plan = plan(&dimensions);
    let truth = Truth::neutral(1000.0, 100.0).with("d0=on", 1.0, 1.2);
    let (runs, outcome) = tune(&plan, truth, Noise::STUDY, 1);
    assert!(runs.len() <= 80);
    assert!(outcome.notices.iter().any(|n| n.code == "process-budget"));
    assert_eq!(outcome.verdict, Some(Verdict::Improved));
}

#[test]
fn a_request_may_trade_prompt_speed_for_generation_speed() {
    let input = PlanInput::new(Goal::Request);
    let mut plan = TunePlan::new(offer(&[("a", &["on"])]), input).unwrap();
    plan.processes = Some(4);
    // 1500 / 1000 + 300 / 100 = 4.5 s; 1500 / 500 + 300 / 400 = 3.75 s: 20 % more requests per second.
    let truth = Truth::neutral(1000.0, 100.0).with("a=on", 0.5, 4.0);
    let (_, outcome) = tune(&plan, truth, Noise::QUIET, 1);
    assert_eq!(outcome.winner, Some(settings("a=on")));
    let judged = &outcome.confirmations[0].metrics["request"].confirmed;
    assert!(
        (judged.change_pct - 20.0).abs() < 0.2,
        "{}",
        judged.change_pct
    );
    assert!((judged.baseline.mean - 1.0 / 4.5).abs() < 1e-3);
}

#[test]
fn energy_is_tokens_per_joule_at_no_loss_of_speed() {
    let planned = TunePlan::new(offer(&[("a", &["on"])]), PlanInput::new(Goal::Energy)).unwrap();
    assert_eq!(planned.objective.primary(), "energy");
    // Saving energy by being slow is no gain.
    assert_eq!(planned.objective.guards(), planned.objective.tests());
}
