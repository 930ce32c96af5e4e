//! Every unsafe query of a device, behind a safe API: devices as plain data.
//!
//! A structure is chained only when the device has the extension or the version that defines it.

use std::ffi::c_void;

use ash::vk;

use crate::vulkan::{Can, HeapBudget, Vulkan, text};

/// One physical device as plain data.
pub(super) struct RawDevice {
    pub(super) properties: vk::PhysicalDeviceProperties,
    pub(super) extra: ExtraProperties,
    pub(super) features: RawFeatures,
    pub(super) memory: vk::PhysicalDeviceMemoryProperties,
    /// Budget and usage per heap.
    pub(super) budget: Option<HeapBudget>,
    pub(super) queues: Vec<vk::QueueFamilyProperties>,
}

/// What properties beyond Vulkan 1.0 say; `None` where the device does not define them.
#[derive(Default)]
pub(super) struct ExtraProperties {
    pub(super) driver: Option<(i32, String, String)>,
    pub(super) uuid: Option<[u8; vk::UUID_SIZE]>,
    /// Domain, bus, device, function.
    pub(super) pci: Option<[u32; 4]>,
    pub(super) max_allocation: Option<u64>,
    pub(super) max_buffer: Option<u64>,
    pub(super) subgroup_size: Option<u32>,
    pub(super) subgroup_range: Option<[u32; 2]>,
    pub(super) int8_dot_accelerated: bool,
}

/// Features by name; false where the device does not define them.
#[derive(Default)]
pub(super) struct RawFeatures {
    pub(super) fp16: bool,
    pub(super) int8: bool,
    pub(super) storage_16bit: bool,
    pub(super) cooperative_matrix: bool,
    pub(super) cooperative_matrix2: bool,
    pub(super) bfloat16: bool,
    pub(super) timeline_semaphore: bool,
}

/// `VkPhysicalDeviceCooperativeMatrix2FeaturesNV` and `VkPhysicalDeviceShaderBfloat16FeaturesKHR`: newer than the
/// bindings. Both are a header followed by 32-bit booleans; `N` is their number.
#[repr(C)]
struct BoolFeatures<const N: usize> {
    s_type: vk::StructureType,
    p_next: *mut c_void,
    values: [vk::Bool32; N],
}

/// Structure type and number of booleans from the Vulkan registry (extension 594).
const COOPERATIVE_MATRIX2: i32 = 1_000_593_000;
/// Structure type from the Vulkan registry (extension 142).
const SHADER_BFLOAT16: i32 = 1_000_141_000;

impl<const N: usize> BoolFeatures<N> {
    fn new(s_type: i32) -> Self {
        Self {
            s_type: vk::StructureType::from_raw(s_type),
            p_next: std::ptr::null_mut(),
            values: [vk::FALSE; N],
        }
    }
}

#[expect(unsafe_code, reason = "a structure the bindings do not have yet")]
// SAFETY: `repr(C)` with `sType` and `pNext` first, as `ptr_chain_iter` and Vulkan require of a chained structure.
unsafe impl<const N: usize> vk::ExtendsPhysicalDeviceFeatures2 for BoolFeatures<N> {}

