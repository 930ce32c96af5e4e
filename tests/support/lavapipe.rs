//! Mesa's software Vulkan driver.

use std::fs;
use std::path::PathBuf;

/// Its manifest.
pub fn driver() -> PathBuf {
    ["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"]
        .iter()
        .flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .find(|p| {
            p.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("lvp_icd")
        })
        .expect("lavapipe is needed: apt-get install mesa-vulkan-drivers libvulkan1")
}
