//! What `flux plan --bench` measured on one H200 and on two under forced budgets, and how closely the model fitted to it
//! predicts speed and memory of each run (issue text: at most 10 % for generation over all budgets, dense and mixture; within
//! 2 % of what NVML read, less the context's fixed cost).
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]
#![allow(
    clippy::print_stdout,
    reason = "errors are looked at with --no-capture"
)]

#[path = "support/placement.rs"]
mod placement_support;
#[path = "support/replay.rs"]
mod replay;

use std::collections::BTreeMap;

use flux::domain::placement::assignment::ContextParams;
use flux::domain::placement::assumed::priors;
use flux::domain::placement::devices::Memories;
use flux::domain::placement::fit::Fit;
use flux::domain::placement::layout::ModelLayout;
use flux::domain::placement::learn;
use flux::domain::placement::memory::{Corrections, Prompts, captured_graphs, memory};
use flux::domain::placement::pool::pooled;
use flux::domain::placement::speed::{Constant, Status};
use flux::domain::search::{Confirmation, MetricJudgement};
use flux::domain::telemetry::{Metric, SeriesId};
use flux::domain::types::{Backend, Bytes, RunOutcome, Stage, TestSamples};
use flux::ports::{RunHead, Store as _};

use placement_support::{card, layout, memories};

/// So many H200s.
fn machine(cards: usize) -> Memories {
    let cards = (0..cards).map(|i| card(&format!("CUDA{i}"), Backend::Cuda, Bytes::gib(138)));
    memories(cards.collect(), Bytes::gib(120))
}

/// Runs of recorded sessions that set nothing but a placement, with their tests.
fn runs(recorded: &str, sessions: &[i64]) -> Vec<(RunHead, Vec<TestSamples>)> {
    let (_dir, store) = replay::opened(recorded);
    let heads = sessions
        .iter()
        .flat_map(|s| store.run_heads_with(*s, "placement").unwrap());
    heads
        .filter_map(|mut head| match &mut head.outcome {
            RunOutcome::Valid { tests } => {
                let tests = std::mem::take(tests);
                Some((head, tests))
            }
            _ => None,
        })
        .collect()
}

fn records(recorded: &str, sessions: &[i64]) -> Vec<TestSamples> {
    runs(recorded, sessions)
        .into_iter()
        .flat_map(|(_, tests)| tests)
        .collect()
}

/// The fit to all of these records, with its mean absolute error over generation, percent.
fn fitted(shape: &str, cards: usize, records: &[TestSamples]) -> (Fit, f64) {
    let machine = machine(cards);
    let priors = priors(&machine, None, false);
    let fit = pooled(records, &layout(shape), &[], &machine, &priors).fit;
    let error = fit.mean_abs_error_pct(false).unwrap();
    println!(
        "{shape} on {cards}: generation {error:.1} %, prompts {:.1} %, {} tests",
        fit.mean_abs_error_pct(true).unwrap(),
        fit.residuals.len()
    );
    (fit, error)
}

#[test]
fn a_dense_model_at_a_quarter_half_and_three_quarters_is_predicted_within_ten_percent() {
    for (recorded, sessions) in [(replay::BUDGETS, [1, 2, 3]), (replay::PLANS, [1, 2, 5])] {
        let (_, error) = fitted("qwen3-8b", 1, &records(recorded, &sessions));
        assert!(error < 10.0, "{recorded}: {error}");
    }
}

#[test]
fn a_mixture_within_8_and_12_gib_is_predicted_within_ten_percent() {
    for (recorded, sessions) in [
        (replay::BUDGETS, &[4, 5][..]),
        (replay::PLANS, &[3, 4]),
        (replay::VULKAN, &[3]),
    ] {
        let (_, error) = fitted("qwen3-30b-a3b", 1, &records(recorded, sessions));
        assert!(error < 10.0, "{recorded}: {error}");
    }
}

/// Two GPUs with the same part of the model in every run cannot be told apart. Fitted one by one, the second kept an assumed
/// bandwidth that alone took longer than the runs did, and every prediction was 68 % off.
#[test]
fn two_gpus_that_runs_cannot_tell_apart_are_fitted_together() {
    let within_10_gib = records(replay::PAIR, &[2]);
    let (fit, error) = fitted("qwen3-30b-a3b", 2, &within_10_gib);
    assert!(error < 10.0, "{error}");
    let of = |i| &fit.constants[&Constant::DeviceRead(i)];
    assert_eq!(of(0).seconds.to_bits(), of(1).seconds.to_bits());
    assert_eq!(
        (of(0).status, of(1).status),
        (Status::Fitted, Status::Fitted)
    );
    // A third card that no run used is no news of them. Stock would split over all three.
    let placed = |t: &TestSamples| t.record["tensor_split"] != "0.00";
    let without_stock: Vec<TestSamples> = within_10_gib.into_iter().filter(placed).collect();
    let (three, _) = fitted("qwen3-30b-a3b", 3, &without_stock);
    assert_eq!(
        three.constants[&Constant::DeviceRead(2)].status,
        Status::Assumed
    );
    let told: Vec<Constant> = fit.kept.iter().map(|(c, _)| *c).collect();
    assert!(!told.contains(&Constant::DeviceRead(1)), "{told:?}");
    let (_, both) = fitted("qwen3-30b-a3b", 2, &records(replay::PAIR, &[2, 3]));
    assert!(both < 10.0, "{both}");
    let (_, later) = fitted("qwen3-30b-a3b", 2, &records(replay::TUNES, &[15]));
    assert!(later < 10.0, "{later}");
}

