//! What the sampler and the measuring job share: which session is measured, what the sensors said lately, and the moments
//! at which slow counters are read.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::domain::telemetry::SeriesId;
use crate::domain::telemetry::around::Readings;

/// Readings are kept for so long: longer than any one run may take without being told to.
const KEPT: Duration = Duration::from_hours(2);
/// Moments waiting for a sampler that is reading; later ones are lost, which costs an energy figure and nothing else.
const BOUNDARIES_WAITING: usize = 8;
/// Longest wait for counters to be read at the end of a run: some take 17 ms, none a quarter of a second.
const BOUNDARY_PATIENCE: Duration = Duration::from_millis(250);

/// A moment at which counters are to be read; who waits for it is told.
pub(super) type Boundary = Option<Sender<()>>;

struct Shared {
    session: AtomicI64,
    interval_ms: AtomicU64,
    recent: Mutex<Readings>,
    boundaries: (Sender<Boundary>, Receiver<Boundary>),
}

/// A handle to it; all clones share.
#[derive(Clone)]
pub(super) struct Watch(Arc<Shared>);

impl Default for Watch {
    fn default() -> Self {
        Self(Arc::new(Shared {
            session: AtomicI64::new(0),
            interval_ms: AtomicU64::new(0),
            recent: Mutex::default(),
            boundaries: bounded(BOUNDARIES_WAITING),
        }))
    }
}

impl Watch {
    /// `session` is measured from now on.
    pub fn begin(&self, session: i64) {
        self.0.session.store(session, Ordering::SeqCst);
    }

    /// None is.
    pub fn end(&self) {
        self.0.session.store(0, Ordering::SeqCst);
    }

    /// The session that is measured.
    pub fn session(&self) -> Option<i64> {
        // Row ids begin at 1.
        Some(self.0.session.load(Ordering::SeqCst)).filter(|&id| id > 0)
    }

    /// A sampler reads at this interval from now on; none at zero.
    pub fn set_interval(&self, interval: Duration) {
        let ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        self.0.interval_ms.store(ms, Ordering::SeqCst);
    }

    /// Between readings; zero without a sampler.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.0.interval_ms.load(Ordering::SeqCst))
    }

    fn is_sampled(&self) -> bool {
        !self.interval().is_zero()
    }

    /// Where the sampler hears of boundaries.
    pub fn boundaries(&self) -> Receiver<Boundary> {
        self.0.boundaries.1.clone()
    }

    /// Counters are to be read now: a repetition begins.
    pub fn boundary(&self) {
        if self.is_sampled() {
            // Full only while the sampler is busy with those before.
            let _ = self.0.boundaries.0.try_send(None);
        }
    }

    /// The same, and waits until they are read.
    pub fn last_boundary(&self) {
        let (read, wait) = bounded(1);
        if self.is_sampled() && self.0.boundaries.0.try_send(Some(read)).is_ok() {
            // A sampler that ends meanwhile drops its side.
            let _ = wait.recv_timeout(BOUNDARY_PATIENCE);
        }
    }

    /// Keeps values read at a moment of monotonic time.
    pub fn keep(&self, at: Duration, values: &[(SeriesId, f64)]) {
        let mut recent = self.0.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = at.saturating_sub(KEPT).as_secs_f64();
        for (series, value) in values {
            let points = recent.entry(series.clone()).or_default();
            points.push((at.as_secs_f64(), *value));
            let gone = points.partition_point(|(t, _)| *t < oldest);
            // Half at a time: moving the rest on every reading would cost more than reading.
            if gone > points.len() / 2 {
                points.drain(..gone);
            }
        }
    }

    /// What was read since a moment.
    pub fn since(&self, from: Duration) -> Readings {
        let from = from.as_secs_f64();
        let recent = self.0.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |points: &Vec<_>| points[points.partition_point(|&(t, _)| t < from)..].to_vec();
        recent
            .iter()
            .map(|(series, points)| (series.clone(), fresh(points)))
            .filter(|(_, points)| !points.is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::telemetry::{HOST, Metric};

    fn load() -> SeriesId {
        SeriesId {
            source: HOST.to_owned(),
            metric: Metric::CpuLoad,
        }
    }

    #[test]
    fn readings_are_kept_for_two_hours_and_asked_for_from_a_moment() {
        let watch = Watch::default();
        for minute in 0..300 {
            let at = Duration::from_secs(60 * minute);
            watch.keep(at, &[(load(), minute as f64)]);
        }
        let since = |minute: u64| watch.since(Duration::from_secs(60 * minute));
        assert_eq!(since(298)[&load()], [(17_880.0, 298.0), (17_940.0, 299.0)]);
        assert_eq!(since(300), Readings::new());
        let kept = since(0)[&load()].len();
        assert!((121..=242).contains(&kept), "{kept}");
    }

    #[test]
    fn boundaries_reach_a_sampler_and_nobody_waits_without_one() {
        let watch = Watch::default();
        watch.boundary();
        watch.last_boundary();
        assert!(watch.boundaries().is_empty());
        watch.set_interval(Duration::from_millis(250));
        watch.boundary();
        assert_eq!(watch.boundaries().recv().map(|b| b.is_some()), Ok(false));
    }
}
