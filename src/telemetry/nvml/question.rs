//! What NVIDIA's management library is asked of a GPU, and what its numbers mean.

use serde::{Deserialize, Serialize};

use crate::domain::telemetry::Metric;

/// Reasons of a clock held down (`nvmlClocksEventReasons`) that are power or heat: software power cap, hardware slowdown,
/// software and hardware thermal slowdown, power brake. An idle GPU, clocks chosen by the owner, a display's clock and a
/// neighbour's (sync boost) are none.
const HELD_DOWN: u64 = 0x04 | 0x08 | 0x20 | 0x40 | 0x80;

/// One number of a GPU. The serialised word ends with the unit in which the library tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Power now (field 186), mW. Ampere and later, drivers of 2022 and later.
    #[serde(rename = "power_instant_mw")]
    PowerInstant,
    /// Power as `nvidia-smi` shows it, mW: on Ampere and later, except the A100, an average over the last second; before
    /// Ampere and on the A100 now (case C28; Yang et al., SC24).
    #[serde(rename = "power_average_mw")]
    PowerAverage,
    /// Energy since the driver was loaded, mJ; Volta and later. The slow one: 2 to 17 ms on an H200.
    #[serde(rename = "energy_mj")]
    Energy,
    /// Clock of the streaming multiprocessors, MHz.
    #[serde(rename = "core_clock_mhz")]
    CoreClock,
    /// Clock of the memory, MHz.
    #[serde(rename = "memory_clock_mhz")]
    MemoryClock,
    /// Temperature of the chip, °C.
    #[serde(rename = "temperature_c")]
    Temperature,
    /// Temperature of the memory (field 82), °C.
    #[serde(rename = "memory_temperature_c")]
    MemoryTemperature,
    /// Speed of the first fan, rpm; drivers of 2024 and later.
    #[serde(rename = "fan_rpm")]
    FanSpeed,
    /// Speed the first fan is driven at, percent of its highest.
    #[serde(rename = "fan_pct")]
    FanLoad,
    /// Share of the last sixth of a second to second in which a kernel ran, percent.
    #[serde(rename = "gpu_load_pct")]
    GpuLoad,
    /// Share of that time in which memory was read or written, percent.
    #[serde(rename = "memory_load_pct")]
    MemoryLoad,
    /// Memory in use, what the driver reserves left out, bytes.
    #[serde(rename = "memory_used_bytes")]
    MemoryUsed,
    /// Why clocks are not the highest, a set of bits.
    ThrottleReasons,
    /// Temperature at which clocks are held down, °C.
    #[serde(rename = "slowdown_c")]
    Slowdown,
    /// Lanes of the link to the host in use.
    LinkWidth,
    /// Lanes that the card and its slot could use.
    MostLinkWidth,
    /// PCI Express generation of the link now: it falls while nothing is sent.
    LinkGeneration,
    /// Highest clock of the memory, MHz; data moves at both edges of it.
    #[serde(rename = "most_memory_clock_mhz")]
    MostMemoryClock,
    /// Width of the memory's bus, bits.
    #[serde(rename = "memory_bus_bits")]
    MemoryBus,
}

impl Question {
    /// Every one, in the order of a captured answer set.
    pub const ALL: [Self; 19] = [
        Self::PowerInstant,
        Self::PowerAverage,
        Self::Energy,
        Self::CoreClock,
        Self::MemoryClock,
        Self::Temperature,
        Self::MemoryTemperature,
        Self::FanSpeed,
        Self::FanLoad,
        Self::GpuLoad,
        Self::MemoryLoad,
        Self::MemoryUsed,
        Self::ThrottleReasons,
        Self::Slowdown,
        Self::LinkWidth,
        Self::MostLinkWidth,
        Self::LinkGeneration,
        Self::MostMemoryClock,
        Self::MemoryBus,
    ];

    /// The series its answer belongs to, and the answer in that series' unit; what is no reading over time has none.
    pub fn reading(self, raw: u64) -> Option<(Metric, f64)> {
        let metric = self.metric()?;
        let value = match self {
            Self::PowerInstant | Self::PowerAverage | Self::Energy => raw as f64 / 1e3,
            Self::ThrottleReasons => f64::from(u8::from(raw & HELD_DOWN != 0)),
            _ => raw as f64,
        };
        Some((metric, value))
    }

    /// What it reads over time.
    pub const fn metric(self) -> Option<Metric> {
        Some(match self {
            Self::PowerInstant | Self::PowerAverage => Metric::Power,
            Self::Energy => Metric::Energy,
            Self::CoreClock => Metric::CoreClock,
            Self::MemoryClock => Metric::MemoryClock,
            Self::Temperature => Metric::Temperature,
            Self::MemoryTemperature => Metric::MemoryTemperature,
            Self::FanSpeed => Metric::FanSpeed,
            Self::FanLoad => Metric::FanLoad,
            Self::GpuLoad => Metric::GpuLoad,
            Self::MemoryLoad => Metric::MemoryLoad,
            Self::MemoryUsed => Metric::VramUsed,
            Self::ThrottleReasons => Metric::Throttled,
            Self::LinkGeneration => Metric::LinkGeneration,
            Self::LinkWidth => Metric::LinkLanes,
            Self::Slowdown | Self::MostLinkWidth | Self::MostMemoryClock | Self::MemoryBus => {
                return None;
            }
        })
    }
}

/// Why a number is not told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// This GPU has no such sensor, for good.
    #[error("not supported by this GPU")]
    NotSupported,
    /// The driver is older than the question.
    #[error("not told by this driver: a newer one may")]
    TooOld,
    /// Not for this user.
    #[error("no permission")]
    NoPermission,
    /// The GPU does not answer any more.
    #[error("the GPU does not answer: restart the machine")]
    Lost,
    /// Anything else, in the library's words.
    #[error("cannot be read: {0}")]
    Other(String),
}

impl Refusal {
    /// Asking again is of no use.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::NotSupported | Self::TooOld | Self::NoPermission)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_values_in_the_metric_s_unit() {
        let value = |question: Question, raw| question.reading(raw);
        assert_eq!(
            value(Question::PowerInstant, 122_970),
            Some((Metric::Power, 122.97))
        );
        assert_eq!(value(Question::Energy, 1_500), Some((Metric::Energy, 1.5)));
        assert_eq!(value(Question::Slowdown, 93), None);
    }

    /// Bits as in `nvml.h`: idle 1, application clocks 2, power cap 4, hardware slowdown 8, sync boost 0x10, software heat
    /// 0x20, hardware heat 0x40, power brake 0x80, display 0x100.
    #[test]
    fn clocks_are_held_down_by_power_and_heat_alone() {
        let held = |bits| Question::ThrottleReasons.reading(bits) == Some((Metric::Throttled, 1.0));
        for bits in [0x04, 0x08, 0x20, 0x40, 0x80, 0x04 | 0x01] {
            assert!(held(bits), "{bits:x}");
        }
        for bits in [0, 0x01, 0x02, 0x10, 0x100, 0x01 | 0x02 | 0x10 | 0x100] {
            assert!(!held(bits), "{bits:x}");
        }
    }
}
