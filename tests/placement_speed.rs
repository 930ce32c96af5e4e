//! The speed model against real sweeps of an H200 (paper section 5, issue text): fitted on a few runs it predicts the rest.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]
#![allow(
    clippy::print_stdout,
    reason = "errors are looked at with --no-capture"
)]

#[path = "support/placement.rs"]
mod placement_support;

use flux::domain::placement::assumed::priors;
use flux::domain::placement::bandwidth::{Bandwidth, BandwidthProfile, Path as BandwidthPath};
use flux::domain::placement::devices::Memories;
use flux::domain::placement::fit::{Fit, Observation};
use flux::domain::placement::footprint::Footprint;
use flux::domain::placement::layout::{ModelLayout, TensorClass};
use flux::domain::placement::learn::observations;
use flux::domain::placement::pool::{Pooled, pooled};
use flux::domain::placement::speed::{Constant, Status};
use flux::domain::types::{Backend, Bytes, TestSamples};

use placement_support::{card, layout, memories, records};

fn h200() -> Memories {
    let card = card("CUDA0", Backend::Cuda, Bytes::gib(138));
    memories(vec![card], Bytes::gib(120))
}

/// The fit to records of `layout` and of `others`.
fn learned(seen: &[TestSamples], layout: &ModelLayout, others: &[ModelLayout]) -> Pooled {
    let priors = priors(&h200(), None, false);
    let pooled = pooled(seen, layout, others, &h200(), &priors);
    assert_eq!(pooled.left_out, Vec::<String>::new());
    pooled
}

/// … of which some may be left out.
fn sifted(seen: &[TestSamples], layout: &ModelLayout, other: &ModelLayout) -> Pooled {
    let priors = priors(&h200(), None, false);
    pooled(seen, layout, std::slice::from_ref(other), &h200(), &priors)
}

/// Mean absolute error of the rates predicted for `records`, percent.
fn error(
    fit: &Fit,
    layout: &ModelLayout,
    records: &[TestSamples],
    wanted: impl Fn(&Observation) -> bool,
) -> f64 {
    let footprint = Footprint::of(layout).with_spread(&fit.constants);
    let seen = observations(records, Some(16), layout, &footprint, &h200());
    let errors: Vec<f64> = seen
        .observations
        .iter()
        .filter(|o| wanted(o))
        .map(|o| {
            let error = (o.seconds / o.work.seconds(&fit.constants) - 1.0) * 100.0;
            println!("{:30} {error:+.1} %", o.name);
            error.abs()
        })
        .collect();
    for (constant, known) in &fit.constants {
        let shown = constant.shown(known.seconds);
        println!(
            "{constant:?} {shown:.4} {} {:?} {}",
            constant.unit(),
            known.status,
            known.origin
        );
    }
    println!("kept: {:?}", fit.kept);
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    println!("mean {mean:.2} %");
    mean
}

/// Fits to some runs; returns the fit and the mean absolute error over others, percent.
fn judged(
    layout: &ModelLayout,
    seen: &[TestSamples],
    unseen: &[TestSamples],
    prompt: bool,
) -> (Fit, f64) {
    let fit = learned(seen, layout, &[]).fit;
    let mean = error(&fit, layout, unseen, |o| o.prompt == prompt);
    (fit, mean)
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
    let (_, mean) = judged(&layout, &all, &all, true);
    assert!(mean < 10.0, "{mean}");
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
}

/// Every run of the mixture on mapped weights.
fn moe() -> Vec<TestSamples> {
    let wanted = |run: &str| run.starts_with("moe-") && !run.ends_with("lmnone");
    let mut all = records("h200-sweeps.jsonl", wanted);
    all.extend(records("h200-prompts.jsonl", wanted));
    all
}

#[test]
fn prompts_of_a_mixture_are_predicted_with_experts_in_ram() {
    let layout = layout("qwen3-30b-a3b");
    let (fit, mean) = judged(&layout, &moe(), &moe(), true);
    assert!(mean < 9.0, "{mean}");
    let first = records("h200-sweeps.jsonl", |run| run.starts_with("moe-"));
    println!("the first sweep alone");
    let mean = error(&fit, &layout, &first, |o| o.prompt);
    assert!(mean < 11.0, "{mean}");
    // The copies took 7.5 GB/s where they were traced.
    let upload = Constant::Upload.shown(fit.constants[&Constant::Upload].seconds);
    assert!((5.0..10.0).contains(&upload), "{upload}");
    assert_eq!(
        fit.constants[&Constant::ExpertSpread].status,
        Status::Fitted
    );
}

