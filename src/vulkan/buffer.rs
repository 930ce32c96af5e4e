//! A buffer with memory of its own.

use std::rc::Rc;

use ash::vk;

use super::device::{Device, Gpu};
use super::error::{GpuError, Named};

/// Where a buffer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
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

/// A buffer for copies and kernels; freed when dropped.
pub(crate) struct Buffer {
    device: Rc<Device>,
    pub(super) handle: vk::Buffer,
    memory: vk::DeviceMemory,
    pub(super) size: u64,
    kind: Kind,
}

impl Buffer {
    /// A buffer of `size` bytes, a multiple of four; its content is undefined.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(crate) fn new(gpu: &Gpu, kind: Kind, size: u64) -> Result<Self, GpuError> {
        if size == 0 {
            return Err(GpuError::OutOfDeviceMemory("a buffer"));
        }
        let device = &gpu.device;
        let info = vk::BufferCreateInfo::default().size(size).usage(
            vk::BufferUsageFlags::TRANSFER_SRC
                | vk::BufferUsageFlags::TRANSFER_DST
                | vk::BufferUsageFlags::STORAGE_BUFFER,
        );
        // SAFETY: the device is alive, the size is not zero; the buffer is destroyed in `drop`.
        let handle = unsafe { device.raw.create_buffer(&info, None) }.named("vkCreateBuffer")?;
        let mut buffer = Self {
            device: Rc::clone(device),
            handle,
            memory: vk::DeviceMemory::null(),
            size,
            kind,
        };
        // SAFETY: the buffer belongs to this device.
        let needs = unsafe { device.raw.get_buffer_memory_requirements(handle) };
        let memory_type = gpu
            .physical
            .memory_type(kind, needs.memory_type_bits)
            .ok_or(GpuError::Missing("memory for such a buffer"))?;
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(memory_type);
        // SAFETY: the memory type exists and suits the buffer, which is bound once; both are freed in `drop`.
        unsafe {
            buffer.memory = device
                .raw
                .allocate_memory(&info, None)
                .named("vkAllocateMemory")?;
            device
                .raw
                .bind_buffer_memory(handle, buffer.memory, 0)
                .named("vkBindBufferMemory")?;
        }
        Ok(buffer)
    }

    /// Writes `bytes` to its beginning, from the host.
    ///
    /// # Panics
    /// It is not the host's, or smaller.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), GpuError> {
        assert!(self.kind == Kind::Upload && bytes.len() as u64 <= self.size);
        let range = self.whole();
        // SAFETY: the memory is host-visible, not mapped, and holds `bytes`; no submission is under way, for each is
        // waited for before its call returns.
        unsafe {
            let at = self.map()?;
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
            let flushed = self.device.raw.flush_mapped_memory_ranges(&[range]);
            self.device.raw.unmap_memory(self.memory);
            flushed.named("vkFlushMappedMemoryRanges")
        }
    }

    /// Its first `length` bytes, read by the host.
    ///
    /// # Panics
    /// It is not the host's, or smaller.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(crate) fn read(&self, length: usize) -> Result<Vec<u8>, GpuError> {
        assert!(self.kind == Kind::Download && length as u64 <= self.size);
        let mut bytes = vec![0; length];
        // SAFETY: as in `write`; the submission that wrote the memory ended with a barrier to the host.
        unsafe {
            let at = self.map()?;
            let seen = self
                .device
                .raw
                .invalidate_mapped_memory_ranges(&[self.whole()]);
            std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), length);
            self.device.raw.unmap_memory(self.memory);
            seen.named("vkInvalidateMappedMemoryRanges")?;
        }
        Ok(bytes)
    }

    fn whole(&self) -> vk::MappedMemoryRange<'static> {
        vk::MappedMemoryRange::default()
            .memory(self.memory)
            .size(vk::WHOLE_SIZE)
    }

    #[expect(unsafe_code, reason = "Vulkan calls")]
    fn map(&self) -> Result<*mut u8, GpuError> {
        let flags = vk::MemoryMapFlags::empty();
        // SAFETY: the memory is host-visible, and unmapped by whoever mapped it.
        unsafe {
            self.device
                .raw
                .map_memory(self.memory, 0, vk::WHOLE_SIZE, flags)
        }
        .map(<*mut _>::cast)
        .named("vkMapMemory")
    }
}

impl Drop for Buffer {
    #[expect(unsafe_code, reason = "the end of the buffer")]
    fn drop(&mut self) {
        if self.device.is_hung() {
            return;
        }
        // SAFETY: every submission that used it was waited for (or its device is lost); null memory is ignored.
        unsafe {
            self.device.raw.destroy_buffer(self.handle, None);
            self.device.raw.free_memory(self.memory, None);
        }
    }
}
