//! Processor, RAM and disks, on every system.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use sysinfo::{DiskRefreshKind, Disks, MemoryRefreshKind, System};

use crate::domain::telemetry::{HOST, Metric, SeriesId};
use crate::ports::{Clock, TelemetrySource};

/// The machine as a whole.
pub struct HostSource {
    system: System,
    disks: Option<Disks>,
    /// When it was read before: load and rates are between two readings.
    before: Option<Duration>,
    clock: Arc<dyn Clock>,
}

impl HostSource {
    /// Opens it; `None` on a system that tells nothing.
    pub fn open(clock: Arc<dyn Clock>) -> Option<Self> {
        let disks = Disks::new_with_refreshed_list_specifics(reads());
        System::new().ok().map(|system| Self {
            system,
            // Containers list mounts of which no device can be found: no reads are known, not none.
            disks: disks.ok().filter(|disks| total(disks) > 0),
            before: None,
            clock,
        })
    }

    /// Bytes read in a second since the reading before, from every disk that holds a file system.
    fn disk_reads(&mut self, secs: Option<f64>) -> Option<f64> {
        let disks = self.disks.as_mut()?;
        let before = total(disks);
        for disk in disks.iter_mut() {
            disk.refresh_specifics(reads());
        }
        let read = total(disks).checked_sub(before)?;
        secs.filter(|secs| *secs > 0.0)
            .map(|secs| read as f64 / secs)
    }
}

/// Counters alone: sizes of network drives may take long.
fn reads() -> DiskRefreshKind {
    DiskRefreshKind::nothing().with_io_usage()
}

/// Bytes read since the start of the system; a disk that is mounted twice counts once.
fn total(disks: &Disks) -> u64 {
    let by_device: BTreeMap<OsString, u64> = disks
        .iter()
        .map(|disk| (disk.name().to_owned(), disk.usage().total_read_bytes))
        .collect();
    by_device.values().sum()
}

impl TelemetrySource for HostSource {
    fn name(&self) -> &'static str {
        HOST
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        self.system.refresh_cpu_usage();
        self.system
            .refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let now = self.clock.elapsed();
        let secs = self
            .before
            .replace(now)
            .map(|before| now.saturating_sub(before).as_secs_f64());
        let reads = self.disk_reads(secs);
        let load = secs.map(|_| f64::from(self.system.global_cpu_usage()));
        let total = self.system.total_memory();
        let used = (total > 0).then(|| total.saturating_sub(self.system.available_memory()) as f64);
        let of_host = |metric| SeriesId {
            source: HOST.to_owned(),
            metric,
        };
        let known = [
            (Metric::CpuLoad, load),
            (Metric::RamUsed, used),
            (Metric::DiskRead, reads),
        ];
        known
            .into_iter()
            .filter_map(|(metric, value)| Some((of_host(metric), value?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::types::Timestamp;

    /// No time passes: no rate is known.
    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }

        fn elapsed(&self) -> Duration {
            Duration::ZERO
        }
    }

    #[test]
    fn this_machine_s_ram_and_load_are_in_their_bounds() {
        let mut source = HostSource::open(Arc::new(Stopped)).unwrap();
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
