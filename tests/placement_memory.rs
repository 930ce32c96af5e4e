//! The memory model against llama-fit-params of b11149: recorded rows of many shapes, contexts, micro-batches, cache types
//! and placements (`fixtures/memory/rows.csv`, made by `record.py` beside it; the CUDA rows come from an H200).
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]
#![allow(clippy::print_stdout, reason = "the worst errors are worth reading")]

use std::collections::{BTreeMap, BTreeSet};

use flux::domain::placement::assignment::{ContextParams, HostTensors, Placement};
use flux::domain::placement::devices::{HostMemory, Memories, OffloadDevice};
use flux::domain::placement::layout::{ModelLayout, TensorClass};
use flux::domain::placement::memory::{Basis, Corrections, DeviceMemory, fits, memory, misfits};
use flux::domain::types::{Backend, BufferUse, Bytes};
use flux::gguf::GgufModels;
use flux::ports::{CancelToken, Models, SynthRequest};

const ROWS: &str = include_str!("fixtures/memory/rows.csv");
const MIB: f64 = (1u64 << 20) as f64;
/// lavapipe's `maxStorageBufferRange`.
const LAVAPIPE_TENSOR: Bytes = Bytes(1 << 27);

/// One row: what was asked, and MiB of weights, cache and compute buffer of the device and the host.
struct Row {
    shape: String,
    backend: String,
    placement: Placement,
    context: ContextParams,
    device: [f64; 3],
    host: [f64; 3],
}

fn row(line: &str) -> Row {
    let f: Vec<&str> = line.split(',').collect();
    let number = |i: usize| f[i].parse::<f64>().unwrap();
    let layers: Vec<u32> = f[4].split('+').filter_map(|l| l.parse().ok()).collect();
    let class = TensorClass::FeedForward;
    Row {
        shape: f[0].to_owned(),
        backend: f[1].to_owned(),
        placement: Placement {
            n_gpu_layers: Some(f[2].parse().unwrap()),
            n_cpu_moe: f[3].parse().unwrap(),
            host_tensors: Some(HostTensors { class, layers })
                .into_iter()
                .filter(|h| !h.layers.is_empty())
                .collect(),
            tensor_split: Vec::new(),
            kv_on_host: f[9] == "1",
        },
        context: ContextParams {
            context: f[5].parse().unwrap(),
            micro_batch: f[6].parse().unwrap(),
            type_k: f[7].to_owned(),
            type_v: f[7].to_owned(),
            flash_attention: f[8] == "1",
            ..ContextParams::default()
        },
        device: [number(10), number(11), number(12)],
        host: [number(13), number(14), number(15)],
    }
}

fn device(id: &str, backend: Backend, gib: u64) -> OffloadDevice {
    OffloadDevice {
        id: id.to_owned(),
        name: id.to_owned(),
        backend,
        total: Bytes(gib << 30),
        usable: Bytes(gib << 30),
        shares_ram: false,
        max_buffer: None,
        max_tensor: (backend == Backend::Vulkan).then_some(LAVAPIPE_TENSOR),
    }
}

fn machine(devices: Vec<OffloadDevice>) -> Memories {
    Memories {
        devices,
        host: HostMemory {
            total: Bytes(64 << 30),
            usable: Bytes(64 << 30),
            used_by_others: Bytes(0),
        },
    }
}

fn memories(backend: &str) -> Memories {
    machine(match backend {
        "cuda" => vec![device("CUDA0", Backend::Cuda, 140)],
        "vulkan" => vec![device("Vulkan0", Backend::Vulkan, 140)],
        _ => Vec::new(),
    })
}

fn layout(shape: &str) -> ModelLayout {
    let dir = tempfile::TempDir::new().unwrap();
    let request = SynthRequest {
        shape: shape.to_owned(),
        output: dir.path().join("model.gguf"),
        sparse: true,
        seed: 0,
    };
    let cancel = CancelToken::new();
    GgufModels
        .synthesise(&request, &cancel, &mut |_, _| {})
        .unwrap();
    GgufModels.layout(&request.output).unwrap()
}

