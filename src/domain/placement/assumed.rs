//! The constants before any benchmark: what the bandwidth profile measured, and named assumptions for the rest.

use crate::domain::types::Backend;

use super::bandwidth::{BandwidthProfile, Path};
use super::devices::{Memories, OffloadDevice};
use super::speed::{Constant, Constants, Known, Status};

/// Decode from RAM, bytes per second: the paper's 19.0 GB/s with two channels of DDR4, rounded.
const HOST_READ: f64 = 20e9;
/// Share of a plain read of RAM that decoding on the processor gets: 59 of 95 GB/s on the sixteen cores beside an H200.
const DECODE_SHARE: f64 = 0.6;
/// Decode from a card's own memory, bytes per second: the paper's streaming copy on an eight-year-old card.
const DEVICE_READ: f64 = 170e9;
/// Reading the disk in order, bytes per second: the paper's SATA drive.
const DISK_READ: f64 = 0.5e9;
/// Mapped weights to a device, bytes per second: pages that are not pinned are copied to a pinned buffer first, by one thread;
/// an H200 in a slot of more than 40 GB/s gets 6 to 8 (`tests/placement_speed.rs`).
const UPLOAD: f64 = 6e9;
/// Multiplying quantised weights on a card, operations per second: 197 tokens/s of a 4B model on the paper's.
const DEVICE_COMPUTE: f64 = 1.5e12;
/// Multiplying quantised weights on the CPU, operations per second: six to eight cores with AVX2.
const HOST_COMPUTE: f64 = 0.2e12;
/// A hand-off where a submission costs microseconds: one synchronisation of a CUDA-like runtime, seconds.
const HAND_OFF: f64 = 10e-6;
/// A hand-off through Vulkan: submission and fence, seconds.
const HAND_OFF_VULKAN: f64 = 200e-6;
/// A hand-off through Vulkan under Windows, seconds: fitted in the paper, section 5.
const HAND_OFF_VULKAN_WINDOWS: f64 = 4.87e-3;
/// A hand-off to another machine, seconds: a round trip and some ten kilobytes through a 1 Gbit/s network.
const HAND_OFF_NETWORK: f64 = 1e-3;

/// What is known of the machine before a benchmark. `windows`: the operating system is Windows.
pub fn priors(memories: &Memories, profile: Option<&BandwidthProfile>, windows: bool) -> Constants {
    let mut constants = Constants::new();
    let mut set = |constant, assumed, measured| {
        constants.insert(constant, known(assumed, measured));
    };
    let measured = |path, device: Option<&OffloadDevice>| {
        let of = |name: Option<&str>| {
            profile?
                .get(path, name)
                .map(super::bandwidth::Bandwidth::median)
        };
        match device {
            Some(device) => of(Some(&device.id)).or_else(|| of(Some(&device.name))),
            None => of(None),
        }
    };
    let first = memories.devices.first();
    set(Constant::HostRead, 1.0 / HOST_READ, None);
    if let Some(ram) = measured(Path::RamRead, None) {
        constants.insert(Constant::HostRead, decode_share(ram));
    }
    let mut set = |constant, assumed, measured| {
        constants.insert(constant, known(assumed, measured));
    };
    // A file that another program keeps in the cache would be read faster than its disk is.
    let in_order = measured(Path::DiskSequential, None);
    let buffered = measured(Path::DiskBuffered, None);
    let least = buffered.into_iter().chain(in_order).reduce(f64::min);
    set(Constant::DiskRead, 1.0 / DISK_READ, least);
    // The profile copies from pinned pages: it bounds what mapped weights get, and is it only in a slower slot.
    let upload = first.and_then(|d| measured(Path::Upload, Some(d)));
    let upload = upload.filter(|rate| *rate < UPLOAD);
    set(Constant::Upload, 1.0 / UPLOAD, upload);
    set(Constant::MicroBatch, 0.0, None);
    set(Constant::HostCompute, 1.0 / HOST_COMPUTE, None);
    set(Constant::TokenFixed, 0.0, None);
    set(Constant::HandOff, hand_off(memories, windows), None);
    for (i, device) in memories.devices.iter().enumerate() {
        let shared = device.shares_ram || device.backend == Backend::Rpc;
        let assumed = if shared { HOST_READ } else { DEVICE_READ };
        let copy = measured(Path::DeviceCopy, Some(device));
        set(Constant::DeviceRead(i), 1.0 / assumed, copy);
        set(Constant::DeviceCompute(i), 1.0 / DEVICE_COMPUTE, None);
        if device.backend == Backend::Rpc {
            set(Constant::RemoteHandOff(i), HAND_OFF_NETWORK, None);
        }
    }
    // A copy also writes; decoding reads. A lab is of a card in this machine.
    let own = memories.devices.iter().enumerate();
    for (i, device) in own.filter(|(_, d)| d.backend != Backend::Rpc) {
        if let Some(read) = measured(Path::DeviceRead, Some(device)) {
            let by_lab = Known {
                origin: "best read of the kernel lab on this machine".to_owned(),
                ..known(1.0 / DEVICE_READ, Some(read))
            };
            constants.insert(Constant::DeviceRead(i), by_lab);
        }
    }
    constants
}

