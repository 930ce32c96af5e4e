//! A llama.cpp build: where it is, what it says of itself, and the digest that identifies it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Bytes;

/// A ggml backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// CPU only.
    Cpu,
    /// Vulkan.
    Vulkan,
    /// NVIDIA CUDA.
    Cuda,
    /// AMD ROCm/HIP.
    Hip,
    /// Apple Metal.
    Metal,
    /// Intel SYCL.
    Sycl,
    /// llama.cpp's RPC backend.
    Rpc,
}

impl Backend {
    /// The name used in files, flags and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Vulkan => "vulkan",
            Self::Cuda => "cuda",
            Self::Hip => "hip",
            Self::Metal => "metal",
            Self::Sycl => "sycl",
            Self::Rpc => "rpc",
        }
    }

    /// The backend a llama.cpp device name belongs to: `Vulkan0` → Vulkan.
    pub fn of_device(device: &str) -> Option<Self> {
        let prefix = device.trim_end_matches(|c: char| c.is_ascii_digit());
        match prefix.to_ascii_lowercase().as_str() {
            "vulkan" => Some(Self::Vulkan),
            "cuda" => Some(Self::Cuda),
            "rocm" | "hip" => Some(Self::Hip),
            "metal" | "mtl" => Some(Self::Metal),
            "sycl" => Some(Self::Sycl),
            "cpu" => Some(Self::Cpu),
            p if p.starts_with("rpc") => Some(Self::Rpc),
            _ => None,
        }
    }
}

/// A device as this binary's `--list-devices` names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeDevice {
    /// The name `-dev` takes: `Vulkan0`, `CUDA0`.
    pub id: String,
    /// The device's own name.
    pub name: String,
    /// Total memory.
    pub total: Bytes,
    /// Free memory when asked.
    pub free: Bytes,
}

/// A llama.cpp build known to Flux.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runtime {
    /// Short name the user may type with `--runtime`.
    pub name: String,
    /// Folder with the binaries.
    pub dir: PathBuf,
    /// `llama-bench`, where there is one.
    pub bench: Option<PathBuf>,
    /// `llama-server`, where there is one.
    pub server: Option<PathBuf>,
    /// Build number it reports (0 when built from an archive).
    pub build_number: u64,
    /// Commit it reports (`unknown` when built from an archive).
    pub build_commit: String,
    /// The version line in full.
    pub version_text: String,
    /// SHA-256 over its binaries and backend libraries (the files that do the work, not wrapper scripts) and its own
    /// variables: its identity.
    pub digest: String,
    /// Backends it can use here, CPU always among them.
    pub backends: BTreeSet<Backend>,
    /// Which CPU variant library was loaded, where backends are loadable (`libggml-cpu-haswell.so`).
    pub cpu_variant: Option<String>,
    /// Devices it lists with its own variables and no others set by Flux.
    pub devices: Vec<RuntimeDevice>,
    /// Long flags llama-bench's `--help` names, e.g. `--flash-attn`.
    pub bench_flags: BTreeSet<String>,
    /// Long flags llama-server's `--help` names.
    pub server_flags: BTreeSet<String>,
    /// Stock defaults as `--help` prints them, by long flag: `--ubatch-size` → `512`.
    pub bench_defaults: BTreeMap<String, String>,
    /// How it came here.
    pub origin: RuntimeOrigin,
    /// Variables the user keeps with it (`HSA_OVERRIDE_GFX_VERSION`): every process of it gets them, and they are part of
    /// the digest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

impl Runtime {
    /// What a process of it gets beside the inherited environment: its own variables, then those of a launch, which win.
    pub fn environment(&self, launch: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let own = self
            .env
            .iter()
            .filter(|(name, _)| !launch.contains_key(*name));
        own.chain(launch)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// How a runtime came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeOrigin {
    /// Found on PATH or in a usual folder.
    Found,
    /// Added by the user.
    Added,
    /// Installed by Flux.
    Installed,
}
