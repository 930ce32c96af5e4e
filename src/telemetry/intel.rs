//! Intel's GPUs on Linux: the drivers `i915` and `xe` count energy and tell no power (case C26). Load and memory they
//! tell of each program alone (`fdinfo`), of the whole GPU to `perf` and `debugfs`, which are for root.

use std::path::PathBuf;
use std::sync::Arc;

use crate::domain::machine::VENDOR_INTEL;
use crate::domain::telemetry::{AbsentSensor, Metric, SeriesId};
use crate::ports::{Clock, TelemetrySource};

use super::counter::Counter;
use super::files::{Files, SensorFile};
use super::gpu::Gpu;
use super::sensor::{micro, plain};

/// The drivers, as their monitors bear them.
const DRIVERS: [&str; 2] = ["xe", "i915"];
/// What the counters may cover, the whole card first; `i915` does not say.
const COVERS: [&str; 3] = ["card", "pkg", ""];
/// The limits on power that a driver may tell.
const CAPS: [&str; 3] = ["power1_cap", "power1_max", "power1_rated_max"];
/// A card draws more than its limit for moments, never twice as much.
const OVER_CAP: f64 = 2.0;

/// Temperatures by label; `i915` has one without.
const HEAT: [(Metric, &[&str]); 2] = [
    (Metric::Temperature, &["pkg", ""]),
    (Metric::MemoryTemperature, &["vram"]),
];

/// What the drivers keep from a file.
const NOT_TOLD: [(Metric, &str); 2] = [
    (
        Metric::GpuLoad,
        "Intel's driver tells it of single programs and to `perf` alone",
    ),
    (
        Metric::VramUsed,
        "Intel's driver tells it of single programs and to root alone",
    ),
];

/// One of Intel's GPUs.
pub struct IntelGpu {
    gpu: Gpu,
    energy: Counter,
    /// Read when the GPU is first found awake: the driver asks it.
    caps: Option<Vec<SensorFile>>,
    clock: Arc<dyn Clock>,
}

impl IntelGpu {
    /// Every one below the root.
    pub(super) fn open(files: &Files, clock: &Arc<dyn Clock>) -> Vec<Self> {
        let found = Gpu::find(files, clock, VENDOR_INTEL, &DRIVERS).into_iter();
        found.map(|gpu| Self::of(gpu, files, clock)).collect()
    }

    fn of(mut gpu: Gpu, files: &Files, clock: &Arc<dyn Clock>) -> Self {
        let counters = gpu.labelled(files, "energy");
        let covering = |cover: &str| {
            let ours = counters.iter().filter(move |(label, _)| label == cover);
            ours.map(|(_, path)| path.clone()).collect::<Vec<_>>()
        };
        let energy = Counter::look(files, &COVERS.map(covering).concat(), None);
        let cap = |name| files.open(&gpu.monitor(name)).ok();
        let caps = Some(CAPS.into_iter().filter_map(cap).collect());
        for (metric, places) in [(Metric::CoreClock, CLOCK), (Metric::Throttled, THROTTLE)] {
            let paths = places.in_order(&gpu, files).into_iter();
            let ways: Vec<_> = paths.map(|path| (path, plain as _)).collect();
            gpu.look(files, metric, &ways);
        }
        gpu.look_at_heat(files, &HEAT);
        gpu.look(
            files,
            Metric::FanSpeed,
            &[(gpu.monitor("fan1_input"), plain)],
        );
        Self {
            gpu,
            energy,
            caps,
            clock: Arc::clone(clock),
        }
    }

    fn limit(&mut self) {
        let told = |file: &mut SensorFile| file.read(micro).ok().flatten();
        // 0 stands for a limit that is switched off.
        let cap = self.caps.take().and_then(|mut caps| {
            let mut told = caps.iter_mut().filter_map(told);
            told.find(|watts| *watts > 0.0)
        });
        if let Some(watts) = cap {
            self.energy.limit(OVER_CAP * watts);
        }
    }
}

/// Where the drivers have a file of the graphics engine.
struct Places {
    xe: &'static str,
    /// Below the card, the newest kernel's first.
    i915: &'static [&'static str],
}

/// The clock that the GPU runs at: `i915` has its first place since Linux 5.19.
const CLOCK: Places = Places {
    xe: "tile0/gt0/freq0/act_freq",
    i915: &["gt/gt0/rps_act_freq_mhz", "gt_act_freq_mhz"],
};
/// 1 while a limit of power, current or heat holds it down, whichever.
const THROTTLE: Places = Places {
    xe: "tile0/gt0/freq0/throttle/status",
    i915: &["gt/gt0/throttle_reason_status"],
};

impl Places {
    fn in_order(&self, gpu: &Gpu, files: &Files) -> Vec<PathBuf> {
        let mut found = vec![gpu.file(self.xe)];
        for card in files.list(gpu.file("drm")) {
            let name = card.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("card") {
                found.extend(self.i915.iter().map(|place| card.join(place)));
            }
        }
        found
    }
}

impl TelemetrySource for IntelGpu {
    fn name(&self) -> &'static str {
        "intel"
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        if self.gpu.is_quiet() {
            return Vec::new();
        }
        self.limit();
        let clock = &self.clock;
        let metered = self.energy.read(|| clock.elapsed().as_secs_f64());
        let mut found = self.gpu.sample();
        if let Some(metered) = metered {
            let power = metered
                .watts
                .map(|watts| (self.gpu.series(Metric::Power), watts));
            found.extend(power);
            found.push((self.gpu.series(Metric::Energy), metered.joules));
        }
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
        if let Some(reason) = self.energy.reason() {
            found.push(self.gpu.lost(Metric::Power, reason));
        }
        found.extend(NOT_TOLD.map(|(metric, reason)| self.gpu.lost(metric, reason)));
        found
    }
}
