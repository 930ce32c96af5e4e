//! A queue with clocks around what is submitted to it. A submission is waited for before its call returns.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ash::vk;

use super::buffer::Buffer;
use super::device::{Device, Gpu};
use super::error::{GpuError, Named};
use super::kernel::Bound;
use super::physical::Family;

/// A submission is given up after so long: drivers reset a device that hangs after two seconds on a desktop, and what is
/// submitted here takes a fraction of one. A software renderer on a loaded machine is slower than any of that.
const GIVE_UP: Duration = Duration::from_secs(20);
/// Nanoseconds in a second.
const NANOS: f64 = 1e9;

/// How long a submission took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Timing {
    /// Seconds from handing it over to knowing that it was done.
    pub(crate) host_secs: f64,
    /// Seconds by the device's own clock, from before the first command to after the last; `None` without one, or where
    /// it stood still.
    pub(crate) device_secs: Option<f64>,
}

impl Timing {
    /// The device's own time where it keeps one.
    pub(crate) fn best(&self) -> f64 {
        self.device_secs.unwrap_or(self.host_secs)
    }
}

/// One queue, used by one thread.
pub(crate) struct Queue {
    device: Rc<Device>,
    handle: vk::Queue,
    pool: vk::CommandPool,
    commands: Vec<vk::CommandBuffer>,
    fence: vk::Fence,
    /// Two timestamps; null where the queue has none.
    clock: vk::QueryPool,
    /// Keeps the high bits of a timestamp that do not count out.
    timestamp_mask: u64,
    timestamp_period: f32,
}

