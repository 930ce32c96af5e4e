//! Physical devices as far as computing on them goes: memory types, queue families, clocks, what shaders may use.

use std::collections::BTreeSet;
use std::rc::Rc;

use ash::vk;

use super::buffer::Kind;
use super::error::{GpuError, Named};
use super::query::Can;
use super::{Vulkan, text};

/// A queue family that computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Family {
    /// Index.
    pub(crate) index: u32,
    /// It draws too.
    pub(crate) graphics: bool,
    /// Bits of its timestamps that count, 0 without a clock.
    pub(crate) timestamp_bits: u32,
}

/// What shaders may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Features {
    /// 16-bit floats in arithmetic and in storage buffers.
    pub(crate) f16: bool,
    /// Sums over a sub-group.
    pub(crate) subgroup_sums: bool,
}

/// A device that can compute.
pub(crate) struct Physical {
    pub(super) handle: vk::PhysicalDevice,
    pub(crate) name: String,
    pub(crate) uuid: Option<[u8; vk::UUID_SIZE]>,
    pub(crate) is_software: bool,
    /// A card of its own, not a part of the processor.
    pub(crate) is_discrete: bool,
    pub(super) memory: vk::PhysicalDeviceMemoryProperties,
    free: Option<[u64; vk::MAX_MEMORY_HEAPS]>,
    /// Families that compute, in Vulkan's order; never empty.
    pub(crate) families: Vec<Family>,
    /// Nanoseconds of one step of a timestamp.
    pub(crate) timestamp_period: f32,
    pub(crate) features: Features,
    /// Lanes of a sub-group; `None` before Vulkan 1.1.
    pub(crate) subgroup_size: Option<u32>,
    /// Most bytes of one storage buffer binding.
    pub(crate) max_binding: u64,
    /// Most work groups of one dispatch.
    pub(crate) max_groups: u32,
    pub(super) needs_portability: bool,
    pub(super) version: u32,
}

impl Physical {
    /// The memory type for a kind of buffer, of those in `allowed`; the first that has what is wished for too.
    pub(super) fn memory_type(&self, kind: Kind, allowed: u32) -> Option<u32> {
        let types = self.memory.memory_types_as_slice();
        let (needed, wished, unwished) = kind.properties();
        let of = |all: vk::MemoryPropertyFlags, none: vk::MemoryPropertyFlags| {
            (0..).zip(types).find(|(i, t)| {
                let flags = t.property_flags;
                allowed & (1 << i) != 0 && flags.contains(all) && !flags.intersects(none)
            })
        };
        let none = vk::MemoryPropertyFlags::empty();
        of(needed | wished, unwished)
            .or_else(|| of(needed | wished, none))
            .or_else(|| of(needed, none))
            .map(|(i, _): (u32, _)| i)
    }

    fn heap(&self, kind: Kind) -> Option<usize> {
        let index = self.memory_type(kind, u32::MAX)?;
        let of = self.memory.memory_types_as_slice().get(index as usize)?;
        Some(of.heap_index as usize)
    }

    /// Bytes of the heap that such a buffer comes from.
    pub(crate) fn room(&self, kind: Kind) -> u64 {
        let heaps = self.memory.memory_heaps_as_slice();
        self.heap(kind)
            .and_then(|heap| heaps.get(heap))
            .map_or(0, |heap| heap.size)
    }

