//! Processor and RAM, on every system.

use sysinfo::{MemoryRefreshKind, System};

use crate::domain::telemetry::{HOST, Metric, SeriesId};
use crate::ports::TelemetrySource;

/// The machine as a whole.
pub struct HostSource {
    system: System,
    /// Load is work since the reading before: the first has none.
    has_before: bool,
}

impl HostSource {
    /// Opens it; `None` on a system that tells nothing.
    pub fn open() -> Option<Self> {
        System::new().ok().map(|system| Self {
            system,
            has_before: false,
        })
    }
}

impl TelemetrySource for HostSource {
    fn name(&self) -> &'static str {
        HOST
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        self.system.refresh_cpu_usage();
        self.system
            .refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let has_before = std::mem::replace(&mut self.has_before, true);
        let load = has_before.then(|| f64::from(self.system.global_cpu_usage()));
        let total = self.system.total_memory();
        let used = (total > 0).then(|| total.saturating_sub(self.system.available_memory()) as f64);
        let of_host = |metric| SeriesId {
            source: HOST.to_owned(),
            metric,
        };
        [(Metric::CpuLoad, load), (Metric::RamUsed, used)]
            .into_iter()
            .filter_map(|(metric, value)| Some((of_host(metric), value?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_s_ram_and_load_are_in_their_bounds() {
        let mut source = HostSource::open().unwrap();
        let metrics = |sample: &[(SeriesId, f64)]| -> Vec<Metric> {
            sample.iter().map(|(series, _)| series.metric).collect()
        };
        let first = source.sample();
        assert_eq!(metrics(&first), [Metric::RamUsed], "no load is known yet");
        let second = source.sample();
        assert_eq!(metrics(&second), [Metric::CpuLoad, Metric::RamUsed]);
        assert!((0.0..=100.0).contains(&second[0].1), "{second:?}");
        let total = source.system.total_memory() as f64;
        assert!(second[1].1 > 0.0 && second[1].1 < total, "{second:?}");
    }
}
