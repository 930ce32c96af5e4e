//! What `flux quickstart` chooses for its user: a backend, a model to make, a search.

use std::path::{Path, PathBuf};

use crate::domain::machine::{VENDOR_NVIDIA, default_gpu};
use crate::domain::types::{Backend, Bytes, DeviceKind, Machine, Runtime, VulkanStatus};
use crate::ports::SynthRequest;

use super::message::TuneRequest;
use super::models::models_dir;
use super::scan::Scan;

/// Shapes to synthesise, the largest first: name, memory it wants, and cores it wants without a GPU, so that a
/// repetition stays in the range of seconds.
const SHAPES: &[(&str, Bytes, u32)] = &[
    ("qwen3-4b", Bytes::gib(6), 32),
    ("qwen3-0.6b", Bytes::gib(2), 4),
    ("tiny", Bytes(0), 0),
];

/// Seed of a model quickstart makes: the same file everywhere.
pub const SEED: u64 = 0;

/// The model to make on this machine, in the data folder; one made before by the same name is as good.
pub fn model_to_make(found: &Scan, data_dir: &Path) -> SynthRequest {
    let shape = shape_for(found);
    SynthRequest {
        shape: shape.to_owned(),
        output: models_dir(data_dir).join(format!("{shape}.gguf")),
        sparse: false,
        seed: SEED,
    }
}

/// A search with this build that starts no new candidate after `time_limit_secs` of measuring.
pub fn search(model: PathBuf, build: &Runtime, time_limit_secs: f64) -> TuneRequest {
    TuneRequest {
        runtime: Some(build.name.clone()),
        time_limit_secs: Some(time_limit_secs),
        ..TuneRequest::new(model)
    }
}

/// The shape of a random-weight model that suits this machine.
pub fn shape_for(found: &Scan) -> &'static str {
    let host = &found.machine.host;
    let gpu = default_gpu(&found.gpus).and_then(|gpu| gpu.memory.as_ref());
    let memory = gpu.map_or(host.ram_available, |memory| {
        memory.budget.unwrap_or(memory.vram)
    });
    pick_shape(
        memory,
        gpu.is_some(),
        host.physical_cores.unwrap_or(host.logical_cores),
    )
}

/// The largest shape that fits and is measured in reasonable time.
pub fn pick_shape(memory: Bytes, on_gpu: bool, cores: u32) -> &'static str {
    SHAPES
        .iter()
        .find(|(_, wants, wants_cores)| memory >= *wants && (on_gpu || cores >= *wants_cores))
        .map_or("tiny", |(name, _, _)| name)
}

/// The backend that uses this machine's GPU: Metal on Apple, Vulkan where a real device answers, CUDA where only
/// NVIDIA's own driver does, else the CPU.
pub fn backend_for(machine: &Machine) -> Backend {
    let real_vulkan = machine
        .vulkan
        .entries
        .iter()
        .any(|e| e.kind != DeviceKind::Software);
    let ready = matches!(machine.vulkan.status, VulkanStatus::Ready { .. });
    let nvidia_driver = machine.system_gpus.iter().any(|gpu| {
        gpu.vendor_id == VENDOR_NVIDIA && gpu.kernel_driver.as_deref() == Some("nvidia")
    });
    if machine.host.os.to_lowercase().contains("macos") {
        Backend::Metal
    } else if ready && real_vulkan {
        Backend::Vulkan
    } else if nvidia_driver {
        Backend::Cuda
    } else {
        Backend::Cpu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_suits_the_machine() {
        assert_eq!(pick_shape(Bytes::gib(8), true, 2), "qwen3-4b");
        assert_eq!(pick_shape(Bytes::gib(4), true, 2), "qwen3-0.6b");
        assert_eq!(pick_shape(Bytes::gib(64), false, 8), "qwen3-0.6b");
        assert_eq!(pick_shape(Bytes::gib(64), false, 2), "tiny");
        assert_eq!(pick_shape(Bytes::gib(1), true, 16), "tiny");
    }
}
