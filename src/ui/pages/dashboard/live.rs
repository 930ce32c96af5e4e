//! What the sensors say now: the last hour of readings, and when runs were measured in it.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::telemetry::{AbsentSensor, Rings};
use crate::domain::text::{capitalised, clean, settings_words};
use crate::domain::types::{PlannedRun, Side, Timestamp};
use crate::engine::message::{Event, EventKind};
use crate::engine::telemetry::{DEFAULT_INTERVAL, Tick};

/// Weight of the newest tick in the mean cost: it follows within seconds and does not flicker.
const NEWEST: f64 = 0.1;

/// A time in which a run was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its begin.
    pub from: Timestamp,
    /// Its end.
    pub to: Timestamp,
    /// Which run, in words.
    pub words: String,
}

impl Span {
    /// Of a run that ended: `number` counts from 1, `secs` is how long it took.
    pub fn of_run(ended: Timestamp, secs: f64, number: u32, planned: &PlannedRun) -> Self {
        Self {
            from: Timestamp(ended.0 - (secs * 1000.0) as i64),
            to: ended,
            words: run_words(number, planned),
        }
    }
}

fn run_words(number: u32, planned: &PlannedRun) -> String {
    let arm = match planned.side {
        Some(Side::A) => ", arm A",
        Some(Side::B) => ", arm B",
        None => "",
    };
    let settings = settings_words(&planned.settings);
    format!(
        "Run {number}\n{}{arm}\n{settings}",
        capitalised(planned.stage.words())
    )
}

/// The sensors as they are read.
#[derive(Debug)]
pub struct Live {
    rings: Rings,
    interval_ms: u32,
    now: Option<Timestamp>,
    cost_ms: Option<f64>,
    absent: Arc<[AbsentSensor]>,
    spans: Vec<Span>,
    /// The run that is measured now, with its number.
    running: Option<(u64, Span)>,
}

impl Default for Live {
    fn default() -> Self {
        let interval_ms = DEFAULT_INTERVAL.as_millis() as u32;
        Self {
            rings: Rings::new(interval_ms),
            interval_ms,
            now: None,
            cost_ms: None,
            absent: Arc::default(),
            spans: Vec::new(),
            running: None,
        }
    }
}

impl Live {
    /// Readings come every `interval_ms` from now on; those before are forgotten.
    pub fn begin(&mut self, interval_ms: u32) {
        *self = Self {
            rings: Rings::new(interval_ms),
            interval_ms,
            spans: std::mem::take(&mut self.spans),
            running: self.running.take(),
            ..Self::default()
        };
    }

    /// Takes ticks in.
    pub fn take(&mut self, ticks: &[Tick]) {
        for tick in ticks {
            self.rings.extend(&tick.readings);
            self.now = Some(tick.at);
            self.absent = Arc::clone(&tick.absent);
            let cost = Duration::as_secs_f64(&tick.cost) * 1000.0;
            let mean = self.cost_ms.get_or_insert(cost);
            *mean += NEWEST * (cost - *mean);
        }
        if let Some((_, running)) = &mut self.running {
            running.to = self.now.unwrap_or(running.to).max(running.from);
        }
    }

    /// Takes in when the measuring job's runs begin and end.
    pub fn note(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Progress { done, doing, .. } => {
                let number = done + 1;
                if self.running.as_ref().is_none_or(|(run, _)| *run != number) {
                    let purpose = doing.split(": ").next().unwrap_or_default();
                    let span = Span {
                        from: event.at,
                        to: event.at,
                        words: format!("Run {number}\n{}", capitalised(&clean(purpose))),
                    };
                    self.running = Some((number, span));
                }
            }
            EventKind::RunStored {
                seq,
                planned,
                wall_secs,
                ..
            } => {
                self.running = None;
                let oldest = event.at.0 - i64::from(Rings::HOUR_MS);
                self.spans.retain(|span| span.to.0 >= oldest);
                let span = Span::of_run(event.at, *wall_secs, seq + 1, planned);
                self.spans.push(span);
            }
            EventKind::Finished(_) => self.running = None,
            _ => {}
        }
    }

    /// The readings.
    pub const fn rings(&self) -> &Rings {
        &self.rings
    }

    /// When the sensors were read last; `None` before the first time.
    pub const fn now(&self) -> Option<Timestamp> {
        self.now
    }

    /// Milliseconds between two readings.
    pub const fn interval_ms(&self) -> u32 {
        self.interval_ms
    }

    /// What reading all sensors costs, milliseconds, about.
    pub const fn cost_ms(&self) -> Option<f64> {
        self.cost_ms
    }

    /// Sensors that cannot be used, with the reasons.
    pub fn absent(&self) -> &[AbsentSensor] {
        &self.absent
    }

    /// The runs of the last hour, the one that goes on included.
    pub fn spans(&self) -> impl Iterator<Item = &Span> {
        let running = self.running.iter().map(|(_, span)| span);
        self.spans.iter().chain(running)
    }
}
