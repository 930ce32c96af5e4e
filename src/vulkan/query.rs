//! What a device defines, asked before a structure is chained.

use std::collections::BTreeSet;
use std::ffi::CStr;

use ash::vk;

use super::{Vulkan, extension_names};

/// Budget and usage per heap, bytes.
pub(crate) type HeapBudget = [[vk::DeviceSize; vk::MAX_MEMORY_HEAPS]; 2];

/// What one device defines.
pub(crate) struct Can {
    /// The lower of the loader's and the device's.
    pub(crate) version: u32,
    extensions: BTreeSet<String>,
}

impl Can {
    /// Asks a device of this instance; `version` is the device's own.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(crate) fn of(vulkan: &Vulkan, handle: vk::PhysicalDevice, version: u32) -> Self {
        // SAFETY: `handle` comes from this live instance.
        let listed = unsafe {
            vulkan
                .instance
                .enumerate_device_extension_properties(handle)
        };
        Self {
            version: version.min(vulkan.version),
            extensions: extension_names(&listed.unwrap_or_default()),
        }
    }

    /// Has it this extension?
    pub(crate) fn extension(&self, name: &CStr) -> bool {
        name.to_str().is_ok_and(|n| self.extensions.contains(n))
    }

    /// May what came with this version, or with this extension before it, be asked for?
    pub(crate) fn query(&self, since: u32, name: &CStr) -> bool {
        self.version >= since || self.extension(name)
    }
}

impl Vulkan {
    /// What the operating system leaves to this process in each heap; `None` where the driver does not tell.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(crate) fn heap_budget(&self, handle: vk::PhysicalDevice, can: &Can) -> Option<HeapBudget> {
        if can.version < vk::API_VERSION_1_1 || !can.extension(vk::EXT_MEMORY_BUDGET_NAME) {
            return None;
        }
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut query = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: instance and device are at least 1.1; the device has the extension of the chained structure.
        unsafe {
            self.instance
                .get_physical_device_memory_properties2(handle, &mut query);
        }
        Some([budget.heap_budget, budget.heap_usage])
    }
}
