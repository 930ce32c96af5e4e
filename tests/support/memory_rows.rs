//! Rows of llama.cpp's own numbers and the machines they come from, for the tests of the memory model.
#![allow(dead_code, reason = "not every test file needs all of it")]

use flux::domain::placement::assignment::{ContextParams, HostTensors, Placement};
use flux::domain::placement::devices::{CpuLayout, HostMemory, Memories, OffloadDevice};
use flux::domain::placement::layout::{ModelLayout, TensorClass};
use flux::domain::placement::memory::{Corrections, DeviceMemory, memory};
use flux::domain::types::{Backend, Bytes};

pub const MIB: f64 = (1u64 << 20) as f64;
/// lavapipe's `maxStorageBufferRange`.
pub const LAVAPIPE_TENSOR: Bytes = Bytes(1 << 27);

/// One row: what was asked, and MiB of weights, cache and compute buffer of the device and the host.
pub struct Row {
    pub shape: String,
    pub backend: String,
    pub placement: Placement,
    pub context: ContextParams,
    pub device: [f64; 3],
    pub host: [f64; 3],
}

pub fn row(line: &str) -> Row {
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
            no_repack: false,
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

pub fn device(id: &str, backend: Backend, gib: u64) -> OffloadDevice {
    OffloadDevice {
        id: id.to_owned(),
        name: id.to_owned(),
        backend,
        total: Bytes(gib << 30),
        usable: Bytes(gib << 30),
        shares_ram: false,
        captures_graphs: backend == Backend::Cuda,
        max_buffer: None,
        max_tensor: (backend == Backend::Vulkan).then_some(LAVAPIPE_TENSOR),
    }
}

pub fn machine(devices: Vec<OffloadDevice>) -> Memories {
    let layout = if devices.is_empty() {
        CpuLayout::without_devices("x86_64")
    } else {
        CpuLayout::File
    };
    Memories {
        devices,
        host: HostMemory {
            total: Bytes(64 << 30),
            usable: Bytes(64 << 30),
            used_by_others: Bytes(0),
            layout,
        },
    }
}

pub fn memories(backend: &str) -> Memories {
    machine(match backend {
        "cuda" => vec![device("CUDA0", Backend::Cuda, 140)],
        "vulkan" => vec![device("Vulkan0", Backend::Vulkan, 140)],
        _ => Vec::new(),
    })
}

pub fn predict(
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

pub fn numbers(m: Option<&DeviceMemory>) -> [f64; 3] {
    m.map_or([0.0; 3], |m| {
        [m.model(), m.kv, m.compute].map(|b| b.0 as f64 / MIB)
    })
}

/// By how much a prediction is outside of what a number rounded down to `step` can stand for, as a share of it.
pub fn error(predicted: f64, recorded: f64, step: f64) -> f64 {
    if (recorded..recorded + step).contains(&predicted) {
        0.0
    } else {
        (predicted - recorded) / recorded.max(1.0)
    }
}
