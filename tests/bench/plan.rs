//! How long a plan takes: `cargo bench --bench plan`. Every candidate of five tiers, memory and speed predicted.
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark stops at the first surprise"
)]
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

#[path = "../support/placement.rs"]
mod placement_support;

use std::time::Instant;

use flux::domain::placement::assignment::ContextParams;
use flux::domain::placement::assumed::priors;
use flux::domain::placement::memory::Corrections;
use flux::domain::placement::planner::{Ask, MICRO_BATCHES, Planner};
use flux::domain::types::{Backend, Bytes, Goal, RequestShape, TestSpec};

use placement_support::{card, layout, memories};

/// Hundreds of candidates, milliseconds (issue text).
const BOUND_MS: f64 = 50.0;
const TURNS: usize = 11;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let ask = Ask {
        context: ContextParams::default(),
        micro_batches: MICRO_BATCHES.to_vec(),
        cache_types: Vec::new(),
        goal: Goal::Request,
        request: RequestShape::default(),
        prompt: TestSpec::prompt(512),
        generation: TestSpec::generation(128),
    };
    println!(
        "model, card              candidates  predicted ms  bound  with the best exactly judged ms"
    );
    for (shape, gib) in [
        ("qwen3-4b", 2),
        ("gemma3-12b", 6),
        ("qwen3-30b-a3b", 8),
        ("qwen3-235b-a22b", 80),
    ] {
        let layout = layout(shape);
        let machine = memories(
            vec![card("CUDA0", Backend::Cuda, Bytes::gib(gib))],
            Bytes::gib(256),
        );
        let constants = priors(&machine, None, false);
        let none = Corrections::default();
        let (mut predicted, mut judged, mut count) = (Vec::new(), Vec::new(), 0);
        for _ in 0..TURNS {
            // A fresh planner: nothing is remembered from the turn before.
            let begun = Instant::now();
            count = Planner::new(&layout, &machine, &constants, &none)
                .candidates(&ask)
                .len();
            predicted.push(begun.elapsed().as_secs_f64() * 1e3);
            let begun = Instant::now();
            Planner::new(&layout, &machine, &constants, &none).best(&ask, 3);
            judged.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        let (predicted, judged) = (median(predicted), median(judged));
        println!(
            "{shape:16} {gib:4} GiB  {count:10}  {predicted:12.1}  {BOUND_MS:5.0}  {judged:12.1}"
        );
    }
}
