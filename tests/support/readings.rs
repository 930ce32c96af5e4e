//! Readings as sensors give them: idle and at work by turns, each with its sensor's own steps and noise.

use flux::domain::telemetry::{HOST, Metric, Reading, SeriesId};
use flux::domain::types::Timestamp;

/// A GPU with all it can tell, and its host.
pub const SERIES: [Metric; 15] = [
    Metric::Power,
    Metric::Energy,
    Metric::CoreClock,
    Metric::MemoryClock,
    Metric::Temperature,
    Metric::HotSpot,
    Metric::FanSpeed,
    Metric::VramUsed,
    Metric::GpuLoad,
    Metric::MemoryLoad,
    Metric::Throttled,
    Metric::CpuLoad,
    Metric::CpuPower,
    Metric::RamUsed,
    Metric::DiskRead,
];
/// Milliseconds between two readings.
pub const STEP_MS: i64 = 250;

/// The sensors of one machine.
pub struct Sensors {
    at: i64,
    joules: f64,
    random: fastrand::Rng,
}

impl Sensors {
    /// From a moment on; always the same.
    pub fn new(at: i64) -> Self {
        Self {
            at,
            joules: 0.0,
            random: fastrand::Rng::with_seed(7),
        }
    }

    /// What they say in the next `ms` milliseconds.
    pub fn take(&mut self, ms: i64) -> Vec<Reading> {
        (0..ms / STEP_MS).flat_map(|_| self.tick()).collect()
    }

    fn tick(&mut self) -> Vec<Reading> {
        // Woken up to 2 ms late, of which nothing adds up.
        let at = Timestamp(self.at + self.random.i64(0..3));
        let works = self.at / 20_000 % 2 == 1;
        self.at += STEP_MS;
        let readings = SERIES.map(|metric| {
            let value = self.value(metric, works);
            let source = match metric {
                Metric::CpuLoad | Metric::CpuPower | Metric::RamUsed | Metric::DiskRead => HOST,
                _ => "0000:01:00.0",
            };
            Reading {
                series: SeriesId {
                    source: source.to_owned(),
                    metric,
                },
                at,
                value,
            }
        });
        readings.into()
    }

    fn value(&mut self, metric: Metric, works: bool) -> f64 {
        let noise = self.random.f64() - 0.5;
        let level = |idle: f64, busy: f64| if works { busy } else { idle };
        match metric {
            // Milliwatts, microwatts: what drivers count in.
            Metric::Power => ((level(31.0, 121.0) + 6.0 * noise) * 1e3).round() / 1e3,
            Metric::Energy => {
                self.joules += level(31.0, 121.0) / 4.0 + noise;
                (self.joules * 1e3).round() / 1e3
            }
            Metric::CoreClock => (level(300.0, 1284.0) + 12.0 * noise).round(),
            Metric::MemoryClock => level(300.0, 1750.0),
            Metric::Temperature => (level(45.0, 63.0) + 2.0 * noise).round(),
            Metric::HotSpot => (level(49.0, 71.0) + 2.0 * noise).round(),
            Metric::FanSpeed => (level(900.0, 1420.0) + 30.0 * noise).round(),
            Metric::VramUsed => level(5.2e8, 2.95e9) + (40.0 * noise).round() * 4096.0,
            Metric::GpuLoad => (level(1.0, 97.0) + 2.0 * noise).round(),
            Metric::MemoryLoad => (level(1.0, 60.0) + 6.0 * noise).round(),
            Metric::Throttled => f64::from(u8::from(works && noise > 0.49)),
            // Shares and quotients: every bit is noise.
            Metric::CpuLoad => f64::from((level(3.0, 18.0) + 4.0 * noise) as f32),
            Metric::CpuPower => level(9.0, 41.0) + 3.0 * noise,
            Metric::RamUsed => 9.1e9 + (3000.0 * noise).round() * 4096.0,
            _ => level(0.0, 3.1e6 * noise.abs()).round(),
        }
    }
}
