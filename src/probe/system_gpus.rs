//! GPUs as Linux lists them on PCI: what Vulkan cannot say (subsystem, revision, kernel driver), and GPUs without a
//! Vulkan driver. Empty on other systems.

use std::fs;
use std::path::Path;

use crate::domain::machine::{VENDOR_AMD, VENDOR_NVIDIA};
use crate::domain::types::{Bytes, SystemGpu};

use crate::system_root::{SystemRoot, file_name, read_number};

use super::sources::NVML;

/// PCI base class of display controllers.
const CLASS_DISPLAY: u64 = 0x03;
/// Start of the file's name that NVML's links lead to; its end is the version.
const NVML_FILE: &str = "libnvidia-ml.so.";
/// PCI base class of processing accelerators: what AMD's Instinct cards call themselves.
const CLASS_ACCELERATOR: u64 = 0x12;

/// Every GPU below `sys/bus/pci/devices`, in address order.
pub(super) fn system_gpus(root: &SystemRoot) -> Vec<SystemGpu> {
    root.list("sys/bus/pci/devices")
        .iter()
        .filter_map(|dir| gpu(root, dir))
        .collect()
}

fn gpu(root: &SystemRoot, dir: &Path) -> Option<SystemGpu> {
    let number = |name: &str| read_number(&dir.join(name));
    let id = |name: &str| number(name).and_then(|n| u32::try_from(n).ok());
    let vendor_id = id("vendor")?;
    let base_class = number("class")? >> 16;
    let accelerator = base_class == CLASS_ACCELERATOR && vendor_id == VENDOR_AMD;
    if base_class != CLASS_DISPLAY && !accelerator {
        return None;
    }
    let kernel_driver = fs::read_link(dir.join("driver"))
        .ok()
        .map(|link| file_name(&link));
    let driver_version = kernel_driver
        .as_ref()
        .and_then(|name| root.read(&format!("sys/module/{name}/version")));
    let pending_driver = driver_version
        .as_ref()
        .filter(|_| vendor_id == VENDOR_NVIDIA)
        .and_then(|running| pending(root, running));
    Some(SystemGpu {
        pci: file_name(dir).parse().ok()?,
        vendor_id,
        device_id: id("device")?,
        subsystem: id("subsystem_vendor")
            .zip(id("subsystem_device"))
            .map(|(vendor, device)| [vendor, device]),
        revision: id("revision"),
        driver_version,
        pending_driver,
        kernel_driver,
        vram: number("mem_info_vram_total").map(Bytes),
    })
}

/// Version of NVIDIA's libraries, where none of those found is of the driver that runs. They must be of one version.
fn pending(root: &SystemRoot, running: &str) -> Option<String> {
    let versions: Vec<String> = NVML
        .iter()
        .filter_map(|path| fs::canonicalize(root.path(path)).ok())
        .filter_map(|file| Some(file_name(&file).strip_prefix(NVML_FILE)?.to_owned()))
        .filter(|version| version.contains('.'))
        .collect();
    let fits = versions.iter().any(|version| version == running);
    versions.into_iter().next().filter(|_| !fits)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn write(dir: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(dir).unwrap();
        for (name, text) in files {
            fs::write(dir.join(name), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn reads_display_devices_with_their_driver_and_skips_the_rest() {
        let tree = tempfile::tempdir().unwrap();
        let devices = tree.path().join("sys/bus/pci/devices");
        write(
            &devices.join("0000:01:00.0"),
            &[
                ("class", "0x030000"),
                ("vendor", "0x1002"),
                ("device", "0x6fdf"),
                ("subsystem_vendor", "0x1da2"),
                ("subsystem_device", "0xe366"),
                ("revision", "0xef"),
                ("mem_info_vram_total", "8589934592"),
            ],
        );
        std::os::unix::fs::symlink(
            "../../../../bus/pci/drivers/amdgpu",
            devices.join("0000:01:00.0/driver"),
        )
        .unwrap();
        write(
            &devices.join("0000:02:00.0"),
            &[
                ("class", "0x030200"),
                ("vendor", "0x10de"),
                ("device", "0x2335"),
            ],
        );
        write(
            &devices.join("0000:00:1f.0"),
            &[
                ("class", "0x060100"),
                ("vendor", "0x8086"),
                ("device", "0x1"),
            ],
        );
        let found = system_gpus(&SystemRoot::at(tree.path()));
        assert_eq!(found.len(), 2);
        let card = &found[0];
        assert_eq!(card.pci.to_string(), "0000:01:00.0");
        assert_eq!((card.vendor_id, card.device_id), (0x1002, 0x6fdf));
        assert_eq!(card.subsystem, Some([0x1da2, 0xe366]));
        assert_eq!(card.revision, Some(0xef));
        assert_eq!(card.kernel_driver.as_deref(), Some("amdgpu"));
        assert_eq!(card.vram, Some(Bytes::gib(8)));
        assert_eq!((found[1].vram, found[1].subsystem), (None, None));
    }

    #[test]
    fn c25_libraries_of_another_version_than_the_driver_that_runs_are_told() {
        let tree = tempfile::tempdir().unwrap();
        let device = tree.path().join("sys/bus/pci/devices/0000:01:00.0");
        let ids = [
            ("class", "0x030000"),
            ("vendor", "0x10de"),
            ("device", "0x2684"),
        ];
        write(&device, &ids);
        std::os::unix::fs::symlink("../../../../bus/pci/drivers/nvidia", device.join("driver"))
            .unwrap();
        write(
            &tree.path().join("sys/module/nvidia"),
            &[("version", "580.159.04")],
        );
        let pending = || {
            let found = system_gpus(&SystemRoot::at(tree.path()));
            found[0].pending_driver.clone()
        };
        assert_eq!(pending(), None, "no library, as in a container without one");
        let library = |dir: &str, version: &str| {
            let dir = tree.path().join(dir);
            let file = format!("libnvidia-ml.so.{version}");
            write(&dir, &[(file.as_str(), "")]);
            std::os::unix::fs::symlink(file, dir.join("libnvidia-ml.so.1")).unwrap();
        };
        library("usr/lib64", "590.44.01");
        assert_eq!(pending().as_deref(), Some("590.44.01"));
        // A left-over of another version beside the one in use is none.
        library("usr/lib", "580.159.04");
        assert_eq!(pending(), None);
    }
}
