//! The exact order of runs for small spaces, and each rule of the search, on a scripted bench.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::collections::BTreeMap;

use flux::domain::search::plan::LONG_PROMPT;
use flux::domain::search::{
    Ab, AbPlan, CandidateStatus, PlanError, PlanInput, Rejection, Step, TuneNote, TuneOutcome,
    TunePlan, Tuner,
};
use flux::domain::types::{
    Bytes, FailureClass, Goal, PlannedRun, Run, RunOutcome, Settings, Side, Stage, TestSpec,
    Verdict,
};
use proptest::prelude::*;

#[path = "support/sim.rs"]
mod sim;

use sim::{Bench, Noise, Truth, failed, finish, offer, plan, run, rx580_plan, tune};

/// A search on a scripted machine, and what it must run in which order.
struct OrderTest {
    plan: TunePlan,
    truth: Truth,
}

impl OrderTest {
    /// Four processes per arm, so that a confirmation reads A-B-B-A B-A-A-B.
    fn new(dimensions: &[(&str, &[&str])]) -> Self {
        let mut plan = plan(dimensions);
        plan.processes = Some(4);
        Self {
            plan,
            truth: Truth::neutral(1000.0, 100.0),
        }
    }

    fn truth(mut self, change: impl FnOnce(Truth) -> Truth) -> Self {
        self.truth = change(self.truth);
        self
    }

    fn plan(mut self, change: impl FnOnce(&mut TunePlan)) -> Self {
        change(&mut self.plan);
        self
    }

    /// One word per run: stage letter and settings; a run of a confirmation is its side alone.
    fn run(self) -> (Vec<String>, TuneOutcome) {
        let (runs, outcome) = tune(&self.plan, self.truth, Noise::QUIET, 7);
        (runs.iter().map(|(p, _)| word(p)).collect(), outcome)
    }

    fn expect(self, order: &[&str]) -> TuneOutcome {
        let (words, outcome) = self.run();
        let mut wanted = Vec::new();
        for line in order {
            if line.chars().all(|c| c == 'A' || c == 'B') {
                wanted.extend(line.chars().map(String::from));
            } else {
                wanted.push((*line).to_owned());
            }
        }
        assert_eq!(words, wanted);
        outcome
    }
}

fn word(planned: &PlannedRun) -> String {
    let stage = match planned.stage {
        Stage::WarmUp => "warm",
        Stage::Baseline => "base",
        Stage::Screening => "screen",
        Stage::Pairs => "pair",
        Stage::DropOne => "drop",
        Stage::Confirmation => return format!("{:?}", planned.side.unwrap()),
    };
    format!("{stage} {}", planned.settings)
}

fn settings(text: &str) -> Settings {
    let pairs = text.split_whitespace().map(|w| w.split_once('=').unwrap());
    Settings(pairs.map(|(d, v)| (d.to_owned(), v.to_owned())).collect())
}

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
fn c40_the_early_stop_allows_for_the_cold_first_repetition() {
    let plan = plan(&[("a", &["on"])]);
    let noise = Noise {
        cold: 0.25,
        ..Noise::QUIET
    };
    let truth = Truth::neutral(1000.0, 100.0).with("a=on", 1.0, 0.65);
    let (runs, outcome) = tune(&plan, truth, noise, 1);
    // 128 tokens at 75 t/s are the slowest repetition: 1.707 s; the limit is 1/0.6 of it.
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
    assert!((tg - 128.0 / 75.0 / 0.6).abs() < 0.01, "{tg}");
    // 65 % of stock is slow, its cold repetition is not hopeless: it is measured in full.
    assert_eq!(outcome.candidates[0].status, CandidateStatus::Ok);
}

#[test]
fn a_hopeless_candidate_is_stopped_and_says_so() {
    let outcome = OrderTest::new(&[("a", &["on"])])
        .truth(|t| t.with("a=on", 0.5, 1.0))
        .run()
        .1;
    let candidate = &outcome.candidates[0];
    assert_eq!(candidate.status, CandidateStatus::StoppedEarly);
    assert!(
        candidate
            .reason
            .as_ref()
            .unwrap()
            .starts_with("hopeless after one repetition: pp512")
    );
    assert_eq!(candidate.change_pct, None);
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
        "nothing is built on it: a guarded metric changed by -10.0 %"
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
            .contains("rejected: prompt speed got worse, pp512 -3.5 %"),
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
    assert_eq!(refused.reason, "no-op below a prompt of 4096 tokens");
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
fn energy_waits_for_telemetry() {
    let planned = TunePlan::new(offer(&[("a", &["on"])]), PlanInput::new(Goal::Energy));
    assert_eq!(planned.unwrap_err(), PlanError::NeedsTelemetry);
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
