//! Rates against size: one line per series over sizes at equal steps of doubling, and a dashed line they cannot pass.

use super::axis::Axis;
use super::scene::{
    Align, Anchor, CAPTION, Mark, Point, Role, Scene, Table, caption, text_width_estimate, usable,
};
use crate::domain::text::three_digits;

/// One series.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Its name.
    pub label: String,
    /// Its colour.
    pub role: Role,
    /// Size and rate, the smallest first; sizes without a rate are left out.
    pub points: Vec<(u64, f64)>,
}

/// The chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// The series.
    pub curves: Vec<Curve>,
    /// A rate that none can pass, and its name.
    pub ceiling: Option<(f64, String)>,
    /// Unit of all rates.
    pub unit: String,
    /// Height in points.
    pub height: f32,
}

/// Room for the rates at the left.
const LEFT: f32 = 44.0;
/// Room at both ends of the plot.
const SIDE: f32 = 14.0;
/// Below the plot: sizes.
const BELOW: f32 = 24.0;
/// A line of the legend.
const LEGEND_PITCH: f32 = 18.0;
/// Length of a series' sample in the legend, and the gap to its name.
const SWATCH: f32 = 16.0;
/// Between two names of the legend.
const LEGEND_GAP: f32 = 18.0;
/// Between two sizes.
const LABEL_GAP: f32 = 10.0;

/// Where things stand.
struct Plot {
    top: f32,
    base: f32,
    highest: f64,
    sizes: Vec<u64>,
    right: f32,
}

impl Plot {
    fn x(&self, size: u64) -> f32 {
        let log = |s: u64| (s.max(1) as f64).log2();
        let (lo, hi) = (log(self.sizes[0]), log(self.sizes[self.sizes.len() - 1]));
        let share = if hi > lo {
            (log(size) - lo) / (hi - lo)
        } else {
            0.5
        };
        LEFT + SIDE + (self.right - LEFT - 2.0 * SIDE) * share as f32
    }

    fn y(&self, rate: f64) -> f32 {
        self.base - (self.base - self.top) * (rate / self.highest).clamp(0.0, 1.0) as f32
    }
}

