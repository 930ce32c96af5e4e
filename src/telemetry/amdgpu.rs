//! AMD's GPUs on Linux, as the driver `amdgpu` tells of them below `/sys`.

use std::sync::Arc;

use crate::domain::machine::VENDOR_AMD;
use crate::domain::telemetry::{AbsentSensor, Metric, SeriesId};
use crate::ports::{Clock, TelemetrySource};

use super::files::Files;
use super::gpu::Gpu;
use super::gpu_metrics::GpuMetrics;
use super::sensor::{Parse, micro, of_255, plain, starred};

/// Its name, as its monitors bear it.
const NAME: &str = "amdgpu";

/// Its temperatures by label; old kernels have one without, the edge's.
const HEAT: [(Metric, &[&str]); 3] = [
    (Metric::Temperature, &["edge", ""]),
    (Metric::HotSpot, &["junction"]),
    (Metric::MemoryTemperature, &["mem"]),
];

/// One of AMD's GPUs.
pub struct AmdGpu {
    gpu: Gpu,
    metrics: GpuMetrics,
}

impl AmdGpu {
    /// Every one below the root.
    pub(super) fn open(files: &Files, clock: &Arc<dyn Clock>) -> Vec<Self> {
        let found = Gpu::find(files, clock, VENDOR_AMD, &[NAME]).into_iter();
        let with_sensors = |gpu: Gpu| Self {
            metrics: GpuMetrics::look(files, &gpu.file("gpu_metrics")),
            gpu: with_sensors(gpu, files),
        };
        found.map(with_sensors).collect()
    }
}

fn with_sensors(mut gpu: Gpu, files: &Files) -> Gpu {
    gpu.look(
        files,
        Metric::GpuLoad,
        &[(gpu.file("gpu_busy_percent"), plain)],
    );
    // An average where the driver has one, else a momentary value, by chip and kernel (case C23).
    let power = ["power1_average", "power1_input"].map(|name| (gpu.monitor(name), micro as Parse));
    gpu.look(files, Metric::Power, &power);
    for (metric, input, steps) in [
        (Metric::CoreClock, "freq1_input", "pp_dpm_sclk"),
        (Metric::MemoryClock, "freq2_input", "pp_dpm_mclk"),
    ] {
        let ways: [(_, Parse); 2] = [(gpu.monitor(input), micro), (gpu.file(steps), starred)];
        gpu.look(files, metric, &ways);
    }
    gpu.look_at_heat(files, &HEAT);
    let (speed, drive) = (gpu.monitor("fan1_input"), gpu.monitor("pwm1"));
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
        gpu.look(files, metric, &[(gpu.file(name), plain)]);
    }
    gpu
}

impl TelemetrySource for AmdGpu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        if self.gpu.is_quiet() {
            return Vec::new();
        }
        let mut found = self.gpu.sample();
        let throttled = self.metrics.throttled();
        found.extend(throttled.map(|held| (self.gpu.series(Metric::Throttled), f64::from(held))));
        found
    }

    fn measuring(&mut self, measuring: bool) {
        self.gpu.measuring(measuring);
    }

    fn critical(&self) -> Vec<(SeriesId, f64)> {
        self.gpu.critical()
    }

    fn absent(&self) -> Vec<AbsentSensor> {
        let mut found = self.gpu.absent();
        let reason = self.gpu.quiet().or_else(|| self.metrics.reason());
        found.extend(reason.map(|reason| self.gpu.lost(Metric::Throttled, reason)));
        found
    }
}
