//! A logical device with one queue, one command buffer, and clocks around what is submitted.

use std::time::Instant;

use ash::vk;

use crate::vulkan::{Vulkan, text};

use super::buffer::Kind;
use super::failed;

/// A device that hangs is reset by its kernel driver, which ends the wait; nothing may be freed before that.
const UNTIL_DONE: u64 = u64::MAX;
/// Nanoseconds in a second.
const NANOS: f64 = 1e9;

/// What a measurement needs to know of a device.
pub(super) struct Physical {
    handle: vk::PhysicalDevice,
    pub(super) name: String,
    pub(super) uuid: Option<[u8; vk::UUID_SIZE]>,
    pub(super) is_software: bool,
    memory: vk::PhysicalDeviceMemoryProperties,
    /// Queue family that copies.
    family: u32,
    /// Bits of its timestamps, 0 without.
    timestamp_bits: u32,
    /// Nanoseconds of one step of a timestamp.
    timestamp_period: f32,
    needs_portability: bool,
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

    /// Bytes of the heap that such a buffer comes from.
    pub(super) fn room(&self, kind: Kind) -> u64 {
        let heap = |index: u32| {
            let of = self.memory.memory_types_as_slice().get(index as usize)?;
            let heaps = self.memory.memory_heaps_as_slice();
            Some(heaps.get(of.heap_index as usize)?.size)
        };
        self.memory_type(kind, u32::MAX)
            .and_then(heap)
            .unwrap_or_default()
    }
}

/// Every physical device that can copy, in Vulkan's order.
#[expect(unsafe_code, reason = "Vulkan calls")]
pub(super) fn physical(vulkan: &Vulkan) -> Result<Vec<Physical>, String> {
    // SAFETY: the instance is alive.
    let handles = unsafe { vulkan.instance.enumerate_physical_devices() }
        .map_err(|e| failed("vkEnumeratePhysicalDevices", e))?;
    Ok(handles
        .into_iter()
        .filter_map(|handle| describe(vulkan, handle))
        .collect())
}

#[expect(unsafe_code, reason = "Vulkan calls")]
fn describe(vulkan: &Vulkan, handle: vk::PhysicalDevice) -> Option<Physical> {
    let vk = &vulkan.instance;
    // SAFETY: `handle` comes from this live instance; these queries have no other preconditions.
    let (properties, memory, queues, extensions) = unsafe {
        (
            vk.get_physical_device_properties(handle),
            vk.get_physical_device_memory_properties(handle),
            vk.get_physical_device_queue_family_properties(handle),
            vk.enumerate_device_extension_properties(handle)
                .unwrap_or_default(),
        )
    };
    let compute = |(_, family): &(u32, &vk::QueueFamilyProperties)| {
        family.queue_flags.contains(vk::QueueFlags::COMPUTE)
    };
    // llama.cpp computes on a compute queue; any such queue copies too.
    let (family, queue) = (0..).zip(&queues).find(compute)?;
    let portability = text(Some(vk::KHR_PORTABILITY_SUBSET_NAME));
    Some(Physical {
        handle,
        name: text(properties.device_name_as_c_str().ok()),
        uuid: uuid(vulkan, handle, properties.api_version),
        is_software: properties.device_type == vk::PhysicalDeviceType::CPU,
        memory,
        family,
        timestamp_bits: queue.timestamp_valid_bits,
        timestamp_period: properties.limits.timestamp_period,
        needs_portability: crate::vulkan::extension_names(&extensions).contains(&portability),
    })
}

#[expect(unsafe_code, reason = "Vulkan calls")]
fn uuid(vulkan: &Vulkan, handle: vk::PhysicalDevice, version: u32) -> Option<[u8; vk::UUID_SIZE]> {
    if version.min(vulkan.version) < vk::API_VERSION_1_1 {
        return None;
    }
    let mut id = vk::PhysicalDeviceIDProperties::default();
    let mut query = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
    // SAFETY: instance and device are at least 1.1, which defines the chained structure.
    unsafe {
        vulkan
            .instance
            .get_physical_device_properties2(handle, &mut query);
    }
    Some(id.device_uuid).filter(|uuid| *uuid != [0; vk::UUID_SIZE])
}

/// A device at work. Dropping it waits until it is idle.
pub(super) struct Gpu<'v> {
    pub(super) device: ash::Device,
    queue: vk::Queue,
    pool: vk::CommandPool,
    commands: vk::CommandBuffer,
    fence: vk::Fence,
    /// Two timestamps; null where the queue has none.
    clock: vk::QueryPool,
    /// Keeps the high bits of a timestamp that do not count out.
    timestamp_mask: u64,
    timestamp_period: f32,
    /// The instance outlives what is made from it.
    _vulkan: &'v Vulkan,
}

