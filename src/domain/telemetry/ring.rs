//! The last hour of readings, series by series, cut down to what a chart can show without losing a peak.

use std::collections::{BTreeMap, VecDeque};

use crate::domain::types::Timestamp;

use super::columns::{GAP_TICKS, Piece, columns, width_ms};
use super::{Column, Reading, SeriesId};

/// The readings of one series that came last, the oldest giving way to new ones.
#[derive(Debug, Clone)]
pub struct Ring {
    points: VecDeque<(i64, f64)>,
    capacity: usize,
    gap_ms: i64,
}

/// A series over a time in numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Lowest value.
    pub min: f64,
    /// Mean of all values.
    pub mean: f64,
    /// Highest value.
    pub max: f64,
    /// The value that came last.
    pub last: f64,
}

impl Ring {
    /// A ring for `capacity` readings that come every `interval_ms`.
    pub fn new(capacity: usize, interval_ms: u32) -> Self {
        Self {
            points: VecDeque::new(),
            capacity,
            gap_ms: GAP_TICKS * i64::from(interval_ms),
        }
    }

    /// Keeps a value. Times may repeat or step back, as a clock that is set does.
    pub fn push(&mut self, at: Timestamp, value: f64) {
        if self.points.len() == self.capacity {
            self.points.pop_front();
        }
        self.points.push_back((at.0, value));
    }

    /// The value that came last, and when.
    pub fn last(&self) -> Option<(Timestamp, f64)> {
        self.points
            .back()
            .map(|&(at, value)| (Timestamp(at), value))
    }

    /// Lowest and highest values from `from` to `to`, both included, in at most `n` + 1 columns of equal width; columns
    /// without readings are left out. Columns lie on a fixed grid: they do not flicker as a window moves along.
    pub fn columns(&self, from: Timestamp, to: Timestamp, n: usize) -> Vec<Column> {
        let piece = |(at, value)| Piece {
            at,
            min: value,
            max: value,
        };
        let pieces = self.between(from, to).map(piece);
        columns(pieces, width_ms(from, to, n), self.gap_ms)
    }

    /// The values from `from` to `to`, both included, in numbers; `None` where there are none.
    pub fn summary(&self, from: Timestamp, to: Timestamp) -> Option<Summary> {
        let mut count = 0_u32;
        let mut found: Option<Summary> = None;
        for (_, value) in self.between(from, to) {
            count += 1;
            let so_far = found.get_or_insert(Summary {
                min: value,
                mean: value,
                max: value,
                last: value,
            });
            so_far.min = so_far.min.min(value);
            so_far.max = so_far.max.max(value);
            so_far.mean += (value - so_far.mean) / f64::from(count);
            so_far.last = value;
        }
        found
    }

    fn between(&self, from: Timestamp, to: Timestamp) -> impl Iterator<Item = (i64, f64)> + '_ {
        let points = self.points.iter().copied();
        points.filter(move |(at, _)| (from.0..=to.0).contains(at))
    }
}

/// The rings of every series that was ever read.
#[derive(Debug, Clone)]
pub struct Rings {
    by_series: BTreeMap<SeriesId, Ring>,
    capacity: usize,
    interval_ms: u32,
}

impl Rings {
    /// What rings remember unless told otherwise, milliseconds: the longest time a dashboard shows.
    pub const HOUR_MS: u32 = 3_600_000;

    /// Rings that hold an hour of readings that come every `interval_ms`: 14,400 at 250 ms.
    pub fn new(interval_ms: u32) -> Self {
        let interval_ms = interval_ms.max(1);
        Self {
            by_series: BTreeMap::new(),
            capacity: (Self::HOUR_MS / interval_ms) as usize,
            interval_ms,
        }
    }

    /// Keeps the readings of a tick.
    pub fn extend<'r>(&mut self, readings: impl IntoIterator<Item = &'r Reading>) {
        let (capacity, interval_ms) = (self.capacity, self.interval_ms);
        for reading in readings {
            // Looked up before it is made: the id is copied once per series, not once per reading.
            match self.by_series.get_mut(&reading.series) {
                Some(ring) => ring.push(reading.at, reading.value),
                None => self
                    .by_series
                    .entry(reading.series.clone())
                    .or_insert_with(|| Ring::new(capacity, interval_ms))
                    .push(reading.at, reading.value),
            }
        }
    }

    /// The series that were read, by source.
    pub fn series(&self) -> impl Iterator<Item = &SeriesId> {
        self.by_series.keys()
    }

    /// The ring of a series; `None` where it was never read.
    pub fn get(&self, series: &SeriesId) -> Option<&Ring> {
        self.by_series.get(series)
    }
}
