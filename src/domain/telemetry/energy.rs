//! Energy of a stretch of time from power readings or from a counter (design section 6). Energy per token is taken over
//! exactly the time of a sample.

use crate::domain::types::{Energy, EnergyMethod};

/// Windows shorter than this are estimates, seconds: power readings of NVIDIA's and AMD's recent cards are averages over
/// about a second, counters step every 20 to 100 ms (case C28; Yang et al., SC24).
pub const SHORTEST_SURE_SECS: f64 = 3.0;
/// Readings further apart than so many intervals leave a gap: what was drawn in it is not known.
const GAP_INTERVALS: f64 = 4.0;
/// Least share of a window that readings must cover to speak for it.
const LEAST_COVERED: f64 = 0.8;

/// A stretch of monotonic time, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Its beginning.
    pub from: f64,
    /// Its end.
    pub to: f64,
}

impl Window {
    /// Its length, seconds.
    pub fn secs(self) -> f64 {
        self.to - self.from
    }
}

/// A reading at a moment of monotonic time: (seconds, value).
pub type Point = (f64, f64);

/// Integral of power readings (W) over `window` by the trapezoid rule, with linear interpolation at its ends:
/// `Σ (p_i + p_{i+1}) / 2 · (t_{i+1} − t_i)`. Time without readings is filled with the mean of the rest and makes it an
/// estimate; `None` where the readings cover less than 80 % of the window, beginning and end included.
pub fn integrated(points: &[Point], window: Window, interval_secs: f64) -> Option<Energy> {
    let length = window.secs();
    let (mut joules, mut covered) = (0.0, 0.0);
    for pair in points.windows(2) {
        let [(t0, p0), (t1, p1)] = [pair[0], pair[1]];
        let (from, to) = (t0.max(window.from), t1.min(window.to));
        if to <= from || t1 - t0 > GAP_INTERVALS * interval_secs {
            continue;
        }
        let at = |t: f64| p0 + (p1 - p0) * (t - t0) / (t1 - t0);
        joules += f64::midpoint(at(from), at(to)) * (to - from);
        covered += to - from;
    }
    let known = length > 0.0 && covered >= LEAST_COVERED * length;
    known.then(|| Energy {
        joules: joules * length / covered,
        method: EnergyMethod::Integrated,
        estimated: length < SHORTEST_SURE_SECS || covered < length * (1.0 - 1e-9),
    })
}

/// Difference of a counter (J) over `window`, interpolated between the readings around each end. `None` where no reading
/// lies at or before its beginning or at or after its end, or where the counter went back.
pub fn counted(points: &[Point], window: Window) -> Option<Energy> {
    let at = |t: f64| {
        let after = points.partition_point(|(time, _)| *time < t);
        let (t1, e1) = *points.get(after)?;
        // The first reading may be the beginning itself.
        let (t0, e0) = *points.get(after.checked_sub(1).unwrap_or(after))?;
        let share = if t1 > t0 { (t - t0) / (t1 - t0) } else { 1.0 };
        (t >= t0).then_some(e0 + (e1 - e0) * share)
    };
    let joules = at(window.to)? - at(window.from)?;
    (joules >= 0.0 && window.secs() > 0.0).then(|| Energy {
        joules,
        method: EnergyMethod::Counter,
        estimated: window.secs() < SHORTEST_SURE_SECS,
    })
}

/// A counter of a sensor made one that only rises: it wraps at a known range (RAPL), or is reset with its driver.
#[derive(Debug, Clone, Default)]
pub struct RisingCounter {
    last: Option<u64>,
    risen: u64,
    range: Option<u64>,
}

impl RisingCounter {
    /// A counter that goes back to zero after `range`, the highest value it shows; `None` never does.
    pub fn new(range: Option<u64>) -> Self {
        Self {
            last: None,
            risen: 0,
            range,
        }
    }

    /// What it has risen since its first reading, in its own unit; a step that is not known counts for nothing.
    pub fn risen(&mut self, raw: u64) -> u64 {
        self.risen += self.step(raw).unwrap_or(0);
        self.risen
    }

    /// What it has risen since the reading before; `None` for the first and for a reset. A step back is one wrap where
    /// the range is known and the step is plausible (the counter rose by less than half its range), else a reset.
    fn step(&mut self, raw: u64) -> Option<u64> {
        let last = self.last.replace(raw)?;
        raw.checked_sub(last).or_else(|| {
            let range = self.range?;
            let step = (range - last.min(range)) + raw + 1;
            (step < range / 2).then_some(step)
        })
    }
}

/// Microjoules in a joule: the unit of every energy counter of Linux.
const MICROJOULES: f64 = 1e6;
/// Readings in which an energy counter may stand still: two seconds at four a second, and all count up more often.
const STANDSTILL: u32 = 8;

