//! The memory model against llama-fit-params of b11149: recorded rows of many shapes, contexts, micro-batches, cache types
//! and placements (`fixtures/memory/rows.csv`, made by `record.py` beside it; the CUDA rows come from an H200).
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]
#![allow(clippy::print_stdout, reason = "the worst errors are worth reading")]

#[path = "support/memory_rows.rs"]
mod memory_rows;
#[path = "support/placement.rs"]
mod placement_support;

use std::collections::{BTreeMap, BTreeSet};

use flux::domain::placement::assignment::{ContextParams, Placement};
use flux::domain::placement::devices::Memories;
use flux::domain::placement::layout::{ModelLayout, TensorClass};
use flux::domain::placement::memory::{
    Basis, Corrections, DeviceMemory, Difference, fits, memory, misfits, sketch,
};
use flux::domain::types::{Backend, BufferUse, Bytes};

use memory_rows::{MIB, device, error, machine, memories, numbers, predict, row};
use placement_support::layout;

const ROWS: &str = include_str!("fixtures/memory/rows.csv");

/// Weights and caches exact, compute buffers and totals within a thousandth.
#[test]
fn every_recorded_row_is_met() {
    let (rows, shapes) = meet(memory, 0.001, 0.001);
    assert!(rows >= 1000 && shapes >= 12);
}

/// `CPU_REPACK model buffer size` of b11149's CPU build on a processor with AVX-512, MiB.
#[test]
fn repacked_weights_are_those_of_the_log() {
    let machine = machine(Vec::new());
    let (context, none) = (ContextParams::default(), Corrections::default());
    let host = |shape: &str, no_repack| {
        let placement = Placement {
            no_repack,
            ..Placement::cpu_only()
        };
        memory(&layout(shape), &placement, &context, &machine, &none).remove(0)
    };
    for (shape, mib) in [
        ("tiny", 1.44),
        ("tiny-moe", 6.01),
        ("qwen3-0.6b", 204.75),
        ("gemma3-1b", 71.98),
    ] {
        let repacked = host(shape, false).repacked.as_mib();
        assert!((repacked - mib).abs() < 0.0051, "{shape}: {repacked}");
        assert_eq!(host(shape, true).repacked, Bytes(0), "{shape}");
    }
    // Beside an offload device, weights in RAM stay in the file.
    let beside = memories("cuda");
    let all = memory(
        &layout("qwen3-0.6b"),
        &Placement::cpu_only(),
        &context,
        &beside,
        &none,
    );
    assert!(all.iter().all(|m| m.repacked == Bytes(0)));
}

/// The planner's screening: compute buffers within 5 %, totals within 2 %.
#[test]
fn every_recorded_row_is_sketched() {
    meet(sketch, 0.05, 0.02);
}

type Model =
    fn(&ModelLayout, &Placement, &ContextParams, &Memories, &Corrections) -> Vec<DeviceMemory>;

/// Holds every row against the model; returns how many rows of how many shapes.
fn meet(model: Model, compute_bound: f64, total_bound: f64) -> (usize, usize) {
    let mut layouts = BTreeMap::new();
    let mut worst = BTreeMap::<(String, &str, &str), f64>::new();
    let mut rows = 0;
    for line in ROWS.lines().skip(1) {
        let row = row(line);
        let layout = layouts
            .entry(row.shape.clone())
            .or_insert_with(|| layout(&row.shape));
        let memories = memories(&row.backend);
        let none = Corrections::default();
        let predicted = model(layout, &row.placement, &row.context, &memories, &none);
        let host = numbers(predicted.last());
        let device = numbers(predicted.first().filter(|_| predicted.len() > 1));
        for (place, got, want) in [("device", device, row.device), ("host", host, row.host)] {
            // Without a device the weights are the sum of two numbers rounded down: plain and repacked.
            let weights = if row.backend == "cpu" { 2.0 } else { 1.0 };
            // The log's compute buffers have two decimals, rounded; the H200's rows whole MiB.
            let (shift, compute) = if row.backend == "cuda" {
                (0.0, 1.0)
            } else {
                (0.005, 0.01)
            };
            let errors = [
                ("weights", error(got[0], want[0], weights), 0.0),
                ("cache", error(got[1], want[1], 1.0), 0.0),
                (
                    "compute",
                    error(got[2], want[2] - shift, compute),
                    compute_bound,
                ),
                (
                    "total",
                    error(got.iter().sum(), want.iter().sum(), 3.0),
                    total_bound,
                ),
            ];
            for (what, error, bound) in errors {
                let most = worst.entry((row.backend.clone(), place, what)).or_default();
                *most = most.max(error.abs());
                assert!(
                    error.abs() <= bound,
                    "{place} {what}: {got:.2?}, recorded {want:?}: {line}"
                );
            }
        }
        rows += 1;
    }
    for ((backend, place, what), error) in worst {
        println!("{backend:8} {place:8} {what:8} {:.3} %", error * 100.0);
    }
    println!("{rows} rows of {} shapes", layouts.len());
    (rows, layouts.len())
}

