//! Readings of sensors over time (design section 6). What a sensor does not tell is absent, never zero.

pub mod around;
pub mod columns;
pub mod energy;
mod processor;
mod rest;
mod ring;
mod trust;

use serde::{Deserialize, Serialize};

use crate::domain::types::Timestamp;

pub use columns::{Column, Windowed};
pub use processor::ProcessorTime;
pub use rest::Rest;
pub use ring::{Ring, Rings, Summary};
pub use trust::{MOST_WATTS, Trust, says_nothing};

/// The source of readings of the machine as a whole.
pub const HOST: &str = "host";

/// The source of readings of an Apple chip's GPU, which sits on no PCI bus.
pub const APPLE_GPU: &str = "apple-gpu";

/// What is read. The serialised word is the key in the store: its end names the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Power the GPU's board draws, W.
    #[serde(rename = "power_w")]
    Power,
    /// Energy the GPU's board has drawn since an arbitrary start, J; only ever rises.
    #[serde(rename = "energy_j")]
    Energy,
    /// Clock of the GPU's compute units, MHz.
    #[serde(rename = "core_clock_mhz")]
    CoreClock,
    /// Clock of the GPU's memory, MHz.
    #[serde(rename = "memory_clock_mhz")]
    MemoryClock,
    /// Temperature of the GPU's edge, °C.
    #[serde(rename = "temperature_c")]
    Temperature,
    /// Temperature of the GPU's hottest spot, °C.
    #[serde(rename = "hot_spot_c")]
    HotSpot,
    /// Temperature of the GPU's memory, °C.
    #[serde(rename = "memory_temperature_c")]
    MemoryTemperature,
    /// Speed of the GPU's fan, rpm.
    #[serde(rename = "fan_rpm")]
    FanSpeed,
    /// Speed of the GPU's fan where only its share of the highest is told, percent.
    #[serde(rename = "fan_pct")]
    FanLoad,
    /// Memory in use on the GPU, by every process, bytes.
    #[serde(rename = "vram_used_bytes")]
    VramUsed,
    /// System memory in use by the GPU, by every process, bytes: a GPU with memory of its own that spills grows here
    /// (case C16).
    #[serde(rename = "shared_used_bytes")]
    SharedUsed,
    /// Share of time the GPU was at work, percent.
    #[serde(rename = "gpu_load_pct")]
    GpuLoad,
    /// Share of time the GPU's memory was read or written, percent.
    #[serde(rename = "memory_load_pct")]
    MemoryLoad,
    /// 1 while the GPU holds its clocks down for power or temperature, else 0.
    #[serde(rename = "throttled")]
    Throttled,
    /// PCI Express generation of the GPU's link to the host; it falls while nothing is sent.
    #[serde(rename = "link_generation")]
    LinkGeneration,
    /// Lanes of that link in use.
    #[serde(rename = "link_lanes")]
    LinkLanes,
    /// Share of time the processor was at work, all cores, percent.
    #[serde(rename = "cpu_load_pct")]
    CpuLoad,
    /// Power the processor's package draws, W.
    #[serde(rename = "cpu_power_w")]
    CpuPower,
    /// Energy the processor's package has drawn since an arbitrary start, J; only ever rises.
    #[serde(rename = "cpu_energy_j")]
    CpuEnergy,
    /// RAM in use by every process, bytes.
    #[serde(rename = "ram_used_bytes")]
    RamUsed,
    /// Bytes read from disks in a second.
    #[serde(rename = "disk_read_bytes_per_s")]
    DiskRead,
}

impl Metric {
    /// Every metric, in the order people look at them.
    pub const ALL: [Self; 21] = [
        Self::Power,
        Self::Energy,
        Self::CoreClock,
        Self::MemoryClock,
        Self::Temperature,
        Self::HotSpot,
        Self::MemoryTemperature,
        Self::FanSpeed,
        Self::FanLoad,
        Self::VramUsed,
        Self::SharedUsed,
        Self::GpuLoad,
        Self::MemoryLoad,
        Self::Throttled,
        Self::LinkGeneration,
        Self::LinkLanes,
        Self::CpuLoad,
        Self::CpuPower,
        Self::CpuEnergy,
        Self::RamUsed,
        Self::DiskRead,
    ];

