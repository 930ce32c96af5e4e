//! The memories a model can be placed in: GPUs, other machines behind llama.cpp's RPC backend, RAM and the disk.

use serde::{Deserialize, Serialize};

use crate::domain::types::{Backend, Bytes};

/// A device of the runtime that layers can be offloaded to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OffloadDevice {
    /// llama.cpp's name for it: `CUDA0`, `Vulkan0`, `RPC0`.
    pub id: String,
    /// The device's own name, or an RPC server's address.
    pub name: String,
    /// Its backend.
    pub backend: Backend,
    /// All of its memory.
    pub total: Bytes,
    /// What a plan may use of it: free memory, less the reserve, at most the limit asked for.
    pub usable: Bytes,
    /// It shares the host's RAM: what is placed on it counts there too (case C13).
    pub shares_ram: bool,
    /// Largest single buffer it can allocate, where Vulkan says (case C12).
    pub max_buffer: Option<Bytes>,
    /// Largest tensor an operation can touch (Vulkan's `maxStorageBufferRange`): weights beyond it stay in RAM, and what
    /// they are used for on the CPU.
    pub max_tensor: Option<Bytes>,
    /// llama.cpp captures graphs on it, which take memory of it: CUDA, from Volta on.
    #[serde(default)]
    pub captures_graphs: bool,
}

/// The host's memory, for the part of a model that is not offloaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostMemory {
    /// All RAM.
    pub total: Bytes,
    /// What a plan may use of it: available RAM, less the reserve, at most the limit asked for.
    pub usable: Bytes,
    /// What other programs use now.
    pub used_by_others: Bytes,
    /// How the CPU backend lays out weights that it computes with itself.
    #[serde(default)]
    pub layout: CpuLayout,
}

/// Layouts of weights in the CPU backend (`ggml_repack_get_optimal_repack_type` of ggml-cpu/repack.cpp). A weight it
/// repacks is copied out of the file into memory of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuLayout {
    /// As in the file: an offload device is there, and the CPU's weights must stay readable for it.
    #[default]
    File,
    /// Repacked for AVX2, which every x86-64 processor that llama.cpp is built for has.
    Avx2,
    /// Repacked for NEON with dot products.
    Neon,
}

impl CpuLayout {
    /// The layout of a processor architecture (`x86_64`, `aarch64`) without offload devices.
    pub fn without_devices(arch: &str) -> Self {
        match arch {
            "x86_64" => Self::Avx2,
            "aarch64" => Self::Neon,
            _ => Self::File,
        }
    }

    /// Is a matrix of this type and so many rows repacked? Types that only AVX-512 repacks count for AVX2: more memory
    /// than is taken is the safe side.
    pub fn repacks(self, kind: &str, rows: u64) -> bool {
        let kinds: &[&str] = match self {
            Self::File => &[],
            Self::Avx2 => &["Q4_0", "Q4_K", "Q2_K", "IQ4_NL", "MXFP4"],
            Self::Neon => &[
                "Q1_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "IQ4_NL", "MXFP4",
            ],
        };
        let group = match kind {
            "Q1_0" | "Q8_0" => 4,
            "Q4_0" | "IQ4_NL" | "MXFP4" if self == Self::Neon => 4,
            _ => 8,
        };
        kinds.contains(&kind) && rows.is_multiple_of(group)
    }
}

/// Every memory of the machine, in the runtime's order of devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Memories {
    /// Devices layers can be offloaded to.
    pub devices: Vec<OffloadDevice>,
    /// The host's.
    pub host: HostMemory,
}

impl Memories {
    /// Id of the device that a log's buffer line means. RPC devices are counted there server by server
    /// (`RPC0[127.0.0.1:50052]`), and all together in ids; every other name is the id.
    pub fn id_of_buffer<'a>(&'a self, name: &'a str) -> &'a str {
        let parts = name.strip_prefix("RPC").and_then(|n| n.strip_suffix(']'));
        let Some((number, address)) = parts.and_then(|n| n.split_once('[')) else {
            return name;
        };
        let mut of_server = self.devices.iter().filter(|d| d.name == address);
        let device = number.parse().ok().and_then(|n| of_server.nth(n));
        device.map_or(name, |d| d.id.as_str())
    }
}
