//! NVIDIA's management library itself, loaded at run time.

use std::ffi::OsStr;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor, TemperatureThreshold};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{NVML_FI_DEV_MEMORY_TEMP, NVML_FI_DEV_POWER_INSTANT};

use crate::domain::types::PciAddress;

use super::question::{Question, Refusal};
use super::{Answers, User};

/// Its names, the surest first: packages of drivers since 560, and WSL, have no link without a number (case C25).
const NAMES: &[&str] = if cfg!(windows) {
    &["nvml.dll"]
} else {
    &["libnvidia-ml.so.1", "libnvidia-ml.so"]
};
/// Longest name of a program that is asked for, bytes; the library cuts what is longer.
const LONGEST_NAME: usize = 256;

/// Why it tells nothing of any GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// There is none: no NVIDIA GPU, or its driver has no library here.
    #[error("NVIDIA's management library is not there: it comes with the driver")]
    NoLibrary,
    /// The driver was updated and the old one still runs.
    #[error("driver and library are of different versions: reboot after the driver update")]
    Mismatch,
    /// The library is there, the kernel's part is not.
    #[error("NVIDIA's kernel driver is not loaded")]
    NoDriver,
    /// Not for this user.
    #[error("no permission to talk to NVIDIA's driver")]
    NoPermission,
    /// Anything else, in the library's words.
    #[error("NVIDIA's management library does not start: {0}")]
    Other(String),
}

