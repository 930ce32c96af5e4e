//! One GPU of a scan, with what its preferred driver says: memory heaps, queue families, limits, features.

use std::fmt::Write as _;

use crate::cli::output::Style;
use crate::domain::machine::Gpu;
use crate::domain::text::{capitalised, clean};
use crate::domain::types::{Bytes, DeviceKind, Features, Heap, Limits, QueueFamily, VulkanEntry};

use super::table::{Align, Table, pairs};

/// Everything about one GPU.
pub fn gpu(number: u32, gpu: &Gpu, style: Style) -> String {
    let title = format!("GPU {number}: {}", clean(&gpu.name));
    let mut rows = identity(gpu);
    rows.extend(gpu.preferred.iter().flat_map(vulkan_rows));
    let mut text = format!("{}\n{}", style.heading(&title), pairs(&rows, 2));
    if let Some(entry) = &gpu.preferred {
        text.push_str(&heaps(&entry.heaps, style));
        text.push_str(&queues(&entry.queue_families, style));
    }
    text
}

fn identity(gpu: &Gpu) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("Kind", kind(gpu)),
        ("PCI", pci(gpu)),
        ("Architecture", architecture(gpu)),
    ];
    if let Some(product) = &gpu.product {
        rows.push(("Product", clean(product)));
    }
    if let Some(memory) = memory(gpu) {
        rows.push(("Memory", memory));
    }
    if let Some(driver) = &gpu.kernel_driver {
        let version = gpu.kernel_driver_version.as_deref().unwrap_or_default();
        rows.push((
            "Kernel driver",
            clean(&format!("{driver} {version}")).trim_end().to_owned(),
        ));
    }
    for driver in &gpu.drivers {
        rows.push(("Seen through", seen_through(driver)));
    }
    if let Some(remark) = &gpu.remark {
        rows.push(("Note", clean(remark)));
    }
    if let Some(note) = &gpu.architecture.note {
        rows.push(("Note", clean(note)));
    }
    rows
}

fn kind(gpu: &Gpu) -> String {
    let kind = match gpu.kind {
        DeviceKind::Discrete => "discrete",
        DeviceKind::Integrated => "integrated",
        DeviceKind::Virtual => "virtual",
        DeviceKind::Software => "software renderer, never tuned",
        DeviceKind::Other => "other",
    };
    let usable = if gpu.usable || gpu.kind == DeviceKind::Software {
        ""
    } else {
        ", not usable"
    };
    format!("{kind}{usable}")
}

fn pci(gpu: &Gpu) -> String {
    let mut text = format!("{} ({})", gpu.id(), clean(&gpu.vendor));
    if let Some(address) = gpu.pci {
        let _ = write!(text, " at {address}");
    }
    if let Some([vendor, device]) = gpu.subsystem {
        let _ = write!(text, ", subsystem {vendor:04x}:{device:04x}");
    }
    if let Some(revision) = gpu.revision {
        let _ = write!(text, ", revision {revision:02x}");
    }
    text
}

fn architecture(gpu: &Gpu) -> String {
    let label = clean(&gpu.architecture.label());
    match &gpu.architecture.chip {
        Some(chip) => format!("{label}, {}", clean(chip)),
        None => label,
    }
}

fn memory(gpu: &Gpu) -> Option<String> {
    let memory = gpu.memory.as_ref()?;
    let mut text = memory.vram.to_string();
    if memory.shared_with_ram {
        text.push_str(" shared with the RAM");
    }
    if let Some(budget) = memory.budget {
        let _ = write!(text, ", {budget} allowed now");
    }
    if memory.sum > memory.vram {
        let _ = write!(text, ", {} over all heaps", memory.sum);
    }
    match memory.resizable_bar {
        Some(true) => text.push_str(", resizable BAR on"),
        Some(false) => text.push_str(", resizable BAR off"),
        None => {}
    }
    Some(text)
}

fn seen_through(driver: &crate::domain::machine::GpuDriver) -> String {
    let llama = driver.llama_index.map_or_else(
        || "not listed by llama.cpp".to_owned(),
        |n| format!("Vulkan{n} in llama.cpp"),
    );
    let translation = if driver.translation {
        ", a translation layer"
    } else {
        ""
    };
    format!(
        "{} {}, API {}: device {} of Vulkan, {llama}{translation}",
        clean(&driver.name),
        clean(&driver.version),
        clean(&driver.api_version),
        driver.raw_index,
    )
}

fn vulkan_rows(entry: &VulkanEntry) -> Vec<(&'static str, String)> {
    let driver = &entry.driver;
    vec![
        ("Driver", driver_text(driver)),
        ("Features", features(&entry.features)),
        ("Sub-groups", subgroups(&entry.limits)),
        ("Work groups", work_groups(&entry.limits)),
        ("Largest", largest(&entry.limits)),
    ]
}