/// The same 512 tokens take 187 ms from pinned pages and 750 ms from mapped ones: one upload rate cannot tell both.
#[test]
fn runs_without_mapped_weights_are_left_out() {
    let layout = layout("qwen3-30b-a3b");
    let pinned = records("h200-prompts.jsonl", |run| run == "moe-ncmoe48-lmnone");
    let priors = priors(&h200(), None, false);
    let pooled = pooled(&pinned, &layout, &[], &h200(), &priors);
    assert!(pooled.runs.is_empty());
    assert_eq!(pooled.left_out.len(), 1);
    assert!(pooled.left_out[0].contains("--load-mode none"));
}

/// A profile copies from pinned pages, weights lie in mapped ones: the slot is the limit only where it is the slower.
#[test]
fn a_fast_slot_does_not_promise_fast_uploads() {
    let upload = |rate: f64| {
        let path = Bandwidth {
            path: BandwidthPath::Upload,
            device: Some("CUDA0".to_owned()),
            samples: vec![rate],
            bytes: 1,
            threads: 1,
        };
        let profile = BandwidthProfile {
            paths: vec![path],
            ..BandwidthProfile::default()
        };
        let known = priors(&h200(), Some(&profile), false)[&Constant::Upload].clone();
        (Constant::Upload.shown(known.seconds), known.status)
    };
    let (measured, status) = upload(3e9);
    assert!((measured - 3.0).abs() < 1e-9, "{measured}");
    assert_eq!(status, Status::Measured);
    let (assumed, status) = upload(50e9);
    assert!(assumed < 10.0, "{assumed}");
    assert_eq!(status, Status::Assumed);
}

/// Bytes of experts that llama.cpp b11149 copied to the card, counted in `cudaMemcpyAsync` on an H200: per prompt, MB. The
/// spread is fitted to speeds alone.
#[test]
fn the_spread_of_experts_is_what_was_copied() {
    let layout = layout("qwen3-30b-a3b");
    let fit = learned(&moe(), &layout, &[]).fit;
    let footprint = Footprint::of(&layout).with_spread(&fit.constants);
    let copied = |tokens: f64, layers: usize| -> f64 {
        let touched = footprint.experts_touched(tokens);
        let layers = footprint.layers.iter().enumerate().take(layers);
        let bytes = layers.map(|(i, l)| l.part(TensorClass::Experts).bytes * touched(i));
        bytes.sum::<f64>() / 1e6
    };
    for (tokens, layers, traced) in [
        (512.0, 4, 1_071.0),
        (512.0, 48, 5_152.0),
        (2048.0, 48, 6_185.0),
    ] {
        let copied = copied(tokens, layers);
        println!("{tokens} tokens, {layers} layers: {copied:.0} MB, traced {traced:.0}");
        assert!((copied / traced - 1.0).abs() < 0.2, "{copied}");
    }
    // A model whose tokens choose by themselves uses nearly all: 1 − (15/16)^512.
    let independent = Footprint::of(&layout).experts_touched(512.0)(20);
    assert!(independent > 0.999, "{independent}");
}