impl Queue {
    /// The queue of a family that the device was opened with.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(crate) fn new(gpu: &Gpu, family: &Family) -> Result<Self, GpuError> {
        let raw = &gpu.device.raw;
        // SAFETY: one queue of this family was asked for.
        let handle = unsafe { raw.get_device_queue(family.index, 0) };
        let mut queue = Self {
            device: Rc::clone(&gpu.device),
            handle,
            pool: vk::CommandPool::null(),
            commands: Vec::new(),
            fence: vk::Fence::null(),
            clock: vk::QueryPool::null(),
            timestamp_mask: u64::MAX >> (u64::BITS - family.timestamp_bits.clamp(1, u64::BITS)),
            timestamp_period: gpu.physical.timestamp_period,
        };
        let pool = vk::CommandPoolCreateInfo::default()
            .queue_family_index(family.index)
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER);
        // SAFETY: the device is alive; what is made here is destroyed in `drop`, also when a later call fails.
        unsafe {
            queue.pool = raw
                .create_command_pool(&pool, None)
                .named("vkCreateCommandPool")?;
            queue.fence = raw
                .create_fence(&vk::FenceCreateInfo::default(), None)
                .named("vkCreateFence")?;
            if family.timestamp_bits > 0 {
                let queries = vk::QueryPoolCreateInfo::default()
                    .query_type(vk::QueryType::TIMESTAMP)
                    .query_count(2);
                queue.clock = raw
                    .create_query_pool(&queries, None)
                    .named("vkCreateQueryPool")?;
            }
        }
        Ok(queue)
    }

    /// The device measures its own time.
    pub(crate) fn has_timestamps(&self) -> bool {
        self.clock != vk::QueryPool::null()
    }

    /// Records, submits once, waits.
    pub(crate) fn submit<'r>(
        &mut self,
        record: impl FnOnce(&mut Recorder<'_, 'r>),
    ) -> Result<Timing, GpuError> {
        let mut record = Some(record);
        self.submit_each(1, |recorder, _| {
            if let Some(record) = record.take() {
                record(recorder);
            }
        })
    }

    /// Records `submissions` command buffers, hands each over by a submission of its own, and waits for the last. What the
    /// commands use outlives this call by `'r`.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(crate) fn submit_each<'r>(
        &mut self,
        submissions: u32,
        mut record: impl FnMut(&mut Recorder<'_, 'r>, u32),
    ) -> Result<Timing, GpuError> {
        self.grow(submissions as usize)?;
        let device = Rc::clone(&self.device);
        let raw = &device.raw;
        for at in 0..submissions {
            self.record(at, submissions, |recorder| record(recorder, at))?;
        }
        #[cfg(test)]
        if let Some(result) = device.fails.take() {
            return Err(GpuError::of("vkQueueSubmit", result));
        }
        let start = Instant::now();
        // SAFETY: every command buffer is recorded and in no submission: the last ones were waited for. So is the fence.
        unsafe {
            for (at, commands) in (1..).zip(&self.commands[..submissions as usize]) {
                let buffers = [*commands];
                let work = [vk::SubmitInfo::default().command_buffers(&buffers)];
                let fence = if at == submissions {
                    self.fence
                } else {
                    vk::Fence::null()
                };
                raw.queue_submit(self.handle, &work, fence)
                    .named("vkQueueSubmit")
                    .inspect_err(|_| abandon(&device, at > 1))?;
            }
            let limit = u64::try_from(GIVE_UP.as_nanos()).unwrap_or(u64::MAX);
            match raw.wait_for_fences(&[self.fence], true, limit) {
                Err(vk::Result::TIMEOUT) => {
                    device.hang();
                    return Err(GpuError::Timeout(GIVE_UP.as_secs()));
                }
                waited => waited.named("vkWaitForFences")?,
            }
        }
        let host_secs = start.elapsed().as_secs_f64();
        // SAFETY: the fence is signalled and in no submission.
        unsafe { raw.reset_fences(&[self.fence]) }.named("vkResetFences")?;
        Ok(Timing {
            host_secs,
            device_secs: self.device_secs()?,
        })
    }

    #[expect(unsafe_code, reason = "Vulkan calls")]
    fn grow(&mut self, to: usize) -> Result<(), GpuError> {
        let missing = to.saturating_sub(self.commands.len());
        if missing > 0 {
            let info = vk::CommandBufferAllocateInfo::default()
                .command_pool(self.pool)
                .command_buffer_count(missing as u32);
            // SAFETY: the pool is alive; the buffers go with it.
            let made = unsafe { self.device.raw.allocate_command_buffers(&info) }
                .named("vkAllocateCommandBuffers")?;
            self.commands.extend(made);
        }
        Ok(())
    }

    /// Records command buffer `at` of `of`: the clock starts in the first and stops in the last.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    fn record<'r>(
        &self,
        at: u32,
        of: u32,
        record: impl FnOnce(&mut Recorder<'_, 'r>),
    ) -> Result<(), GpuError> {
        let (raw, commands) = (&self.device.raw, self.commands[at as usize]);
        let begin = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        let mut recorder = Recorder {
            device: &self.device,
            commands,
            lives: std::marker::PhantomData,
        };
        // SAFETY: the command buffer and the queries are in no submission; commands are outside of a render pass.
        unsafe {
            raw.begin_command_buffer(commands, &begin)
                .named("vkBeginCommandBuffer")?;
            if at == 0 {
                // What earlier submissions wrote is done by their fence; this makes it visible.
                recorder.barrier();
                if self.has_timestamps() {
                    raw.cmd_reset_query_pool(commands, self.clock, 0, 2);
                    let top = vk::PipelineStageFlags::TOP_OF_PIPE;
                    raw.cmd_write_timestamp(commands, top, self.clock, 0);
                }
            }
            record(&mut recorder);
            if at + 1 == of {
                if self.has_timestamps() {
                    let bottom = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
                    raw.cmd_write_timestamp(commands, bottom, self.clock, 1);
                }
                recorder.host_barrier();
            }
            raw.end_command_buffer(commands).named("vkEndCommandBuffer")
        }
    }

    /// Seconds between the two timestamps.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    fn device_secs(&self) -> Result<Option<f64>, GpuError> {
        if !self.has_timestamps() {
            return Ok(None);
        }
        let mut stamps = [0u64; 2];
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: both queries were written by the submission that was waited for.
        unsafe {
            self.device
                .raw
                .get_query_pool_results(self.clock, 0, &mut stamps, flags)
        }
        .named("vkGetQueryPoolResults")?;
        let secs = elapsed(stamps, self.timestamp_mask, self.timestamp_period);
        Ok((secs > 0.0).then_some(secs))
    }
}

/// Waits for what was handed over before a submission failed: nothing it uses may be freed earlier.
#[expect(unsafe_code, reason = "Vulkan calls")]
fn abandon(device: &Device, is_under_way: bool) {
    if is_under_way {
        // SAFETY: the device is alive; the queue is used by this thread alone. A lost device answers at once.
        let _ = unsafe { device.raw.device_wait_idle() };
    }
}

/// Seconds between two timestamps of which only the bits of `mask` count: the counter may wrap in between.
fn elapsed(stamps: [u64; 2], mask: u64, period_ns: f32) -> f64 {
    let steps = stamps[1].wrapping_sub(stamps[0]) & mask;
    steps as f64 * f64::from(period_ns) / NANOS
}

impl Drop for Queue {
    #[expect(unsafe_code, reason = "the end of the queue's own")]
    fn drop(&mut self) {
        if self.device.is_hung() {
            return;
        }
        let raw = &self.device.raw;
        // SAFETY: every submission was waited for; null handles are ignored, each is destroyed once.
        unsafe {
            raw.destroy_query_pool(self.clock, None);
            raw.destroy_fence(self.fence, None);
            raw.destroy_command_pool(self.pool, None);
        }
    }
}

/// Commands being recorded; what they use lives for `'r`.
pub(crate) struct Recorder<'a, 'r> {
    device: &'a Device,
    commands: vk::CommandBuffer,
    lives: std::marker::PhantomData<&'r Buffer>,
}

