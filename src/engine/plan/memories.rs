//! The memories a plan may use, of this machine or an exported one.

use crate::domain::machine::{self, Gpu};
use crate::domain::placement::devices::{CpuLayout, HostMemory, Memories, OffloadDevice};
use crate::domain::placement::planner::usable;
use crate::domain::settings::VRAM_RESERVE;
use crate::domain::types::{Backend, Bytes, Machine, ModelInfo, Runtime, RuntimeDevice};

use super::super::message::{JobError, USAGE};
use super::super::target::{gpu_of, is_none};
use super::PlanRequest;

/// RAM left to the system and other programs.
const RAM_RESERVE: Bytes = Bytes::gib(1);

/// What may be used. Of a device at least as much stays free as runs here took `beside` their buffers.
pub(super) fn memories(
    machine: &Machine,
    runtime: Option<&Runtime>,
    request: &PlanRequest,
    beside: Bytes,
) -> Result<Memories, JobError> {
    let gpus = machine::gpus(machine);
    // A build of this machine lists this machine's devices, not those of an exported one.
    let own =
        |r: &Runtime| !machine.simulated || machine.runtimes.iter().any(|m| m.digest == r.digest);
    let listed = match runtime {
        Some(runtime) if own(runtime) && !runtime.devices.is_empty() => runtime.devices.clone(),
        // A build for the CPU alone offloads nothing, whatever cards there are.
        Some(runtime) if !machine.simulated && runtime.backends.len() == 1 => Vec::new(),
        _ => expected(&gpus, runtime),
    };
    let reserve = reserve(request).max(beside);
    let wanted = wanted(&listed, &request.devices)?;
    let devices: Vec<OffloadDevice> = wanted
        .into_iter()
        .map(|d| offload(d, &gpus, reserve, request.vram_limit))
        .collect();
    let mut host = host(machine, request.ram_limit);
    if devices.is_empty() {
        host.layout = CpuLayout::without_devices(&machine.host.arch);
    }
    Ok(Memories { devices, host })
}

/// Device memory to leave free as far as the user decides it.
pub(super) fn reserve(request: &PlanRequest) -> Bytes {
    request.memory_reserve.unwrap_or(VRAM_RESERVE)
}

/// Leaves room for a projector where llama-server puts it (`clip_ctx`): on the first device, without one in RAM. Returns
/// what to say of it.
pub(super) fn make_room(memories: &mut Memories, projector: &ModelInfo) -> String {
    let weights = projector.tensor_bytes;
    let (usable, place) = match memories.devices.first_mut() {
        Some(first) => (&mut first.usable, first.id.as_str()),
        None => (&mut memories.host.usable, "the host"),
    };
    *usable = usable.saturating_sub(weights);
    let name = projector.path.file_name().unwrap_or_default().display();
    format!(
        "{name} lies beside the model: its weights, {weights}, are left free on {place}, where llama-server puts them; its compute buffer is not known before it runs"
    )
}

/// The host's memory with at most `limit` of it to use.
pub(super) fn host(machine: &Machine, limit: Option<Bytes>) -> HostMemory {
    let host = &machine.host;
    HostMemory {
        total: host.ram_total,
        usable: usable(host.ram_available, RAM_RESERVE, limit),
        used_by_others: host.ram_total.saturating_sub(host.ram_available),
        layout: CpuLayout::File,
    }
}

/// What a build would list on a machine where it cannot be asked: the usable cards, by the backend it would use.
fn expected(gpus: &[Gpu], runtime: Option<&Runtime>) -> Vec<RuntimeDevice> {
    let has = |backend| runtime.is_some_and(|r| r.backends.contains(&backend));
    let cards = gpus.iter().filter(|g| g.usable);
    cards
        .enumerate()
        .filter_map(|(index, gpu)| {
            let memory = gpu.memory.as_ref()?;
            let cuda = gpu.vendor_id == machine::VENDOR_NVIDIA && has(Backend::Cuda);
            let backend = if cuda { "CUDA" } else { "Vulkan" };
            Some(RuntimeDevice {
                id: format!("{backend}{index}"),
                name: gpu.name.clone(),
                total: memory.vram,
                free: memory.budget.unwrap_or(memory.vram),
            })
        })
        .collect()
}

