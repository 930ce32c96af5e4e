//! What the sensors of every kernel driver have in common: found by the GPU's PCI address, left alone while it sleeps.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::domain::telemetry::{AbsentSensor, Metric, Rest, SeriesId};
use crate::domain::types::PciAddress;
use crate::ports::Clock;

use crate::system_root::read_number;

use super::files::{Files, SensorFile};
use super::sensor::{Parse, Sensor, milli};

/// PCI base class of display controllers.
const CLASS_DISPLAY: u64 = 0x03;
/// PCI base class of processing accelerators, as AMD's Instinct cards are.
const CLASS_ACCELERATOR: u64 = 0x12;
/// Why a sleeping GPU tells nothing.
const ASLEEP: &str = "asleep: reading would wake the GPU; it is read again when something uses it";
/// Why an idle one does.
const RESTS: &str = "left alone for some seconds, so that the GPU can fall asleep";

/// One GPU and its sensors.
pub(super) struct Gpu {
    address: String,
    dir: PathBuf,
    hwmon: Option<PathBuf>,
    runtime_status: Option<SensorFile>,
    sensors: Vec<Sensor>,
    critical: Vec<(SeriesId, f64)>,
    /// Why nothing is read now.
    quiet: Option<&'static str>,
    /// Of one that could sleep.
    rest: Option<Rest>,
    measured: bool,
    clock: Arc<dyn Clock>,
}

impl Gpu {
    /// The GPUs of a vendor whose monitors (`hwmon`) bear one of these names: their numbers change from start to start.
    pub fn find(
        files: &Files,
        clock: &Arc<dyn Clock>,
        vendor: u32,
        monitors: &[&str],
    ) -> Vec<Self> {
        files
            .list("sys/bus/pci/devices")
            .into_iter()
            .filter(|dir| is_gpu(files, dir, vendor))
            .filter_map(|dir| {
                // A captured tree has no colons.
                let name = dir.file_name()?.to_string_lossy().replace('-', ":");
                let address: PciAddress = name.parse().ok()?;
                let ours = |dir: &PathBuf| {
                    let name = files.text(&dir.join("name"));
                    name.is_some_and(|name| monitors.contains(&name.as_str()))
                };
                Some(Self {
                    address: address.to_string(),
                    hwmon: files.list(dir.join("hwmon")).into_iter().find(ours),
                    runtime_status: files.open(&dir.join("power/runtime_status")).ok(),
                    rest: (files.text(&dir.join("power/control")).as_deref() == Some("auto"))
                        .then(Rest::default),
                    dir,
                    sensors: Vec::new(),
                    critical: Vec::new(),
                    quiet: None,
                    measured: true,
                    clock: Arc::clone(clock),
                })
            })
            .collect()
    }

    /// Its PCI address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A file of the device.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A file of its monitor; without one it is not there.
    pub fn monitor(&self, name: &str) -> PathBuf {
        let nowhere = || self.dir.join("hwmon");
        self.hwmon.clone().unwrap_or_else(nowhere).join(name)
    }

    /// The monitor's files `{kind}*_input` under their label, in order of number; the label is empty where there is none.
    pub fn labelled(&self, files: &Files, kind: &str) -> Vec<(String, PathBuf)> {
        let inputs = self.hwmon.iter().flat_map(|dir| files.list(dir));
        inputs
            .filter_map(|path| {
                let name = path.file_name()?.to_str()?.to_owned();
                let stem = name.strip_suffix("_input")?;
                stem.strip_prefix(kind)?.parse::<u32>().ok()?;
                let label = files.text(&path.with_file_name(format!("{stem}_label")));
                Some((label.unwrap_or_default(), path))
            })
            .collect()
    }

    /// Adds a sensor that these files may tell, the preferred first. Load comes first: others are judged by it.
    pub fn look(&mut self, files: &Files, metric: Metric, candidates: &[(PathBuf, Parse)]) {
        self.sensors.push(Sensor::look(files, metric, candidates));
    }

