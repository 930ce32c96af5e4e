//! Groups raw entries into physical GPUs: PCI address first, else UUID, else vendor, device and name (case C17).

use std::cmp::Reverse;

use crate::domain::types::{DeviceKind, Machine, SystemGpu, VulkanEntry};

use super::llama_index::{driver_id, llama_indices, priority};
use super::{Gpu, GpuDriver, GpuMemory, architecture};

/// Every physical GPU, best target first: discrete, virtual, other, integrated, software; within a kind the larger
/// memory, then the PCI address, then Vulkan's order. Memory never lifts an integrated GPU above a card (case C19).
pub fn gpus(machine: &Machine) -> Vec<Gpu> {
    let entries = &machine.vulkan.entries;
    let groups = group_entries(entries);
    let mut group_of = vec![0; entries.len()];
    for (number, members) in groups.iter().enumerate() {
        for &i in members {
            group_of[i] = number;
        }
    }
    let indices = llama_indices(entries, &group_of);
    let mut unmatched: Vec<&SystemGpu> = machine.system_gpus.iter().collect();
    let systems = match_systems(entries, &groups, &mut unmatched);
    let mut found: Vec<Gpu> = groups
        .into_iter()
        .zip(systems)
        .map(|(mut members, system)| {
            members.sort_by_key(|&i| preference(&entries[i]));
            let drivers = members
                .iter()
                .map(|&i| driver_line(&entries[i], indices.get(&i).copied()))
                .collect();
            gpu_of_entry(&entries[members[0]], drivers, system)
        })
        .collect();
    found.extend(unmatched.into_iter().map(gpu_of_system));
    found.sort_by_key(rank);
    found
}

/// Native before translation, hardware before software, then llama.cpp's own order of drivers.
fn preference(entry: &VulkanEntry) -> (bool, bool, u32, u32) {
    (
        is_software(entry),
        is_translation(entry),
        priority(entry),
        entry.enumeration_index,
    )
}

fn rank(gpu: &Gpu) -> impl Ord + use<> {
    let kind = match gpu.kind {
        DeviceKind::Discrete => 0,
        DeviceKind::Virtual => 1,
        DeviceKind::Integrated => 2,
        DeviceKind::Other => 3,
        DeviceKind::Software => 4,
    };
    let size = gpu.memory.as_ref().map_or(0, |m| m.vram.0);
    let place = (gpu.pci.is_none(), gpu.pci);
    (kind, Reverse(size), place, gpu.raw_index())
}

fn is_translation(entry: &VulkanEntry) -> bool {
    entry.driver.id == driver_id::MESA_DOZEN
}

fn is_software(entry: &VulkanEntry) -> bool {
    let software_driver = matches!(
        entry.driver.id,
        driver_id::MESA_LLVMPIPE | driver_id::GOOGLE_SWIFTSHADER
    );
    entry.kind == DeviceKind::Software || software_driver
}

/// A translation layer wraps the device's own name: `Microsoft Direct3D12 (AMD Radeon RX 6800 XT)`.
fn bare_name(entry: &VulkanEntry) -> &str {
    entry
        .name
        .strip_prefix("Microsoft Direct3D12 (")
        .and_then(|rest| rest.strip_suffix(')'))
        .unwrap_or(&entry.name)
}

/// Both entries certainly name the same device, or certainly not; `None` when neither can be told.
fn same_by_address(a: &VulkanEntry, b: &VulkanEntry) -> Option<bool> {
    if let (Some(a), Some(b)) = (a.pci, b.pci) {
        return Some(a == b);
    }
    let uuid_matches = a.uuid.is_some() && a.uuid == b.uuid;
    uuid_matches.then_some(true)
}

/// Without an address, the same ids and name through another driver; two entries of one driver are two devices.
fn same_by_name(a: &VulkanEntry, b: &VulkanEntry) -> bool {
    (a.vendor_id, a.device_id) == (b.vendor_id, b.device_id)
        && a.driver.id != b.driver.id
        && (bare_name(a) == bare_name(b) || is_translation(a) != is_translation(b))
}

/// Positions of the entries of each GPU. Software renderers are one group per driver: repeats are the same renderer.
fn group_entries(entries: &[VulkanEntry]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    // Entries with an address first, so that those without one find their group whatever the order.
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|&i| (entries[i].pci.is_none(), is_translation(&entries[i])));
    for i in order {
        let entry = &entries[i];
        let certain = groups.iter().position(|members| {
            members.iter().any(|&j| {
                same_software(entry, &entries[j])
                    || same_by_address(entry, &entries[j]) == Some(true)
            })
        });
        let by_name = || {
            groups.iter().position(|members| {
                let all = members
                    .iter()
                    .all(|&j| entries[j].driver.id != entry.driver.id);
                let apart = members
                    .iter()
                    .any(|&j| same_by_address(entry, &entries[j]) == Some(false));
                all && !apart && members.iter().any(|&j| same_by_name(entry, &entries[j]))
            })
        };
        match certain.or_else(by_name) {
            Some(at) => groups[at].push(i),
            None => groups.push(vec![i]),
        }
    }
    groups
}

