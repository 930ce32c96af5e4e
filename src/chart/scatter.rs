//! Predicted against measured: a point a placement with its interval, and the line on which both are equal.

use super::axis::Axis;
use super::scene::{Align, Anchor, Point, Role, Scene, Table, caption, usable};
use crate::domain::text::three_digits;

/// One placement.
#[derive(Debug, Clone, PartialEq)]
pub struct Dot {
    /// The placement in words.
    pub label: String,
    /// Predicted value.
    pub predicted: f64,
    /// Measured mean.
    pub measured: f64,
    /// Half of the measured mean's interval; `None` of a single run.
    pub half_width: Option<f64>,
}

/// The chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Scatter {
    /// Unit of both axes.
    pub unit: String,
    /// The placements.
    pub dots: Vec<Dot>,
    /// Height, points.
    pub height: f32,
}

/// Room left of the plot for its vertical labels.
const LEFT: f32 = 40.0;
/// Room below the plot: tick labels, then the axis title.
const BELOW: f32 = 36.0;
const ABOVE: f32 = 18.0;
const RIGHT: f32 = 12.0;
const RADIUS: f32 = 3.5;
/// Half of an error bar's foot.
const FOOT: f32 = 3.0;

impl Scatter {
    /// The scene.
    pub fn scene(&self, width: f32) -> Scene {
        let mut scene = Scene::new(usable(width), self.height);
        let (top, base) = (ABOVE, self.height - BELOW);
        let ends = |d: &Dot| {
            let half = d.half_width.unwrap_or(0.0);
            [d.predicted, d.measured - half, d.measured + half]
        };
        // One range for both axes: the diagonal is where they are equal.
        let values: Vec<f64> = self.dots.iter().flat_map(ends).chain([0.0]).collect();
        let across = Axis::over(values.iter().copied(), LEFT, scene.width - RIGHT);
        let ticks = across.ticks();
        let (lo, hi) = (ticks[0], ticks[ticks.len() - 1]);
        let up = |v: f64| base - (base - top) * ((v - lo) / (hi - lo)).clamp(0.0, 1.0) as f32;
        for tick in &ticks {
            let y = up(*tick);
            let (from, to) = (
                Point { x: LEFT, y },
                Point {
                    x: scene.width - RIGHT,
                    y,
                },
            );
            scene.line(from, to, Role::Hairline, 1.0, false);
            let text = format!("{tick:.*}", across.decimals());
            let at = Point { x: LEFT - 8.0, y };
            scene.text(at, Anchor::End, caption(&text, Role::Muted));
        }
        let corner = |v: f64| Point {
            x: across.at(v),
            y: up(v),
        };
        scene.line(corner(lo), corner(hi), Role::Muted, 1.0, true);
        across.write(&mut scene, base + 12.0, |v, digits| format!("{v:.digits$}"));
        self.titles(&mut scene);
        for dot in &self.dots {
            self.dot(&mut scene, dot, across.at(dot.predicted), &up);
        }
        scene.summary = self.summary();
        scene.table = self.table();
        scene
    }

    fn titles(&self, scene: &mut Scene) {
        let title = format!("predicted {}", self.unit);
        let at = Point {
            x: scene.width - RIGHT,
            y: self.height - 8.0,
        };
        scene.text(at, Anchor::End, caption(&title, Role::Muted));
        let title = format!("measured {}", self.unit);
        scene.text(
            Point { x: 0.0, y: 6.0 },
            Anchor::Start,
            caption(&title, Role::Muted),
        );
    }

    fn dot(&self, scene: &mut Scene, dot: &Dot, x: f32, up: &impl Fn(f64) -> f32) {
        if let Some(half) = dot.half_width {
            let (high, low) = (up(dot.measured + half), up(dot.measured - half));
            scene.line(
                Point { x, y: high },
                Point { x, y: low },
                Role::Accent,
                1.0,
                false,
            );
            for y in [high, low] {
                let (from, to) = (Point { x: x - FOOT, y }, Point { x: x + FOOT, y });
                scene.line(from, to, Role::Accent, 1.0, false);
            }
        }
        let hint = format!(
            "{}: predicted {}, measured {} {}",
            dot.label,
            three_digits(dot.predicted),
            measured(dot),
            self.unit
        );
        scene.dot(
            Point {
                x,
                y: up(dot.measured),
            },
            RADIUS,
            Role::Accent,
            hint,
        );
    }

    fn summary(&self) -> String {
        let each: Vec<String> = self
            .dots
            .iter()
            .map(|d| {
                format!(
                    "{}: {} predicted, {} measured",
                    d.label,
                    three_digits(d.predicted),
                    measured(d)
                )
            })
            .collect();
        format!(
            "Predicted against measured, {}. {}.",
            self.unit,
            each.join("; ")
        )
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            ("Placement", Align::Left),
            ("Predicted", Align::Right),
            ("Measured", Align::Right),
        ]);
        for dot in &self.dots {
            table.row([
                dot.label.clone(),
                three_digits(dot.predicted),
                measured(dot),
            ]);
        }
        table
    }
}

/// `7.70 ± 0.31`.
fn measured(dot: &Dot) -> String {
    match dot.half_width {
        Some(half) => crate::domain::text::plus_minus(dot.measured, half),
        None => three_digits(dot.measured),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Mark;

    #[test]
    fn equal_values_lie_on_the_diagonal() {
        let dot = |v: f64| Dot {
            label: v.to_string(),
            predicted: v,
            measured: v,
            half_width: None,
        };
        let scatter = Scatter {
            unit: "t/s".to_owned(),
            dots: vec![dot(5.0), dot(10.0)],
            height: 154.0,
        };
        let scene = scatter.scene(352.0);
        // From 0 to 10 over 300 points across and 100 up: the half is at 40 + 150, and at 18 + 50.
        let discs: Vec<(f32, f32)> = scene
            .items
            .iter()
            .filter_map(|i| match (&i.mark, &i.hint) {
                (Mark::Circle { x, y, .. }, Some(_)) => Some((*x, *y)),
                _ => None,
            })
            .collect();
        assert_eq!(discs, [(190.0, 68.0), (340.0, 18.0)]);
        assert_eq!(scene.table.rows[0], ["5", "5.00", "5.00"]);
    }

    #[test]
    fn without_points_it_is_an_empty_frame() {
        let scatter = Scatter {
            unit: "t/s".to_owned(),
            dots: Vec::new(),
            height: 100.0,
        };
        assert!(scatter.scene(300.0).table.rows.is_empty());
    }
}
