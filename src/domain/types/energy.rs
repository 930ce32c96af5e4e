//! Energy and sensors beside the times of a run.

use serde::{Deserialize, Serialize};

use crate::domain::telemetry::SeriesId;

/// What a figure of energy rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnergyMethod {
    /// The difference of an energy counter.
    Counter,
    /// Power readings, by the trapezoid rule.
    Integrated,
}

/// Energy drawn in a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// Joules.
    pub joules: f64,
    /// What it rests on.
    pub method: EnergyMethod,
    /// The time is too short for the sensor, or readings are missing: an estimate.
    pub estimated: bool,
}

/// Energy of every repetition of a test, over exactly its time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TestEnergy {
    /// What the device drew, in the order of the repetitions; empty where it is not known of all.
    pub device: Vec<Energy>,
    /// What the processor's package drew beside it, likewise.
    pub package: Vec<Energy>,
}

impl TestEnergy {
    /// Joules of each repetition: of the device alone, or with the package. Empty where a part is not known.
    pub fn joules(&self, with_package: bool) -> Vec<f64> {
        let device = self.device.iter().map(|e| e.joules);
        if with_package {
            let pairs = device.zip(&self.package);
            pairs
                .map(|(device, package)| device + package.joules)
                .collect()
        } else {
            device.collect()
        }
    }

    /// Is a figure of the device an estimate?
    pub fn is_estimated(&self) -> bool {
        self.device.iter().any(|e| e.estimated)
    }
}

/// A sensor over a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Lowest reading.
    pub min: f64,
    /// Mean of the readings.
    pub mean: f64,
    /// Highest reading.
    pub max: f64,
}

impl Spread {
    /// Of values; `None` without any.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (!values.is_empty()).then(|| Self {
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            mean,
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// What the sensors said around a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunTelemetry {
    /// The device measured on, as its readings name it; `None` is the processor.
    pub device: Option<String>,
    /// Every series while repetitions were timed.
    pub timed: Vec<(SeriesId, Spread)>,
    /// Every series in the seconds before the process began: idle, unless something else was at work.
    pub before: Vec<(SeriesId, Spread)>,
    /// Anything to doubt the run for, in words.
    pub doubts: Vec<String>,
}

impl RunTelemetry {
    /// A device's or the host's series while repetitions were timed.
    pub fn timed(&self, series: &SeriesId) -> Option<Spread> {
        find(&self.timed, series)
    }

    /// The same before the process began.
    pub fn before(&self, series: &SeriesId) -> Option<Spread> {
        find(&self.before, series)
    }
}

fn find(among: &[(SeriesId, Spread)], series: &SeriesId) -> Option<Spread> {
    among.iter().find(|(s, _)| s == series).map(|(_, v)| *v)
}
