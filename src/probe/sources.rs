//! Which telemetry can be read here (design section 6): the status of each source, no sampling.

use std::fs;
use std::path::{Path, PathBuf};

use crate::domain::machine::{VENDOR_AMD, VENDOR_INTEL, VENDOR_NVIDIA};
use crate::domain::types::{SystemGpu, TelemetrySourceStatus};

use crate::system_root::SystemRoot;

/// Where NVIDIA's driver puts its management library.
pub(super) const NVML: [&str; 7] = [
    "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "usr/lib64/libnvidia-ml.so.1",
    "usr/lib/libnvidia-ml.so.1",
    "usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "usr/lib/wsl/lib/libnvidia-ml.so.1",
    "Windows/System32/nvml.dll",
];
/// amdgpu's board power, by chip and kernel, and what kind of value it is (case C23).
const AMD_POWER: [(&str, &str); 2] = [("power1_average", "average"), ("power1_input", "instant")];
/// Energy counters of Intel's drivers.
const INTEL_ENERGY: [&str; 2] = ["energy1_input", "energy2_input"];
/// CPU package energy counter.
const RAPL: &str = "sys/class/powercap/intel-rapl:0/energy_uj";

/// The status of every source that could exist here.
pub(super) fn sources(root: &SystemRoot, gpus: &[SystemGpu]) -> Vec<TelemetrySourceStatus> {
    let mut found = vec![status("sysinfo", true, "CPU load, RAM, disk reads")];
    found.extend(gpus.iter().filter_map(|gpu| amdgpu(root, gpu)));
    found.extend(gpus.iter().filter_map(|gpu| intel(root, gpu)));
    let nvidia: Vec<_> = gpus
        .iter()
        .filter(|g| g.vendor_id == VENDOR_NVIDIA)
        .map(|g| Some(g.pci))
        .collect();
    let library = NVML.iter().any(|path| root.path(path).exists());
    if library || !nvidia.is_empty() {
        let detail = if library {
            "management library found"
        } else {
            "libnvidia-ml.so.1 not found: it comes with NVIDIA's driver"
        };
        // A library without a card is a line too.
        let places = if nvidia.is_empty() {
            vec![None]
        } else {
            nvidia
        };
        found.extend(places.into_iter().map(|pci| TelemetrySourceStatus {
            pci,
            ..status("nvml", library, detail)
        }));
    }
    found.extend(rapl(root));
    found
}

fn status(source: &str, available: bool, detail: &str) -> TelemetrySourceStatus {
    TelemetrySourceStatus {
        source: source.to_owned(),
        pci: None,
        available,
        detail: detail.to_owned(),
    }
}

fn amdgpu(root: &SystemRoot, gpu: &SystemGpu) -> Option<TelemetrySourceStatus> {
    if gpu.vendor_id != VENDOR_AMD {
        return None;
    }
    let monitors = monitors(root, gpu);
    let power = AMD_POWER
        .into_iter()
        .find(|(file, _)| monitors.iter().any(|dir| readable(&dir.join(file))));
    let found = match power {
        Some((file, kind)) => status("amdgpu", true, &format!("board power, {kind} ({file})")),
        None if monitors.is_empty() => status("amdgpu", false, "no hwmon: is amdgpu bound?"),
        None => status("amdgpu", false, "hwmon without a power reading"),
    };
    Some(TelemetrySourceStatus {
        pci: Some(gpu.pci),
        ..found
    })
}

/// Case C26: power is made of energy counters, which few of the integrated GPUs have.
fn intel(root: &SystemRoot, gpu: &SystemGpu) -> Option<TelemetrySourceStatus> {
    if gpu.vendor_id != VENDOR_INTEL {
        return None;
    }
    let monitors = monitors(root, gpu);
    let exists = |file: &&&str| monitors.iter().any(|dir| dir.join(file).exists());
    let found = match INTEL_ENERGY.iter().find(exists) {
        Some(_) => status("intel", true, "energy counter, power made of it"),
        None => status("intel", false, "no energy counter"),
    };
    Some(TelemetrySourceStatus {
        pci: Some(gpu.pci),
        ..found
    })
}

