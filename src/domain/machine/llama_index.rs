//! Which entries llama.cpp lists as `VulkanN`, and which driver it takes for a GPU shown twice (cases C17, C18).
//!
//! Mirrors ggml-vulkan's own selection; the build's `--list-devices` stays the authority.

use std::collections::BTreeMap;

use crate::domain::types::{DeviceKind, VulkanEntry};

use super::architecture::{VENDOR_AMD, VENDOR_INTEL, VENDOR_NVIDIA};

/// `VkDriverId` values used here (Vulkan registry).
pub(super) mod driver_id {
    pub const AMD_PROPRIETARY: i32 = 1;
    pub const AMD_OPEN_SOURCE: i32 = 2;
    pub const MESA_RADV: i32 = 3;
    pub const NVIDIA_PROPRIETARY: i32 = 4;
    pub const INTEL_PROPRIETARY_WINDOWS: i32 = 5;
    pub const INTEL_OPEN_SOURCE_MESA: i32 = 6;
    pub const GOOGLE_SWIFTSHADER: i32 = 10;
    pub const MESA_LLVMPIPE: i32 = 13;
    pub const MESA_DOZEN: i32 = 23;
    pub const MESA_NVK: i32 = 24;
}

/// Below every native driver.
const TRANSLATION_PRIORITY: u32 = 100;
/// A driver the list does not name.
const UNKNOWN_PRIORITY: u32 = u32::MAX;

/// Smaller is better, as in ggml-vulkan.
pub(super) fn priority(entry: &VulkanEntry) -> u32 {
    use driver_id as d;
    match (entry.vendor_id, entry.driver.id) {
        (_, d::MESA_DOZEN) => TRANSLATION_PRIORITY,
        (VENDOR_AMD, d::MESA_RADV)
        | (VENDOR_INTEL, d::INTEL_OPEN_SOURCE_MESA)
        | (VENDOR_NVIDIA, d::NVIDIA_PROPRIETARY) => 1,
        (VENDOR_AMD, d::AMD_OPEN_SOURCE)
        | (VENDOR_INTEL, d::INTEL_PROPRIETARY_WINDOWS)
        | (VENDOR_NVIDIA, d::MESA_NVK) => 2,
        (VENDOR_AMD, d::AMD_PROPRIETARY) => 3,
        _ => UNKNOWN_PRIORITY,
    }
}

/// llama.cpp's index of each entry it lists, by position in `entries`; `group[i]` is the physical GPU of entry `i`.
pub(super) fn llama_indices(entries: &[VulkanEntry], group: &[usize]) -> BTreeMap<usize, u32> {
    let mut listed: Vec<usize> = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let is_gpu = matches!(entry.kind, DeviceKind::Discrete | DeviceKind::Integrated);
        // ggml-vulkan refuses devices without 16-bit storage buffers.
        if !is_gpu || !entry.features.storage_16bit {
            continue;
        }
        match listed.iter().position(|&j| group[j] == group[i]) {
            None => listed.push(i),
            // A better driver takes the GPU over at the end of the list, as it does there.
            Some(at) if priority(entry) < priority(&entries[listed[at]]) => {
                listed.remove(at);
                listed.push(i);
            }
            Some(_) => {}
        }
    }
    if listed.is_empty() {
        let fallback = entries.iter().position(|e| e.kind != DeviceKind::Software);
        listed.extend(fallback);
    }
    (0..).zip(listed).map(|(n, i)| (i, n)).collect()
}
