//! A file that counts energy.

use std::path::{Path, PathBuf};

use crate::domain::telemetry::MOST_WATTS;
use crate::domain::telemetry::energy::{EnergyMeter, Metered};

use super::files::{Files, SensorFile, why};

/// A counter of microjoules and what was made of it.
pub(super) struct Counter {
    ways: Vec<SensorFile>,
    chosen: Option<usize>,
    meter: EnergyMeter,
    lost: Option<String>,
}

impl Counter {
    /// Opens the files that may count, the preferred first; they wrap after `range`, where that is known.
    pub fn look(files: &Files, candidates: &[PathBuf], range: Option<u64>) -> Self {
        let open = |path: &PathBuf| files.open(path).map_err(|e| refused(&e, path));
        let opened: Vec<Result<SensorFile, String>> = candidates.iter().map(open).collect();
        let mut lost = Some("no energy counter on this device or in its driver".to_owned());
        let mut ways = Vec::new();
        for result in opened {
            match result {
                Ok(file) => ways.push(file),
                Err(reason) => lost = Some(reason),
            }
        }
        Self {
            lost: lost.filter(|_| ways.is_empty()),
            ways,
            chosen: None,
            meter: EnergyMeter::new(range, MOST_WATTS),
        }
    }

    /// More than so many watts cannot be.
    pub fn limit(&mut self, most_watts: f64) {
        self.meter.limit(most_watts);
    }

    /// Energy and power now, at the `clock`'s seconds of monotonic time. The first file that counts is kept to: which one
    /// does depends on the driver (case C26).
    pub fn read(&mut self, clock: impl Fn() -> f64) -> Option<Metered> {
        let from = self.chosen.unwrap_or(0);
        let to = self.chosen.map_or(self.ways.len(), |chosen| chosen + 1);
        for way in from..to {
            match self.ways[way].read(|text| text.parse::<u64>().ok()) {
                Ok(Some(raw)) if raw > 0 || self.chosen.is_some() => {
                    let metered = self.meter.read(clock(), raw);
                    self.chosen = Some(way);
                    let still = self.meter.stands_still();
                    self.lost = still.then(|| "the energy counter stands still".to_owned());
                    return Some(metered).filter(|_| !still);
                }
                Ok(_) => self.lost = Some("the energy counter tells nothing".to_owned()),
                Err(error) => self.lost = Some(why(&error)),
            }
        }
        None
    }

    /// Why it told nothing when it was read last.
    pub fn reason(&self) -> Option<&str> {
        self.lost.as_deref()
    }
}

fn refused(error: &std::io::Error, path: &Path) -> String {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            let path = path.display();
            format!("no permission: `sudo chmod a+r {path}` allows it until the next start")
        }
        _ => why(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_for_root_alone_says_how_to_allow_it() {
        let path = Path::new("/sys/class/powercap/intel-rapl:0/energy_uj");
        let denied = std::io::ErrorKind::PermissionDenied.into();
        assert_eq!(
            refused(&denied, path),
            "no permission: `sudo chmod a+r /sys/class/powercap/intel-rapl:0/energy_uj` allows it until the next start"
        );
    }
}