fn monitors(root: &SystemRoot, gpu: &SystemGpu) -> Vec<PathBuf> {
    root.list(format!("sys/bus/pci/devices/{}/hwmon", gpu.pci))
}

fn rapl(root: &SystemRoot) -> Option<TelemetrySourceStatus> {
    let path = root.path(RAPL);
    let exists = path.try_exists().unwrap_or(true);
    exists.then(|| match fs::read_to_string(&path) {
        Ok(_) => status("rapl", true, "CPU package energy"),
        Err(_) => status(
            "rapl",
            false,
            "CPU package energy is for root only: allow reading /sys/class/powercap/intel-rapl:0/energy_uj",
        ),
    })
}

/// Readable means read: permissions alone do not tell.
fn readable(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| !bytes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(vendor_id: u32) -> SystemGpu {
        SystemGpu {
            pci: "0000:03:00.0".parse().unwrap(),
            vendor_id,
            device_id: 0x73bf,
            subsystem: None,
            revision: None,
            kernel_driver: None,
            driver_version: None,
            pending_driver: None,
            vram: None,
        }
    }

    /// The rest is read as ever, and the line says what is missing.
    #[test]
    fn c25_a_missing_management_library_is_a_line_and_no_failure() {
        let tree = tempfile::tempdir().unwrap();
        let found = sources(
            &SystemRoot::at(tree.path()),
            &[gpu(VENDOR_NVIDIA), gpu(VENDOR_AMD)],
        );
        let nvml = found.iter().find(|s| s.source == "nvml").unwrap();
        assert_eq!(
            (nvml.available, nvml.detail.as_str()),
            (
                false,
                "libnvidia-ml.so.1 not found: it comes with NVIDIA's driver"
            )
        );
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn every_nvidia_card_has_its_own_line() {
        let tree = tempfile::tempdir().unwrap();
        let second = SystemGpu {
            pci: "0000:07:00.0".parse().unwrap(),
            ..gpu(VENDOR_NVIDIA)
        };
        let cards = [gpu(VENDOR_NVIDIA), second];
        let found = sources(&SystemRoot::at(tree.path()), &cards);
        let nvml = found.iter().filter(|s| s.source == "nvml");
        let places: Vec<_> = nvml.map(|s| s.pci).collect();
        assert_eq!(places, [Some(cards[0].pci), Some(cards[1].pci)]);
    }

    #[test]
    fn amd_power_is_found_under_either_name_and_nvml_by_its_library() {
        let tree = tempfile::tempdir().unwrap();
        let root = SystemRoot::at(tree.path());
        let lines = |vendor: u32| -> Vec<(String, bool)> {
            sources(&root, &[gpu(vendor)])
                .into_iter()
                .map(|s| (s.source, s.available))
                .collect()
        };
        let line = |name: &str, available| (name.to_owned(), available);
        assert_eq!(
            lines(VENDOR_AMD),
            [line("sysinfo", true), line("amdgpu", false)]
        );
        assert_eq!(
            lines(VENDOR_NVIDIA),
            [line("sysinfo", true), line("nvml", false)]
        );
        let monitor = tree
            .path()
            .join("sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon4");
        fs::create_dir_all(&monitor).unwrap();
        fs::write(monitor.join("power1_input"), "23000000\n").unwrap();
        assert_eq!(
            sources(&root, &[gpu(VENDOR_AMD)])[1].detail,
            "board power, instant (power1_input)"
        );
        assert_eq!(lines(VENDOR_INTEL)[1], line("intel", false));
        fs::write(monitor.join("energy2_input"), "7\n").unwrap();
        assert_eq!(lines(VENDOR_INTEL)[1], line("intel", true));
        let rapl = tree.path().join("sys/class/powercap/intel-rapl:0");
        fs::create_dir_all(&rapl).unwrap();
        fs::write(rapl.join("energy_uj"), "1\n").unwrap();
        let library = tree.path().join("usr/lib64");
        fs::create_dir_all(&library).unwrap();
        fs::write(library.join("libnvidia-ml.so.1"), "").unwrap();
        assert_eq!(
            lines(VENDOR_AMD),
            [
                line("sysinfo", true),
                line("amdgpu", true),
                line("nvml", true),
                line("rapl", true)
            ]
        );
    }
}