fn driver_text(driver: &crate::domain::types::Driver) -> String {
    let mut text = format!("{} ({}, id {})", driver.name, driver.id_name, driver.id);
    if !driver.info.is_empty() {
        let _ = write!(text, ", {}", driver.info);
    }
    clean(&format!("{text}, version {}", driver.version))
}

fn features(features: &Features) -> String {
    let all = [
        ("fp16", features.fp16),
        ("int8", features.int8),
        ("16-bit storage", features.storage_16bit),
        ("int8 dot product", features.int8_dot_accelerated),
        ("cooperative matrix", features.cooperative_matrix),
        ("cooperative matrix 2", features.cooperative_matrix2),
        ("bfloat16", features.bfloat16),
        ("timeline semaphores", features.timeline_semaphore),
    ];
    let of = |wanted: bool| {
        let names: Vec<&str> = all
            .iter()
            .filter(|(_, has)| *has == wanted)
            .map(|(name, _)| *name)
            .collect();
        names.join(", ")
    };
    match (of(true), of(false)) {
        (has, lacks) if lacks.is_empty() => has,
        (has, lacks) if has.is_empty() => format!("none of {lacks}"),
        (has, lacks) => format!("{has}; not {lacks}"),
    }
}

fn subgroups(limits: &Limits) -> String {
    match limits.subgroup_size_range {
        Some([least, most]) if least != most => {
            format!("{} ({least} to {most})", limits.subgroup_size)
        }
        _ => limits.subgroup_size.to_string(),
    }
}

fn work_groups(limits: &Limits) -> String {
    let [x, y, z] = limits.max_work_group_size;
    format!(
        "{} invocations, {x} × {y} × {z}, {} shared memory",
        limits.max_work_group_invocations,
        Bytes(u64::from(limits.max_shared_memory))
    )
}

fn largest(limits: &Limits) -> String {
    let size = |name: &str, bytes: Option<Bytes>| bytes.map(|b| format!("{name} {b}"));
    let all = [
        size("allocation", limits.max_allocation),
        size("buffer", limits.max_buffer),
        size("storage buffer range", limits.max_storage_buffer_range),
    ];
    let known: Vec<String> = all.into_iter().flatten().collect();
    if known.is_empty() {
        "unknown".to_owned()
    } else {
        known.join(", ")
    }
}

fn heaps(heaps: &[Heap], style: Style) -> String {
    let mut table = Table::new(&[
        ("Heap", Align::Right),
        ("Size", Align::Right),
        ("Allowed now", Align::Right),
        ("Used here", Align::Right),
        ("", Align::Left),
    ]);
    let shown =
        |bytes: Option<Bytes>| bytes.map_or_else(|| "unknown".to_owned(), |b| b.to_string());
    for (number, heap) in heaps.iter().enumerate() {
        let place = if heap.device_local { "device" } else { "host" };
        let visible = if heap.host_visible {
            ", host can map it"
        } else {
            ""
        };
        table.row([
            number.to_string(),
            heap.size.to_string(),
            shown(heap.budget),
            shown(heap.usage),
            format!("{place}{visible}"),
        ]);
    }
    table.render(2, style)
}

fn queues(families: &[QueueFamily], style: Style) -> String {
    let mut table = Table::new(&[
        ("Queue family", Align::Right),
        ("Queues", Align::Right),
        ("Timestamp bits", Align::Right),
        ("", Align::Left),
    ]);
    for family in families {
        table.row([
            family.index.to_string(),
            family.count.to_string(),
            if family.timestamp_bits == 0 {
                "none".to_owned()
            } else {
                family.timestamp_bits.to_string()
            },
            capitalised(&clean(&family.flags.join(", "))),
        ]);
    }
    table.render(2, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_say_what_is_there_and_what_is_not() {
        let polaris = Features {
            int8: true,
            storage_16bit: true,
            timeline_semaphore: true,
            ..Features::default()
        };
        assert_eq!(
            features(&polaris),
            "int8, 16-bit storage, timeline semaphores; not fp16, int8 dot product, cooperative matrix, cooperative matrix 2, bfloat16"
        );
    }

    #[test]
    fn unknown_is_never_zero() {
        let heap = Heap {
            size: Bytes::gib(8),
            budget: None,
            usage: None,
            device_local: true,
            host_visible: false,
        };
        assert_eq!(
            heaps(&[heap], Style::PLAIN),
            "  Heap      Size  Allowed now  Used here\n     0  8.00 GiB      unknown    unknown  device\n"
        );
        assert_eq!(largest(&Limits::default()), "unknown");
    }
}