fn predict(
    layout: &ModelLayout,
    placement: &Placement,
    context: &ContextParams,
    memories: &Memories,
) -> Vec<DeviceMemory> {
    memory(
        layout,
        placement,
        context,
        memories,
        &Corrections::default(),
    )
}

fn numbers(m: Option<&DeviceMemory>) -> [f64; 3] {
    m.map_or([0.0; 3], |m| {
        [m.model(), m.kv, m.compute].map(|b| b.0 as f64 / MIB)
    })
}

/// By how much a prediction is outside of what a number rounded down to `step` can stand for, as a share of it.
fn error(predicted: f64, recorded: f64, step: f64) -> f64 {
    if (recorded..recorded + step).contains(&predicted) {
        0.0
    } else {
        (predicted - recorded) / recorded.max(1.0)
    }
}

/// Weights and caches exact, compute buffers within 5 %, totals within 2 %.
#[test]
fn every_recorded_row_is_met() {
    let (rows, shapes) = meet(ROWS, 0.05, 0.02);
    assert!(rows >= 1000 && shapes >= 12);
}

/// Holds every row against the model; returns how many rows of how many shapes.
fn meet(text: &str, compute_bound: f64, total_bound: f64) -> (usize, usize) {
    let mut layouts = BTreeMap::new();
    let mut worst = BTreeMap::<(String, &str, &str), f64>::new();
    let mut rows = 0;
    for line in text.lines().skip(1) {
        let row = row(line);
        let layout = layouts
            .entry(row.shape.clone())
            .or_insert_with(|| layout(&row.shape));
        let predicted = predict(
            layout,
            &row.placement,
            &row.context,
            &memories(&row.backend),
        );
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

/// Several devices, as llama-fit-params prints them (MiB rounded down): two RPC servers on loopback addresses, and lavapipe
/// more than once. With everything offloaded llama.cpp works on several micro-batches at once and keeps four copies of each
/// input. With RPC llama-fit-params leaves the CPU's repacked weights out: the host's weights of that row are those of the
/// H200's row with as many layers.
#[test]
fn several_devices_share_the_layers() {
    let recorded = [
        "qwen3-4b RPC 99 1,1: 1089 304 111; 1285 272 357; 304 0 26",
        "qwen3-4b RPC 20 1,1: 561 160 71; 839 144 301; 1279 272 84",
        "qwen3-4b RPC 99 3,1: 1597 448 111; 778 128 357; 304 0 26",
        "qwen3-4b Vulkan 99 1,1: 1089 304 111; 981 272 131; 304 0 337",
        "qwen3-4b Vulkan 99 1,1,1: 751 208 111; 677 192 131; 643 176 131; 304 0 337",
        "llama3-8b Vulkan 99 1,1: 2113 272 148; 1879 240 180; 692 0 306",
    ];
    for line in recorded {
        let (asked, expected) = line.split_once(": ").unwrap();
        let [shape, name, layers, split] = asked.split(' ').collect::<Vec<_>>()[..] else {
            panic!("four words: {asked}");
        };
        let tensor_split: Vec<f64> = split.split(',').map(|s| s.parse().unwrap()).collect();
        let backend = if name == "RPC" {
            Backend::Rpc
        } else {
            Backend::Vulkan
        };
        let devices = (0..tensor_split.len()).map(|i| device(&format!("{name}{i}"), backend, 140));
        let memories = machine(devices.collect());
        let placement = Placement {
            tensor_split,
            ..Placement::layers(layers.parse().unwrap())
        };
        let predicted = predict(
            &layout(shape),
            &placement,
            &ContextParams::default(),
            &memories,
        );
        let mib = |m: &DeviceMemory| {
            [m.model(), m.kv, m.compute]
                .map(|b| (b.0 >> 20).to_string())
                .join(" ")
        };
        let shown: Vec<String> = predicted.iter().map(mib).collect();
        assert_eq!(shown.join("; "), expected, "{asked}");
    }
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
    let learned = none
        .with_run(&plain, &[seen(1.1)])
        .with_run(&plain, &[seen(1.2)]);
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
    assert_eq!(learned.with_run(&plain, &[seen(100.0)]), learned);
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
