//! Copies inside each device's memory, to it and from it, through Vulkan.

use std::rc::Rc;

use crate::domain::placement::bandwidth::{Bandwidth, Path};
use crate::ports::CancelToken;
use crate::vulkan::{
    Buffer, Gpu, GpuError, Kind, OpenError, Physical, Queue, QuietStdout, Vulkan, cards,
};

use super::{Devices, DevicesReport, DevicesRequest};

/// Repetitions that count, after one that warms up.
const REPETITIONS: u32 = 7;
/// Copies of one repetition inside a device: a single one takes a fast card less than a millisecond.
const COPIES: u32 = 4;
/// Share of a heap that one buffer may take: three are held at once, and others use the memory too.
const HEAP_SHARE: u64 = 8;
/// What every buffer is filled with once: pages never written may be none.
const PATTERN: u32 = 0x5a5a_a5a5;
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
            Ok(vulkan) => Rc::new(vulkan),
            Err(OpenError::NoLoader(why) | OpenError::NoDriver(why)) => {
                report
                    .notices
                    .push(format!("no GPU was measured, Vulkan is not there: {why}"));
                return report;
            }
        };
        match cards(&vulkan) {
            Ok(devices) => each(&vulkan, devices, request, cancel, &mut report),
            Err(why) => report.notices.push(format!("no GPU was measured: {why}")),
        }
        report
    }
}

fn each(
    vulkan: &Rc<Vulkan>,
    devices: Vec<Physical>,
    request: &DevicesRequest,
    cancel: &CancelToken,
    report: &mut DevicesReport,
) {
    for device in devices {
        if cancel.is_cancelled() {
            return;
        }
        let name = device.name.clone();
        if device.is_software && !request.software {
            continue;
        }
        if device.is_software {
            report.notices.push(format!(
                "{name} is a software renderer: its memory is RAM, copied by the CPU"
            ));
        }
        let measured = opened(vulkan, device)
            .and_then(|(gpu, queue)| paths(&gpu, queue, &name, request.size.0, cancel, report));
        if let Err(why) = measured {
            report
                .notices
                .push(format!("{name} was not measured to the end: {why}"));
        }
    }
}

/// The device with its first queue that computes: llama.cpp computes on such a one, and it copies too.
fn opened(vulkan: &Rc<Vulkan>, device: Physical) -> Result<(Gpu, Queue), GpuError> {
    let family = device.families[0];
    let gpu = Gpu::open(vulkan, Rc::new(device), &[family.index])?;
    let queue = Queue::new(&gpu, &family)?;
    Ok((gpu, queue))
}

fn paths(
    gpu: &Gpu,
    mut queue: Queue,
    name: &str,
    most: u64,
    cancel: &CancelToken,
    report: &mut DevicesReport,
) -> Result<(), GpuError> {
    if !queue.has_timestamps() {
        report.notices.push(format!(
            "{name} keeps no time of its own: its numbers include handing over the work"
        ));
    }
    let (size, [from, to]) = device_buffers(gpu, &mut queue, most)?;
    let entry = |path, samples: Vec<f64>, bytes| Bandwidth {
        path,
        device: Some(name.to_owned()),
        samples,
        bytes,
        threads: 1,
    };
    // Each byte is read and written.
    let moved = 2 * size * u64::from(COPIES);
    let Some(inside) = samples(&mut queue, (&from, &to), size, COPIES, cancel)? else {
        return Ok(());
    };
    report
        .paths
        .push(entry(Path::DeviceCopy, rates(&inside, moved), moved));
    for (path, kind) in [
        (Path::Upload, Kind::Upload),
        (Path::Download, Kind::Download),
    ] {
        let staging = Buffer::new(gpu, kind, size)?;
        queue.submit(|r| r.fill(&staging, PATTERN))?;
        let pair = if path == Path::Upload {
            (&staging, &to)
        } else {
            (&to, &staging)
        };
        let Some(secs) = samples(&mut queue, pair, size, 1, cancel)? else {
            return Ok(());
        };
        report.paths.push(entry(path, rates(&secs, size), size));
    }
    Ok(())
}

fn rates(secs: &[f64], bytes: u64) -> Vec<f64> {
    secs.iter().map(|s| bytes as f64 / s).collect()
}

/// Two buffers of the device, smaller ones where the memory does not hold them.
fn device_buffers(gpu: &Gpu, queue: &mut Queue, most: u64) -> Result<(u64, [Buffer; 2]), GpuError> {
    let rooms = [Kind::Device, Kind::Upload, Kind::Download].map(|kind| gpu.physical.room(kind));
    let mut size = rooms
        .iter()
        .fold(most, |size, room| size.min(room / HEAP_SHARE));
    loop {
        let size_4 = size / 4 * 4;
        let pair = Buffer::new(gpu, Kind::Device, size_4)
            .and_then(|a| Ok([a, Buffer::new(gpu, Kind::Device, size_4)?]));
        match pair {
            Ok(pair) => {
                for buffer in &pair {
                    queue.submit(|r| r.fill(buffer, PATTERN))?;
                }
                return Ok((size_4, pair));
            }
            Err(_) if size / 2 >= LEAST => size /= 2,
            Err(why) => return Err(why),
        }
    }
}

/// Seconds of every repetition; `None` when it was cancelled.
fn samples(
    queue: &mut Queue,
    (from, to): (&Buffer, &Buffer),
    bytes: u64,
    copies: u32,
    cancel: &CancelToken,
) -> Result<Option<Vec<f64>>, GpuError> {
    let mut all = Vec::new();
    for repetition in 0..=REPETITIONS {
        if cancel.is_cancelled() {
            return Ok(None);
        }
        let timing = queue.submit(|r| {
            for _ in 0..copies {
                r.copy((from, 0), (to, 0), bytes);
                r.barrier();
            }
        })?;
        if repetition > 0 {
            all.push(timing.best());
        }
    }
    Ok(Some(all))
}