    /// Adds the temperatures that the monitor tells under these labels, each with where its driver steps in.
    pub fn look_at_heat(&mut self, files: &Files, places: &[(Metric, &[&str])]) {
        let inputs = self.labelled(files, "temp");
        for (metric, labels) in places {
            let ours = inputs.iter().filter(|(l, _)| labels.contains(&l.as_str()));
            let ways: Vec<_> = ours
                .map(|(_, path)| (path.clone(), milli as Parse))
                .collect();
            let critical = ways.first().and_then(|(path, _)| {
                let name = path.file_name()?.to_str()?.replace("_input", "_crit");
                files.number(&path.with_file_name(name))
            });
            let series = self.series(*metric);
            self.critical
                .extend(critical.map(|c| (series, c as f64 / 1e3)));
            self.look(files, *metric, &ways);
        }
    }

    /// Temperatures at which its driver steps in, °C.
    pub fn critical(&self) -> Vec<(SeriesId, f64)> {
        self.critical.clone()
    }

    /// Somebody measures from now on, or nobody does.
    pub fn measuring(&mut self, measuring: bool) {
        self.measured = measuring;
    }

    /// It is not to be read now: it sleeps, or could fall asleep and nobody measures (case C27). A driver that tells no
    /// state never sleeps.
    pub fn is_quiet(&mut self) -> bool {
        let status = self.runtime_status.as_mut();
        let asleep = status
            .and_then(|file| file.read(|text| text == "suspended").ok())
            .unwrap_or(false);
        let now = self.clock.elapsed().as_secs_f64();
        let rests = match &mut self.rest {
            Some(rest) if asleep || self.measured => {
                rest.over();
                false
            }
            Some(rest) => rest.rests(now),
            None => false,
        };
        let resting = rests.then_some(RESTS);
        self.quiet = if asleep { Some(ASLEEP) } else { resting };
        self.quiet.is_some()
    }

    /// Why it was not to be read when that was asked last.
    pub fn quiet(&self) -> Option<&'static str> {
        self.quiet
    }

    /// The sensors' values now; of a GPU that is not quiet.
    pub fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        let mut found = Vec::with_capacity(self.sensors.len() + 2);
        let mut load = None;
        for sensor in &mut self.sensors {
            if let Some(value) = sensor.read(load) {
                if sensor.metric == Metric::GpuLoad {
                    load = Some(value);
                }
                found.push((series(&self.address, sensor.metric), value));
            }
        }
        self.was_read(load);
        found
    }

    /// Somebody read it, in whatever way; a load that is not known counts as work.
    pub fn was_read(&mut self, load_pct: Option<f64>) {
        if let Some(rest) = &mut self.rest {
            rest.read(self.clock.elapsed().as_secs_f64(), load_pct);
        }
    }

    /// The sensors that told nothing last.
    pub fn absent(&self) -> Vec<AbsentSensor> {
        let mut found = Vec::new();
        for sensor in &self.sensors {
            let reason = self.quiet.or_else(|| sensor.reason());
            found.extend(reason.map(|reason| self.lost(sensor.metric, reason)));
        }
        found
    }

    /// One that cannot be used.
    pub fn lost(&self, metric: Metric, reason: &str) -> AbsentSensor {
        AbsentSensor {
            series: self.series(metric),
            reason: self.quiet.unwrap_or(reason).to_owned(),
        }
    }

    /// Its series of a metric.
    pub fn series(&self, metric: Metric) -> SeriesId {
        series(&self.address, metric)
    }
}

/// What else is on PCI is no part of a captured machine.
fn is_gpu(files: &Files, dir: &Path, vendor: u32) -> bool {
    let (maker, class) = (dir.join("vendor"), dir.join("class"));
    let kind = read_number(&class).map(|class| class >> 16);
    let found = read_number(&maker) == Some(u64::from(vendor))
        && matches!(kind, Some(CLASS_DISPLAY | CLASS_ACCELERATOR));
    found && files.number(&maker).is_some() && files.number(&class).is_some()
}

fn series(source: &str, metric: Metric) -> SeriesId {
    SeriesId {
        source: source.to_owned(),
        metric,
    }
}
