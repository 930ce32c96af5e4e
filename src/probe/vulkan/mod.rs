//! Vulkan devices as the driver describes them (paper section 3.1), through the loader found at run time.
//!
//! No loader and no driver are states of the report, not errors. All unsafe calls are in `raw`.

mod decode;
mod raw;

use std::fmt::Write as _;

use ash::vk;

use crate::domain::types::{
    Bytes, DeviceKind, Driver, Features, Heap, Limits, PciAddress, QueueFamily, VulkanEntry,
    VulkanReport, VulkanStatus,
};

use crate::vulkan::{OpenError, QuietStdout, Vulkan, text};

use raw::RawDevice;

/// Everything Vulkan says of this machine. The instance is gone when this returns.
pub fn report() -> VulkanReport {
    let _quiet = QuietStdout::begin();
    let empty = |status| VulkanReport {
        status,
        entries: Vec::new(),
    };
    let vulkan = match Vulkan::open() {
        Ok(vulkan) => vulkan,
        Err(OpenError::NoLoader(detail)) => return empty(VulkanStatus::NoLoader { detail }),
        Err(OpenError::NoDriver(detail)) => return empty(VulkanStatus::NoDriver { detail }),
    };
    match vulkan.devices() {
        Ok(devices) => VulkanReport {
            status: VulkanStatus::Ready {
                instance_version: decode::api_version(vulkan.version),
            },
            entries: (0..).zip(&devices).map(|(i, d)| entry(i, d)).collect(),
        },
        Err(detail) => empty(VulkanStatus::NoDriver { detail }),
    }
}

fn entry(index: u32, device: &RawDevice) -> VulkanEntry {
    let properties = &device.properties;
    VulkanEntry {
        enumeration_index: index,
        name: text(properties.device_name_as_c_str().ok()),
        kind: kind(properties.device_type),
        vendor_id: properties.vendor_id,
        device_id: properties.device_id,
        pci: device
            .extra
            .pci
            .map(|[domain, bus, device, function]| PciAddress {
                domain,
                bus,
                device,
                function,
            }),
        uuid: device.extra.uuid.map(|bytes| hex(&bytes)),
        api_version: decode::api_version(properties.api_version),
        driver: driver(device),
        heaps: heaps(device),
        queue_families: (0..)
            .zip(&device.queues)
            .map(|(i, q)| queue_family(i, q))
            .collect(),
        limits: limits(device),
        features: Features {
            fp16: device.features.fp16,
            int8: device.features.int8,
            storage_16bit: device.features.storage_16bit,
            int8_dot_accelerated: device.extra.int8_dot_accelerated,
            cooperative_matrix: device.features.cooperative_matrix,
            cooperative_matrix2: device.features.cooperative_matrix2,
            bfloat16: device.features.bfloat16,
            timeline_semaphore: device.features.timeline_semaphore,
        },
    }
}

fn kind(device_type: vk::PhysicalDeviceType) -> DeviceKind {
    match device_type {
        vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::Discrete,
        vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::Integrated,
        vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Virtual,
        vk::PhysicalDeviceType::CPU => DeviceKind::Software,
        _ => DeviceKind::Other,
    }
}

fn driver(device: &RawDevice) -> Driver {
    let (id, name, info) = device.extra.driver.clone().unwrap_or_default();
    let raw = device.properties.driver_version;
    Driver {
        id,
        id_name: decode::driver_id_name(id),
        name,
        info,
        version_raw: raw,
        version: decode::driver_version(device.properties.vendor_id, id, raw),
    }
}

fn heaps(device: &RawDevice) -> Vec<Heap> {
    let memory = &device.memory;
    let host_visible = |heap: u32| {
        memory.memory_types_as_slice().iter().any(|t| {
            t.heap_index == heap
                && t.property_flags
                    .contains(vk::MemoryPropertyFlags::HOST_VISIBLE)
        })
    };
    (0..)
        .zip(memory.memory_heaps_as_slice())
        .map(|(index, heap): (u32, _)| {
            let reading = |which: usize| {
                device
                    .budget
                    .map(|values| Bytes(values[which][index as usize]))
            };
            Heap {
                size: Bytes(heap.size),
                budget: reading(0),
                usage: reading(1),
                device_local: heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL),
                host_visible: host_visible(index),
            }
        })
        .collect()
}

fn queue_family(index: u32, family: &vk::QueueFamilyProperties) -> QueueFamily {
    QueueFamily {
        index,
        flags: decode::queue_flags(family.queue_flags),
        count: family.queue_count,
        timestamp_bits: family.timestamp_valid_bits,
    }
}

fn limits(device: &RawDevice) -> Limits {
    /// Picoseconds in a nanosecond.
    const PS_PER_NS: f64 = 1000.0;
    let limits = &device.properties.limits;
    let extra = &device.extra;
    Limits {
        max_allocation: extra.max_allocation.map(Bytes),
        max_buffer: extra.max_buffer.map(Bytes),
        max_storage_buffer_range: Some(Bytes(limits.max_storage_buffer_range.into())),
        max_work_group_invocations: limits.max_compute_work_group_invocations,
        max_work_group_size: limits.max_compute_work_group_size,
        max_shared_memory: limits.max_compute_shared_memory_size,
        subgroup_size: extra.subgroup_size.unwrap_or(0),
        subgroup_size_range: extra.subgroup_range,
        timestamp_period_ps: (f64::from(limits.timestamp_period) * PS_PER_NS).round() as u32,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
