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