impl Curves {
    /// The scene; `words` writes a size.
    pub fn scene(&self, width: f32, words: impl Fn(u64) -> String) -> Scene {
        let mut scene = Scene::new(usable(width), self.height);
        scene.summary = self.summary(&words);
        scene.table = self.table(&words);
        let mut sizes: Vec<u64> = self.all().map(|(size, _)| size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.is_empty() {
            return scene;
        }
        let rates = self.all().map(|(_, rate)| rate);
        let ceiling = self.ceiling.as_ref().map(|(rate, _)| *rate);
        let axis = Axis::over(rates.chain(ceiling).chain([0.0]), 0.0, 256.0);
        let ticks = axis.ticks();
        let plot = Plot {
            top: self.legend(&mut scene),
            base: self.height - BELOW,
            highest: ticks[ticks.len() - 1],
            sizes,
            right: scene.width,
        };
        for tick in &ticks {
            let (y, to) = (plot.y(*tick), scene.width);
            let from = Point { x: LEFT, y };
            scene.line(from, Point { x: to, y }, Role::Hairline, 1.0, false);
            let text = format!("{tick:.*}", axis.decimals());
            let at = Point { x: LEFT - 8.0, y };
            scene.text(at, Anchor::End, caption(&text, Role::Muted));
        }
        self.draw(&mut scene, &plot, &words);
        scene
    }

    fn all(&self) -> impl Iterator<Item = (u64, f64)> {
        self.curves.iter().flat_map(|c| c.points.iter().copied())
    }

    /// Names in lines as long as the scene is wide; returns where the plot begins.
    fn legend(&self, scene: &mut Scene) -> f32 {
        let (mut x, mut y) = (LEFT, LEGEND_PITCH / 2.0);
        let names = self.curves.iter().map(|c| (&c.label, c.role, false));
        let ceiling = self
            .ceiling
            .iter()
            .map(|(_, name)| (name, Role::Muted, true));
        for (name, role, dash) in names.chain(ceiling) {
            let room = SWATCH + 6.0 + text_width_estimate(name, CAPTION);
            if x > LEFT && x + room > scene.width {
                (x, y) = (LEFT, y + LEGEND_PITCH);
            }
            let to = Point { x: x + SWATCH, y };
            scene.line(Point { x, y }, to, role, 2.0, dash);
            let at = Point {
                x: x + SWATCH + 6.0,
                y,
            };
            scene.text(at, Anchor::Start, caption(name, Role::Text));
            x += room + LEGEND_GAP;
        }
        y + LEGEND_PITCH
    }

    fn draw(&self, scene: &mut Scene, plot: &Plot, words: impl Fn(u64) -> String) {
        if let Some((rate, _)) = &self.ceiling {
            let (y, x) = (plot.y(*rate), scene.width);
            scene.line(Point { x: LEFT, y }, Point { x, y }, Role::Muted, 1.0, true);
        }
        for curve in &self.curves {
            let points: Vec<Point> = curve
                .points
                .iter()
                .map(|(size, rate)| Point {
                    x: plot.x(*size),
                    y: plot.y(*rate),
                })
                .collect();
            scene.add(Mark::Polyline {
                points: points.clone(),
                role: curve.role,
                width: 1.5,
                dash: false,
            });
            for ((size, rate), at) in curve.points.iter().zip(points) {
                let (rate, size) = (three_digits(*rate), words(*size));
                let hint = format!("{}, {size}: {rate} {}", curve.label, self.unit);
                scene.dot(at, 2.5, curve.role, hint);
            }
        }
        Self::sizes(scene, plot, &words);
    }

    /// The largest size is always written, the others where there is room before it.
    fn sizes(scene: &mut Scene, plot: &Plot, words: impl Fn(u64) -> String) {
        let mut free_until = f32::INFINITY;
        for size in plot.sizes.iter().rev() {
            let text = words(*size);
            let wide = text_width_estimate(&text, CAPTION);
            let x = plot.x(*size).min(scene.width - wide / 2.0);
            if x + wide / 2.0 > free_until {
                continue;
            }
            let at = Point {
                x,
                y: plot.base + 12.0,
            };
            scene.text(at, Anchor::Middle, caption(&text, Role::Muted));
            free_until = x - wide / 2.0 - LABEL_GAP;
        }
    }

    fn summary(&self, words: impl Fn(u64) -> String) -> String {
        let last = |c: &Curve| {
            let (size, rate) = c.points.last()?;
            let (rate, size) = (three_digits(*rate), words(*size));
            Some(format!("{} {rate} {} at {size}", c.label, self.unit))
        };
        let all: Vec<String> = self.curves.iter().filter_map(last).collect();
        if all.is_empty() {
            return "Nothing was measured.".to_owned();
        }
        format!("{}.", all.join(", "))
    }

    fn table(&self, words: impl Fn(u64) -> String) -> Table {
        let mut table = Table::new(&[
            ("Series", Align::Left),
            ("Size", Align::Right),
            (&self.unit, Align::Right),
        ]);
        for curve in &self.curves {
            for (size, rate) in &curve.points {
                table.row([curve.label.clone(), words(*size), three_digits(*rate)]);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves(points: &[(u64, f64)]) -> Curves {
        Curves {
            curves: vec![Curve {
                label: "copy".to_owned(),
                role: Role::Accent,
                points: points.to_vec(),
            }],
            ceiling: Some((224.0, "peak".to_owned())),
            unit: "GB/s".to_owned(),
            height: 240.0,
        }
    }

    fn dots(scene: &Scene) -> Vec<(f32, f32)> {
        scene
            .items
            .iter()
            .filter_map(|item| match item.mark {
                Mark::Circle { x, y, .. } if item.hint.is_some() => Some((x, y)),
                _ => None,
            })
            .collect()
    }

    /// From 1 to 64 the middle of the doublings is 8; a rate of nothing lies on the base.
    #[test]
    fn sizes_stand_at_equal_steps_of_doubling_and_rates_from_zero() {
        let scene = curves(&[(1, 0.0), (8, 150.0), (64, 300.0)]).scene(600.0, |s| s.to_string());
        let dots = dots(&scene);
        let middle = f32::midpoint(dots[0].0, dots[2].0);
        assert!((dots[1].0 - middle).abs() < 0.01, "{dots:?}");
        assert!((dots[0].1 - (240.0 - BELOW)).abs() < 0.01, "{dots:?}");
        assert!(dots[2].1 < dots[1].1 && dots[1].1 < dots[0].1);
        assert_eq!(scene.summary, "copy 300 GB/s at 64.");
        assert_eq!(scene.table.rows[1], ["copy", "8", "150"]);
    }

    #[test]
    fn nothing_measured_is_said() {
        let scene = curves(&[]).scene(600.0, |s| s.to_string());
        assert_eq!(scene.summary, "Nothing was measured.");
        assert!(scene.items.is_empty());
    }
}
