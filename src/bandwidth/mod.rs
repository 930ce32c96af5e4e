//! What the machine's memories deliver, measured (paper section 5): RAM, the model's disk past the page cache, device
//! copies and transfers through Vulkan, and weights streamed from the disk while they are used.

mod cache;
mod disk;
mod ram;
mod steps;
mod streaming;
mod sum;
pub mod vulkan;

use serde::{Deserialize, Serialize};

use crate::domain::placement::bandwidth::{Bandwidth, BandwidthProfile, Path};
use crate::domain::types::Bytes;
use crate::ports::{
    BandwidthMeter, BandwidthProgress, BandwidthRequest, CancelToken, PortError, PortResult,
};

use steps::{Steps, Stop};

/// Share of the free RAM that is used: the rest belongs to others.
const RAM_SHARE: u64 = 4;

/// What is asked of the Vulkan devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DevicesRequest {
    /// Measure software renderers too.
    pub software: bool,
    /// Most bytes of one buffer.
    pub size: Bytes,
}

/// What the Vulkan devices delivered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DevicesReport {
    /// One entry per path and device.
    pub paths: Vec<Bandwidth>,
    /// What could not be measured and why, each a sentence.
    pub notices: Vec<String>,
}

/// Measures the Vulkan devices, in this process or in another.
pub trait Devices: Send + Sync {
    /// Never fails: what goes wrong is a notice.
    fn measure(&self, request: &DevicesRequest, cancel: &CancelToken) -> DevicesReport;
}

/// This machine's memories.
pub struct Meter<D> {
    devices: D,
}

impl<D: Devices> Meter<D> {
    /// With devices measured this way.
    pub const fn new(devices: D) -> Self {
        Self { devices }
    }

    fn perform(
        &self,
        request: &BandwidthRequest,
        steps: &mut Steps,
        profile: &mut BandwidthProfile,
    ) -> Result<(), Stop> {
        measure_ram(request, steps, profile)?;
        measure_disk(request, steps, profile)?;
        steps.begin("copying in the memory of each GPU, and to it and back")?;
        let asked = DevicesRequest {
            software: request.software,
            size: request.size,
        };
        let report = self.devices.measure(&asked, steps.cancel());
        steps.check()?;
        profile.paths.extend(report.paths);
        profile.notices.extend(report.notices);
        Ok(())
    }
}

impl<D: Devices> BandwidthMeter for Meter<D> {
    fn measure(
        &self,
        request: &BandwidthRequest,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(BandwidthProgress),
    ) -> PortResult<BandwidthProfile> {
        let mut profile = BandwidthProfile {
            measured_at: request.at,
            ..BandwidthProfile::default()
        };
        let mut steps = Steps::new(cancel, progress);
        match self.perform(request, &mut steps, &mut profile) {
            Ok(()) => Ok(profile),
            Err(Stop) => Err(PortError::new(
                "the measurement of bandwidths was cancelled, nothing of it was kept",
            )),
        }
    }
}

fn threads() -> u32 {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u32
}

fn measure_ram(
    request: &BandwidthRequest,
    steps: &mut Steps,
    profile: &mut BandwidthProfile,
) -> Result<(), Stop> {
    let threads = threads();
    let most = request.ram_available.0 / RAM_SHARE;
    let bytes = ram::size(request.size.0, cache::last_level()).min(most);
    let mut counts = vec![(threads, "reading RAM with all threads")];
    if threads > 1 {
        counts.push((1, "reading RAM with one thread"));
    }
    for (threads, doing) in counts {
        steps.begin(doing)?;
        match ram::read(threads, bytes, steps)? {
            Ok(samples) => profile.paths.push(Bandwidth {
                path: Path::RamRead,
                device: None,
                samples,
                bytes: ram::moved(threads, bytes),
                threads,
            }),
            Err(why) => profile.notices.push(format!(
                "RAM was not measured with {threads} threads: {why}"
            )),
        }
    }
    Ok(())
}

fn measure_disk(
    request: &BandwidthRequest,
    steps: &mut Steps,
    profile: &mut BandwidthProfile,
) -> Result<(), Stop> {
    steps.begin("preparing the disk")?;
    let source = disk::Source::find(
        &request.disk,
        &request.scratch,
        request.size.0,
        request.seed,
        steps,
    )?;
    let source = match source {
        Ok(source) => source,
        Err(why) => {
            profile
                .notices
                .push(format!("the disk was not measured: {why}"));
            return Ok(());
        }
    };
    profile.notices.extend(source.notices.iter().cloned());
    if let Err(why) = disk_paths(&source, request, steps, profile)? {
        profile
            .notices
            .push(format!("the disk was not measured to the end: {why}"));
    }
    Ok(())
}

/// An inner error is the disk's, and ends its part.
fn disk_paths(
    source: &disk::Source,
    request: &BandwidthRequest,
    steps: &mut Steps,
    profile: &mut BandwidthProfile,
) -> Result<Result<(), String>, Stop> {
    let size = request.size.0;
    steps.begin("reading the disk in order")?;
    let in_order = match disk::sequential(source, size, steps)? {
        Ok(found) => found,
        Err(why) => return Ok(Err(why)),
    };
    let rate = in_order.median();
    profile.paths.push(in_order);
    steps.begin("reading the disk at random")?;
    match disk::random(source, size, rate, request.seed, steps)? {
        Ok(found) => profile.paths.push(found),
        Err(why) => return Ok(Err(why)),
    }
    if cfg!(target_os = "linux") {
        steps.begin("reading the disk through the page cache")?;
        match disk::buffered(source, size, rate, threads(), steps)? {
            Ok(found) => profile.paths.push(found),
            Err(why) => return Ok(Err(why)),
        }
    }
    steps.begin("streaming from the disk to a consumer")?;
    match streaming::measure(source, size, rate, steps)? {
        Ok(found) => profile.streaming = Some(found),
        Err(why) => return Ok(Err(why)),
    }
    Ok(Ok(()))
}
