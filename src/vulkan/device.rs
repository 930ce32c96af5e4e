//! A logical device. What is made on it keeps it alive; the last one to go destroys it.

use std::cell::Cell;
use std::rc::Rc;

use ash::vk;

use super::Vulkan;
use super::error::{GpuError, Named};
use super::physical::Physical;

/// The device itself.
pub(super) struct Device {
    pub(super) raw: ash::Device,
    /// A submission did not end in time: nothing it may still use is ever freed, the process's end does that.
    hung: Cell<bool>,
    #[cfg(test)]
    pub(super) fails: Cell<Option<vk::Result>>,
    /// The instance outlives what is made from it.
    _vulkan: Rc<Vulkan>,
}

impl Device {
    pub(super) fn is_hung(&self) -> bool {
        self.hung.get()
    }

    pub(super) fn hang(&self) {
        self.hung.set(true);
    }
}

impl Drop for Device {
    #[expect(unsafe_code, reason = "the end of the device")]
    fn drop(&mut self) {
        if self.is_hung() {
            return;
        }
        // SAFETY: whatever is made from the device holds it, so nothing is left; it is destroyed once. A lost device ends
        // its wait with an error, and may be destroyed.
        unsafe {
            let _ = self.raw.device_wait_idle();
            self.raw.destroy_device(None);
        }
    }
}

/// A device at work, with one queue of each family asked for.
pub(crate) struct Gpu {
    pub(super) device: Rc<Device>,
    pub(crate) physical: Rc<Physical>,
}

impl Gpu {
    /// Opens a device with a queue of each of these families, and all of its features that Flux's shaders use.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(crate) fn open(
        vulkan: &Rc<Vulkan>,
        of: Rc<Physical>,
        families: &[u32],
    ) -> Result<Self, GpuError> {
        let queues: Vec<_> = families
            .iter()
            .map(|family| {
                vk::DeviceQueueCreateInfo::default()
                    .queue_family_index(*family)
                    .queue_priorities(&[1.0])
            })
            .collect();
        // A device that has this extension must be asked for it (VUID-VkDeviceCreateInfo-pProperties-04451).
        let extensions = if of.needs_portability {
            vec![vk::KHR_PORTABILITY_SUBSET_NAME.as_ptr()]
        } else {
            Vec::new()
        };
        let mut storage = vk::PhysicalDevice16BitStorageFeatures::default()
            .storage_buffer16_bit_access(true)
            .uniform_and_storage_buffer16_bit_access(true);
        let mut small = vk::PhysicalDeviceShaderFloat16Int8Features::default().shader_float16(true);
        let mut info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions);
        if of.features.f16 {
            info = info.push_next(&mut storage).push_next(&mut small);
        }
        // SAFETY: the handle comes from this instance, the families exist, the features are the device's, and all that
        // `info` points to lives until the call returns; the device is destroyed when its last user is dropped.
        let raw = unsafe { vulkan.instance.create_device(of.handle, &info, None) }
            .named("vkCreateDevice")?;
        Ok(Self {
            device: Rc::new(Device {
                raw,
                hung: Cell::new(false),
                #[cfg(test)]
                fails: Cell::new(None),
                _vulkan: Rc::clone(vulkan),
            }),
            physical: of,
        })
    }

    /// The next submission answers this instead of being made.
    #[cfg(test)]
    #[cfg(target_os = "linux")]
    pub(crate) fn fail_next(&self, with: vk::Result) {
        self.device.fails.set(Some(with));
    }
}