/// Decoding from RAM that was measured by plain reads.
fn decode_share(ram: f64) -> Known {
    Known {
        seconds: 1.0 / (DECODE_SHARE * ram),
        status: Status::Assumed,
        origin: format!(
            "assumed to be {:.0} % of the {:.1} GB/s that reading RAM was measured at",
            100.0 * DECODE_SHARE,
            ram / 1e9
        ),
    }
}

/// A measured rate, or assumed seconds per unit.
fn known(assumed: f64, measured: Option<f64>) -> Known {
    let measured = measured.filter(|rate| rate.is_finite() && *rate > 0.0);
    let (seconds, status, origin) = match measured {
        Some(rate) => (
            1.0 / rate,
            Status::Measured,
            "bandwidth profile of this machine",
        ),
        None => (
            assumed,
            Status::Assumed,
            "assumed until it is measured or fitted",
        ),
    };
    Known {
        seconds,
        status,
        origin: origin.to_owned(),
    }
}

fn hand_off(memories: &Memories, windows: bool) -> f64 {
    let vulkan = memories
        .devices
        .iter()
        .any(|d| d.backend == Backend::Vulkan);
    match (vulkan, windows) {
        (true, true) => HAND_OFF_VULKAN_WINDOWS,
        (true, false) => HAND_OFF_VULKAN,
        _ => HAND_OFF,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::placement::bandwidth::Bandwidth;
    use crate::domain::placement::devices::{CpuLayout, HostMemory};
    use crate::domain::types::Bytes;

    fn memories(devices: Vec<OffloadDevice>) -> Memories {
        Memories {
            devices,
            host: HostMemory {
                total: Bytes::gib(8),
                usable: Bytes::gib(7),
                used_by_others: Bytes::gib(1),
                layout: CpuLayout::File,
            },
        }
    }

    /// The paper's card: a copy of 169.4 GB/s, the best matrix-vector kernel 197.3 GB/s.
    #[test]
    fn a_kernel_labs_read_counts_before_a_copy() {
        let card = |backend| OffloadDevice {
            id: "Vulkan0".to_owned(),
            name: "RX 580".to_owned(),
            backend,
            total: Bytes::gib(8),
            max_buffer: None,
            max_tensor: None,
            usable: Bytes::gib(7),
            shares_ram: false,
            captures_graphs: false,
        };
        let path = |path, rate| Bandwidth {
            path,
            device: Some("RX 580".to_owned()),
            samples: vec![rate],
            bytes: 1,
            threads: 1,
        };
        let read = |backend, paths: &[(Path, f64)]| {
            let memories = memories(vec![card(backend)]);
            let profile = BandwidthProfile {
                paths: paths.iter().map(|(p, rate)| path(*p, *rate)).collect(),
                ..BandwidthProfile::default()
            };
            let all = priors(&memories, Some(&profile), false);
            let known = &all[&Constant::DeviceRead(0)];
            assert_eq!(known.status, Status::Measured);
            (1.0 / known.seconds / 1e9, known.origin.clone())
        };
        let both = [(Path::DeviceCopy, 169.4e9), (Path::DeviceRead, 197.3e9)];
        let (rate, origin) = read(Backend::Vulkan, &both);
        assert!((rate - 197.3).abs() < 1e-9, "{rate}");
        assert_eq!(origin, "best read of the kernel lab on this machine");
        let (rate, _) = read(Backend::Vulkan, &both[..1]);
        assert!((rate - 169.4).abs() < 1e-9, "{rate}");
        // Another machine's card of the same name was not in this lab.
        let (rate, _) = read(Backend::Rpc, &both);
        assert!((rate - 169.4).abs() < 1e-9, "{rate}");
    }

    /// Measured on a virtual disk: 3.15 GB/s past the cache, 1.9 GB/s through it.
    #[test]
    fn weights_come_from_the_disk_as_fast_as_through_the_page_cache() {
        let memories = memories(Vec::new());
        let disk = |paths: &[(Path, f64)]| {
            let of = |&(path, rate): &(Path, f64)| Bandwidth {
                path,
                device: None,
                samples: vec![rate],
                bytes: 1,
                threads: 1,
            };
            let profile = BandwidthProfile {
                paths: paths.iter().map(of).collect(),
                ..BandwidthProfile::default()
            };
            let known = priors(&memories, Some(&profile), false)[&Constant::DiskRead].clone();
            (Constant::DiskRead.shown(known.seconds), known.status)
        };
        let close = |(shown, status): (f64, Status), to: f64, known| {
            assert!(
                (shown - to).abs() < 1e-9 && status == known,
                "{shown} {status:?}"
            );
        };
        let (direct, buffered) = (Path::DiskSequential, Path::DiskBuffered);
        close(
            disk(&[(direct, 3.15e9), (buffered, 1.9e9)]),
            1.9,
            Status::Measured,
        );
        // A profile from before, or of a system without it; and a file that was cached all the same.
        close(disk(&[(direct, 3.15e9)]), 3.15, Status::Measured);
        close(
            disk(&[(direct, 3.15e9), (buffered, 20e9)]),
            3.15,
            Status::Measured,
        );
        close(disk(&[]), 0.5, Status::Assumed);
    }
}