/// Bytes of the first card: predicted, and read by its sensor while the run took most.
fn memory_of(
    run: &(RunHead, Vec<TestSamples>),
    layout: &ModelLayout,
    machine: &Memories,
) -> Option<(f64, f64)> {
    let (head, tests) = run;
    let first = &tests.first()?.record;
    let placement = learn::placement(first, layout).ok()?;
    let longest = tests.iter().map(|t| u64::from(t.test.tokens())).max()?;
    let context = ContextParams {
        context: longest,
        ..learn::context(first)
    };
    let prompts = Prompts::of(longest, &context);
    let plain = Corrections::default();
    let buffers = memory(layout, &placement, &context, machine, &plain)[0].buffers();
    let graphs = captured_graphs(layout, &placement, &context, machine, prompts);
    let series = SeriesId {
        source: "0000:00:06.0".to_owned(),
        metric: Metric::VramUsed,
    };
    let read = head.telemetry.as_ref()?.timed(&series)?.max;
    Some(((buffers.0 + graphs.0) as f64, read))
}

/// Beside what is predicted a process takes CUDA's context: 609 MiB with the dense model, 711 MiB with the mixture, as the
/// first stock run of each shows. Stock's later runs are left out: a prompt test of 0.1 s falls between two readings. So are
/// those of one repetition, whose graphs are not captured yet.
#[test]
fn memory_is_predicted_within_two_percent_of_the_sensor() {
    let mib = f64::from(1 << 20);
    for (shape, context, recorded, sessions) in [
        ("qwen3-8b", 609.0, replay::PLANS, &[1, 2, 5][..]),
        ("qwen3-8b", 609.0, replay::BUDGETS, &[1, 2, 3]),
        ("qwen3-30b-a3b", 711.0, replay::PLANS, &[3, 4]),
        ("qwen3-30b-a3b", 711.0, replay::BUDGETS, &[4, 5]),
        ("qwen3-30b-a3b", 711.0, replay::VULKAN, &[3]),
    ] {
        let (layout, machine) = (layout(shape), machine(1));
        let mut worst: f64 = 0.0;
        let mut counted = 0;
        for run in runs(recorded, sessions) {
            let planned = &run.0.planned;
            if planned.settings.is_stock() || planned.repetitions == 1 {
                continue;
            }
            let Some((predicted, read)) = memory_of(&run, &layout, &machine) else {
                continue;
            };
            let off = 100.0 * (predicted / (read - context * mib) - 1.0);
            assert!(
                off.abs() < 2.0,
                "{recorded} {}: {off:.2} %",
                planned.settings
            );
            worst = worst.max(off.abs());
            counted += 1;
        }
        println!("{shape} {recorded}: {counted} runs, at most {worst:.2} %");
        assert!(counted > 20, "{counted}");
    }
}

/// Mean rate of generation of each of Flux's own placements over its screened and interleaved runs, tokens per second.
fn generated(recorded: &str, session: i64) -> BTreeMap<String, f64> {
    let mut rates: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (head, tests) in runs(recorded, &[session]) {
        let words = head.planned.settings.0.get("placement").cloned();
        let Some(words) = words.filter(|w| !w.starts_with("fit")) else {
            continue;
        };
        if head.planned.stage == Stage::WarmUp {
            continue;
        }
        let generation = tests.iter().find(|t| t.test.n_prompt == 0).unwrap();
        let tokens = f64::from(generation.test.n_gen);
        let of = |ns: &u64| tokens * 1e9 / *ns as f64;
        let mean = generation.samples_ns.iter().map(of).sum::<f64>();
        let rate = mean / generation.samples_ns.len() as f64;
        rates.entry(words).or_default().push(rate);
    }
    let mean = |v: Vec<f64>| v.iter().sum::<f64>() / v.len() as f64;
    rates.into_iter().map(|(w, v)| (w, mean(v))).collect()
}

/// Issue text: the chosen plan is within 3 % of the best measured neighbour. Of the two best of its own Flux takes the second
/// where it ran better in turns with the first and loses at most 2 % of prompts (`engine/plan/bench/own.rs`). Session 4 of the
/// budgets was recorded before that rule.
#[test]
fn the_choice_is_within_three_percent_of_the_best_of_its_neighbours() {
    let sessions = [
        (replay::BUDGETS, 1),
        (replay::BUDGETS, 2),
        (replay::BUDGETS, 3),
        (replay::BUDGETS, 4),
        (replay::BUDGETS, 5),
        (replay::TUNES, 15),
        (replay::VULKAN, 3),
    ];
    for (recorded, session) in sessions {
        let (_dir, store) = replay::opened(recorded);
        let own = store.verdicts(session).unwrap().swap_remove(0);
        let judged: Confirmation = serde_json::from_value(own.detail).unwrap();
        let change = |m: &MetricJudgement| m.confirmed.change_pct;
        let is_second = change(&judged.metrics[&judged.primary]) > 0.0
            && judged.metrics.values().all(|m| change(m) >= -2.0);
        let arm = if is_second {
            &judged.settings
        } else {
            &judged.baseline
        };
        let rates = generated(recorded, session);
        let best = rates.values().copied().fold(0.0, f64::max);
        let behind = 100.0 * (1.0 - rates[&arm.0["placement"]] / best);
        println!("{recorded} {session}: {arm}, {behind:.1} % behind the best");
        assert!(behind <= 3.0, "{recorded} {session}: {arm} of {rates:?}");
    }
}