impl Vulkan {
    /// Every physical device, in Vulkan's order.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(super) fn devices(&self) -> Result<Vec<RawDevice>, String> {
        // SAFETY: the instance is alive.
        let handles = unsafe { self.instance.enumerate_physical_devices() }
            .map_err(|e| format!("vkEnumeratePhysicalDevices: {e}"))?;
        Ok(handles.into_iter().map(|h| self.device(h)).collect())
    }

    #[expect(unsafe_code, reason = "Vulkan calls")]
    fn device(&self, handle: vk::PhysicalDevice) -> RawDevice {
        let vk = &self.instance;
        // SAFETY: `handle` comes from this live instance; these queries have no other preconditions.
        let (properties, memory, queues) = unsafe {
            (
                vk.get_physical_device_properties(handle),
                vk.get_physical_device_memory_properties(handle),
                vk.get_physical_device_queue_family_properties(handle),
            )
        };
        let can = Can::of(self, handle, properties.api_version);
        if can.version < vk::API_VERSION_1_1 {
            return RawDevice {
                properties,
                extra: ExtraProperties::default(),
                features: RawFeatures::default(),
                memory,
                budget: None,
                queues,
            };
        }
        RawDevice {
            properties,
            extra: self.extra_properties(handle, &can),
            features: self.features(handle, &can),
            memory,
            budget: self.heap_budget(handle, &can),
            queues,
        }
    }

    #[expect(unsafe_code, reason = "Vulkan calls")]
    fn extra_properties(&self, handle: vk::PhysicalDevice, can: &Can) -> ExtraProperties {
        let mut id = vk::PhysicalDeviceIDProperties::default();
        let mut maintenance3 = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut subgroup = vk::PhysicalDeviceSubgroupProperties::default();
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut pci = vk::PhysicalDevicePCIBusInfoPropertiesEXT::default();
        let mut maintenance4 = vk::PhysicalDeviceMaintenance4Properties::default();
        let mut sizes = vk::PhysicalDeviceSubgroupSizeControlProperties::default();
        let mut dot = vk::PhysicalDeviceShaderIntegerDotProductProperties::default();
        let has_driver = can.query(vk::API_VERSION_1_2, vk::KHR_DRIVER_PROPERTIES_NAME);
        let has_pci = can.extension(vk::EXT_PCI_BUS_INFO_NAME);
        let has_buffer = can.query(vk::API_VERSION_1_3, vk::KHR_MAINTENANCE4_NAME);
        let has_sizes = can.query(vk::API_VERSION_1_3, vk::EXT_SUBGROUP_SIZE_CONTROL_NAME);
        let has_dot = can.query(vk::API_VERSION_1_3, vk::KHR_SHADER_INTEGER_DOT_PRODUCT_NAME);
        let mut query = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut id)
            .push_next(&mut maintenance3)
            .push_next(&mut subgroup);
        if has_driver {
            query = query.push_next(&mut driver);
        }
        if has_pci {
            query = query.push_next(&mut pci);
        }
        if has_buffer {
            query = query.push_next(&mut maintenance4);
        }
        if has_sizes {
            query = query.push_next(&mut sizes);
        }
        if has_dot {
            query = query.push_next(&mut dot);
        }
        // SAFETY: instance and device are at least 1.1; every chained structure is one this device defines.
        unsafe {
            self.instance
                .get_physical_device_properties2(handle, &mut query);
        }
        ExtraProperties {
            driver: has_driver.then(|| {
                (
                    driver.driver_id.as_raw(),
                    text(driver.driver_name_as_c_str().ok()),
                    text(driver.driver_info_as_c_str().ok()),
                )
            }),
            // All zeros is a driver without one, not a device.
            uuid: Some(id.device_uuid).filter(|u| *u != [0; vk::UUID_SIZE]),
            pci: has_pci.then_some([
                pci.pci_domain,
                pci.pci_bus,
                pci.pci_device,
                pci.pci_function,
            ]),
            max_allocation: Some(maintenance3.max_memory_allocation_size),
            max_buffer: has_buffer.then_some(maintenance4.max_buffer_size),
            subgroup_size: Some(subgroup.subgroup_size),
            subgroup_range: has_sizes.then_some([sizes.min_subgroup_size, sizes.max_subgroup_size]),
            int8_dot_accelerated: has_dot
                && dot.integer_dot_product4x8_bit_packed_signed_accelerated == vk::TRUE,
        }
    }

    #[expect(unsafe_code, reason = "Vulkan calls")]
    fn features(&self, handle: vk::PhysicalDevice, can: &Can) -> RawFeatures {
        let mut storage = vk::PhysicalDevice16BitStorageFeatures::default();
        let mut small = vk::PhysicalDeviceShaderFloat16Int8Features::default();
        let mut timeline = vk::PhysicalDeviceTimelineSemaphoreFeatures::default();
        let mut matrix = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
        let mut matrix2 = BoolFeatures::<7>::new(COOPERATIVE_MATRIX2);
        let mut bfloat16 = BoolFeatures::<3>::new(SHADER_BFLOAT16);
        let mut query = vk::PhysicalDeviceFeatures2::default().push_next(&mut storage);
        if can.query(vk::API_VERSION_1_2, vk::KHR_SHADER_FLOAT16_INT8_NAME) {
            query = query.push_next(&mut small);
        }
        if can.query(vk::API_VERSION_1_2, vk::KHR_TIMELINE_SEMAPHORE_NAME) {
            query = query.push_next(&mut timeline);
        }
        if can.extension(vk::KHR_COOPERATIVE_MATRIX_NAME) {
            query = query.push_next(&mut matrix);
        }
        if can.extension(c"VK_NV_cooperative_matrix2") {
            query = query.push_next(&mut matrix2);
        }
        if can.extension(c"VK_KHR_shader_bfloat16") {
            query = query.push_next(&mut bfloat16);
        }
        // SAFETY: instance and device are at least 1.1; every chained structure is one this device defines.
        unsafe {
            self.instance
                .get_physical_device_features2(handle, &mut query);
        }
        RawFeatures {
            fp16: small.shader_float16 == vk::TRUE,
            int8: small.shader_int8 == vk::TRUE,
            storage_16bit: storage.storage_buffer16_bit_access == vk::TRUE,
            cooperative_matrix: matrix.cooperative_matrix == vk::TRUE,
            // llama.cpp uses it only when every part is there.
            cooperative_matrix2: matrix2.values == [vk::TRUE; 7],
            bfloat16: bfloat16.values[0] == vk::TRUE,
            timeline_semaphore: timeline.timeline_semaphore == vk::TRUE,
        }
    }
}
