//! When the devices that a build lists may have changed although the build has not.

use std::fs;

use crate::runtime::digest;

/// What the devices a build lists depend on beside its own files: drivers, and variables that choose among them.
/// Empty where the system does not say.
pub(in crate::runtime) fn driver_stamp() -> String {
    const FILES: [&str; 3] = [
        "/proc/driver/nvidia/version",
        "/sys/module/amdgpu/version",
        "/proc/version",
    ];
    const FOLDERS: [&str; 4] = [
        "/usr/share/vulkan/icd.d",
        "/usr/local/share/vulkan/icd.d",
        "/etc/vulkan/icd.d",
        "/dev/dri",
    ];
    const VARIABLES: [&str; 5] = [
        "VK_DRIVER_FILES",
        "VK_ICD_FILENAMES",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "LD_LIBRARY_PATH",
    ];
    let mut parts = Vec::new();
    for file in FILES {
        parts.push(fs::read_to_string(file).unwrap_or_default());
    }
    for folder in FOLDERS {
        let mut names: Vec<_> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name())
            .collect();
        names.sort();
        parts.push(format!("{names:?}"));
    }
    for variable in VARIABLES {
        parts.push(format!("{:?}", std::env::var_os(variable)));
    }
    digest::text_digest(&parts.join("\n"))
}
