//! What a scan finds: Vulkan devices, PCI places, the host. Plain data; grouping and judging are in `domain::machine`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Bytes;

/// Where a device sits on PCI; shown as `0000:01:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// PCI domain (segment).
    pub domain: u32,
    /// Bus number.
    pub bus: u32,
    /// Device (slot) number.
    pub device: u32,
    /// Function number.
    pub function: u32,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl FromStr for PciAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || format!("not a PCI address (expected 0000:01:00.0): {text}");
        let hex = |s: &str| u32::from_str_radix(s, 16).map_err(|_| bad());
        let (rest, function) = text.rsplit_once('.').ok_or_else(bad)?;
        let mut parts = rest.split(':');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(domain), Some(bus), Some(device), None) => Ok(Self {
                domain: hex(domain)?,
                bus: hex(bus)?,
                device: hex(device)?,
                function: hex(function)?,
            }),
            _ => Err(bad()),
        }
    }
}

impl Serialize for PciAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PciAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// What Vulkan calls `VkPhysicalDeviceType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A card with memory of its own.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A GPU handed through to a virtual machine.
    Virtual,
    /// A software renderer (lavapipe, `SwiftShader`): never tuned, never fingerprinted as a GPU.
    Software,
    /// The driver did not say.
    Other,
}

/// One memory heap of one Vulkan device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heap {
    /// Size of the heap.
    pub size: Bytes,
    /// What the driver says this process may use now (`VK_EXT_memory_budget`).
    pub budget: Option<Bytes>,
    /// What this process uses now (`VK_EXT_memory_budget`).
    pub usage: Option<Bytes>,
    /// `VK_MEMORY_HEAP_DEVICE_LOCAL_BIT`.
    pub device_local: bool,
    /// Some memory type of this heap can be mapped by the host.
    pub host_visible: bool,
}

/// One queue family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueFamily {
    /// Position in Vulkan's list.
    pub index: u32,
    /// Flags in words: `graphics`, `compute`, `transfer`, `sparse`, …
    pub flags: Vec<String>,
    /// Number of queues.
    pub count: u32,
    /// Valid bits of a timestamp; 0 means no timestamps.
    pub timestamp_bits: u32,
}

/// The driver behind one Vulkan entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// `VkDriverId` as a number (0 where the driver does not report one).
    pub id: i32,
    /// `VkDriverId` in words, e.g. `MESA_RADV`.
    pub id_name: String,
    /// `driverName`.
    pub name: String,
    /// `driverInfo`.
    pub info: String,
    /// `driverVersion` as the vendor encodes it.
    pub version_raw: u32,
    /// `driverVersion` decoded by the vendor's own rule.
    pub version: String,
}

/// Limits that decide what may be offered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// `maxMemoryAllocationSize`.
    pub max_allocation: Option<Bytes>,
    /// `maxBufferSize` (Vulkan 1.3).
    pub max_buffer: Option<Bytes>,
    /// `maxStorageBufferRange`.
    pub max_storage_buffer_range: Option<Bytes>,
    /// `maxComputeWorkGroupInvocations`.
    pub max_work_group_invocations: u32,
    /// `maxComputeWorkGroupSize`.
    pub max_work_group_size: [u32; 3],
    /// `maxComputeSharedMemorySize`, bytes.
    pub max_shared_memory: u32,
    /// Default subgroup size.
    pub subgroup_size: u32,
    /// Smallest and largest subgroup size, where it can be chosen.
    pub subgroup_size_range: Option<[u32; 2]>,
    /// `timestampPeriod`, nanoseconds per tick, in thousandths (kept whole so that equality is exact).
    pub timestamp_period_ps: u32,
}

/// Features that shape the search space. `None`: the driver cannot be asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// `shaderFloat16`.
    pub fp16: bool,
    /// `shaderInt8`.
    pub int8: bool,
    /// `storageBuffer16BitAccess`.
    pub storage_16bit: bool,
    /// `integerDotProduct4x8BitPackedSignedAccelerated`.
    pub int8_dot_accelerated: bool,
    /// `VK_KHR_cooperative_matrix`.
    pub cooperative_matrix: bool,
    /// `VK_NV_cooperative_matrix2`.
    pub cooperative_matrix2: bool,
    /// `VK_KHR_shader_bfloat16`.
    pub bfloat16: bool,
    /// `timelineSemaphore`.
    pub timeline_semaphore: bool,
}

/// One entry of `vkEnumeratePhysicalDevices`: one device through one driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VulkanEntry {
    /// Position in Vulkan's own list, the number `GGML_VK_VISIBLE_DEVICES` counts in.
    pub enumeration_index: u32,
    /// `deviceName`, as the driver says it.
    pub name: String,
    /// What kind of device.
    pub kind: DeviceKind,
    /// PCI vendor id.
    pub vendor_id: u32,
    /// PCI device id.
    pub device_id: u32,
    /// PCI address, where `VK_EXT_pci_bus_info` exists.
    pub pci: Option<PciAddress>,
    /// `deviceUUID` in hex.
    pub uuid: Option<String>,
    /// Device API version, `1.3.217`.
    pub api_version: String,
    /// The driver.
    pub driver: Driver,
    /// Heaps, one by one.
    pub heaps: Vec<Heap>,
    /// Queue families.
    pub queue_families: Vec<QueueFamily>,
    /// Limits.
    pub limits: Limits,
    /// Features.
    pub features: Features,
}

