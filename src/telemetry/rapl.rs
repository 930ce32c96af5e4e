//! Energy of the processor's packages, which Intel's and AMD's count and Linux tells below `/sys/class/powercap`.

use std::path::Path;
use std::sync::Arc;

use crate::domain::telemetry::{AbsentSensor, HOST, Metric, SeriesId};
use crate::ports::{Clock, TelemetrySource};

use super::counter::Counter;
use super::files::Files;

/// Every package of this machine.
pub struct Rapl {
    packages: Vec<Counter>,
    clock: Arc<dyn Clock>,
}

impl Rapl {
    /// Those below the root; `None` on a system that is not Linux.
    pub(super) fn open(files: &Files, clock: &Arc<dyn Clock>) -> Option<Self> {
        if files.list("sys").is_empty() {
            return None;
        }
        let zones = files.list("sys/class/powercap").into_iter();
        let packages = zones.filter(|zone| is_package(files, zone)).map(|zone| {
            let range = files.number(&zone.join("max_energy_range_uj"));
            Counter::look(files, &[zone.join("energy_uj")], range)
        });
        Some(Self {
            packages: packages.collect(),
            clock: Arc::clone(clock),
        })
    }
}

/// `intel-rapl:0`, of AMD's processors too, called `package-0`. Not `intel-rapl:0:0`, a part of it, nor
/// `intel-rapl-mmio:0`, the same counter once more.
fn is_package(files: &Files, zone: &Path) -> bool {
    let name = zone.file_name().unwrap_or_default().to_string_lossy();
    let number = name
        .strip_prefix("intel-rapl")
        .and_then(|rest| rest.get(1..));
    number.is_some_and(|n| n.parse::<u32>().is_ok())
        && files
            .text(&zone.join("name"))
            .is_some_and(|name| name.starts_with("package"))
}

impl TelemetrySource for Rapl {
    fn name(&self) -> &'static str {
        "rapl"
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        let (mut joules, mut watts) = (Some(0.0), Some(0.0));
        for package in &mut self.packages {
            // A sum without one of its parts would be another figure.
            let metered = package.read(|| self.clock.elapsed().as_secs_f64());
            joules = joules.zip(metered).map(|(sum, m)| sum + m.joules);
            watts = watts
                .zip(metered.and_then(|m| m.watts))
                .map(|(sum, w)| sum + w);
        }
        if self.packages.is_empty() {
            return Vec::new();
        }
        [(Metric::CpuPower, watts), (Metric::CpuEnergy, joules)]
            .into_iter()
            .filter_map(|(metric, value)| Some((of_host(metric), value?)))
            .collect()
    }

    fn absent(&self) -> Vec<AbsentSensor> {
        let none = self
            .packages
            .is_empty()
            .then_some("this machine counts no energy of its processor");
        let reason = self.packages.iter().find_map(Counter::reason).or(none);
        let absent = reason.map(|reason| AbsentSensor {
            series: of_host(Metric::CpuPower),
            reason: reason.to_owned(),
        });
        absent.into_iter().collect()
    }
}

fn of_host(metric: Metric) -> SeriesId {
    SeriesId {
        source: HOST.to_owned(),
        metric,
    }
}
