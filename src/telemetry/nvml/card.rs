//! One of NVIDIA's GPUs: its sensors, each on its own (case C24), and its energy counter.

use crate::domain::telemetry::energy::RisingCounter;
use crate::domain::telemetry::{AbsentSensor, Metric, SeriesId, Trust, says_nothing};

use super::Answers;
use super::question::{Question, Refusal};

/// What is asked every tick, the preferred way of each first. Load comes first: power is judged by it.
const SENSORS: &[&[Question]] = &[
    &[Question::GpuLoad],
    &[Question::PowerInstant, Question::PowerAverage],
    &[Question::CoreClock],
    &[Question::MemoryClock],
    &[Question::Temperature],
    &[Question::MemoryTemperature],
    &[Question::FanSpeed, Question::FanLoad],
    &[Question::MemoryUsed],
    &[Question::MemoryLoad],
    &[Question::ThrottleReasons],
    &[Question::LinkGeneration],
    &[Question::LinkWidth],
];

/// A reading and the ways to it that are left.
struct Sensor {
    ways: &'static [Question],
    trust: Trust,
    lost: Option<Refusal>,
}

impl Sensor {
    fn new(ways: &'static [Question]) -> Self {
        Self {
            ways,
            trust: Trust::default(),
            lost: None,
        }
    }

    /// A way that is refused for good is not asked again; the last refusal stays as the reason.
    fn read(
        &mut self,
        mut ask: impl FnMut(Question) -> Result<u64, Refusal>,
        load_pct: Option<f64>,
    ) -> Option<(Metric, f64)> {
        while let Some((question, rest)) = self.ways.split_first() {
            match ask(*question) {
                Ok(raw) => {
                    self.lost = None;
                    let told = (!says_nothing(raw)).then(|| question.reading(raw));
                    let (metric, value) = told.flatten()?;
                    let value = self.trust.judge(metric, value, load_pct)?;
                    return Some((metric, value));
                }
                Err(refusal) if refusal.is_final() => {
                    self.lost = Some(refusal);
                    self.ways = rest;
                }
                Err(refusal) => {
                    self.lost = Some(refusal);
                    return None;
                }
            }
        }
        None
    }

    fn reason(&self) -> Option<String> {
        let lost = self.lost.as_ref().map(ToString::to_string);
        lost.or_else(|| self.trust.doubt().map(str::to_owned))
    }
}

/// A GPU.
pub(super) struct Card {
    address: String,
    /// With the metric that each stands for, which outlives its ways.
    sensors: Vec<(Metric, Sensor)>,
    energy: Sensor,
    counter: RisingCounter,
}

impl Card {
    pub fn new(address: &str) -> Self {
        let sensor = |ways: &&'static [Question]| {
            let metric = ways.first().and_then(|way| way.metric())?;
            Some((metric, Sensor::new(ways)))
        };
        Self {
            address: address.to_owned(),
            sensors: SENSORS.iter().filter_map(sensor).collect(),
            energy: Sensor::new(&[Question::Energy]),
            counter: RisingCounter::new(None),
        }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Everything that is told at once.
    pub fn sample(&mut self, answers: &dyn Answers, place: usize) -> Vec<(SeriesId, f64)> {
        let mut found = Vec::with_capacity(self.sensors.len());
        let mut load = None;
        for (_, sensor) in &mut self.sensors {
            let read = sensor.read(|question| answers.ask(place, question), load);
            if let Some((metric, value)) = read {
                if metric == Metric::GpuLoad {
                    load = Some(value);
                }
                found.push((series(&self.address, metric), value));
            }
        }
        found
    }

    /// The energy counter, J since its first reading.
    pub fn energy(&mut self, answers: &dyn Answers, place: usize) -> Option<(SeriesId, f64)> {
        let mut raw = None;
        let keep = |question| {
            let told = answers.ask(place, question);
            raw = told.as_ref().ok().copied();
            told
        };
        self.energy.read(keep, None)?;
        let risen = self.counter.risen(raw?);
        let (metric, joules) = Question::Energy.reading(risen)?;
        Some((series(&self.address, metric), joules))
    }

    /// The sensors that told nothing last, all of them for `reason` where there is one.
    pub fn absent(&self, reason: Option<&str>) -> Vec<AbsentSensor> {
        let energy = (Metric::Energy, &self.energy);
        let all = self
            .sensors
            .iter()
            .map(|(metric, sensor)| (*metric, sensor));
        all.chain([energy])
            .filter_map(|(metric, sensor)| {
                Some(AbsentSensor {
                    series: series(&self.address, metric),
                    reason: reason.map(str::to_owned).or_else(|| sensor.reason())?,
                })
            })
            .collect()
    }
}

fn series(source: &str, metric: Metric) -> SeriesId {
    SeriesId {
        source: source.to_owned(),
        metric,
    }
}