    /// Bytes of that heap which were free when the device was described; all of it where the driver does not tell.
    pub(crate) fn free(&self, kind: Kind) -> u64 {
        let told = self.free.zip(self.heap(kind)).map(|(free, at)| free[at]);
        told.unwrap_or_else(|| self.room(kind))
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
impl Physical {
    /// As if so much were free in every heap.
    pub(crate) fn leave_free(&mut self, bytes: u64) {
        self.free = Some([bytes; vk::MAX_MEMORY_HEAPS]);
    }
}

/// Every card that can compute, in Vulkan's order: one under two drivers is one (case C17), and those of the same name are
/// numbered.
pub(crate) fn cards(vulkan: &Rc<Vulkan>) -> Result<Vec<Physical>, GpuError> {
    let mut seen = BTreeSet::new();
    let mut names: Vec<String> = Vec::new();
    let mut found = physical(vulkan)?;
    found.retain(|device| device.uuid.is_none_or(|uuid| seen.insert(uuid)));
    for device in &mut found {
        names.push(device.name.clone());
        let twins = names.iter().filter(|n| **n == device.name).count();
        device.name = numbered(&device.name, twins);
    }
    Ok(found)
}

/// Cards of the same name, in Vulkan's order: `NAME`, `NAME (2)`.
fn numbered(name: &str, twins: usize) -> String {
    if twins < 2 {
        name.to_owned()
    } else {
        format!("{name} ({twins})")
    }
}

#[expect(unsafe_code, reason = "Vulkan calls")]
fn physical(vulkan: &Rc<Vulkan>) -> Result<Vec<Physical>, GpuError> {
    // SAFETY: the instance is alive.
    let handles = unsafe { vulkan.instance.enumerate_physical_devices() }
        .named("vkEnumeratePhysicalDevices")?;
    Ok(handles
        .into_iter()
        .filter_map(|handle| describe(vulkan, handle))
        .collect())
}

#[expect(unsafe_code, reason = "Vulkan calls")]
fn describe(vulkan: &Vulkan, handle: vk::PhysicalDevice) -> Option<Physical> {
    let vk = &vulkan.instance;
    // SAFETY: `handle` comes from this live instance; these queries have no other preconditions.
    let (properties, memory, queues) = unsafe {
        (
            vk.get_physical_device_properties(handle),
            vk.get_physical_device_memory_properties(handle),
            vk.get_physical_device_queue_family_properties(handle),
        )
    };
    let families: Vec<Family> = (0..)
        .zip(&queues)
        .filter(|(_, f)| f.queue_flags.contains(vk::QueueFlags::COMPUTE))
        .map(|(index, f)| Family {
            index,
            graphics: f.queue_flags.contains(vk::QueueFlags::GRAPHICS),
            timestamp_bits: f.timestamp_valid_bits,
        })
        .collect();
    if families.is_empty() {
        return None;
    }
    let can = Can::of(vulkan, handle, properties.api_version);
    let Shaders {
        uuid,
        features,
        subgroup_size,
    } = shaders(vulkan, handle, &can);
    let free = vulkan
        .heap_budget(handle, &can)
        .map(|[budget, usage]| std::array::from_fn(|i| budget[i].saturating_sub(usage[i])));
    Some(Physical {
        handle,
        name: text(properties.device_name_as_c_str().ok()),
        uuid,
        is_software: properties.device_type == vk::PhysicalDeviceType::CPU,
        is_discrete: properties.device_type == vk::PhysicalDeviceType::DISCRETE_GPU,
        memory,
        free,
        families,
        timestamp_period: properties.limits.timestamp_period,
        features,
        subgroup_size,
        max_binding: u64::from(properties.limits.max_storage_buffer_range),
        max_groups: properties.limits.max_compute_work_group_count[0],
        needs_portability: can.extension(vk::KHR_PORTABILITY_SUBSET_NAME),
        version: can.version,
    })
}

/// What Vulkan 1.1 and later say of a device.
#[derive(Default)]
struct Shaders {
    uuid: Option<[u8; vk::UUID_SIZE]>,
    features: Features,
    subgroup_size: Option<u32>,
}

#[expect(unsafe_code, reason = "Vulkan calls")]
fn shaders(vulkan: &Vulkan, handle: vk::PhysicalDevice, can: &Can) -> Shaders {
    if can.version < vk::API_VERSION_1_1 {
        return Shaders::default();
    }
    let mut id = vk::PhysicalDeviceIDProperties::default();
    let mut subgroup = vk::PhysicalDeviceSubgroupProperties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default()
        .push_next(&mut id)
        .push_next(&mut subgroup);
    let mut storage = vk::PhysicalDevice16BitStorageFeatures::default();
    let mut small = vk::PhysicalDeviceShaderFloat16Int8Features::default();
    let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut storage);
    // The extension alone would have to be enabled; every driver of today is beyond it.
    if can.version >= vk::API_VERSION_1_2 {
        features = features.push_next(&mut small);
    }
    // SAFETY: instance and device are at least 1.1; every chained structure is one this device defines.
    unsafe {
        vulkan
            .instance
            .get_physical_device_properties2(handle, &mut properties);
        vulkan
            .instance
            .get_physical_device_features2(handle, &mut features);
    }
    let sums = subgroup
        .supported_operations
        .contains(vk::SubgroupFeatureFlags::ARITHMETIC);
    let computes = subgroup
        .supported_stages
        .contains(vk::ShaderStageFlags::COMPUTE);
    let stored = [
        storage.storage_buffer16_bit_access,
        storage.uniform_and_storage_buffer16_bit_access,
        small.shader_float16,
    ];
    Shaders {
        uuid: Some(id.device_uuid).filter(|uuid| *uuid != [0; vk::UUID_SIZE]),
        features: Features {
            f16: stored == [vk::TRUE; 3],
            subgroup_sums: sums && computes,
        },
        subgroup_size: Some(subgroup.subgroup_size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_of_one_name_are_numbered_in_order() {
        assert_eq!(numbered("RTX 3060", 1), "RTX 3060");
        assert_eq!(numbered("RTX 3060", 2), "RTX 3060 (2)");
    }
}
