//! One GPU: what it can do, its memory, its queue families.

use eframe::egui::{Ui, vec2};

use crate::chart::{Bars, Heap as HeapBar, Role, Segment};
use crate::domain::machine::Gpu;
use crate::domain::settings::AppSettings;
use crate::domain::text::clean;
use crate::domain::types::{Bytes, Heap, VulkanEntry};
use crate::ui::charts;
use crate::ui::theme::icons::Icon;
use crate::ui::theme::space;
use crate::ui::widgets::{Card, Column, Table, Width, caption, chip, columns, muted, section};

/// The line under the GPU's name.
pub fn under(gpu: &Gpu) -> String {
    let mut parts = vec![clean(&gpu.architecture.label())];
    parts.push(format!("{} by device id", gpu.id()));
    if let Some(driver) = gpu.drivers.first() {
        parts.push(format!(
            "{} {}",
            clean(&driver.name),
            clean(&driver.version)
        ));
        parts.push(format!("Vulkan {}", clean(&driver.api_version)));
    }
    if let Some(pci) = gpu.pci {
        parts.push(format!("PCI {pci}"));
    }
    parts.join(" · ")
}

/// Its cards.
pub fn cards(ui: &mut Ui, gpu: &Gpu, settings: &AppSettings) {
    columns(ui, "gpu", &[1.37, 1.0], |column, ui, height| match column {
        0 => Card::new("What it can do")
            .min_height(height)
            .show(ui, |ui| {
                match &gpu.preferred {
                    Some(entry) => abilities(ui, gpu, entry, settings),
                    None => {
                        muted(
                            ui,
                            "No Vulkan driver shows this GPU: only what the system lists is known",
                        );
                    }
                }
                if let Some(remark) = &gpu.remark {
                    caption(ui, clean(remark));
                }
            }),
        _ => Card::new("Queue families")
            .min_height(height)
            .show(ui, |ui| queues(ui, gpu)),
    });
}

fn abilities(ui: &mut Ui, gpu: &Gpu, entry: &VulkanEntry, settings: &AppSettings) {
    let f = &entry.features;
    let memory = gpu.memory.as_ref();
    let subgroup = match entry.limits.subgroup_size_range {
        Some([least, most]) if least != most => format!("Subgroup {least}–{most}"),
        _ => format!("Subgroup {}", entry.limits.subgroup_size),
    };
    let mut chips = vec![
        ("fp16 arithmetic".to_owned(), f.fp16),
        ("int8 dot, accelerated".to_owned(), f.int8_dot_accelerated),
        (
            "Cooperative matrix".to_owned(),
            f.cooperative_matrix || f.cooperative_matrix2,
        ),
        ("bfloat16".to_owned(), f.bfloat16),
        ("16-bit storage".to_owned(), f.storage_16bit),
        (subgroup, true),
        ("Timeline semaphores".to_owned(), f.timeline_semaphore),
        (
            "Memory budget".to_owned(),
            entry.heaps.iter().any(|heap| heap.budget.is_some()),
        ),
    ];
    if let Some(bar) = memory.and_then(|m| m.resizable_bar) {
        chips.push(("Resizable BAR".to_owned(), bar));
    }
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(space::S, space::S - 1.0);
        for (word, has) in &chips {
            let icon = if *has { Icon::Check } else { Icon::Absent };
            let response = chip(ui, Some(icon), word, *has);
            response.on_hover_text(if *has {
                "This GPU has it"
            } else {
                "This GPU lacks it"
            });
        }
    });
    ui.add_space(space::S);
    section(ui, "Memory heaps");
    ui.add_space(space::XS);
    let bars = Bars {
        heaps: entry
            .heaps
            .iter()
            .enumerate()
            .map(|(number, heap)| {
                heap_bar(number, heap, memory.and_then(|m| m.resizable_bar), settings)
            })
            .collect(),
    };
    charts::chart(ui, |width| bars.scene(width));
}

fn heap_bar(
    number: usize,
    heap: &Heap,
    resizable_bar: Option<bool>,
    settings: &AppSettings,
) -> HeapBar {
    let place = match (heap.device_local, heap.host_visible) {
        (true, true) => "device local, host visible",
        (true, false) => "device local",
        (false, _) => "host",
    };
    let shown = |bytes: Bytes| settings.memory(bytes);
    let is_window = resizable_bar == Some(false)
        && heap.device_local
        && heap.host_visible
        && heap.size <= Bytes::mib(256);
    if is_window {
        return HeapBar {
            label: format!("Heap {number} · {place}"),
            total: 1.0,
            text: format!("{}: no resizable BAR", shown(heap.size)),
            segments: vec![Segment {
                label: "window".to_owned(),
                value: 1.0,
                text: shown(heap.size),
                role: Role::Warning,
            }],
        };
    }
    // What others hold is the part of the heap that the driver does not allow now.
    let taken = heap.budget.map(|budget| heap.size.saturating_sub(budget));
    let text = taken.map_or_else(
        || format!("{}, use not known", shown(heap.size)),
        |taken| format!("{} of {} used", shown(taken), shown(heap.size)),
    );
    let role = if heap.device_local {
        Role::Accent
    } else {
        Role::Stock
    };
    HeapBar {
        label: format!("Heap {number} · {place}"),
        total: heap.size.0 as f64,
        text,
        segments: taken
            .map(|taken| Segment {
                label: "used".to_owned(),
                value: taken.0 as f64,
                text: shown(taken),
                role,
            })
            .into_iter()
            .collect(),
    }
}

fn queues(ui: &mut Ui, gpu: &Gpu) {
    let Some(entry) = &gpu.preferred else {
        muted(ui, "Not known without a Vulkan driver");
        return;
    };
    let columns = [
        Column::left("#", Width::Fixed(18.0)),
        Column::left("Kind", Width::Share(1.0)),
        Column::right("Queues", Width::Fixed(52.0)),
        Column::right("Timestamps", Width::Fixed(76.0)),
    ];
    let families = &entry.queue_families;
    Table::new("queues", &columns).show(ui, families.len(), |row, cells| {
        let family = &families[row];
        cells.strong(family.index.to_string());
        cells.muted(clean(&family.flags.join(", ")));
        cells.text(family.count.to_string());
        cells.muted(if family.timestamp_bits == 0 {
            "none".to_owned()
        } else {
            format!("{} bit", family.timestamp_bits)
        });
    });
}
