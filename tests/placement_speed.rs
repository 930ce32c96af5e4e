//! The speed model against real sweeps of an H200 (paper section 5, issue text): fitted on a few runs it predicts the rest.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]
#![allow(
    clippy::print_stdout,
    reason = "errors are looked at with --no-capture"
)]

#[path = "support/placement.rs"]
mod placement_support;

use std::fs;
use std::path::Path;

use flux::domain::bench_record;
use flux::domain::placement::assumed::priors;
use flux::domain::placement::devices::Memories;
use flux::domain::placement::fit::{Fit, fit};
use flux::domain::placement::footprint::Footprint;
use flux::domain::placement::layout::ModelLayout;
use flux::domain::placement::learn::{Learned, observations};
use flux::domain::placement::speed::{Constant, Status};
use flux::domain::types::{Backend, Bytes, TestSamples};

use placement_support::{card, layout, memories};

fn h200() -> Memories {
    let card = card("CUDA0", Backend::Cuda, Bytes::gib(138));
    memories(vec![card], Bytes::gib(120))
}

/// Records whose run `wanted` names.
fn records(file: &str, wanted: impl Fn(&str) -> bool) -> Vec<TestSamples> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/placement")
        .join(file);
    let parsed = bench_record::parse(&fs::read(path).unwrap());
    assert!(parsed.problems.is_empty());
    let records = parsed.records.into_iter();
    records
        .filter(|r| wanted(r.raw["run"].as_str().unwrap()))
        .map(|r| TestSamples {
            test: r.test,
            samples_ns: r.samples_ns,
            record: r.raw,
            energy: None,
        })
        .collect()
}

fn learn(records: &[TestSamples], layout: &ModelLayout) -> Learned {
    let learned = observations(records, layout, &Footprint::of(layout), &h200());
    assert_eq!(learned.left_out, Vec::<String>::new());
    learned
}

/// Fits to some runs; returns the fit and the mean absolute error over others, percent.
fn judged(
    layout: &ModelLayout,
    seen: &[TestSamples],
    unseen: &[TestSamples],
    prompt: bool,
) -> (Fit, f64) {
    let priors = priors(&h200(), None, false);
    let fitted = fit(&learn(seen, layout).observations, &priors);
    let errors: Vec<f64> = learn(unseen, layout)
        .observations
        .iter()
        .filter(|o| o.prompt == prompt)
        .map(|o| {
            let error = (o.seconds / o.work.seconds(&fitted.constants) - 1.0) * 100.0;
            println!("{:30} {error:+.1} %", o.name);
            error.abs()
        })
        .collect();
    for (constant, known) in &fitted.constants {
        let shown = constant.shown(known.seconds);
        println!(
            "{constant:?} {shown:.4} {} {:?}",
            constant.unit(),
            known.status
        );
    }
    println!("kept: {:?}", fitted.kept);
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    println!("mean {mean:.2} %");
    (fitted, mean)
}

#[test]
fn three_runs_of_a_dense_sweep_predict_the_other_five() {
    let layout = layout("qwen3-4b");
    assert_eq!(layout.info.tensor_bytes, Bytes(2_491_323_904));
    let seen = ["ngl37", "ngl30", "ngl6"];
    let dense = "h200-dense.jsonl";
    let (fit, mean) = judged(
        &layout,
        &records(dense, |run| seen.contains(&run)),
        &records(dense, |run| run.starts_with("ngl") && !seen.contains(&run)),
        false,
    );
    assert!(mean < 6.0, "{mean}");
    for constant in [Constant::HostRead, Constant::DeviceRead(0)] {
        assert_eq!(fit.constants[&constant].status, Status::Fitted);
    }
    assert_eq!(fit.constants[&Constant::HandOff].status, Status::Assumed);
}

#[test]
fn a_whole_dense_sweep_is_fitted_closely() {
    let layout = layout("qwen3-4b");
    let all = records("h200-dense.jsonl", |run| run.starts_with("ngl"));
    let (_, mean) = judged(&layout, &all, &all, false);
    assert!(mean < 4.0, "{mean}");
    judged(&layout, &all, &all, true);
}

#[test]
fn without_a_fully_offloaded_run_the_card_keeps_its_assumed_bandwidth() {
    let layout = layout("qwen3-4b");
    let seen = records("h200-dense.jsonl", |run| {
        ["ngl18", "ngl12", "ngl6"].contains(&run)
    });
    let (fit, _) = judged(&layout, &seen, &seen, false);
    assert_eq!(
        fit.constants[&Constant::DeviceRead(0)].status,
        Status::Assumed
    );
    assert_eq!(fit.constants[&Constant::HostRead].status, Status::Fitted);
    assert!(fit.kept.iter().any(|(c, _)| *c == Constant::DeviceRead(0)));
}

#[test]
fn experts_in_ram_are_predicted_from_three_runs() {
    let layout = layout("qwen3-30b-a3b");
    let sweeps = "h200-sweeps.jsonl";
    let seen = ["moe-ngl49", "moe-ncmoe24", "moe-ngl8"];
    let (_, mean) = judged(
        &layout,
        &records(sweeps, |run| seen.contains(&run)),
        &records(sweeps, |run| {
            run.starts_with("moe-") && !seen.contains(&run)
        }),
        false,
    );
    assert!(mean < 8.0, "{mean}");
    let all = records(sweeps, |run| run.starts_with("moe-"));
    judged(&layout, &all, &all, true);
}