/// Energy and power from the energy counter of a driver, in microjoules (case C26).
#[derive(Debug, Clone)]
pub struct EnergyMeter {
    counter: RisingCounter,
    joules: f64,
    moved: Option<f64>,
    most_watts: f64,
    stood: u32,
}

/// What an [`EnergyMeter`] knows after a reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metered {
    /// Energy since its first reading, J.
    pub joules: f64,
    /// Mean power since the counter moved before, W; `None` for the first reading, one after a reset, one that is no
    /// news and one that cannot be.
    pub watts: Option<f64>,
}

impl EnergyMeter {
    /// A meter of a counter that wraps after `range`, of something that never draws more than `most_watts`.
    pub fn new(range: Option<u64>, most_watts: f64) -> Self {
        Self {
            counter: RisingCounter::new(range),
            joules: 0.0,
            moved: None,
            most_watts,
            stood: 0,
        }
    }

    /// More than `most_watts` is an error of the counter from now on.
    pub fn limit(&mut self, most_watts: f64) {
        self.most_watts = most_watts;
    }

    /// Takes the counter's value at a moment of monotonic time, seconds. A step that would need more than the highest
    /// power is left out of the energy too.
    pub fn read(&mut self, at: f64, microjoules: u64) -> Metered {
        let step = self.counter.step(microjoules);
        let before = self.moved;
        if step == Some(0) {
            // No news: counters step in their own time. The power of the next step is the mean since the last one.
            self.stood += 1;
        } else {
            self.stood = 0;
            self.moved = Some(at);
        }
        let joules = step
            .filter(|step| *step > 0)
            .map(|step| step as f64 / MICROJOULES);
        let watts = joules
            .zip(before)
            .map(|(joules, before)| joules / (at - before))
            .filter(|watts| (0.0..=self.most_watts).contains(watts));
        if watts.is_some() {
            self.joules += joules.unwrap_or_default();
        }
        Metered {
            joules: self.joules,
            watts,
        }
    }

