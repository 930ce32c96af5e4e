//! The memory model of several devices against llama.cpp b11149: the buffer lines of its log and what llama-fit-params
//! prints, of two H200s (`fixtures/memory/devices.csv`, made by `record_devices.py` beside it), lavapipe and RPC servers.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]
#![allow(clippy::print_stdout, reason = "the worst errors are worth reading")]

#[path = "support/memory_rows.rs"]
mod memory_rows;
#[path = "support/placement.rs"]
mod placement_support;

use std::collections::BTreeMap;

use flux::domain::placement::assignment::{ContextParams, Placement};
use flux::domain::placement::devices::OffloadDevice;
use flux::domain::placement::layout::ModelLayout;
use flux::domain::placement::learn;
use flux::domain::placement::memory::{Corrections, DeviceMemory};
use flux::domain::types::{Backend, BufferUse, Bytes};

use memory_rows::{MIB, device, error, machine, numbers, predict, row};
use placement_support::layout;

/// Rows of llama-fit-params (`fit`) and of llama-bench's log (`bench`).
const ROWS: &str = include_str!("fixtures/memory/devices.csv");

/// Weights and caches exact; compute buffers as the log has them.
#[test]
fn two_devices_are_met() {
    let mut layouts = BTreeMap::new();
    let mut missed = Vec::new();
    let mut worst = [0.0_f64; 2];
    // Here llama-fit-params tells another number than a run (on two lavapipe devices 87.13 MiB, and 84.00 of a run), as it
    // forgets norms (see `unpinned`); no run on H200s was recorded.
    let unmet = "deepseek-v2-lite,fit,2,99,0,,8192,512,f16,1,";
    let lines: Vec<&str> = ROWS.lines().skip(1).collect();
    for line in lines.iter().filter(|line| !line.starts_with(unmet)) {
        let f: Vec<&str> = line.split(',').collect();
        let number = |i: usize| f[i].parse::<f64>().unwrap();
        let n = number(2) as usize;
        let single = format!(
            "{},cuda,{},{},{},{},{},{},1,{},0,0,0,0,0,0",
            f[0], f[3], f[4], f[5], f[6], f[7], f[8], f[9]
        );
        let mut row = row(&single);
        let split = f[10].split('+').filter_map(|s| s.parse().ok());
        row.placement.tensor_split = split.collect();
        let devices = (0..n).map(|i| device(&format!("CUDA{i}"), Backend::Cuda, 140));
        let memories = machine(devices.collect());
        let layout = layouts.entry(f[0]).or_insert_with(|| layout(f[0]));
        let predicted = predict(layout, &row.placement, &row.context, &memories);
        let printed = f[1] == "fit";
        let forgets = printed && row.placement.is_pipelined(layout.n_layer(), n);
        for (place, memory) in predicted.iter().enumerate() {
            let host = place == n;
            let columns = if host { 17 } else { 11 + 3 * place };
            let want = [0, 1, 2].map(|i| number(columns + i));
            let mut got = numbers(Some(memory));
            // A mapped file's line in the log reaches from its first to its last tensor in RAM, whatever lies between.
            if !printed && host && (f[4] != "0" || !f[5].is_empty()) {
                assert!(got[0] <= want[0], "{got:.2?}, recorded {want:?}: {line}");
                got[0] = want[0];
            }
            if forgets && (1..n).contains(&place) {
                got[2] += unpinned(layout, &row.context);
            }
            let (met, compute) = is_met(got, want, printed, host);
            let most = &mut worst[usize::from(printed)];
            *most = most.max(compute);
            if !met {
                missed.push(format!("{place}: {got:.2?}, recorded {want:?}: {line}"));
            }
        }
    }
    println!(
        "compute buffers: log {:.3} %, llama-fit-params {:.3} %",
        worst[0] * 100.0,
        worst[1] * 100.0
    );
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    assert_eq!(lines.len(), 293);
}

/// Is a row's memory met, and by how much is its compute buffer off? llama-fit-params prints whole MiB, the log two decimals;
/// of both, devices' compute buffers have those. A run's own lines are met to a thousandth; what a forgotten norm moves
/// beside itself is not simulated.
fn is_met(got: [f64; 3], want: [f64; 3], printed: bool, host: bool) -> (bool, f64) {
    let whole = [printed, printed, printed && host];
    let [weights, cache, compute] = [0, 1, 2].map(|i| {
        let (shift, step) = if whole[i] { (0.0, 1.0) } else { (0.005, 0.015) };
        error(got[i], want[i] - shift, step).abs()
    });
    let total = error(got.iter().sum(), want.iter().sum(), 3.0).abs();
    let (part, all) = if printed {
        (0.05, 0.02)
    } else {
        (0.001, 0.001)
    };
    let exact = weights + cache <= 0.0;
    (exact && compute <= part && total <= all, compute)
}

/// MiB that llama-fit-params counts more than a run takes, on every device after the first: it forgets the placing of each
/// layer's first norm (`ggml_backend_sched_reserve_size` resets the scheduler), so that where one device hands over to the
/// next that norm stays behind, and its result is handed over four times beside the residual stream.
fn unpinned(layout: &ModelLayout, context: &ContextParams) -> f64 {
    let tokens = context.micro_batch.min(context.batch).min(context.context);
    (4 * 4 * layout.embedding * tokens) as f64 / MIB
}