/// The buffer lines of the log of the H200's run (`llama-bench-verbose-stderr.txt`): all layers, 512 tokens of context.
#[test]
fn qwen3_4b_has_the_log_s_buffers() {
    let context = ContextParams {
        context: 512,
        ..ContextParams::default()
    };
    let predicted = predict(
        &layout("qwen3-4b"),
        &Placement::default(),
        &context,
        &memories("cuda"),
    );
    let shown = |b: Bytes| format!("{:.2}", b.0 as f64 / MIB);
    let [device, host] = &predicted[..] else {
        panic!("one device and the host");
    };
    let of = |m: &DeviceMemory| [m.model(), m.kv, m.compute].map(shown);
    assert_eq!(of(device), ["2375.91", "72.00", "301.75"]);
    assert_eq!(shown(host.model()), "304.28");
    assert_eq!(shown(host.output), "0.58");
    assert_eq!(device.compute_basis, Basis::Simulated);
}

/// Case C32: layers with a window of 1024 keep window and micro-batch, rounded up to 256 cells; every sixth the context.
/// 8 heads × 256 values × 2 bytes = 4 KiB each for K and V; of 48 layers 8 are global.
#[test]
fn windows_do_not_grow_with_the_context() {
    let layout = layout("gemma3-12b");
    let kv = |context: u64| {
        let context = ContextParams {
            context,
            ..ContextParams::default()
        };
        predict(
            &layout,
            &Placement::cpu_only(),
            &context,
            &machine(Vec::new()),
        )[0]
        .kv
        .0
    };
    assert_eq!(kv(32768), (8 * 32768 + 40 * 1536) * 8192);
    assert_eq!(kv(65536) - kv(32768), 8 * 32768 * 8192);
}

/// DeepSeek-V2-Lite with `nextn_predict_layers` 1: its last layer stays in the file and counts for `-ngl` all the same
/// (llama-fit-params of b11149, lavapipe, 8192 tokens).
#[test]
fn prediction_layers_take_nothing() {
    let mut layout = layout("deepseek-v2-lite");
    layout.tensors.retain(|t| t.layer != Some(26));
    layout.layers[26].attention = None;
    let context = ContextParams {
        context: 8192,
        ..ContextParams::default()
    };
    let memories = memories("vulkan");
    let recorded = [
        (99, [[7146.0, 234.0, 84.125], [2333.0, 0.0, 208.0]]),
        (14, [[3318.0, 108.0, 196.875], [6161.0, 126.0, 208.0]]),
    ];
    for (layers, expected) in recorded {
        let predicted = predict(&layout, &Placement::layers(layers), &context, &memories);
        for (memory, want) in predicted.iter().zip(expected) {
            let got = numbers(Some(memory));
            let errors = [0, 1, 2].map(|i| error(got[i], want[i], 1.0));
            assert!(
                errors.iter().all(|error| *error == 0.0),
                "{layers}: {got:?} {want:?}"
            );
        }
    }
}

/// Case C36: the first half's experts in RAM leave the second device with all others.
#[test]
fn a_misfit_names_its_device() {
    let layout = layout("qwen3-30b-a3b");
    let memories = machine(vec![
        device("CUDA0", Backend::Cuda, 6),
        device("CUDA1", Backend::Cuda, 6),
    ]);
    let placement = Placement {
        n_cpu_moe: 24,
        tensor_split: vec![1.0, 1.0],
        ..Placement::default()
    };
    let predicted = predict(&layout, &placement, &ContextParams::default(), &memories);
    let experts = |i: usize| {
        predicted[i]
            .weights
            .get(&TensorClass::Experts)
            .copied()
            .unwrap_or_default()
    };
    // 49 layers with the output: 25 and 24 of them; the first device's 25th keeps its experts. CUDA pads the 768 columns
    // of the down matrices by one more block (144 or 210 bytes), and that to 128.
    let each = |l: u32| layout.bytes(Some(l), TensorClass::Experts).0 + 256;
    assert_eq!(experts(0).0, each(24));
    assert_eq!(experts(1).0, (25..48).map(each).sum::<u64>());
    assert!(!fits(&predicted) && predicted[0].fits());
    let sentence = &misfits(&predicted)[0];
    assert!(
        sentence.starts_with("device 1 would need ") && sentence.ends_with(" of 6.00 GiB"),
        "{sentence}"
    );
}