    /// The counter does not count.
    pub fn stands_still(&self) -> bool {
        self.stood >= STANDSTILL
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::FileFailurePersistence;

    use super::*;

    const INTERVAL: f64 = 0.25;

    fn window(from: f64, to: f64) -> Window {
        Window { from, to }
    }

    fn every_quarter(until: f64, power: impl Fn(f64) -> f64) -> Vec<Point> {
        let n = (until / INTERVAL).round() as u32;
        let time = |i: u32| f64::from(i) * INTERVAL;
        (0..=n).map(|i| (time(i), power(time(i)))).collect()
    }

    #[test]
    fn constant_power_is_power_times_time() {
        let points = every_quarter(10.0, |_| 87.0);
        let found = integrated(&points, window(1.1, 9.3), INTERVAL).unwrap();
        assert!((found.joules - 87.0 * 8.2).abs() < 1e-9, "{found:?}");
        assert!(!found.estimated && found.method == EnergyMethod::Integrated);
    }

    /// ∫ (20 + 10 t) dt from 1.1 to 9.3 = 20 · 8.2 + 5 · (9.3² − 1.1²) = 164 + 426.4.
    #[test]
    fn a_ramp_is_exact() {
        let points = every_quarter(10.0, |t| 20.0 + 10.0 * t);
        let found = integrated(&points, window(1.1, 9.3), INTERVAL).unwrap();
        assert!((found.joules - 590.4).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn missing_samples_are_an_estimate_and_too_many_are_nothing() {
        let with_gap = |from: f64, to: f64| -> Vec<Point> {
            let mut points = every_quarter(10.0, |_| 50.0);
            points.retain(|(t, _)| *t <= from || *t >= to);
            points
        };
        // Two readings lost are no gap.
        let found = integrated(&with_gap(4.0, 4.75), window(0.0, 10.0), INTERVAL).unwrap();
        assert!(!found.estimated && (found.joules - 500.0).abs() < 1e-9);
        let found = integrated(&with_gap(4.0, 5.5), window(0.0, 10.0), INTERVAL).unwrap();
        assert!(found.estimated && (found.joules - 500.0).abs() < 1e-9);
        assert_eq!(
            integrated(&with_gap(4.0, 7.0), window(0.0, 10.0), INTERVAL),
            None
        );
        assert_eq!(integrated(&[], window(0.0, 1.0), INTERVAL), None);
    }

    #[test]
    fn a_window_shorter_than_the_interval_is_an_estimate() {
        let points = every_quarter(10.0, |t| 20.0 + 10.0 * t);
        let found = integrated(&points, window(5.05, 5.15), INTERVAL).unwrap();
        // 71 W on average over 0.1 s.
        assert!(
            (found.joules - 7.1).abs() < 1e-9 && found.estimated,
            "{found:?}"
        );
    }

    #[test]
    fn a_counter_is_read_between_its_readings() {
        let points = [(0.0, 100.0), (4.0, 500.0), (8.0, 700.0)];
        let found = counted(&points, window(1.0, 6.0)).unwrap();
        // 200 J at 1 s, 600 J at 6 s.
        assert!((found.joules - 400.0).abs() < 1e-9 && !found.estimated);
        assert!(counted(&points, window(3.0, 4.0)).unwrap().estimated);
        assert_eq!(
            counted(&points, window(1.0, 8.5)),
            None,
            "no reading after it"
        );
        assert_eq!(counted(&points, window(-1.0, 6.0)), None, "none before it");
        assert_eq!(counted(&[(0.0, 9.0), (5.0, 3.0)], window(0.0, 5.0)), None);
    }

    /// An Intel package counter wraps at 262,143,328,850 µJ: about an hour at 70 W.
    #[test]
    fn a_counter_wraps_once_and_a_reset_counts_for_nothing() {
        const RANGE: u64 = 262_143_328_850;
        let mut package = RisingCounter::new(Some(RANGE));
        assert_eq!(package.risen(RANGE - 1_000), 0);
        assert_eq!(package.risen(499), 1_500);
        assert_eq!(package.risen(10_499), 11_500);
        let mut reset = RisingCounter::new(Some(RANGE));
        reset.risen(RANGE / 4);
        assert_eq!(
            reset.risen(0),
            0,
            "three quarters of a range in one tick is no wrap"
        );
        assert_eq!(reset.risen(70), 70);
        let mut endless = RisingCounter::new(None);
        endless.risen(500);
        assert_eq!(endless.risen(20), 0);
    }

    /// An Arc B70: 414 J in 2.01 s are 206 W; its limit is 275 W.
    #[test]
    fn c26_power_is_the_counter_s_step_over_its_time() {
        let mut meter = EnergyMeter::new(None, 2.0 * 275.0);
        let first = meter.read(10.0, 16_118_114_929);
        assert_eq!(
            first,
            Metered {
                joules: 0.0,
                watts: None
            },
            "no step is known"
        );
        let second = meter.read(12.01, 16_532_114_929);
        assert!(
            (second.watts.unwrap() - 205.970_149).abs() < 1e-6,
            "{second:?}"
        );
        assert!((second.joules - 414.0).abs() < 1e-9);
        let reset = meter.read(12.26, 1_000);
        assert_eq!(
            (reset.watts, reset.joules),
            (None, second.joules),
            "a step back"
        );
        let jump = meter.read(12.51, 9_000_000_001_000);
        assert_eq!((jump.watts, jump.joules), (None, second.joules), "36 MW");
        let next = meter.read(12.76, 9_000_050_001_000);
        assert!((next.watts.unwrap() - 200.0).abs() < 1e-9, "{next:?}");
        assert!((next.joules - 464.0).abs() < 1e-9);
    }

    #[test]
    fn a_counter_that_was_not_updated_is_no_news_and_one_that_stands_still_is_told() {
        let mut meter = EnergyMeter::new(None, 500.0);
        meter.read(0.0, 1_000_000);
        assert_eq!(meter.read(0.25, 1_000_000).watts, None);
        // 50 J in half a second.
        let watts = meter.read(0.5, 51_000_000).watts.unwrap();
        assert!((watts - 100.0).abs() < 1e-9);
        let still = |meter: &mut EnergyMeter, n: u32| {
            for i in 0..n {
                meter.read(1.0 + f64::from(i) * INTERVAL, 51_000_000);
            }
            meter.stands_still()
        };
        assert!(!still(&mut meter, 7));
        assert!(still(&mut meter, 1));
        meter.read(10.0, 60_000_000);
        assert!(!meter.stands_still());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_failure_persistence(FileFailurePersistence::WithSource("seeds")))]

        /// Splitting a window anywhere splits its energy.
        #[test]
        fn energy_adds_up(
            powers in prop::collection::vec(0.0..700.0_f64, 30),
            cut in 1.0..6.0_f64,
        ) {
            let points: Vec<Point> =
                powers.iter().enumerate().map(|(i, p)| (i as f64 * INTERVAL, *p)).collect();
            let of = |from, to| integrated(&points, window(from, to), INTERVAL).unwrap().joules;
            prop_assert!((of(0.5, cut) + of(cut, 7.0) - of(0.5, 7.0)).abs() < 1e-6);
        }

        /// A counter fed with wrapped values rises as the true one.
        #[test]
        fn a_wrapped_counter_is_the_true_one(steps in prop::collection::vec(0_u64..400, 1..100)) {
            let mut counter = RisingCounter::new(Some(999));
            counter.risen(0);
            let mut truth = 0;
            for step in steps {
                truth += step;
                prop_assert_eq!(counter.risen(truth % 1000), truth);
            }
        }
    }
}
