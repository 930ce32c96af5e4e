//! What several charts draw and say alike.

use crate::domain::text;

use super::scene::{Point, Role, Scene};

/// A 95 % interval as a line with two ends.
pub(super) fn whisker(scene: &mut Scene, [lo, hi]: [f32; 2], y: f32, role: Role) {
    const END: f32 = 5.0;
    scene.line(Point { x: lo, y }, Point { x: hi, y }, role, 2.0, false);
    for x in [lo, hi] {
        let (top, bottom) = (Point { x, y: y - END }, Point { x, y: y + END });
        scene.line(top, bottom, role, 2.0, false);
    }
}

/// `1 run`, `2 runs`.
pub(super) fn count(n: usize, one: &str) -> String {
    text::count(n as u64, one)
}

/// Says that values were left out.
pub(super) fn skipped(n: usize) -> String {
    match n {
        0 => String::new(),
        n => format!(" {} left out: not a finite number.", count(n, "value")),
    }
}

/// The finite ones.
pub(super) fn finite(values: &[f64]) -> impl Iterator<Item = f64> + '_ {
    values.iter().copied().filter(|v| v.is_finite())
}
