//! From raw readings to physical GPUs (design section 3, cases C11, C12, C17–C22): one GPU is counted once however
//! many drivers show it, discrete before integrated, software renderers marked. Pure functions over `Machine`.

mod advice;
mod architecture;
mod group;
mod llama_index;
mod memory;

use serde::{Deserialize, Serialize};

use crate::domain::types::{DeviceKind, PciAddress, VulkanEntry};

pub use advice::{NoGpu, no_gpu};
pub use architecture::{Architecture, VENDOR_AMD, VENDOR_INTEL, VENDOR_NVIDIA, architecture};
pub use group::gpus;
pub use memory::GpuMemory;

/// One physical GPU (or software renderer), with every driver that shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Name as the preferred driver says it, else from the PCI id list.
    pub name: String,
    /// Product by id and revision, where those name exactly one. For display only.
    pub product: Option<String>,
    /// Vendor, for display.
    pub vendor: String,
    /// PCI vendor id.
    pub vendor_id: u32,
    /// PCI device id.
    pub device_id: u32,
    /// PCI subsystem vendor and device id, where the OS tells.
    pub subsystem: Option<[u32; 2]>,
    /// PCI revision, where the OS tells.
    pub revision: Option<u32>,
    /// PCI address, where any source tells.
    pub pci: Option<PciAddress>,
    /// Card, integrated, software, …
    pub kind: DeviceKind,
    /// What silicon it is, by id.
    pub architecture: Architecture,
    /// Its memory, counted once; `None` when neither Vulkan nor the OS tells.
    pub memory: Option<GpuMemory>,
    /// Kernel driver bound to it.
    pub kernel_driver: Option<String>,
    /// Version of the kernel driver.
    pub kernel_driver_version: Option<String>,
    /// The drivers that show it, the preferred one first.
    pub drivers: Vec<GpuDriver>,
    /// What the preferred driver says: capabilities come from this entry alone (case C17).
    pub preferred: Option<VulkanEntry>,
    /// May be tuned through Vulkan without being named by the user. A build with a backend of its own (CUDA, HIP)
    /// may use a GPU that Vulkan does not show: its `--list-devices` tells.
    pub usable: bool,
    /// Why it is not usable, or what else to know, in one sentence.
    pub remark: Option<String>,
}

impl Gpu {
    /// Is this its name, or the one that its preferred driver gives it?
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.preferred.as_ref().is_some_and(|e| e.name == name)
    }
}

/// One driver's view of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuDriver {
    /// `driverName`, else the driver id in words.
    pub name: String,
    /// Decoded driver version.
    pub version: String,
    /// Device API version.
    pub api_version: String,
    /// Position in Vulkan's own list: what `GGML_VK_VISIBLE_DEVICES` counts in.
    pub raw_index: u32,
    /// Expected N of `VulkanN` in llama.cpp's list, which skips software devices and duplicates (case C18).
    /// `None`: llama.cpp does not list this entry by itself. `--list-devices` of the build has the last word.
    pub llama_index: Option<u32>,
    /// Translates to another API (Dozen on Direct3D 12) instead of driving the GPU.
    pub translation: bool,
}

impl Gpu {
    /// Its vendor makes GPUs that llama.cpp computes on; a server's VGA chip or a virtual display is of no use.
    pub fn computes(&self) -> bool {
        self.preferred.is_some()
            || matches!(self.vendor_id, VENDOR_AMD | VENDOR_NVIDIA | VENDOR_INTEL)
    }

    /// Vendor and device id, `1002:6fdf`.
    pub fn id(&self) -> String {
        format!("{:04x}:{:04x}", self.vendor_id, self.device_id)
    }

    /// Position of the preferred entry in Vulkan's own list.
    pub fn raw_index(&self) -> Option<u32> {
        self.drivers.first().map(|d| d.raw_index)
    }

    /// N of `VulkanN` in llama.cpp, whichever driver it takes.
    pub fn llama_index(&self) -> Option<u32> {
        self.drivers.iter().find_map(|d| d.llama_index)
    }
}

/// The GPU a job takes when the user names none: the first usable one, discrete before integrated (case C19).
pub fn default_gpu(gpus: &[Gpu]) -> Option<&Gpu> {
    gpus.iter().find(|g| g.usable)
}
