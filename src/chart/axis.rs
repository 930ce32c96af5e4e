//! Axes with ticks at 1-2-5 steps, and the digits of the values on them.

use super::scene::{Anchor, Point, Role, Scene, caption};

/// Room for one tick label, points: `100000` in captions and a gap.
const TICK_ROOM: f32 = 64.0;
/// Relative rounding that no reading reaches.
const TOLERANCE: f64 = 1e-9;
/// Steps of 1, 2 or 5 times a power of ten.
const MANTISSAS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// A linear axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis {
    /// Value at the left end.
    lo: f64,
    /// Value at the right end.
    hi: f64,
    step: f64,
    left: f32,
    right: f32,
}

impl Axis {
    /// The axis of the finite values of `values`, from `left` to `right` in points, beginning and ending on a tick.
    /// Without any value it is 0 to 1; one value alone gets room on both sides.
    pub fn over(values: impl IntoIterator<Item = f64>, left: f32, right: f32) -> Self {
        let axis = Self::tight(range_of(values), left, right);
        Self {
            lo: (axis.lo / axis.step + TOLERANCE).floor() * axis.step,
            hi: (axis.hi / axis.step - TOLERANCE).ceil() * axis.step,
            ..axis
        }
    }

    /// As `over`, beginning and ending a little beyond the values, so that an odd one does not cost half of the width.
    pub fn around(values: impl IntoIterator<Item = f64>, left: f32, right: f32) -> Self {
        const ROOM: f64 = 0.04;
        let [lo, hi] = range_of(values);
        let room = ROOM * (hi - lo);
        Self::tight([lo - room, hi + room], left, right)
    }

    fn tight([lo, hi]: [f64; 2], left: f32, right: f32) -> Self {
        let most = ((right - left) / TICK_ROOM).floor().clamp(1.0, 8.0);
        Self {
            lo,
            hi,
            step: nice_step((hi - lo) / f64::from(most)),
            left,
            right: right.max(left),
        }
    }

    /// Where a value stands, points; outside of the axis at its nearer end.
    pub fn at(&self, value: f64) -> f32 {
        let share = (value - self.lo) / (self.hi - self.lo);
        self.left + (self.right - self.left) * share.clamp(0.0, 1.0) as f32
    }

    /// The ticks.
    pub fn ticks(&self) -> Vec<f64> {
        let first = (self.lo / self.step - TOLERANCE).ceil();
        let last = (self.hi / self.step + TOLERANCE).floor();
        (0..=(last - first) as u32)
            .map(|i| (first + f64::from(i)) * self.step)
            .collect()
    }

    /// Decimals that tell neighbouring ticks apart.
    pub fn decimals(&self) -> usize {
        (-(self.step.log10() + 1e-9).floor()).clamp(0.0, 12.0) as usize
    }

    /// Writes the ticks centred at `y`; labels that would touch are left out, one in two, or in three.
    pub(super) fn write(&self, scene: &mut Scene, y: f32, label: impl Fn(f64, usize) -> String) {
        const GAP: f32 = 12.0;
        let labels: Vec<(f64, String)> = self
            .ticks()
            .into_iter()
            .map(|tick| (tick, label(tick, self.decimals())))
            .collect();
        let widest = labels
            .iter()
            .map(|(_, text)| super::scene::text_width_estimate(text, super::scene::CAPTION))
            .fold(0.0, f32::max);
        let pitch = (self.right - self.left) * (self.step / (self.hi - self.lo)) as f32;
        let every = (((widest + GAP) / pitch.max(1.0)).ceil() as usize).max(1);
        for (tick, text) in labels.iter().step_by(every) {
            let x = self.at(*tick);
            scene.text(Point { x, y }, Anchor::Middle, caption(text, Role::Muted));
        }
    }
}

/// Least and greatest finite value, never equal.
fn range_of(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    let (mut lo, mut hi) = (f64::INFINITY, f64::NEG_INFINITY);
    for v in values.into_iter().filter(|v| v.is_finite()) {
        (lo, hi) = (lo.min(v), hi.max(v));
    }
    if lo > hi {
        return [0.0, 1.0];
    }
    if hi - lo > TOLERANCE * hi.abs().max(lo.abs()) {
        return [lo, hi];
    }
    // Equal readings: a twentieth on each side, so that they stand in the middle.
    let room = if lo == 0.0 { 1.0 } else { 0.05 * lo.abs() };
    [lo - room, hi + room]
}

fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let mantissa = MANTISSAS
        .into_iter()
        .find(|m| m * power >= least * (1.0 - 1e-9))
        .unwrap_or(10.0);
    mantissa * power
}

/// Decimals shared by values that are read together: four significant digits of the largest, two of the smallest, which
/// is what the spread of readings carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digits(usize);

impl Digits {
    /// For these values; those that are not finite do not count.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let kept: Vec<f64> = values
            .into_iter()
            .filter(|v| v.is_finite() && *v != 0.0)
            .map(f64::abs)
            .collect();
        let largest = kept.iter().copied().fold(0.0, f64::max);
        let smallest = kept.iter().copied().fold(f64::INFINITY, f64::min);
        if largest == 0.0 {
            return Self(0);
        }
        Self(decimals(largest, 4).max(decimals(smallest, 2)))
    }

    /// The value with these digits and a real minus.
    pub fn text(self, value: f64) -> String {
        let Self(decimals) = self;
        if !value.is_finite() {
            return "–".to_owned();
        }
        let digits = format!("{:.decimals$}", value.abs());
        let zero = digits.chars().all(|c| matches!(c, '0' | '.'));
        if value < 0.0 && !zero {
            format!("−{digits}")
        } else {
            digits
        }
    }
}

fn decimals(value: f64, significant: i32) -> usize {
    (f64::from(significant - 1) - value.log10().floor()).clamp(0.0, 9.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        let decimals = axis.decimals();
        axis.ticks()
            .iter()
            .map(|t| format!("{t:.decimals$}"))
            .collect()
    }

    #[test]
    fn ticks_stand_at_1_2_5_steps_with_the_digits_they_need() {
        // 320 points hold five labels: 15.6 in five steps is 3.1, so steps of 5.
        let axis = Axis::over([22.7, 38.3], 0.0, 320.0);
        assert_eq!(labels(&axis), ["20", "25", "30", "35", "40"]);
        let axis = Axis::over([0.0, 0.3], 0.0, 320.0);
        assert_eq!(labels(&axis), ["0.0", "0.1", "0.2", "0.3"]);
        let axis = Axis::over([-1.0, 68.8], 0.0, 320.0);
        assert_eq!(labels(&axis), ["-20", "0", "20", "40", "60", "80"]);
        let axis = Axis::over([1e-3, 1e6], 0.0, 320.0);
        assert_eq!(axis.ticks().last(), Some(&1e6));
    }

    #[test]
    fn an_axis_around_its_values_does_not_end_on_a_tick() {
        // 4 % of 69.8 is 2.792: from −3.792 to 71.592.
        let axis = Axis::around([-1.0, 68.8], 0.0, 320.0);
        assert_eq!(labels(&axis), ["0", "20", "40", "60"]);
        assert!((axis.at(0.0) - 320.0 * 3.792 / 75.384).abs() < 1e-3);
    }

    #[test]
    fn values_stand_in_proportion_and_never_outside() {
        let axis = Axis::over([20.0, 40.0], 100.0, 420.0);
        assert!((axis.at(20.0) - 100.0).abs() < 1e-3);
        assert!((axis.at(30.0) - 260.0).abs() < 1e-3);
        assert!((axis.at(99.0) - 420.0).abs() < 1e-3);
    }

    #[test]
    fn one_value_none_and_equal_values_have_an_axis_too() {
        let one = Axis::over([10.0], 0.0, 300.0);
        assert!((one.at(10.0) - 150.0).abs() < 1.0, "{one:?}");
        let none = Axis::over([f64::NAN, f64::INFINITY], 0.0, 300.0);
        assert_eq!(none.ticks().first(), Some(&0.0));
        assert_eq!(none.ticks().last(), Some(&1.0));
        let zeros = Axis::over([0.0, 0.0], 0.0, 300.0);
        assert!(zeros.at(0.0).is_finite());
    }

    #[test]
    fn digits_are_four_of_the_largest_and_two_of_the_smallest() {
        assert_eq!(Digits::of([38.2, 16.964]).text(16.964), "16.96");
        assert_eq!(Digits::of([14_123.4]).text(14_123.4), "14123");
        assert_eq!(Digits::of([1e6, 1e-3]).text(1e-3), "0.0010");
        assert_eq!(Digits::of([]).text(0.0), "0");
        assert_eq!(Digits::of([f64::NAN, -2.5]).text(-2.5), "−2.500");
        assert_eq!(Digits::of([2.5]).text(f64::NAN), "–");
    }
}
