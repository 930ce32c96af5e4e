//! The readings shown, and the time over which they are.

use crate::domain::telemetry::around::LAG_SECS;
use crate::domain::telemetry::columns::coarser;
use crate::domain::telemetry::{Column, Metric, Rings, SeriesId, Summary, Windowed};
use crate::domain::types::Timestamp;

use super::live::Span;

/// The readings shown.
#[derive(Clone, Copy)]
pub enum Readings<'a> {
    /// As they are read.
    Live(&'a Rings),
    /// Of a stored session, cut down already.
    Stored(&'a [Windowed]),
}

impl<'a> Readings<'a> {
    /// The series there are.
    pub fn series(self) -> Vec<&'a SeriesId> {
        match self {
            Self::Live(rings) => rings.series().collect(),
            Self::Stored(all) => all.iter().map(|w| &w.series).collect(),
        }
    }

    fn stored(all: &'a [Windowed], series: &SeriesId) -> Option<&'a Windowed> {
        all.iter().find(|w| w.series == *series)
    }

    /// What a chart of `n` columns draws.
    pub fn columns(
        self,
        series: &SeriesId,
        from: Timestamp,
        to: Timestamp,
        n: usize,
    ) -> Vec<Column> {
        match self {
            Self::Live(rings) => rings.get(series).map(|ring| ring.columns(from, to, n)),
            Self::Stored(all) => {
                Self::stored(all, series).map(|w| coarser(&w.columns, from, to, n))
            }
        }
        .unwrap_or_default()
    }

    /// The time in numbers.
    pub fn summary(self, series: &SeriesId, from: Timestamp, to: Timestamp) -> Option<Summary> {
        match self {
            Self::Live(rings) => rings.get(series)?.summary(from, to),
            Self::Stored(all) => Some(Self::stored(all, series)?.summary),
        }
    }

    /// The value that came last, and when; of a stored session nothing is now.
    pub fn last(self, series: &SeriesId) -> Option<(Timestamp, f64)> {
        match self {
            Self::Live(rings) => rings.get(series)?.last(),
            Self::Stored(_) => None,
        }
    }
}

/// The time shown, and what is known of it.
pub struct View<'a> {
    /// Readings.
    pub readings: Readings<'a>,
    /// Runs.
    pub spans: Vec<&'a Span>,
    /// Begin.
    pub from: Timestamp,
    /// End.
    pub to: Timestamp,
    /// The readings go on: the value is the last, unless it is older than so many milliseconds. `None` is a stored
    /// session, whose value is the mean.
    pub fresh_ms: Option<i64>,
    /// The session shown; 0 is now.
    pub session: i64,
}

impl View<'_> {
    /// What a sensor says now: nothing in a stored session, or after it fell silent.
    pub fn now(&self, series: &SeriesId) -> Option<f64> {
        let (at, value) = self.readings.last(series)?;
        (self.to.0 - at.0 <= self.fresh_ms?).then_some(value)
    }

    /// What other programs make of a load, percent: its mean in the time shown while no run of Flux was measured, where one
    /// was. Of a stored session it is not known.
    pub fn between_runs(&self, series: &SeriesId) -> Option<f64> {
        let is_load = matches!(series.metric, Metric::GpuLoad | Metric::CpuLoad);
        let Readings::Live(rings) = self.readings else {
            return None;
        };
        let ring = rings.get(series).filter(|_| is_load)?;
        let within = |s: &&&Span| s.to >= self.from && s.from <= self.to;
        let mut spans: Vec<_> = self.spans.iter().filter(within).collect();
        spans.sort_by_key(|span| span.from);
        let (mut weighted, mut total, mut from) = (0.0, 0.0, self.from.0);
        let ends = spans
            .iter()
            .map(|s| (s.from.0, s.to.0 + (1e3 * LAG_SECS) as i64));
        for (begin, end) in ends.chain([(self.to.0 + 1, i64::MAX)]) {
            if let Some(between) = ring.summary(Timestamp(from), Timestamp(begin - 1)) {
                let length = (begin - from) as f64;
                weighted += length * between.mean;
                total += length;
            }
            from = from.max(end);
        }
        (!spans.is_empty() && total > 0.0).then(|| weighted / total)
    }
}
