//! What memory a GPU has, from heaps that overlap and windows that mislead (cases C11, C12, C19).

use serde::{Deserialize, Serialize};

use crate::domain::types::{Bytes, DeviceKind, Heap, VulkanEntry};

/// Largest host-visible device-local heap that still means the classic window: PCI's 256 MiB without resizable BAR.
const CLASSIC_BAR: Bytes = Bytes::mib(256);

/// Memory of one GPU, as its preferred driver reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuMemory {
    /// The largest `DEVICE_LOCAL` heap: the most one model can rely on (case C12).
    pub vram: Bytes,
    /// What the driver allows of that heap now, where it says.
    pub budget: Option<Bytes>,
    /// All `DEVICE_LOCAL` heaps together; more than `vram` when the driver splits its memory (case C11).
    pub sum: Bytes,
    /// It is the host's RAM, not memory of its own: never added to VRAM (case C19).
    pub shared_with_ram: bool,
    /// The host can map all of the GPU's memory. `None` for shared memory, or where no window is visible.
    pub resizable_bar: Option<bool>,
}

impl GpuMemory {
    /// The memory of a Vulkan entry; `None` without a `DEVICE_LOCAL` heap.
    pub fn of_entry(entry: &VulkanEntry) -> Option<Self> {
        let local = || entry.heaps.iter().filter(|h| h.device_local);
        // The first of equals, so that the answer does not depend on iteration details.
        let largest = local().reduce(|best, h| if h.size > best.size { h } else { best })?;
        let shared = matches!(entry.kind, DeviceKind::Integrated | DeviceKind::Software);
        Some(Self {
            vram: largest.size,
            budget: largest.budget,
            sum: local().map(|h| h.size).sum(),
            shared_with_ram: shared,
            resizable_bar: if shared {
                None
            } else {
                resizable_bar(local(), largest)
            },
        })
    }

    /// The memory the OS tells of a GPU without a Vulkan driver.
    pub fn of_system(vram: Bytes, shared_with_ram: bool) -> Self {
        Self {
            vram,
            budget: None,
            sum: vram,
            shared_with_ram,
            resizable_bar: None,
        }
    }
}

fn resizable_bar<'a>(local: impl Iterator<Item = &'a Heap>, largest: &Heap) -> Option<bool> {
    if largest.host_visible && largest.size > CLASSIC_BAR {
        return Some(true);
    }
    local
        .filter(|h| h.host_visible)
        .any(|h| h.size <= CLASSIC_BAR)
        .then_some(false)
}
