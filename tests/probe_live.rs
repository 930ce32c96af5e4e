//! The real probe against the real loader and Mesa's lavapipe, which every test machine has (`mesa-vulkan-drivers`).
//!
//! The loader reads its environment, so each case runs this test binary again as a child with its own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/lavapipe.rs"]
mod lavapipe;

use std::path::Path;
use std::process::{Command, Output};

use flux::domain::machine::{default_gpu, gpus, no_gpu};
use flux::domain::types::{DeviceKind, Machine, VulkanStatus};
use flux::ports::MachineProbe as _;
use flux::probe::MachineReader;

/// Present in the child only: the file it writes the scan to.
const CHILD_OUTPUT: &str = "FLUX_TEST_SCAN_OUTPUT";

/// Not a test of its own: what the children run.
#[test]
fn child_scan() {
    if let Some(path) = std::env::var_os(CHILD_OUTPUT) {
        let machine = MachineReader::new().machine();
        std::fs::write(path, serde_json::to_string(&machine).unwrap()).unwrap();
    }
}

fn scan(driver_files: &Path) -> (Machine, Output) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scan.json");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_scan", "--nocapture"])
        .env(CHILD_OUTPUT, &path)
        .env("VK_DRIVER_FILES", driver_files)
        // Loaders before 1.3.207 know only the older name.
        .env("VK_ICD_FILENAMES", driver_files)
        .env("GGML_VK_ALLOW_GRAPHICS_QUEUE", "0")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    (serde_json::from_str(&text).unwrap(), output)
}

#[test]
fn lavapipe_is_a_software_renderer_without_accelerated_int8_dot() {
    let (machine, _) = scan(&lavapipe::driver());
    assert!(matches!(machine.vulkan.status, VulkanStatus::Ready { .. }));
    let entry = machine.vulkan.entries.first().unwrap();
    assert_eq!(entry.kind, DeviceKind::Software);
    assert_eq!(entry.driver.id_name, "MESA_LLVMPIPE");
    assert!(entry.name.starts_with("llvmpipe"), "{}", entry.name);
    assert!(!entry.features.int8_dot_accelerated);
    assert!(entry.features.timeline_semaphore);
    assert!(!entry.features.cooperative_matrix2);
    assert!(entry.heaps.iter().any(|h| h.device_local && h.size.0 > 0));
    assert!(
        entry
            .queue_families
            .iter()
            .any(|q| q.flags.contains(&"compute".to_owned()))
    );
    assert!(entry.limits.max_work_group_invocations >= 128);
    let found = gpus(&machine);
    assert!(default_gpu(&found).is_none());
    let advice = no_gpu(&machine, &found).unwrap();
    assert_eq!(
        advice.headline,
        "No usable Vulkan GPU (only a software renderer): CPU only"
    );
}

#[test]
fn a_loader_without_drivers_is_a_state_and_the_host_is_still_read() {
    let (machine, _) = scan(Path::new("/nonexistent/none.json"));
    let VulkanStatus::NoDriver { detail } = &machine.vulkan.status else {
        panic!("{:?}", machine.vulkan.status);
    };
    assert!(detail.starts_with("vkCreateInstance"), "{detail}");
    assert!(machine.vulkan.entries.is_empty());
    assert!(machine.host.logical_cores >= 1);
    assert!(machine.host.ram_total > machine.host.ram_available);
    assert!(!machine.host.cpu.is_empty() && !machine.host.kernel.is_empty());
    assert_eq!(
        machine.inherited_env["GGML_VK_ALLOW_GRAPHICS_QUEUE"], "0",
        "shown, so that the user knows (case C10)"
    );
}

#[test]
fn nothing_but_the_harness_reaches_stdout() {
    let (_, output) = scan(&lavapipe::driver());
    let stdout = String::from_utf8(output.stdout).unwrap();
    for line in stdout.lines().filter(|l| !l.is_empty()) {
        let harness = ["running ", "test ", "test result:"];
        assert!(harness.iter().any(|h| line.starts_with(h)), "{line}");
    }
    assert!(
        stdout.contains("test result: ok"),
        "stdout works again after the scan: {stdout}"
    );
}
