//! The device a job measures on: the one asked for by name or PCI address, or whatever stock would use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::machine::{self, Gpu};
use crate::domain::search::Tool;
use crate::domain::telemetry::APPLE_GPU;
use crate::domain::types::{Backend, Bytes, Launch, Runtime, RuntimeDevice};

use super::message::JobError;

/// The device a job measures on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Its backend.
    pub backend: Backend,
    /// llama.cpp's name for it, several with commas; `None` leaves the choice to the runtime, as stock does.
    pub device: Option<String>,
    /// RPC servers whose devices are used too, `host:port`.
    #[serde(default)]
    pub rpc: Vec<String>,
    /// Memory a winner may use, by llama.cpp's device name.
    pub memory_limits: BTreeMap<String, Bytes>,
}

impl Target {
    /// What stock would use: the first device its build lists.
    pub fn of_stock(runtime: &Runtime, gpus: &[Gpu], reserve: Bytes) -> Self {
        let devices = &runtime.devices;
        let backend = devices.first().and_then(|d| Backend::of_device(&d.id));
        Self {
            backend: backend.unwrap_or(Backend::Cpu),
            device: None,
            rpc: Vec::new(),
            memory_limits: devices.iter().map(|d| limit(d, gpus, reserve)).collect(),
        }
    }

    /// The GPU it measures on: of several the first.
    pub fn gpu<'g>(&self, runtime: &Runtime, gpus: &'g [Gpu]) -> Option<&'g Gpu> {
        if self.backend == Backend::Cpu {
            return None;
        }
        let mut devices = runtime.devices.iter();
        let listed = match self.devices().first() {
            Some(id) => devices.find(|d| d.id == *id),
            None => devices.next(),
        };
        listed
            .and_then(|device| gpu_of(device, gpus))
            .or_else(|| machine::default_gpu(gpus))
    }

    /// Source of that GPU's readings; `None` is the processor.
    pub fn sensors(&self, runtime: &Runtime, gpus: &[Gpu]) -> Option<String> {
        match self.backend {
            Backend::Cpu => None,
            Backend::Metal => Some(APPLE_GPU.to_owned()),
            _ => {
                let pci = self.gpu(runtime, gpus).and_then(|g| g.pci);
                // A GPU that has no address has no readings either.
                Some(pci.map_or_else(|| "unknown".to_owned(), |p| p.to_string()))
            }
        }
    }

    /// Are these the same devices?
    pub fn is_on(&self, other: &Self) -> bool {
        self.device == other.device && self.rpc == other.rpc
    }

    /// The devices named, one by one.
    fn devices(&self) -> Vec<String> {
        let listed = self.device.iter().flat_map(|d| d.split(','));
        listed.map(str::to_owned).collect()
    }

    /// How many devices share the model: those named, else all of the backend that stock uses.
    pub fn count(&self, runtime: &Runtime) -> usize {
        match &self.device {
            _ if self.backend == Backend::Cpu => 0,
            Some(_) => self.devices().len(),
            None => {
                let own = |d: &&RuntimeDevice| Backend::of_device(&d.id) == Some(self.backend);
                runtime.devices.iter().filter(own).count()
            }
        }
    }

    /// Do several devices, or other machines, do the work? Readings of one of them tell then a part of it.
    pub fn is_shared(&self, runtime: &Runtime) -> bool {
        !self.rpc.is_empty() || self.count(runtime) > 1
    }

    /// An arm's own settings after the arguments that choose the device, the same in every arm.
    pub fn joined(&self, own: Launch, tool: Tool) -> Launch {
        let mut args = Vec::new();
        if self.device.is_some() {
            args.extend(["-dev".to_owned(), tool.devices(&self.devices())]);
        }
        if !self.rpc.is_empty() {
            args.extend(["--rpc".to_owned(), self.rpc.join(",")]);
        }
        args.extend(own.args);
        Launch { args, env: own.env }
    }
}