fn same_software(a: &VulkanEntry, b: &VulkanEntry) -> bool {
    is_software(a) && is_software(b) && a.driver.id == b.driver.id && a.name == b.name
}

/// The OS's line for each group, taken out of `unmatched`: by PCI address, else by ids.
fn match_systems<'a>(
    entries: &[VulkanEntry],
    groups: &[Vec<usize>],
    unmatched: &mut Vec<&'a SystemGpu>,
) -> Vec<Option<&'a SystemGpu>> {
    let mut systems = vec![None; groups.len()];
    for by_address in [true, false] {
        for (slot, members) in systems.iter_mut().zip(groups) {
            let address = members.iter().find_map(|&i| entries[i].pci);
            let first = &entries[members[0]];
            let found = unmatched.iter().position(|s| match address {
                Some(pci) => by_address && s.pci == pci,
                None => {
                    !by_address && (s.vendor_id, s.device_id) == (first.vendor_id, first.device_id)
                }
            });
            if let (None, Some(at)) = (*slot, found) {
                *slot = Some(unmatched.remove(at));
            }
        }
    }
    systems
}

fn driver_line(entry: &VulkanEntry, llama_index: Option<u32>) -> GpuDriver {
    let name = if entry.driver.name.is_empty() {
        &entry.driver.id_name
    } else {
        &entry.driver.name
    };
    GpuDriver {
        name: name.clone(),
        version: entry.driver.version.clone(),
        api_version: entry.api_version.clone(),
        raw_index: entry.enumeration_index,
        llama_index,
        translation: is_translation(entry),
    }
}

fn gpu_of_entry(entry: &VulkanEntry, drivers: Vec<GpuDriver>, system: Option<&SystemGpu>) -> Gpu {
    let software = is_software(entry);
    let kind = if software {
        DeviceKind::Software
    } else {
        entry.kind
    };
    let revision = system.and_then(|s| s.revision);
    let remark = if software {
        Some("software renderer: never tuned unless named".to_owned())
    } else if is_translation(entry) {
        Some("only a translation layer shows it: install the vendor's own driver".to_owned())
    } else {
        None
    };
    Gpu {
        name: bare_name(entry).to_owned(),
        product: architecture::product(entry.vendor_id, entry.device_id, revision),
        vendor: architecture::vendor_name(entry.vendor_id),
        vendor_id: entry.vendor_id,
        device_id: entry.device_id,
        subsystem: system.and_then(|s| s.subsystem),
        revision,
        pci: entry.pci.or_else(|| system.map(|s| s.pci)),
        kind,
        architecture: architecture::architecture(entry.vendor_id, entry.device_id),
        memory: GpuMemory::of_entry(entry),
        kernel_driver: system.and_then(|s| s.kernel_driver.clone()),
        kernel_driver_version: system.and_then(|s| s.driver_version.clone()),
        drivers,
        preferred: Some(entry.clone()),
        usable: !software,
        remark,
    }
}

fn gpu_of_system(system: &SystemGpu) -> Gpu {
    let kind = architecture::kind_of_id(system.vendor_id, system.device_id);
    let product = architecture::product(system.vendor_id, system.device_id, system.revision);
    let vendor = architecture::vendor_name(system.vendor_id);
    let architecture = architecture::architecture(system.vendor_id, system.device_id);
    let bound = match &system.kernel_driver {
        Some(driver) => format!("kernel driver {driver}"),
        None => "no kernel driver bound".to_owned(),
    };
    Gpu {
        name: product.clone().unwrap_or_else(|| match &architecture.chip {
            Some(chip) => format!("{vendor} {chip}"),
            None => format!("{vendor} {:04x}", system.device_id),
        }),
        product,
        vendor,
        vendor_id: system.vendor_id,
        device_id: system.device_id,
        subsystem: system.subsystem,
        revision: system.revision,
        pci: Some(system.pci),
        kind,
        architecture,
        memory: system
            .vram
            .map(|v| GpuMemory::of_system(v, kind == DeviceKind::Integrated)),
        kernel_driver: system.kernel_driver.clone(),
        kernel_driver_version: system.driver_version.clone(),
        drivers: Vec::new(),
        preferred: None,
        usable: false,
        remark: Some(format!("no Vulkan driver shows it ({bound})")),
    }
}
