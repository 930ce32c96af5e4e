//! Vulkan behind a safe interface, for those who read devices and those who measure them: an instance, devices, buffers,
//! kernels and queues that destroy themselves, in the right order. All unsafe calls of computing are below this module.

mod buffer;
mod device;
mod error;
mod kernel;
mod physical;
mod query;
mod queue;
mod quiet;

use std::collections::BTreeSet;
use std::ffi::CStr;

use ash::vk;

pub(crate) use buffer::{Buffer, Kind};
pub(crate) use device::Gpu;
pub(crate) use error::GpuError;
#[cfg(test)]
pub(crate) use kernel::spirv;
pub(crate) use kernel::{Bound, Kernel, Shader};
#[cfg(test)]
#[cfg(target_os = "linux")]
pub(crate) use physical::Features;
pub(crate) use physical::{Family, Physical, cards};
pub(crate) use query::{Can, HeapBudget};
pub(crate) use queue::Queue;
pub(crate) use quiet::QuietStdout;

/// Why there is no instance.
pub(crate) enum OpenError {
    /// No loader library.
    NoLoader(String),
    /// The loader found no driver to make an instance with.
    NoDriver(String),
}

/// A Vulkan instance without layers of its own; destroyed when dropped, before the loader is unloaded.
pub(crate) struct Vulkan {
    /// The instance itself, for queries and devices; what is made from it must not outlive it.
    pub(crate) instance: ash::Instance,
    /// What the loader supports.
    pub(crate) version: u32,
    /// Keeps the loader's library mapped while `instance` lives.
    _entry: ash::Entry,
}

impl Vulkan {
    /// Loads the loader and makes an instance.
    #[expect(unsafe_code, reason = "the loader is a C library")]
    pub(crate) fn open() -> Result<Self, OpenError> {
        // SAFETY: loading runs the library's initialisers; it is the system's Vulkan loader.
        let entry =
            unsafe { ash::Entry::load() }.map_err(|e| OpenError::NoLoader(e.to_string()))?;
        // SAFETY: no preconditions.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .ok()
            .flatten()
            .unwrap_or(vk::API_VERSION_1_0);
        let application = vk::ApplicationInfo::default()
            .application_name(c"flux")
            // A 1.0 loader refuses any other number.
            .api_version(if version >= vk::API_VERSION_1_1 {
                vk::API_VERSION_1_3
            } else {
                vk::API_VERSION_1_0
            });
        // MoltenVK is listed only to those who ask for non-conformant devices.
        let portability = vk::KHR_PORTABILITY_ENUMERATION_NAME;
        let extensions = if cfg!(target_os = "macos") && has_extension(&entry, portability) {
            vec![portability.as_ptr()]
        } else {
            Vec::new()
        };
        let flags = if extensions.is_empty() {
            vk::InstanceCreateFlags::empty()
        } else {
            vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR
        };
        let info = vk::InstanceCreateInfo::default()
            .application_info(&application)
            .enabled_extension_names(&extensions)
            .flags(flags);
        // SAFETY: `info` and all it points to live until the call returns; the instance is destroyed in `drop`.
        let instance = unsafe { entry.create_instance(&info, None) }
            .map_err(|e| OpenError::NoDriver(format!("vkCreateInstance: {e}")))?;
        Ok(Self {
            instance,
            version,
            _entry: entry,
        })
    }
}

impl Drop for Vulkan {
    #[expect(unsafe_code, reason = "the end of the instance")]
    fn drop(&mut self) {
        // SAFETY: nothing made from the instance outlives this value, and it is destroyed once.
        unsafe { self.instance.destroy_instance(None) };
    }
}

/// Names of extensions.
pub(crate) fn extension_names(list: &[vk::ExtensionProperties]) -> BTreeSet<String> {
    list.iter()
        .map(|e| text(e.extension_name_as_c_str().ok()))
        .collect()
}

#[expect(unsafe_code, reason = "Vulkan calls")]
fn has_extension(entry: &ash::Entry, name: &CStr) -> bool {
    // SAFETY: no layer name is given; no other preconditions.
    let listed = unsafe { entry.enumerate_instance_extension_properties(None) };
    let wanted = text(Some(name));
    listed.is_ok_and(|list| extension_names(&list).contains(&wanted))
}

/// Text of a driver.
pub(crate) fn text(c: Option<&CStr>) -> String {
    c.map(|c| c.to_string_lossy().into_owned())
        .unwrap_or_default()
}