/// What one model taught of the machine: its memory bus and its slot are the same for another one, and said to be from it.
#[test]
fn constants_of_one_model_start_another() {
    let (dense, mixture) = (layout("qwen3-4b"), layout("qwen3-30b-a3b"));
    let sweep = records("h200-dense.jsonl", |run| run.starts_with("ngl"));
    let in_ram = |o: &Observation| o.work.0.contains_key(&Constant::Upload);
    let start = learned(&sweep, &mixture, std::slice::from_ref(&dense)).fit;
    assert!(start.residuals.is_empty());
    for constant in [
        Constant::HostRead,
        Constant::DeviceRead(0),
        Constant::Upload,
    ] {
        let known = &start.constants[&constant];
        assert_eq!(known.status, Status::Fitted);
        assert!(known.origin.contains(&dense.info.name), "{}", known.origin);
    }
    // How its tokens choose experts is the mixture's own, and cannot be known from a dense model.
    assert_eq!(
        start.constants[&Constant::ExpertSpread].status,
        Status::Assumed
    );
    let back = learned(&moe(), &dense, std::slice::from_ref(&mixture)).fit;
    for (constant, apart) in [(Constant::HostRead, 0.06), (Constant::Upload, 0.15)] {
        let seconds = |fit: &Fit| fit.constants[&constant].seconds;
        let ratio = seconds(&start) / seconds(&back);
        assert!((ratio - 1.0).abs() < apart, "{constant:?} {ratio}");
    }
    println!(
        "the mixture from the dense model, generation, then prompts with the mixture's own spread"
    );
    let mean = error(&start, &mixture, &moe(), |o| !o.prompt);
    assert!(mean < 22.0, "{mean}");
    // Where RAM takes most of the time; a card's small expert matrices read its memory more slowly than a dense model's.
    let in_host_ram = |o: &Observation| {
        let read = o.work.0.get(&Constant::HostRead).copied().unwrap_or(0.0);
        !o.prompt && read * start.constants[&Constant::HostRead].seconds > 0.7 * o.seconds
    };
    println!("with most of the time in RAM");
    let mean = error(&start, &mixture, &moe(), in_host_ram);
    assert!(mean < 10.0, "{mean}");
    let mut spread = start.clone();
    let own = learned(&moe(), &mixture, &[]).fit.constants[&Constant::ExpertSpread].clone();
    spread.constants.insert(Constant::ExpertSpread, own);
    println!("prompts");
    error(&spread, &mixture, &moe(), |o| o.prompt);
    println!("with layers in RAM");
    let mean = error(&spread, &mixture, &moe(), in_ram);
    assert!(mean < 12.0, "{mean}");
    println!("the dense model from the mixture, generation, then prompts");
    error(&back, &dense, &sweep, |o| !o.prompt);
    error(&back, &dense, &sweep, |o| o.prompt);
}

#[test]
fn own_runs_outweigh_those_of_another_model() {
    let (dense, mixture) = (layout("qwen3-4b"), layout("qwen3-30b-a3b"));
    let sweep = records("h200-dense.jsonl", |run| run.starts_with("ngl"));
    let both: Vec<TestSamples> = sweep.iter().cloned().chain(moe()).collect();
    let all = learned(&both, &mixture, std::slice::from_ref(&dense));
    let names = [mixture.info.name.clone(), dense.info.name.clone()];
    let counts: Vec<usize> = all.runs.iter().map(|(_, n)| *n).collect();
    assert_eq!(counts, [moe().len(), sweep.len()]);
    assert!(all.runs.iter().map(|(name, _)| name).eq(&names));
    assert_eq!(all.fit.residuals.len(), moe().len());
    let mean = error(&all.fit, &mixture, &moe(), |o| !o.prompt);
    assert!(mean < 7.0, "{mean}");
    let mean = error(&all.fit, &mixture, &moe(), |o| o.prompt);
    assert!(mean < 10.0, "{mean}");
}

/// A model that caches hold, and one whose runs were disturbed, say nothing of the machine's memories.
#[test]
fn runs_that_tell_nothing_of_memory_start_no_other_model() {
    let (dense, mixture) = (layout("qwen3-4b"), layout("qwen3-30b-a3b"));
    let sweep = records("h200-dense.jsonl", |run| run.starts_with("ngl"));
    let mut small = dense.clone();
    small.info.file_bytes = Bytes::mib(100);
    let from_small = sifted(&sweep, &mixture, &small);
    assert!(
        from_small.left_out[0].contains("caches hold a model"),
        "{:?}",
        from_small.left_out
    );
    let host = &from_small.fit.constants[&Constant::HostRead];
    assert_eq!(host.status, Status::Assumed);

    let mut disturbed = sweep;
    for (i, run) in disturbed.iter_mut().enumerate() {
        let slowed = if i % 3 == 0 { 9 } else { 1 };
        run.samples_ns.iter_mut().for_each(|ns| *ns *= slowed);
    }
    let from_disturbed = sifted(&disturbed, &mixture, &dense);
    assert!(
        from_disturbed.left_out[0].contains("apart from any one speed"),
        "{:?}",
        from_disturbed.left_out
    );
    assert!(from_disturbed.runs.is_empty());
}
