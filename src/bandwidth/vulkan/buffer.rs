//! A buffer with memory of its own, and the two commands a measurement needs of it.

use ash::vk;

use super::failed;
use super::gpu::{Gpu, Physical};

/// What every buffer is filled with once: pages never written may be none.
const PATTERN: u32 = 0x5a5a_a5a5;

/// Where a buffer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// In the device's memory.
    Device,
    /// In the host's, to be read by the device.
    Upload,
    /// In the host's, to be written by the device and read by the host.
    Download,
}

impl Kind {
    /// What its memory must have, shall have, and shall rather not have.
    pub(super) fn properties(
        self,
    ) -> (
        vk::MemoryPropertyFlags,
        vk::MemoryPropertyFlags,
        vk::MemoryPropertyFlags,
    ) {
        type Flags = vk::MemoryPropertyFlags;
        match self {
            // Plain device memory, not the window of it that the host sees.
            Self::Device => (Flags::DEVICE_LOCAL, Flags::empty(), Flags::HOST_VISIBLE),
            Self::Upload => (
                Flags::HOST_VISIBLE,
                Flags::HOST_COHERENT,
                Flags::DEVICE_LOCAL,
            ),
            Self::Download => (Flags::HOST_VISIBLE, Flags::HOST_CACHED, Flags::DEVICE_LOCAL),
        }
    }
}

/// A buffer for copies; freed when dropped.
pub(super) struct Buffer<'a, 'v> {
    gpu: &'a Gpu<'v>,
    handle: vk::Buffer,
    memory: vk::DeviceMemory,
    size: u64,
}

impl<'a, 'v> Buffer<'a, 'v> {
    /// A buffer of `size` bytes, a multiple of four.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(super) fn new(
        gpu: &'a Gpu<'v>,
        on: &Physical,
        kind: Kind,
        size: u64,
    ) -> Result<Self, String> {
        if size == 0 {
            return Err("it has no memory to copy in".to_owned());
        }
        let info = vk::BufferCreateInfo::default()
            .size(size)
            .usage(vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST);
        // SAFETY: the device is alive, the size is not zero; the buffer is destroyed in `drop`.
        let handle = unsafe { gpu.device.create_buffer(&info, None) }
            .map_err(|e| failed("vkCreateBuffer", e))?;
        let mut buffer = Self {
            gpu,
            handle,
            memory: vk::DeviceMemory::null(),
            size,
        };
        // SAFETY: the buffer belongs to this device.
        let needs = unsafe { gpu.device.get_buffer_memory_requirements(handle) };
        let memory_type = on
            .memory_type(kind, needs.memory_type_bits)
            .ok_or_else(|| format!("it has no memory for this: {kind:?}"))?;
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(memory_type);
        // SAFETY: the memory type exists and suits the buffer, which is bound once; both are freed in `drop`.
        unsafe {
            buffer.memory = gpu
                .device
                .allocate_memory(&info, None)
                .map_err(|e| failed("vkAllocateMemory", e))?;
            gpu.device
                .bind_buffer_memory(handle, buffer.memory, 0)
                .map_err(|e| failed("vkBindBufferMemory", e))?;
        }
        Ok(buffer)
    }

    /// Writes all of it once.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(super) fn fill(&self, gpu: &Gpu) -> Result<(), String> {
        // SAFETY: the whole buffer, which may be written by transfers; its size is a multiple of four.
        gpu.submit(|commands| unsafe {
            gpu.device
                .cmd_fill_buffer(commands, self.handle, 0, self.size, PATTERN);
        })
        .map(drop)
    }

    /// Records copies of the whole of it into another of its size, one after the other.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(super) fn copy(&self, commands: vk::CommandBuffer, to: &Buffer, copies: u32) {
        let device = &self.gpu.device;
        let region = [vk::BufferCopy::default().size(self.size.min(to.size))];
        let written = [vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
            .dst_access_mask(vk::AccessFlags::TRANSFER_READ | vk::AccessFlags::TRANSFER_WRITE)];
        for _ in 0..copies {
            // SAFETY: `commands` is being recorded on this device; the region lies in both buffers, which are distinct
            // and allow transfers.
            unsafe {
                device.cmd_copy_buffer(commands, self.handle, to.handle, &region);
                device.cmd_pipeline_barrier(
                    commands,
                    vk::PipelineStageFlags::TRANSFER,
                    vk::PipelineStageFlags::TRANSFER,
                    vk::DependencyFlags::empty(),
                    &written,
                    &[],
                    &[],
                );
            }
        }
    }
}

impl Drop for Buffer<'_, '_> {
    #[expect(unsafe_code, reason = "the end of the buffer")]
    fn drop(&mut self) {
        // SAFETY: every submission that used it was waited for (or its device is lost); null memory is ignored.
        unsafe {
            self.gpu.device.destroy_buffer(self.handle, None);
            self.gpu.device.free_memory(self.memory, None);
        }
    }
}
