//! Numbers Vulkan leaves to the vendor, in words: driver versions, driver ids, queue flags.

use ash::vk;

/// PCI vendor id of NVIDIA.
const NVIDIA: u32 = 0x10de;

/// `driverVersion` by the rule of the driver that wrote it.
pub(super) fn driver_version(vendor: u32, driver_id: i32, raw: u32) -> String {
    match vk::DriverId::from_raw(driver_id) {
        vk::DriverId::NVIDIA_PROPRIETARY => nvidia(raw),
        // Drivers older than VK_KHR_driver_properties: NVIDIA's own driver was the only one for NVIDIA then.
        _ if driver_id == 0 && vendor == NVIDIA => nvidia(raw),
        vk::DriverId::INTEL_PROPRIETARY_WINDOWS => format!("{}.{}", raw >> 14, raw & 0x3fff),
        _ => api_version(raw),
    }
}

/// 10.8.8.6 bits, written as NVIDIA does: `550.78`, `535.54.03`.
fn nvidia(raw: u32) -> String {
    let [major, minor, sub, patch] = [raw >> 22, (raw >> 14) & 0xff, (raw >> 6) & 0xff, raw & 0x3f];
    match (sub, patch) {
        (0, 0) => format!("{major}.{minor:02}"),
        (_, 0) => format!("{major}.{minor:02}.{sub:02}"),
        _ => format!("{major}.{minor:02}.{sub:02}.{patch:02}"),
    }
}

/// Vulkan's own 10.10.12 bits.
pub(super) fn api_version(raw: u32) -> String {
    format!(
        "{}.{}.{}",
        vk::api_version_major(raw),
        vk::api_version_minor(raw),
        vk::api_version_patch(raw)
    )
}

/// `VkDriverId` in the registry's words.
pub(super) fn driver_id_name(id: i32) -> String {
    /// Newer than the bindings.
    const NEWER: [(i32, &str); 2] = [
        (27, "MESA_HONEYKRISP"),
        (28, "VULKAN_SC_EMULATION_ON_VULKAN"),
    ];
    match NEWER.iter().find(|(n, _)| *n == id) {
        Some((_, name)) => (*name).to_owned(),
        None if id == 0 => "unknown".to_owned(),
        None => format!("{:?}", vk::DriverId::from_raw(id)),
    }
}

/// Queue flags in words, in Vulkan's bit order.
pub(super) fn queue_flags(flags: vk::QueueFlags) -> Vec<String> {
    const WORDS: [(vk::QueueFlags, &str); 8] = [
        (vk::QueueFlags::GRAPHICS, "graphics"),
        (vk::QueueFlags::COMPUTE, "compute"),
        (vk::QueueFlags::TRANSFER, "transfer"),
        (vk::QueueFlags::SPARSE_BINDING, "sparse"),
        (vk::QueueFlags::PROTECTED, "protected"),
        (vk::QueueFlags::VIDEO_DECODE_KHR, "video-decode"),
        (vk::QueueFlags::VIDEO_ENCODE_KHR, "video-encode"),
        (vk::QueueFlags::OPTICAL_FLOW_NV, "optical-flow"),
    ];
    WORDS
        .iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .map(|(_, word)| (*word).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_versions_follow_the_vendor() {
        // An H200's 2435301632 is driver 580.159.04 (its own driverInfo).
        assert_eq!(driver_version(0x10de, 4, 2_435_301_632), "580.159.04");
        assert_eq!(driver_version(0x10de, 4, 550 << 22 | 78 << 14), "550.78");
        assert_eq!(driver_version(0x10de, 0, 546 << 22 | 1 << 14), "546.01");
        // NVK is Mesa's: the standard encoding.
        assert_eq!(driver_version(0x10de, 24, 25 << 22 | 2 << 12 | 1), "25.2.1");
        // Intel on Windows: 101.5590.
        assert_eq!(driver_version(0x8086, 5, (101 << 14) + 5590), "101.5590");
        assert_eq!(driver_version(0x8086, 6, 24 << 22 | 2 << 12 | 8), "24.2.8");
        // AMD's own driver: 2.0.233.
        assert_eq!(driver_version(0x1002, 1, (2 << 22) + 233), "2.0.233");
    }

    #[test]
    fn ids_and_flags_read_as_the_registry_writes_them() {
        assert_eq!(driver_id_name(3), "MESA_RADV");
        assert_eq!(driver_id_name(23), "MESA_DOZEN");
        assert_eq!(driver_id_name(0), "unknown");
        assert_eq!(
            queue_flags(vk::QueueFlags::TRANSFER | vk::QueueFlags::COMPUTE),
            ["compute", "transfer"]
        );
    }
}
