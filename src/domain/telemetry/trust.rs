//! Which readings can be believed (cases C23, C24, C28): a sensor that lies is worse than none.

use super::Metric;

/// More than any board or package draws, W.
pub const MOST_WATTS: f64 = 3_000.0;
/// Highest clock, MHz: twice that of the fastest memory's effective rate.
const MOST_MHZ: f64 = 50_000.0;
/// What a chip that answers can be, °C.
const CELSIUS: std::ops::RangeInclusive<f64> = -40.0..=150.0;
/// Fastest fan, rpm: small ones of servers reach this.
const MOST_RPM: f64 = 30_000.0;
/// Load above which a GPU cannot draw 0 W, percent.
const AT_WORK_PCT: f64 = 20.0;
/// Readings of 0 W at work after which the sensor is one that never tells anything: two seconds at four a second.
const ZEROS: u32 = 8;
/// All bits set, in the sizes that firmware uses: what it tells where it knows nothing.
const NOTHING: [u64; 3] = [u16::MAX as u64, u32::MAX as u64, u64::MAX];

/// A raw number that stands for none, whatever its unit.
pub fn says_nothing(raw: u64) -> bool {
    NOTHING.contains(&raw)
}

impl Metric {
    /// The value can be, in the metric's unit.
    pub fn can_be(self, value: f64) -> bool {
        match self.unit() {
            "W" => (0.0..=MOST_WATTS).contains(&value),
            "MHz" => (0.0..=MOST_MHZ).contains(&value),
            "°C" => CELSIUS.contains(&value),
            "rpm" => (0.0..=MOST_RPM).contains(&value),
            "%" => (0.0..=100.0).contains(&value),
            _ => value.is_finite() && value >= 0.0,
        }
    }
}

/// What a sensor's readings so far say about it.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    zeros: u32,
    has_told: bool,
    doubt: Option<String>,
}

impl Trust {
    /// The value, if it can be believed: in its bounds, and no 0 W of a GPU at work (`load_pct`; unknown counts as at
    /// work) or of a sensor that never told anything else.
    pub fn judge(&mut self, metric: Metric, value: f64, load_pct: Option<f64>) -> Option<f64> {
        if !metric.can_be(value) {
            self.doubt = Some(format!("tells {value} {}, which cannot be", metric.unit()));
            return None;
        }
        if metric.unit() == "W" && value == 0.0 {
            let at_work = load_pct.is_none_or(|load| load > AT_WORK_PCT);
            self.zeros += u32::from(at_work);
            if self.zeros >= ZEROS {
                self.doubt = Some("always 0 W, even at work".to_owned());
            }
            return (self.has_told && !at_work).then_some(value);
        }
        self.zeros = 0;
        self.has_told = true;
        self.doubt = None;
        Some(value)
    }

    /// Why its last readings were dropped.
    pub fn doubt(&self) -> Option<&str> {
        self.doubt.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c28_a_sensor_of_0_w_at_work_tells_nothing_and_after_two_seconds_says_so() {
        let mut trust = Trust::default();
        for reading in 1..=8 {
            assert_eq!(trust.judge(Metric::Power, 0.0, Some(99.0)), None);
            assert_eq!(trust.doubt().is_some(), reading == 8, "{reading}");
        }
        assert_eq!(trust.doubt(), Some("always 0 W, even at work"));
        assert_eq!(trust.judge(Metric::Power, 87.0, Some(99.0)), Some(87.0));
        assert_eq!(trust.doubt(), None, "it has come to itself");
    }

    #[test]
    fn an_idle_chip_may_draw_less_than_the_sensor_s_step() {
        let mut trust = Trust::default();
        assert_eq!(trust.judge(Metric::Power, 0.0, Some(0.0)), None);
        assert_eq!(trust.judge(Metric::Power, 3.1, Some(40.0)), Some(3.1));
        assert_eq!(trust.judge(Metric::Power, 0.0, Some(0.0)), Some(0.0));
        assert_eq!(trust.judge(Metric::Power, 0.0, None), None, "unknown load");
        assert_eq!(trust.doubt(), None);
    }

    #[test]
    fn what_cannot_be_is_dropped_with_the_reason() {
        let mut trust = Trust::default();
        assert_eq!(trust.judge(Metric::FanSpeed, 65_535.0, None), None);
        assert_eq!(trust.doubt(), Some("tells 65535 rpm, which cannot be"));
        for (metric, value) in [
            (Metric::Power, 100_000.0),
            (Metric::Power, -1.0),
            (Metric::Temperature, 65_535.0),
            (Metric::Temperature, -273.0),
            (Metric::GpuLoad, 101.0),
            (Metric::CoreClock, 4_294_967.0),
            (Metric::VramUsed, f64::NAN),
        ] {
            assert!(!metric.can_be(value), "{metric:?} {value}");
        }
        for (metric, value) in [
            (Metric::Power, 700.0),
            (Metric::Temperature, 94.0),
            (Metric::GpuLoad, 100.0),
            (Metric::CoreClock, 0.0),
            (Metric::VramUsed, 150e9),
        ] {
            assert!(metric.can_be(value), "{metric:?} {value}");
        }
        assert!(says_nothing(65_535) && says_nothing(4_294_967_295) && !says_nothing(87_000_000));
    }
}