/// Other backends, as llama-fit-params prints them (MiB rounded down): two RPC servers on loopback addresses, and lavapipe
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
        let n = tensor_split.len();
        let devices = (0..n).map(|i| device(&format!("{name}{i}"), backend, 140));
        let memories = machine(devices.collect());
        let placement = Placement {
            tensor_split,
            ..Placement::layers(layers.parse().unwrap())
        };
        let (layout, context) = (layout(shape), ContextParams::default());
        let predicted = predict(&layout, &placement, &context, &memories);
        let pipelined = placement.is_pipelined(layout.n_layer(), n);
        let mib = |(i, m): (usize, &DeviceMemory)| {
            let [model, kv, mut compute] = numbers(Some(m));
            if pipelined && (1..n).contains(&i) {
                compute += unpinned(&layout, &context);
            }
            [model, kv, compute]
                .map(|x| x.floor().to_string())
                .join(" ")
        };
        let shown: Vec<String> = predicted.iter().enumerate().map(mib).collect();
        assert_eq!(shown.join("; "), expected, "{asked}");
    }
}

/// A run of two lavapipe devices as its log has it: the second device without what llama-fit-params counts too much.
#[test]
fn a_run_takes_less_of_later_devices_than_llama_fit_params_prints() {
    let devices = (0..2).map(|i| device(&format!("Vulkan{i}"), Backend::Vulkan, 140));
    let placement = Placement {
        tensor_split: vec![1.0, 1.0],
        ..Placement::layers(99)
    };
    let context = ContextParams::default();
    let memories = machine(devices.collect());
    let predicted = predict(&layout("qwen3-4b"), &placement, &context, &memories);
    let compute: Vec<String> = predicted
        .iter()
        .map(|m| format!("{:.2}", m.compute.0 as f64 / MIB))
        .collect();
    assert_eq!(compute, ["111.04", "111.05", "337.80"]);
}

/// The buffer lines of two RPC servers with one device each, as b11149 logs them: the number counts a server's own devices.
#[test]
fn rpc_servers_buffers_correct_their_own_devices() {
    let addresses = ["127.0.0.1:50171", "127.0.0.1:50172"];
    let rpc = |(i, address): (usize, &&str)| OffloadDevice {
        name: (*address).to_owned(),
        ..device(&format!("RPC{i}"), Backend::Rpc, 24)
    };
    let memories = machine(addresses.iter().enumerate().map(rpc).collect());
    let placement = Placement {
        tensor_split: vec![1.0, 1.0],
        ..Placement::layers(99)
    };
    let (layout, context) = (layout("tiny"), ContextParams::default());
    let plain = predict(&layout, &placement, &context, &memories);
    let seen = |name: &str, bytes: u64| BufferUse {
        device: name.to_owned(),
        model: Bytes(0),
        context: Bytes(0),
        compute: Bytes(bytes),
    };
    let log = [
        seen("RPC0[127.0.0.1:50171]", plain[0].compute.0 * 2),
        seen("RPC0[127.0.0.1:50172]", plain[1].compute.0 * 3),
        seen("CPU", plain[2].compute.0),
    ];
    let learned = Corrections::default().with_run(&plain, &memories, &log);
    let ratios: Vec<(&str, f64)> = learned
        .compute
        .iter()
        .map(|(id, o)| (id.as_str(), o.ratio()))
        .collect();
    assert_eq!(ratios, [("Host", 1.0), ("RPC0", 2.0), ("RPC1", 3.0)]);
    // A server with two devices, and one that nobody named.
    let mut two = memories;
    two.devices[1].name = addresses[0].to_owned();
    assert_eq!(two.id_of_buffer("RPC1[127.0.0.1:50171]"), "RPC1");
    let unknown = "RPC0[10.0.0.1:50052]";
    assert_eq!(two.id_of_buffer(unknown), unknown);
}

/// What llama.cpp chose by itself is in no record of it, and rows split over devices have no device of their own.
#[test]
fn a_record_whose_placement_it_does_not_say_teaches_nothing() {
    let layout = layout("tiny");
    let said = |record: serde_json::Value| {
        learn::placement(&record, &layout).map_err(|why| {
            why.strip_prefix("records of ")
                .unwrap()
                .split(" are left out")
                .next()
                .unwrap()
                .to_owned()
        })
    };
    let plain = serde_json::json!({"n_gpu_layers": 3, "split_mode": "layer", "fit_target": 0, "fit_min_ctx": 0});
    assert_eq!(said(plain), Ok(Placement::layers(3)));
    for (field, value, why) in [
        (
            "fit_target",
            serde_json::json!(1024),
            "llama.cpp's own fitting",
        ),
        (
            "fit_min_ctx",
            serde_json::json!(4096),
            "llama.cpp's own fitting",
        ),
        ("split_mode", serde_json::json!("row"), "-sm row"),
        ("split_mode", serde_json::json!("tensor"), "-sm tensor"),
    ] {
        let record = serde_json::json!({"n_gpu_layers": -1, field: value});
        assert_eq!(said(record), Err(why.to_owned()), "{field}");
    }
}
