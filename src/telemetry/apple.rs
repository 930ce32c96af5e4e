//! Apple Silicon: power, clocks and temperature of GPU and processor, as `macmon` reads them without root.
//!
//! Power is energy over the time between two readings. Reading takes milliseconds (dozens of temperature keys), so a
//! thread of its own does it; a tick takes what was read last.

use crate::domain::telemetry::{APPLE_GPU, HOST, Metric, SeriesId, Trust};

/// What was read at once, in the units of `macmon`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Told {
    /// Power of the GPU alone, W: the chip tells none of the whole board.
    pub gpu_watts: f32,
    /// Power of the processor's cores, W.
    pub cpu_watts: f32,
    /// Clock of the GPU while it worked, MHz; 0 where it did not.
    pub gpu_mhz: u32,
    /// Share of time in which the GPU worked, 0 to 1.
    pub gpu_active: f32,
    /// Mean temperature of the GPU's sensors, °C.
    pub gpu_celsius: Option<f32>,
    /// Speed of the fastest fan, rpm; `None` on a Mac without.
    pub fan_rpm: Option<u32>,
}

/// Makes readings of it; each is judged on its own.
#[derive(Debug, Default)]
pub struct Readings {
    gpu: Trust,
    cpu: Trust,
    rest: Trust,
}

impl Readings {
    /// The readings that can be believed.
    pub fn of(&mut self, told: &Told) -> Vec<(SeriesId, f64)> {
        let load = f64::from(told.gpu_active) * 100.0;
        let gpu = [
            (Metric::GpuLoad, Some(load)),
            // The mean over no time at work is no clock.
            (
                Metric::CoreClock,
                Some(f64::from(told.gpu_mhz)).filter(|mhz| *mhz > 0.0),
            ),
            (Metric::Temperature, told.gpu_celsius.map(f64::from)),
            (Metric::FanSpeed, told.fan_rpm.map(f64::from)),
        ];
        let of = |source: &str, metric| SeriesId {
            source: source.to_owned(),
            metric,
        };
        let mut found = Vec::new();
        for (metric, value) in gpu {
            let value = value.and_then(|value| self.rest.judge(metric, value, None));
            found.extend(value.map(|value| (of(APPLE_GPU, metric), value)));
        }
        let watts = self
            .gpu
            .judge(Metric::Power, f64::from(told.gpu_watts), Some(load));
        found.extend(watts.map(|watts| (of(APPLE_GPU, Metric::Power), watts)));
        let watts = self
            .cpu
            .judge(Metric::CpuPower, f64::from(told.cpu_watts), None);
        found.extend(watts.map(|watts| (of(HOST, Metric::CpuPower), watts)));
        found
    }
}

#[cfg(target_os = "macos")]
pub(super) use live::AppleSource;

#[cfg(target_os = "macos")]
mod live {
    use std::time::Duration;

    use macmon::{Metrics, Sampler};

    use super::super::latest::Latest;
    use super::{Readings, Told};
    use crate::domain::telemetry::SeriesId;
    use crate::ports::TelemetrySource;

    /// A reading takes so long, ms, and is over that time: as often as the engine asks.
    const INTERVAL_MS: u32 = 250;

    /// The chip of this Mac.
    pub struct AppleSource {
        latest: Latest<Told>,
        readings: Readings,
    }

    impl AppleSource {
        /// Starts its thread; `None` where no thread can be had.
        pub fn open() -> Option<Self> {
            let open = || {
                let mut sampler = Sampler::new()
                    .inspect_err(|e| tracing::warn!("the sensors of this Mac cannot be read: {e}"))
                    .ok()?;
                Some(move || Some(told(&sampler.get_metrics(INTERVAL_MS).ok()?)))
            };
            Some(Self {
                latest: Latest::of("flux-apple-sensors", Duration::ZERO, open)?,
                readings: Readings::default(),
            })
        }
    }

    fn told(metrics: &Metrics) -> Told {
        Told {
            gpu_watts: metrics.gpu_power,
            cpu_watts: metrics.cpu_power,
            gpu_mhz: metrics.gpu_freq_mhz,
            gpu_active: metrics.gpu_active_ratio,
            gpu_celsius: metrics.temp.gpu_temp_avg,
            fan_rpm: metrics.fans.iter().map(|fan| fan.rpm).max(),
        }
    }

    impl TelemetrySource for AppleSource {
        fn name(&self) -> &'static str {
            "apple"
        }

        fn sample(&mut self) -> Vec<(SeriesId, f64)> {
            let last = self.latest.get();
            last.map(|told| self.readings.of(&told)).unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(found: &[(SeriesId, f64)], source: &str, metric: Metric) -> Option<f64> {
        let ours = |(s, _): &&(SeriesId, f64)| s.source == source && s.metric == metric;
        found.iter().find(ours).map(|(_, value)| *value)
    }

    #[test]
    fn a_chip_at_work_tells_power_clock_load_and_heat() {
        let told = Told {
            gpu_watts: 21.5,
            cpu_watts: 3.25,
            gpu_mhz: 1398,
            gpu_active: 0.75,
            gpu_celsius: Some(61.5),
            fan_rpm: Some(2317),
        };
        let found = Readings::default().of(&told);
        for (source, metric, wanted) in [
            (APPLE_GPU, Metric::Power, 21.5),
            (HOST, Metric::CpuPower, 3.25),
            (APPLE_GPU, Metric::CoreClock, 1398.0),
            (APPLE_GPU, Metric::GpuLoad, 75.0),
            (APPLE_GPU, Metric::Temperature, 61.5),
            (APPLE_GPU, Metric::FanSpeed, 2317.0),
        ] {
            assert_eq!(value(&found, source, metric), Some(wanted), "{metric:?}");
        }
        assert_eq!(found.len(), 6);
    }

    #[test]
    fn what_an_idle_or_locked_chip_does_not_tell_is_absent() {
        let mut readings = Readings::default();
        let idle = readings.of(&Told::default());
        assert_eq!(value(&idle, APPLE_GPU, Metric::CoreClock), None);
        assert_eq!(value(&idle, APPLE_GPU, Metric::FanSpeed), None);
        assert_eq!(value(&idle, APPLE_GPU, Metric::GpuLoad), Some(0.0));
        assert_eq!(
            value(&idle, APPLE_GPU, Metric::Power),
            None,
            "no 0 W before any other"
        );
        let locked = Told {
            gpu_active: 0.9,
            ..Told::default()
        };
        for _ in 0..20 {
            assert_eq!(value(&readings.of(&locked), APPLE_GPU, Metric::Power), None);
        }
    }
}