impl<'v> Gpu<'v> {
    /// Opens a device.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(super) fn open(vulkan: &'v Vulkan, of: &Physical) -> Result<Self, String> {
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(of.family)
            .queue_priorities(&[1.0])];
        // A device that has this extension must be asked for it (VUID-VkDeviceCreateInfo-pProperties-04451).
        let extensions = if of.needs_portability {
            vec![vk::KHR_PORTABILITY_SUBSET_NAME.as_ptr()]
        } else {
            Vec::new()
        };
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions);
        // SAFETY: the handle comes from this instance, the family exists, all that `info` points to lives until the call
        // returns; the device is destroyed in `drop`.
        let device = unsafe { vulkan.instance.create_device(of.handle, &info, None) }
            .map_err(|e| failed("vkCreateDevice", e))?;
        // SAFETY: one queue of this family was asked for.
        let queue = unsafe { device.get_device_queue(of.family, 0) };
        let mut gpu = Self {
            device,
            queue,
            pool: vk::CommandPool::null(),
            commands: vk::CommandBuffer::null(),
            fence: vk::Fence::null(),
            clock: vk::QueryPool::null(),
            timestamp_mask: u64::MAX >> (u64::BITS - of.timestamp_bits.clamp(1, u64::BITS)),
            timestamp_period: of.timestamp_period,
            _vulkan: vulkan,
        };
        gpu.make(of.family, of.timestamp_bits > 0)?;
        Ok(gpu)
    }

    #[expect(unsafe_code, reason = "Vulkan calls")]
    fn make(&mut self, family: u32, has_clock: bool) -> Result<(), String> {
        let pool = vk::CommandPoolCreateInfo::default()
            .queue_family_index(family)
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER);
        // SAFETY: the device is alive; what is made here is destroyed in `drop`, also when a later call fails.
        unsafe {
            self.pool = self
                .device
                .create_command_pool(&pool, None)
                .map_err(|e| failed("vkCreateCommandPool", e))?;
            let buffers = vk::CommandBufferAllocateInfo::default()
                .command_pool(self.pool)
                .command_buffer_count(1);
            let buffers = self
                .device
                .allocate_command_buffers(&buffers)
                .map_err(|e| failed("vkAllocateCommandBuffers", e))?;
            self.commands = buffers.first().copied().unwrap_or_default();
            self.fence = self
                .device
                .create_fence(&vk::FenceCreateInfo::default(), None)
                .map_err(|e| failed("vkCreateFence", e))?;
            if has_clock {
                let queries = vk::QueryPoolCreateInfo::default()
                    .query_type(vk::QueryType::TIMESTAMP)
                    .query_count(2);
                self.clock = self
                    .device
                    .create_query_pool(&queries, None)
                    .map_err(|e| failed("vkCreateQueryPool", e))?;
            }
        }
        Ok(())
    }

    /// The device measures its own time.
    pub(super) fn has_timestamps(&self) -> bool {
        self.clock != vk::QueryPool::null()
    }

    /// Records what `record` does, submits it, waits, and says how many seconds it took: by the device's clock where it
    /// has one, else by the host's around submission and wait.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(super) fn submit(&self, record: impl FnOnce(vk::CommandBuffer)) -> Result<f64, String> {
        let (device, commands) = (&self.device, self.commands);
        let begin = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        let (top, bottom) = (
            vk::PipelineStageFlags::TOP_OF_PIPE,
            vk::PipelineStageFlags::BOTTOM_OF_PIPE,
        );
        // SAFETY: the last submission was waited for, so the command buffer, the queries and the fence are free; what
        // `record` names lives until this returns, and its commands are outside of a render pass.
        let elapsed = unsafe {
            device
                .begin_command_buffer(commands, &begin)
                .map_err(|e| failed("vkBeginCommandBuffer", e))?;
            if self.has_timestamps() {
                device.cmd_reset_query_pool(commands, self.clock, 0, 2);
                device.cmd_write_timestamp(commands, top, self.clock, 0);
            }
            record(commands);
            if self.has_timestamps() {
                device.cmd_write_timestamp(commands, bottom, self.clock, 1);
            }
            device
                .end_command_buffer(commands)
                .map_err(|e| failed("vkEndCommandBuffer", e))?;
            let buffers = [commands];
            let work = [vk::SubmitInfo::default().command_buffers(&buffers)];
            let start = Instant::now();
            device
                .queue_submit(self.queue, &work, self.fence)
                .map_err(|e| failed("vkQueueSubmit", e))?;
            device
                .wait_for_fences(&[self.fence], true, UNTIL_DONE)
                .map_err(|e| failed("vkWaitForFences", e))?;
            let elapsed = start.elapsed().as_secs_f64();
            device
                .reset_fences(&[self.fence])
                .map_err(|e| failed("vkResetFences", e))?;
            elapsed
        };
        Ok(self.device_secs()?.unwrap_or(elapsed))
    }

    /// Seconds between the two timestamps; `None` without a clock, or where it stood still.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    fn device_secs(&self) -> Result<Option<f64>, String> {
        if !self.has_timestamps() {
            return Ok(None);
        }
        let mut stamps = [0u64; 2];
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: both queries were written by the submission that was waited for.
        unsafe {
            self.device
                .get_query_pool_results(self.clock, 0, &mut stamps, flags)
        }
        .map_err(|e| failed("vkGetQueryPoolResults", e))?;
        let steps = stamps[1].wrapping_sub(stamps[0]) & self.timestamp_mask;
        let secs = steps as f64 * f64::from(self.timestamp_period) / NANOS;
        Ok((secs > 0.0).then_some(secs))
    }
}

impl Drop for Gpu<'_> {
    #[expect(unsafe_code, reason = "the end of the device")]
    fn drop(&mut self) {
        // SAFETY: buffers borrow this value, so none is left; null handles are ignored; each is destroyed once. A lost
        // device ends its wait with an error, and may be destroyed.
        unsafe {
            let _ = self.device.device_wait_idle();
            self.device.destroy_query_pool(self.clock, None);
            self.device.destroy_fence(self.fence, None);
            self.device.destroy_command_pool(self.pool, None);
            self.device.destroy_device(None);
        }
    }
}