impl<'r> Recorder<'_, 'r> {
    /// Runs a kernel in so many work groups.
    ///
    /// # Panics
    /// Another number of immediates than the shader has.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(crate) fn dispatch(&mut self, bound: &'r Bound<'_>, immediates: &[u32], groups: u32) {
        let kernel = bound.kernel;
        assert_eq!(immediates.len(), kernel.immediates as usize);
        let raw = &self.device.raw;
        let bytes: Vec<u8> = immediates.iter().flat_map(|w| w.to_ne_bytes()).collect();
        // SAFETY: `commands` is being recorded; the pipeline, its layout and the set belong together and outlive the
        // submission.
        unsafe {
            let compute = vk::PipelineBindPoint::COMPUTE;
            raw.cmd_bind_pipeline(self.commands, compute, kernel.pipeline);
            raw.cmd_bind_descriptor_sets(
                self.commands,
                compute,
                kernel.pipeline_layout,
                0,
                &[bound.set],
                &[],
            );
            if !bytes.is_empty() {
                raw.cmd_push_constants(
                    self.commands,
                    kernel.pipeline_layout,
                    vk::ShaderStageFlags::COMPUTE,
                    0,
                    &bytes,
                );
            }
            raw.cmd_dispatch(self.commands, groups, 1, 1);
        }
    }

    /// Copies `bytes` from the offset `from.1` of one buffer to the offset `to.1` of another, or of the same where the two
    /// parts do not overlap.
    ///
    /// # Panics
    /// A part is outside of its buffer, or the two overlap.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(crate) fn copy(&mut self, from: (&'r Buffer, u64), to: (&'r Buffer, u64), bytes: u64) {
        let ((source, read), (target, write)) = (from, to);
        assert!(read + bytes <= source.size && write + bytes <= target.size);
        assert!(source.handle != target.handle || read.abs_diff(write) >= bytes);
        let region = [vk::BufferCopy::default()
            .src_offset(read)
            .dst_offset(write)
            .size(bytes)];
        // SAFETY: `commands` is being recorded on the buffers' device; the regions lie in them and do not overlap.
        unsafe {
            self.device
                .raw
                .cmd_copy_buffer(self.commands, source.handle, target.handle, &region);
        }
    }

    /// Writes a word all over a buffer.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(crate) fn fill(&mut self, buffer: &'r Buffer, word: u32) {
        // SAFETY: the whole buffer, which may be written by transfers; its size is a multiple of four.
        unsafe {
            self.device
                .raw
                .cmd_fill_buffer(self.commands, buffer.handle, 0, buffer.size, word);
        }
    }

    /// What was recorded before is done and seen by what comes after.
    pub(crate) fn barrier(&mut self) {
        type Stage = vk::PipelineStageFlags;
        type Access = vk::AccessFlags;
        let stages = Stage::COMPUTE_SHADER | Stage::TRANSFER;
        let writes = Access::SHADER_WRITE | Access::TRANSFER_WRITE;
        let reads = Access::SHADER_READ | Access::TRANSFER_READ;
        self.order((stages, writes), (stages, writes | reads));
    }

    /// Makes what was written visible to the host.
    fn host_barrier(&mut self) {
        type Stage = vk::PipelineStageFlags;
        type Access = vk::AccessFlags;
        let writes = Access::SHADER_WRITE | Access::TRANSFER_WRITE;
        self.order(
            (Stage::COMPUTE_SHADER | Stage::TRANSFER, writes),
            (Stage::HOST, Access::HOST_READ),
        );
    }

    #[expect(unsafe_code, reason = "Vulkan calls")]
    fn order(
        &mut self,
        first: (vk::PipelineStageFlags, vk::AccessFlags),
        then: (vk::PipelineStageFlags, vk::AccessFlags),
    ) {
        let memory = [vk::MemoryBarrier::default()
            .src_access_mask(first.1)
            .dst_access_mask(then.1)];
        // SAFETY: `commands` is being recorded on this device, outside of a render pass.
        unsafe {
            self.device.raw.cmd_pipeline_barrier(
                self.commands,
                first.0,
                then.0,
                vk::DependencyFlags::empty(),
                &memory,
                &[],
                &[],
            );
        }
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "whole numbers of nanoseconds")]
mod tests {
    use super::*;

    /// 36 bits that wrap after 2³⁶ steps of 2 ns: from the last step but one to step 8 there are ten.
    #[test]
    fn only_valid_bits_of_a_timestamp_count() {
        let mask = u64::MAX >> 28;
        let garbage = 0xabc << 36;
        assert_eq!(elapsed([mask - 1, garbage | 8], mask, 2.0), 20e-9);
        assert_eq!(elapsed([5, 5], mask, 2.0), 0.0);
    }
}