    /// What people call it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Power => "Power",
            Self::Energy => "Energy",
            Self::CoreClock => "Core clock",
            Self::MemoryClock => "Memory clock",
            Self::Temperature => "Temperature",
            Self::HotSpot => "Hot spot",
            Self::MemoryTemperature => "Memory temperature",
            Self::FanSpeed | Self::FanLoad => "Fan",
            Self::VramUsed => "VRAM",
            Self::SharedUsed => "Shared memory",
            Self::GpuLoad => "GPU load",
            Self::MemoryLoad => "Memory load",
            Self::Throttled => "Throttling",
            Self::LinkGeneration => "PCIe generation",
            Self::LinkLanes => "PCIe lanes",
            Self::CpuLoad => "CPU load",
            Self::CpuPower => "CPU power",
            Self::CpuEnergy => "CPU energy",
            Self::RamUsed => "RAM",
            Self::DiskRead => "Disk reads",
        }
    }

    /// Does it only ever rise? Its differences count, not its values.
    pub const fn is_counter(self) -> bool {
        matches!(self, Self::Energy | Self::CpuEnergy)
    }

    /// The unit of its values; empty where they have none. Sizes are in plain bytes, to be shown in larger units.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Power | Self::CpuPower => "W",
            Self::Energy | Self::CpuEnergy => "J",
            Self::CoreClock | Self::MemoryClock => "MHz",
            Self::Temperature | Self::HotSpot | Self::MemoryTemperature => "°C",
            Self::FanSpeed => "rpm",
            Self::VramUsed | Self::SharedUsed | Self::RamUsed => "B",
            Self::DiskRead => "B/s",
            Self::FanLoad | Self::GpuLoad | Self::MemoryLoad | Self::CpuLoad => "%",
            Self::Throttled | Self::LinkGeneration | Self::LinkLanes => "",
        }
    }
}

/// One line in a chart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SeriesId {
    /// Whose reading: a GPU's PCI address (`0000:01:00.0`), or [`HOST`].
    pub source: String,
    /// What is read.
    pub metric: Metric,
}

impl SeriesId {
    /// Does it tell what a device uses, as energy or as power? `None` is the processor.
    pub fn tells_energy_of(&self, device: Option<&str>) -> bool {
        let of_board = matches!(self.metric, Metric::Power | Metric::Energy);
        let of_package = matches!(self.metric, Metric::CpuPower | Metric::CpuEnergy);
        match device {
            Some(source) => self.source == source && of_board,
            None => self.source == HOST && of_package,
        }
    }
}

/// A sensor that is not there or cannot be believed, remembered with the reason (cases C23, C24, C27).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentSensor {
    /// What it would read.
    pub series: SeriesId,
    /// Why not, in a few words: `not supported by this GPU`, `no permission`, `always 0 W`.
    pub reason: String,
}

/// One value of one series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Series.
    pub series: SeriesId,
    /// When it was read.
    pub at: Timestamp,
    /// Its value, finite, in the metric's unit.
    pub value: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_end_with_their_unit() {
        let key = |m: &Metric| serde_json::to_string(m).unwrap_or_default();
        let mut keys: Vec<String> = Metric::ALL.iter().map(key).collect();
        for (metric, key) in Metric::ALL.iter().zip(&keys) {
            let end = match metric.unit() {
                "°C" => "_c",
                "%" => "_pct",
                "B" => "_bytes",
                "B/s" => "_bytes_per_s",
                other => &other.to_lowercase(),
            };
            assert!(key.trim_matches('"').ends_with(end), "{key} {end}");
        }
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), Metric::ALL.len());
    }
}