/// The device asked for by llama.cpp's name or PCI address, else whatever stock would use.
pub(super) fn choose_target(
    wanted: Option<&str>,
    runtime: &Runtime,
    gpus: &[Gpu],
    simulated: bool,
    reserve: Bytes,
) -> Result<Target, JobError> {
    let Some(wanted) = wanted else {
        return Ok(if simulated && runtime.devices.is_empty() {
            simulated_target(runtime, gpus)
        } else {
            Target::of_stock(runtime, gpus, reserve)
        });
    };
    if is_none(wanted) {
        return Ok(target_of(Backend::Cpu, "none".to_owned(), BTreeMap::new()));
    }
    let named: Result<Vec<&RuntimeDevice>, JobError> = wanted
        .split([',', '/'])
        .map(|name| listed(name.trim(), runtime, gpus))
        .collect();
    let named = named?;
    let ids: Vec<&str> = named.iter().map(|d| d.id.as_str()).collect();
    let backend = ids.first().and_then(|id| Backend::of_device(id));
    Ok(target_of(
        backend.unwrap_or(Backend::Cpu),
        ids.join(","),
        named.iter().map(|d| limit(d, gpus, reserve)).collect(),
    ))
}

/// Does this name ask for no device at all?
pub(super) fn is_none(name: &str) -> bool {
    name.eq_ignore_ascii_case("cpu") || name.eq_ignore_ascii_case("none")
}

/// One device by its name or PCI address.
fn listed<'r>(
    name: &str,
    runtime: &'r Runtime,
    gpus: &[Gpu],
) -> Result<&'r RuntimeDevice, JobError> {
    let by_id = runtime
        .devices
        .iter()
        .find(|d| d.id.eq_ignore_ascii_case(name));
    by_id
        .or_else(|| by_pci(name, runtime, gpus))
        .ok_or_else(|| {
            let known: Vec<&str> = runtime.devices.iter().map(|d| d.id.as_str()).collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            JobError::new(
                "no-device",
                format!("runtime {} lists no device {name}", runtime.name),
            )
            .hint(format!(
                "devices it lists: {known}; `cpu` uses none of them"
            ))
        })
}

/// On an exported machine the build cannot list its devices: the one it would use there.
fn simulated_target(runtime: &Runtime, gpus: &[Gpu]) -> Target {
    let gpu = machine::default_gpu(gpus);
    let fits = |backend: &Backend| match backend {
        Backend::Cuda => gpu.is_some_and(|g| g.vendor_id == machine::VENDOR_NVIDIA),
        Backend::Hip => gpu.is_some_and(|g| g.vendor_id == machine::VENDOR_AMD),
        Backend::Vulkan => gpu.is_some_and(|g| g.usable),
        _ => false,
    };
    let backend = [Backend::Cuda, Backend::Hip, Backend::Vulkan]
        .into_iter()
        .find(|b| runtime.backends.contains(b) && fits(b))
        .unwrap_or(Backend::Cpu);
    Target {
        backend,
        device: None,
        rpc: Vec::new(),
        memory_limits: BTreeMap::new(),
    }
}

fn target_of(backend: Backend, device: String, memory_limits: BTreeMap<String, Bytes>) -> Target {
    Target {
        backend,
        device: Some(device),
        rpc: Vec::new(),
        memory_limits,
    }
}

/// The runtime's device at a PCI address; only where its name leaves no doubt.
fn by_pci<'r>(wanted: &str, runtime: &'r Runtime, gpus: &[Gpu]) -> Option<&'r RuntimeDevice> {
    let address = wanted.parse().ok()?;
    let gpu = gpus.iter().find(|g| g.pci == Some(address))?;
    let mut named = runtime.devices.iter().filter(|d| d.name == gpu.name);
    match (named.next(), named.next()) {
        (Some(device), None) => Some(device),
        _ => None,
    }
}

/// The scanned GPU behind a runtime's device: the same name, else the only usable one.
pub(super) fn gpu_of<'g>(device: &RuntimeDevice, gpus: &'g [Gpu]) -> Option<&'g Gpu> {
    let called = gpus.iter().find(|g| g.is_called(&device.name));
    called.or_else(|| {
        let mut usable = gpus.iter().filter(|g| g.usable);
        usable.next().filter(|_| usable.next().is_none())
    })
}

/// Free memory minus the reserve: the driver's budget now, else what the runtime reported.
fn limit(device: &RuntimeDevice, gpus: &[Gpu], reserve: Bytes) -> (String, Bytes) {
    let budget = gpu_of(device, gpus)
        .and_then(|g| g.memory.as_ref())
        .and_then(|m| m.budget);
    let free = budget.unwrap_or(device.free);
    (device.id.clone(), free.saturating_sub(reserve))
}

#[cfg(test)]
mod tests;