/// How asking Vulkan went. Not finding it is a normal state, never an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum VulkanStatus {
    /// The loader answered; `instance_version` is what it supports.
    Ready {
        /// Instance API version.
        instance_version: String,
    },
    /// No Vulkan loader on this machine.
    NoLoader {
        /// What the system said.
        detail: String,
    },
    /// A loader, but no driver that an instance could be made with.
    NoDriver {
        /// What Vulkan said.
        detail: String,
    },
}

/// Everything Vulkan said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VulkanReport {
    /// How it went.
    pub status: VulkanStatus,
    /// The entries, in Vulkan's order. Empty unless ready.
    pub entries: Vec<VulkanEntry>,
}

/// A GPU as the vendor's own management library or the OS lists it; fills what Vulkan cannot say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemGpu {
    /// PCI address.
    pub pci: PciAddress,
    /// PCI vendor id.
    pub vendor_id: u32,
    /// PCI device id.
    pub device_id: u32,
    /// PCI subsystem vendor and device id.
    pub subsystem: Option<[u32; 2]>,
    /// PCI revision.
    pub revision: Option<u32>,
    /// Kernel driver bound to it.
    pub kernel_driver: Option<String>,
    /// Version of that driver where the OS tells it (`/sys/module/nvidia/version`, …).
    pub driver_version: Option<String>,
    /// Version of the driver's libraries, where none fits the driver that runs: it was updated without a restart, and
    /// which version measures is not sure (case C25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_driver: Option<String>,
    /// Dedicated memory, where the OS tells it.
    pub vram: Option<Bytes>,
}

/// The host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// CPU model.
    pub cpu: String,
    /// Physical cores, where known.
    pub physical_cores: Option<u32>,
    /// Logical processors this process may use.
    pub logical_cores: u32,
    /// Total RAM.
    pub ram_total: Bytes,
    /// RAM available now.
    pub ram_available: Bytes,
    /// Operating system and version, e.g. `Debian GNU/Linux 12`.
    pub os: String,
    /// Kernel version in full.
    pub kernel: String,
    /// Processor architecture, `x86_64`.
    pub arch: String,
    /// Running on battery, where known.
    pub on_battery: Option<bool>,
    /// CPU frequency governor or power plan, where known.
    pub power_plan: Option<String>,
    /// One-minute load average, where the OS has one (hundredths).
    pub load_1min_centi: Option<u32>,
    /// Access to the GPU device nodes, where the OS has them (Linux).
    #[serde(default)]
    pub render_nodes: Option<RenderNodes>,
}

/// Whether this process may use `/dev/dri/renderD*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RenderNodes {
    /// At least one can be opened.
    Usable,
    /// There is none.
    Missing,
    /// There are some, none may be opened.
    Denied,
}

/// What can be measured while a run goes on, per source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TelemetrySourceStatus {
    /// Source: `amdgpu`, `nvml`, `rapl`, `sysinfo`, …
    pub source: String,
    /// The device it belongs to, where it is a GPU's.
    pub pci: Option<PciAddress>,
    /// It can be read.
    pub available: bool,
    /// Why not, or what it offers.
    pub detail: String,
}

/// A scanned or exported machine: the raw readings. `machine.json` of a fixture is this.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Version of this document.
    pub schema: u32,
    /// Everything Vulkan said.
    pub vulkan: VulkanReport,
    /// GPUs the OS lists.
    #[serde(default)]
    pub system_gpus: Vec<SystemGpu>,
    /// The host.
    pub host: Host,
    /// Telemetry sources.
    #[serde(default)]
    pub telemetry: Vec<TelemetrySourceStatus>,
    /// llama.cpp builds known on this machine.
    #[serde(default)]
    pub runtimes: Vec<super::Runtime>,
    /// Inherited variables that would change a stock run (`GGML_*`, `LLAMA_*`): shown, and removed from every child.
    #[serde(default)]
    pub inherited_env: BTreeMap<String, String>,
    /// Settings files that llama.cpp's tools read here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub llama_configs: Vec<LlamaConfig>,
    /// The readings come from an exported machine, not from this one.
    #[serde(default)]
    pub simulated: bool,
}

/// Whom a settings file of llama.cpp's is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfigReach {
    /// Everybody on this machine.
    System,
    /// This user.
    User,
}

/// A settings file that llama.cpp's tools read at their start. Its values are not kept: a key may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LlamaConfig {
    /// For whom.
    pub reach: ConfigReach,
    /// The file.
    pub path: PathBuf,
    /// What it sets for every tool, in the order of its sections.
    pub keys: Vec<String>,
    /// The line that llama.cpp stops at, from 1.
    pub bad_line: Option<u32>,
}

impl Machine {
    /// The current version of `machine.json`.
    pub const SCHEMA: u32 = 1;
}