fn wanted(listed: &[RuntimeDevice], named: &[String]) -> Result<Vec<RuntimeDevice>, JobError> {
    if named.is_empty() {
        return Ok(listed.to_vec());
    }
    let mut found = Vec::new();
    for name in named.iter().filter(|n| !is_none(n)) {
        let device = listed.iter().find(|d| d.id.eq_ignore_ascii_case(name));
        // Named twice it is still one device.
        if device.is_some_and(|d| found.contains(d)) {
            continue;
        }
        found.push(device.cloned().ok_or_else(|| {
            let known: Vec<&str> = listed.iter().map(|d| d.id.as_str()).collect();
            JobError::new(USAGE, format!("there is no device {name} to plan for")).hint(format!(
                "devices: {}; `cpu` uses none of them",
                if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                }
            ))
        })?);
    }
    Ok(found)
}

/// `ggml_cuda_graph_set_enabled` of b11149 leaves out compute capabilities below 7.0. A card that nobody knows counts as newer:
/// more memory than is taken is the safe side.
fn captures_graphs(backend: Backend, gpu: Option<&Gpu>) -> bool {
    const WITHOUT: [&str; 2] = ["Maxwell", "Pascal"];
    let family = gpu.and_then(|g| g.architecture.family.as_deref());
    backend == Backend::Cuda && !family.is_some_and(|f| WITHOUT.contains(&f))
}

fn offload(
    device: RuntimeDevice,
    gpus: &[Gpu],
    reserve: Bytes,
    limit: Option<Bytes>,
) -> OffloadDevice {
    let gpu = gpu_of(&device, gpus);
    let memory = gpu.and_then(|g| g.memory.as_ref());
    // The runtime's own figure, where it has one, is what its allocations are judged by (case C11).
    let free = if device.free > Bytes(0) {
        device.free
    } else {
        memory.map_or(device.total, |m| m.budget.unwrap_or(m.vram))
    };
    let backend = Backend::of_device(&device.id).unwrap_or(Backend::Cpu);
    let limits = gpu.and_then(|g| g.preferred.as_ref()).map(|e| &e.limits);
    let limits = limits.filter(|_| backend == Backend::Vulkan);
    let smaller = limits.and_then(|l| match (l.max_allocation, l.max_buffer) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    });
    OffloadDevice {
        usable: usable(free, reserve, limit),
        total: device.total,
        shares_ram: memory.is_some_and(|m| m.shared_with_ram),
        max_buffer: smaller,
        max_tensor: limits.and_then(|l| l.max_storage_buffer_range),
        captures_graphs: captures_graphs(backend, gpu),
        backend,
        id: device.id,
        name: device.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PCI ids of one card of each generation: GTX 980, GTX 1080, Titan V, RTX 2080, and one that is in no table.
    #[test]
    fn graphs_are_captured_from_volta_on() {
        let text = include_str!("../../../tests/fixtures/machines/rtx-4070/machine.json");
        let machine: Machine = serde_json::from_str(text).unwrap();
        let card = |id: u32| {
            let mut machine = machine.clone();
            for entry in &mut machine.vulkan.entries {
                entry.device_id = id;
            }
            let gpus = machine::gpus(&machine);
            let nvidia = |g: &Gpu| g.vendor_id == machine::VENDOR_NVIDIA && g.device_id == id;
            gpus.into_iter().find(nvidia).unwrap()
        };
        let captured = [0x13c0, 0x1b80, 0x1d81, 0x1e82, 0xffff].map(|id| {
            let card = card(id);
            captures_graphs(Backend::Cuda, Some(&card))
        });
        assert_eq!(captured, [false, false, true, true, true]);
        assert!(captures_graphs(Backend::Cuda, None));
        assert!(!captures_graphs(Backend::Vulkan, Some(&card(0x1e82))));
        assert!(!captures_graphs(Backend::Hip, None));
    }
}