/// Case C12: a tensor larger than any buffer the device allocates is not offered, however much memory is free. K of a layer:
/// 8 heads × 128 values × 2 bytes × 2 Mi cells = 4 GiB.
#[test]
fn a_buffer_larger_than_the_device_allocates_does_not_fit() {
    let mut vulkan = device("Vulkan0", Backend::Vulkan, 1000);
    vulkan.max_buffer = Some(Bytes(4_294_967_292));
    vulkan.max_tensor = Some(Bytes(4_294_967_292));
    let context = ContextParams {
        context: 2 << 20,
        ..ContextParams::default()
    };
    let predicted = predict(
        &layout("qwen3-4b"),
        &Placement::default(),
        &context,
        &machine(vec![vulkan]),
    );
    assert_eq!(predicted[0].excess(), Bytes(0));
    assert_eq!(predicted[0].largest_buffer, Bytes(4 << 30));
    assert!(!predicted[0].fits());
    let sentence = "device 0 would need one buffer of 4.00 GiB, and allocates at most 4.00 GiB";
    assert_eq!(predicted[0].misfit(0).unwrap(), sentence);
}

/// Two runs whose compute buffers were 10 % and 20 % larger: the ratio that is least wrong in bytes, here of equal sizes.
#[test]
fn runs_correct_compute_buffers_only() {
    let layout = layout("tiny");
    let (placement, context, memories) = (
        Placement::default(),
        ContextParams::default(),
        memories("cuda"),
    );
    let plain = predict(&layout, &placement, &context, &memories);
    let seen = |share: f64| BufferUse {
        device: "CUDA0".to_owned(),
        model: Bytes(1),
        context: Bytes(1),
        compute: Bytes((plain[0].compute.0 as f64 * share) as u64),
    };
    let none = Corrections::default();
    let learned =
        none.with_run(&plain, &memories, &[seen(1.1)])
            .with_run(&plain, &memories, &[seen(1.2)]);
    let corrected = memory(&layout, &placement, &context, &memories, &learned);
    let ratio = corrected[0].compute.0 as f64 / plain[0].compute.0 as f64;
    assert!((ratio - 1.15).abs() < 1e-3, "{ratio}");
    assert_eq!(corrected[0].compute_basis, Basis::Corrected);
    assert_eq!(
        (corrected[0].model(), corrected[0].kv),
        (plain[0].model(), plain[0].kv)
    );
    assert_eq!(corrected[1], plain[1]);
    // A hundred times as much is another run, not a correction.
    assert_eq!(learned.with_run(&plain, &memories, &[seen(100.0)]), learned);
}

/// A compute buffer twice as large as predicted is told of where it is more than 2 % of what the device holds.
#[test]
fn a_run_far_from_its_prediction_is_told_of() {
    let (placement, context, memories) = (
        Placement::default(),
        ContextParams::default(),
        memories("cuda"),
    );
    let predicted = predict(&layout("qwen3-4b"), &placement, &context, &memories);
    let [model, kv, compute] = [predicted[0].model(), predicted[0].kv, predicted[0].compute];
    let log = |compute: u64| {
        let own = BufferUse {
            device: "CUDA0".to_owned(),
            model,
            context: kv,
            compute: Bytes(compute),
        };
        // A mapped file's line says more than the host keeps.
        let host = BufferUse {
            device: "CPU_Mapped".to_owned(),
            model: Bytes(1 << 40),
            context: Bytes(0),
            compute: Bytes(0),
        };
        [own, host]
    };
    assert_eq!(Difference::of(&predicted, &memories, &log(compute.0)), None);
    let little = compute.0 + predicted[0].total().0 / 51;
    assert_eq!(Difference::of(&predicted, &memories, &log(little)), None);
    let twice = Difference::of(&predicted, &memories, &log(compute.0 * 2)).unwrap();
    assert_eq!(twice.id, "CUDA0");
    assert_eq!(twice.predicted, predicted[0].total());
    assert_eq!(twice.observed.0, twice.predicted.0 + compute.0);
    assert_eq!(Difference::of(&predicted, &memories, &[]), None);
}

/// Every class of the model is somewhere, once; tied embeddings twice.
#[test]
fn weights_are_placed_once() {
    for shape in ["qwen3-30b-a3b", "qwen3-8b", "qwen3-next-80b-a3b"] {
        let layout = layout(shape);
        let all: u64 = layout.tensors.iter().map(|t| t.bytes.0).sum();
        let used: BTreeSet<TensorClass> = layout.tensors.iter().map(|t| t.class).collect();
        for layers in [0, 1, 20, 99] {
            let predicted = predict(
                &layout,
                &Placement::layers(layers),
                &ContextParams::default(),
                &memories("cpu"),
            );
            let classes: BTreeSet<TensorClass> = predicted
                .iter()
                .flat_map(|m| m.weights.keys().copied())
                .collect();
            assert_eq!(classes, used);
            assert_eq!(
                predicted.iter().map(|m| m.model().0).sum::<u64>(),
                all,
                "{shape} {layers}"
            );
        }
    }
}
