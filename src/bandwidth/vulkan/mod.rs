//! Copies inside each device's memory, to it and from it, through Vulkan. All unsafe calls are in `gpu` and `buffer`.

mod buffer;
mod gpu;

use std::collections::BTreeSet;

use ash::vk;

use crate::domain::placement::bandwidth::{Bandwidth, Path};
use crate::ports::CancelToken;
use crate::vulkan::{OpenError, QuietStdout, Vulkan};

use super::{Devices, DevicesReport, DevicesRequest};
use buffer::{Buffer, Kind};
use gpu::{Gpu, Physical};

/// Repetitions that count, after one that warms up.
const REPETITIONS: u32 = 7;
/// Copies of one repetition inside a device: a single one takes a fast card less than a millisecond.
const COPIES: u32 = 4;
/// Share of a heap that one buffer may take: three are held at once, and others use the memory too.
const HEAP_SHARE: u64 = 8;
/// Copies of less than this measure the start of a copy.
const LEAST: u64 = 1 << 20;

/// Measures in this process: Mesa brings LLVM into it, and a driver that crashes takes it along.
#[derive(Debug, Clone, Copy, Default)]
pub struct InProcess;

impl Devices for InProcess {
    fn measure(&self, request: &DevicesRequest, cancel: &CancelToken) -> DevicesReport {
        let _quiet = QuietStdout::begin();
        let mut report = DevicesReport::default();
        let vulkan = match Vulkan::open() {
            Ok(vulkan) => vulkan,
            Err(OpenError::NoLoader(why) | OpenError::NoDriver(why)) => {
                report
                    .notices
                    .push(format!("no GPU was measured, Vulkan is not there: {why}"));
                return report;
            }
        };
        match gpu::physical(&vulkan) {
            Ok(devices) => each(&vulkan, devices, request, cancel, &mut report),
            Err(why) => report.notices.push(format!("no GPU was measured: {why}")),
        }
        report
    }
}

fn each(
    vulkan: &Vulkan,
    devices: Vec<Physical>,
    request: &DevicesRequest,
    cancel: &CancelToken,
    report: &mut DevicesReport,
) {
    let mut seen = BTreeSet::new();
    let mut names: Vec<String> = Vec::new();
    for device in devices {
        if cancel.is_cancelled() {
            return;
        }
        // One card under two drivers is one memory (case C17).
        if device.uuid.is_some_and(|uuid| !seen.insert(uuid)) {
            continue;
        }
        names.push(device.name.clone());
        let twins = names.iter().filter(|n| **n == device.name).count();
        let name = numbered(&device.name, twins);
        if device.is_software && !request.software {
            continue;
        }
        if device.is_software {
            report.notices.push(format!(
                "{name} is a software renderer: its memory is RAM, copied by the CPU"
            ));
        }
        let measured = Gpu::open(vulkan, &device)
            .and_then(|gpu| paths(&gpu, &device, &name, request.size.0, cancel, report));
        if let Err(why) = measured {
            report
                .notices
                .push(format!("{name} was not measured to the end: {why}"));
        }
    }
}

/// Cards of the same name, in Vulkan's order: `NAME`, `NAME (2)`.
fn numbered(name: &str, twins: usize) -> String {
    if twins < 2 {
        name.to_owned()
    } else {
        format!("{name} ({twins})")
    }
}

fn paths(
    gpu: &Gpu,
    device: &Physical,
    name: &str,
    most: u64,
    cancel: &CancelToken,
    report: &mut DevicesReport,
) -> Result<(), String> {
    if !gpu.has_timestamps() {
        report.notices.push(format!(
            "{name} keeps no time of its own: its numbers include handing over the work"
        ));
    }
    let (size, [from, to]) = device_buffers(gpu, device, most)?;
    let inside = samples(gpu, &from, &to, COPIES, cancel)?;
    let entry = |path, samples: Vec<f64>, bytes| Bandwidth {
        path,
        device: Some(name.to_owned()),
        samples,
        bytes,
        threads: 1,
    };
    // Each byte is read and written.
    let moved = 2 * size * u64::from(COPIES);
    report
        .paths
        .push(entry(Path::DeviceCopy, rates(&inside, moved), moved));
    for (path, kind) in [
        (Path::Upload, Kind::Upload),
        (Path::Download, Kind::Download),
    ] {
        let staging = Buffer::new(gpu, device, kind, size)?;
        staging.fill(gpu)?;
        let (from, to) = if path == Path::Upload {
            (&staging, &to)
        } else {
            (&to, &staging)
        };
        let secs = samples(gpu, from, to, 1, cancel)?;
        report.paths.push(entry(path, rates(&secs, size), size));
    }
    Ok(())
}

fn rates(secs: &[f64], bytes: u64) -> Vec<f64> {
    secs.iter().map(|s| bytes as f64 / s).collect()
}

/// Two buffers of the device, smaller ones where the memory does not hold them.
fn device_buffers<'a, 'v>(
    gpu: &'a Gpu<'v>,
    device: &Physical,
    most: u64,
) -> Result<(u64, [Buffer<'a, 'v>; 2]), String> {
    let rooms = [Kind::Device, Kind::Upload, Kind::Download].map(|kind| device.room(kind));
    let mut size = rooms
        .iter()
        .fold(most, |size, room| size.min(room / HEAP_SHARE));
    loop {
        let size_4 = size / 4 * 4;
        let pair = Buffer::new(gpu, device, Kind::Device, size_4)
            .and_then(|a| Ok([a, Buffer::new(gpu, device, Kind::Device, size_4)?]));
        match pair {
            Ok(pair) => {
                for buffer in &pair {
                    buffer.fill(gpu)?;
                }
                return Ok((size_4, pair));
            }
            Err(_) if size / 2 >= LEAST => size /= 2,
            Err(why) => return Err(why),
        }
    }
}

/// Seconds of every repetition.
fn samples(
    gpu: &Gpu,
    from: &Buffer,
    to: &Buffer,
    copies: u32,
    cancel: &CancelToken,
) -> Result<Vec<f64>, String> {
    let mut all = Vec::new();
    for repetition in 0..=REPETITIONS {
        if cancel.is_cancelled() {
            return Err("cancelled".to_owned());
        }
        let secs = gpu.submit(|commands| from.copy(commands, to, copies))?;
        if repetition > 0 {
            all.push(secs);
        }
    }
    Ok(all)
}

/// Vulkan's own words for what a call answered.
fn failed(call: &str, error: vk::Result) -> String {
    format!("{call}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_of_one_name_are_numbered_in_order() {
        assert_eq!(numbered("RTX 3060", 1), "RTX 3060");
        assert_eq!(numbered("RTX 3060", 2), "RTX 3060 (2)");
    }
}
