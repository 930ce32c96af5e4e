//! AMD's GPUs on Linux, as the driver `amdgpu` tells of them below `/sys`.

use crate::domain::machine::VENDOR_AMD;
use crate::domain::telemetry::{AbsentSensor, Metric, SeriesId};
use crate::ports::TelemetrySource;

use super::files::Files;
use super::gpu::Gpu;
use super::sensor::{micro, milli, of_255, plain, starred};

/// Its name, as its monitors bear it.
const NAME: &str = "amdgpu";

/// One of AMD's GPUs.
pub struct AmdGpu(Gpu);

impl AmdGpu {
    /// Every one below the root.
    pub(super) fn open(files: &Files) -> Vec<Self> {
        let found = Gpu::find(files, VENDOR_AMD, &[NAME]).into_iter();
        found.map(|gpu| Self(with_sensors(gpu, files))).collect()
    }
}

fn with_sensors(mut gpu: Gpu, files: &Files) -> Gpu {
    let (file, monitor) = (
        |g: &Gpu, n: &str| g.file(n),
        |g: &Gpu, n: &str| g.monitor(n),
    );
    let load = [(file(&gpu, "gpu_busy_percent"), plain as _)];
    gpu.look(files, Metric::GpuLoad, &load);
    // An average where the driver has one, else a momentary value, by chip and kernel (case C23).
    let power = ["power1_average", "power1_input"].map(|n| (monitor(&gpu, n), micro as _));
    gpu.look(files, Metric::Power, &power);
    for (metric, input, steps) in [
        (Metric::CoreClock, "freq1_input", "pp_dpm_sclk"),
        (Metric::MemoryClock, "freq2_input", "pp_dpm_mclk"),
    ] {
        let ways = [
            (monitor(&gpu, input), micro as _),
            (file(&gpu, steps), starred as _),
        ];
        gpu.look(files, metric, &ways);
    }
    temperatures(&mut gpu, files);
    let (speed, drive) = (monitor(&gpu, "fan1_input"), monitor(&gpu, "pwm1"));
    if !speed.exists() && drive.exists() {
        gpu.look(files, Metric::FanLoad, &[(drive, of_255)]);
    } else {
        gpu.look(files, Metric::FanSpeed, &[(speed, plain)]);
    }
    for (metric, name) in [
        (Metric::VramUsed, "mem_info_vram_used"),
        (Metric::SharedUsed, "mem_info_gtt_used"),
        (Metric::MemoryLoad, "mem_busy_percent"),
    ] {
        let way = [(file(&gpu, name), plain as _)];
        gpu.look(files, metric, &way);
    }
    gpu
}

/// By label; old kernels have one without, the edge's.
fn temperatures(gpu: &mut Gpu, files: &Files) {
    let inputs = gpu.labelled(files, "temp");
    for (metric, labels) in [
        (Metric::Temperature, &["edge", ""][..]),
        (Metric::HotSpot, &["junction"]),
        (Metric::MemoryTemperature, &["mem"]),
    ] {
        let ours = inputs.iter().filter(|(l, _)| labels.contains(&l.as_str()));
        let ways: Vec<_> = ours.map(|(_, path)| (path.clone(), milli as _)).collect();
        gpu.look(files, metric, &ways);
    }
}

impl TelemetrySource for AmdGpu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        if self.0.sleeps() {
            return Vec::new();
        }
        self.0.sample()
    }

    fn absent(&self) -> Vec<AbsentSensor> {
        self.0.absent()
    }
}