impl From<NvmlError> for Missing {
    fn from(error: NvmlError) -> Self {
        match error {
            NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => Self::NoLibrary,
            NvmlError::LibRmVersionMismatch => Self::Mismatch,
            NvmlError::DriverNotLoaded => Self::NoDriver,
            NvmlError::NoPermission => Self::NoPermission,
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<NvmlError> for Refusal {
    fn from(error: NvmlError) -> Self {
        match error {
            // A GPU without a fan says of the first one that there is none such.
            NvmlError::NotSupported | NvmlError::InvalidArg => Self::NotSupported,
            NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => Self::TooOld,
            NvmlError::NoPermission => Self::NoPermission,
            NvmlError::GpuLost => Self::Lost,
            other => Self::Other(other.to_string()),
        }
    }
}

/// The library, started; dropping it ends it, which lets the driver rest.
#[derive(Debug)]
pub struct Library {
    nvml: Nvml,
    gpus: Vec<(u32, PciAddress)>,
}

impl Library {
    /// Loads and starts it.
    ///
    /// # Errors
    /// It is not there, or does not work with the driver that runs.
    pub fn open() -> Result<Self, Missing> {
        first(NAMES, |name| {
            let nvml = Nvml::builder().lib_path(OsStr::new(name)).init()?;
            let gpus = (0..nvml.device_count()?)
                // One that cannot be asked is left out, the others stay.
                .filter_map(|index| Some((index, address(&nvml, index).ok()?)))
                .collect();
            Ok(Self { nvml, gpus })
        })
    }

    fn number(&self, gpu: usize, question: Question) -> Result<u64, NvmlError> {
        let (index, _) = self.gpus.get(gpu).ok_or(NvmlError::NotFound)?;
        let device = self.nvml.device_by_index(*index)?;
        let field = |id| -> Result<u64, NvmlError> {
            let mut samples = device.field_values_for(&[FieldId(id)])?;
            let sample = samples.pop().ok_or(NvmlError::NoData)??;
            match sample.value? {
                SampleValue::U32(value) => Ok(value.into()),
                SampleValue::U64(value) => Ok(value),
                _ => Err(NvmlError::NoData),
            }
        };
        Ok(match question {
            Question::PowerInstant => field(NVML_FI_DEV_POWER_INSTANT)?,
            Question::PowerAverage => device.power_usage()?.into(),
            Question::Energy => device.total_energy_consumption()?,
            Question::CoreClock => device.clock_info(Clock::SM)?.into(),
            Question::MemoryClock => device.clock_info(Clock::Memory)?.into(),
            Question::Temperature => device.temperature(TemperatureSensor::Gpu)?.into(),
            Question::MemoryTemperature => field(NVML_FI_DEV_MEMORY_TEMP)?,
            Question::FanSpeed => device.fan_speed_rpm(0)?.into(),
            Question::FanLoad => device.fan_speed(0)?.into(),
            Question::GpuLoad => device.utilization_rates()?.gpu.into(),
            Question::MemoryLoad => device.utilization_rates()?.memory.into(),
            Question::MemoryUsed => device.memory_info()?.used,
            Question::ThrottleReasons => device.current_throttle_reasons()?.bits(),
            Question::Slowdown => device
                .temperature_threshold(TemperatureThreshold::Slowdown)?
                .into(),
            Question::LinkWidth => device.current_pcie_link_width()?.into(),
            Question::MostLinkWidth => device.max_pcie_link_width()?.into(),
            Question::LinkGeneration => device.current_pcie_link_gen()?.into(),
            Question::MostMemoryClock => device.max_clock_info(Clock::Memory)?.into(),
            Question::MemoryBus => device.memory_bus_width()?.into(),
        })
    }

    fn programs(&self, gpu: usize) -> Result<Vec<User>, NvmlError> {
        let (index, _) = self.gpus.get(gpu).ok_or(NvmlError::NotFound)?;
        let device = self.nvml.device_by_index(*index)?;
        let mut found = device.running_compute_processes()?;
        found.extend(device.running_graphics_processes().unwrap_or_default());
        found.sort_by_key(|process| process.pid);
        found.dedup_by_key(|process| process.pid);
        let user = |process: nvml_wrapper::struct_wrappers::device::ProcessInfo| {
            let UsedGpuMemory::Used(bytes) = process.used_gpu_memory else {
                return None;
            };
            let path = self.nvml.sys_process_name(process.pid, LONGEST_NAME);
            let name = path.as_deref().unwrap_or_default();
            let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
            Some(User {
                pid: process.pid,
                program: name.to_owned(),
                bytes,
            })
        };
        Ok(found.into_iter().filter_map(user).collect())
    }
}

impl Answers for Library {
    fn gpus(&self) -> Vec<PciAddress> {
        self.gpus.iter().map(|(_, address)| *address).collect()
    }

    fn ask(&self, gpu: usize, question: Question) -> Result<u64, Refusal> {
        self.number(gpu, question).map_err(Refusal::from)
    }

    fn users(&self, gpu: usize) -> Vec<User> {
        self.programs(gpu).unwrap_or_default()
    }
}

/// The first name that gives a library, whatever it then says of itself.
fn first<T>(
    names: &[&str],
    mut open: impl FnMut(&str) -> Result<T, NvmlError>,
) -> Result<T, Missing> {
    let mut found = Err(Missing::NoLibrary);
    for name in names {
        found = open(name).map_err(Missing::from);
        if found.as_ref().err() != Some(&Missing::NoLibrary) {
            break;
        }
    }
    found
}

fn address(nvml: &Nvml, index: u32) -> Result<PciAddress, NvmlError> {
    let info = nvml.device_by_index(index)?.pci_info()?;
    // The library's text has a domain of eight digits and ends with the function: `00000000:01:00.0`.
    info.bus_id.parse().map_err(|_| NvmlError::NoData)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c25_the_numbered_name_is_tried_first_and_a_mismatch_is_no_missing_library() {
        // Only `.so.1`, as packages since 560 bring it; only the other, as older ones.
        for there in ["libnvidia-ml.so.1", "libnvidia-ml.so"] {
            let mut tried = Vec::new();
            let found = first(&["libnvidia-ml.so.1", "libnvidia-ml.so"], |name| {
                tried.push(name.to_owned());
                if name == there {
                    Ok(name.to_owned())
                } else {
                    Err(NvmlError::LibraryNotFound)
                }
            });
            assert_eq!(found.as_deref(), Ok(there));
            assert_eq!(tried.last().map(String::as_str), Some(there));
        }
        let mut tried = 0;
        let found = first(&["a", "b"], |_| -> Result<(), _> {
            tried += 1;
            Err(NvmlError::LibRmVersionMismatch)
        });
        assert_eq!((found, tried), (Err(Missing::Mismatch), 1));
        assert_eq!(
            Missing::Mismatch.to_string(),
            "driver and library are of different versions: reboot after the driver update"
        );
        let none = first(&["a", "b"], |_| -> Result<(), _> {
            Err(NvmlError::LibraryNotFound)
        });
        assert_eq!(none, Err(Missing::NoLibrary));
    }

    #[test]
    fn the_library_s_address_becomes_ours() {
        let address: PciAddress = "00000000:01:00.0".parse().unwrap();
        assert_eq!(address.to_string(), "0000:01:00.0");
        let far: PciAddress = "00000001:C1:00.0".parse().unwrap();
        assert_eq!(far.to_string(), "0001:c1:00.0");
    }
}
