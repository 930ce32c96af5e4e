//! A reading over time: a line with its area, gaps where it is missing, and the spans in which something was measured.

use super::axis::{Axis, Digits};
use super::scene::{Align, Anchor, Mark, Point, Role, Scene, Table, caption, usable};

/// One column of a decimated series: all readings that share one place on the screen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Column {
    /// Seconds, on any clock.
    pub t: f64,
    /// Least and greatest reading; `None` where it is missing.
    pub range: Option<[f64; 2]>,
}

/// A shaded span.
#[derive(Debug, Clone, PartialEq)]
pub struct Shade {
    /// Seconds.
    pub from: f64,
    /// Seconds.
    pub to: f64,
    /// What was measured.
    pub hint: String,
}

/// A series over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// What is read, e.g. `Power`.
    pub label: String,
    /// Unit, e.g. `W`.
    pub unit: String,
    /// In order of time.
    pub columns: Vec<Column>,
    /// First and last second shown.
    pub window: [f64; 2],
    /// Least and greatest value shown; from 0 to beyond the greatest reading where `None`.
    pub range: Option<[f64; 2]>,
    /// Shaded spans.
    pub shades: Vec<Shade>,
    /// Colour.
    pub role: Role,
    /// Height, points.
    pub height: f32,
    /// Write the gridlines' values.
    pub labels: bool,
}

const LEAST_HEIGHT: f32 = 40.0;
/// A line at the very edge would be cut in half.
const EDGE: f32 = 1.0;
const STROKE: f32 = 1.5;

/// Where things stand.
struct Plot {
    window: [f64; 2],
    range: [f64; 2],
    width: f32,
    top: f32,
    base: f32,
}

impl Plot {
    fn x(&self, t: f64) -> f32 {
        let [from, to] = self.window;
        self.width * share(t, from, to)
    }

    fn y(&self, value: f64) -> f32 {
        let [lo, hi] = self.range;
        self.base - (self.base - self.top) * share(value, lo, hi)
    }
}

fn share(value: f64, lo: f64, hi: f64) -> f32 {
    if hi > lo {
        ((value - lo) / (hi - lo)).clamp(0.0, 1.0) as f32
    } else {
        0.0
    }
}

impl Lines {
    /// The chart.
    pub fn scene(&self, width: f32) -> Scene {
        let height = self.height.max(LEAST_HEIGHT);
        let mut scene = Scene::new(usable(width), height);
        let plot = Plot {
            window: self.window,
            range: self.shown_range(),
            width: scene.width,
            top: EDGE,
            base: height - EDGE,
        };
        self.shade(&mut scene, &plot);
        let grid = grid(&plot);
        for &value in &grid {
            let y = plot.y(value);
            let to = Point { x: scene.width, y };
            scene.line(Point { x: 0.0, y }, to, Role::Hairline, 1.0, false);
        }
        for piece in self.pieces() {
            self.piece(&mut scene, &plot, &piece);
        }
        if self.labels {
            self.grid_labels(&mut scene, &plot, &grid);
        }
        scene.summary = self.summary();
        scene.table = self.table();
        scene
    }

    fn readings(&self) -> impl Iterator<Item = (f64, [f64; 2])> + '_ {
        let [from, to] = self.window;
        self.columns
            .iter()
            .filter(move |c| c.t >= from && c.t <= to)
            .filter_map(|c| Some((c.t, good(c)?)))
    }

    fn shown_range(&self) -> [f64; 2] {
        let given = self.range.filter(|[lo, hi]| lo.is_finite() && hi > lo);
        given.unwrap_or_else(|| {
            let ends = self.readings().flat_map(|(_, range)| range);
            let axis = Axis::over(ends.chain([0.0]), 0.0, 192.0);
            let ticks = axis.ticks();
            [ticks[0], ticks[ticks.len() - 1]]
        })
    }

    fn shade(&self, scene: &mut Scene, plot: &Plot) {
        let [first, last] = self.window;
        let seen = |s: &&Shade| s.to >= first && s.from <= last && s.to >= s.from;
        for shade in self.shades.iter().filter(seen) {
            let (left, right) = (plot.x(shade.from), plot.x(shade.to));
            let mark = Mark::Rect {
                x: left,
                y: 0.0,
                w: (right - left).max(1.0),
                h: scene.height,
                radius: 0.0,
                fill: Some(Role::Shade),
                stroke: None,
            };
            scene.hinted(mark, shade.hint.clone());
        }
    }

    /// Runs of columns without a missing one between them.
    fn pieces(&self) -> Vec<Vec<(f64, [f64; 2])>> {
        let [from, to] = self.window;
        let inside = |c: &&Column| c.t >= from && c.t <= to;
        let columns: Vec<&Column> = self.columns.iter().filter(inside).collect();
        columns
            .split(|c| good(c).is_none())
            .filter(|piece| !piece.is_empty())
            .map(|piece| piece.iter().filter_map(|c| Some((c.t, good(c)?))).collect())
            .collect()
    }

    fn piece(&self, scene: &mut Scene, plot: &Plot, piece: &[(f64, [f64; 2])]) {
        let top = piece.iter().map(|&(t, [_, max])| Point {
            x: plot.x(t),
            y: plot.y(max),
        });
        scene.add(Mark::Area {
            points: top.collect(),
            base_y: plot.base,
            role: self.role,
        });
        if let [(t, [_, max])] = piece {
            let (x, y) = (plot.x(*t), plot.y(*max));
            scene.add(Mark::Circle {
                x,
                y,
                r: STROKE,
                role: self.role,
            });
            return;
        }
        scene.add(Mark::Polyline {
            points: trace(plot, piece),
            role: self.role,
            width: STROKE,
            dash: false,
        });
    }

    fn grid_labels(&self, scene: &mut Scene, plot: &Plot, grid: &[f64]) {
        let digits = grid_decimals(grid);
        for &value in grid {
            let text = format!("{value:.digits$} {}", self.unit).replace('-', "−");
            let y = (plot.y(value) - 8.0).max(8.0);
            scene.text(
                Point { x: 2.0, y },
                Anchor::Start,
                caption(&text, Role::Muted),
            );
        }
    }

    fn summary(&self) -> String {
        let ends = || self.readings().flat_map(|(_, range)| range);
        let Some((_, [_, last])) = self.readings().last() else {
            return format!("{}: no reading.", self.label);
        };
        let digits = Digits::of(ends());
        let lowest = ends().fold(f64::INFINITY, f64::min);
        let highest = ends().fold(f64::NEG_INFINITY, f64::max);
        let missing = self.columns.iter().any(|c| good(c).is_none());
        let gaps = if missing { ", with gaps" } else { "" };
        format!(
            "{}: {} {unit} now, between {} and {} {unit}{gaps}.",
            self.label,
            digits.text(last),
            digits.text(lowest),
            digits.text(highest),
            unit = self.unit
        )
    }

    fn table(&self) -> Table {
        let digits = Digits::of(self.readings().flat_map(|(_, range)| range));
        let titles = ["Least", "Greatest"].map(|t| format!("{t}, {}", self.unit));
        let mut table = Table::new(&[
            ("Time, s", Align::Right),
            (&titles[0], Align::Right),
            (&titles[1], Align::Right),
        ]);
        for column in &self.columns {
            let [min, max] = good(column).map_or_else(
                || ["missing".to_owned(), "missing".to_owned()],
                |range| range.map(|v| digits.text(v)),
            );
            table.row([format!("{:.1}", column.t), min, max]);
        }
        table
    }
}

/// The column's range where both ends are numbers.
fn good(column: &Column) -> Option<[f64; 2]> {
    let range = column.range?;
    (range.iter().all(|v| v.is_finite()) && column.t.is_finite()).then_some(range)
}

/// Both ends of every column, the nearer one first: one unbroken line through all extremes.
fn trace(plot: &Plot, piece: &[(f64, [f64; 2])]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::with_capacity(2 * piece.len());
    for &(t, [min, max]) in piece {
        let x = plot.x(t);
        let (low, high) = (plot.y(min), plot.y(max));
        let before = points.last().map_or(low, |p| p.y);
        let (first, second) = if (before - low).abs() <= (before - high).abs() {
            (low, high)
        } else {
            (high, low)
        };
        points.push(Point { x, y: first });
        if (second - first).abs() > 0.1 {
            points.push(Point { x, y: second });
        }
    }
    points
}

/// Bottom, middle and top.
fn grid(plot: &Plot) -> [f64; 3] {
    let [lo, hi] = plot.range;
    [lo, f64::midpoint(lo, hi), hi]
}

fn grid_decimals(grid: &[f64]) -> usize {
    let step = grid
        .windows(2)
        .map(|w| w[1] - w[0])
        .fold(f64::INFINITY, f64::min);
    if step > 0.0 && step.is_finite() {
        (0..6)
            .find(|d| {
                let scaled = step * 10_f64.powi(*d);
                (scaled - scaled.round()).abs() < 1e-6 * scaled
            })
            .unwrap_or(6) as usize
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(columns: &[(f64, Option<[f64; 2]>)]) -> Lines {
        Lines {
            label: "Power".to_owned(),
            unit: "W".to_owned(),
            columns: columns
                .iter()
                .map(|&(t, range)| Column { t, range })
                .collect(),
            window: [0.0, 10.0],
            range: Some([0.0, 100.0]),
            shades: vec![Shade {
                from: 2.0,
                to: 4.0,
                hint: "tg128".to_owned(),
            }],
            role: Role::Power,
            height: 102.0,
            labels: false,
        }
    }

    fn polylines(scene: &Scene) -> Vec<Vec<(f32, f32)>> {
        let line = |item: &super::super::Item| match &item.mark {
            Mark::Polyline {
                points,
                role: Role::Power,
                ..
            } => Some(points.iter().map(|p| (p.x, p.y.round())).collect()),
            _ => None,
        };
        scene.items.iter().filter_map(line).collect()
    }

    #[test]
    fn extremes_are_drawn_and_gaps_are_left() {
        let scene = lines(&[
            (0.0, Some([20.0, 20.0])),
            (1.0, Some([40.0, 60.0])),
            (2.0, None),
            (5.0, Some([50.0, 50.0])),
            (10.0, Some([0.0, f64::NAN])),
        ])
        .scene(500.0);
        // 100 points for 100 W above the base at 101; 50 points a second.
        assert_eq!(
            polylines(&scene),
            [[(0.0, 81.0), (50.0, 61.0), (50.0, 41.0)]]
        );
        let disc = scene.items.iter().find_map(|item| match item.mark {
            Mark::Circle { x, y, .. } => Some((x, y)),
            _ => None,
        });
        assert_eq!(disc, Some((250.0, 51.0)));
        let Mark::Rect { x, w, .. } = scene.items[0].mark else {
            panic!("the shade comes first")
        };
        assert_eq!((x, w), (100.0, 100.0));
        assert_eq!(
            scene.summary,
            "Power: 50.00 W now, between 20.00 and 60.00 W, with gaps."
        );
        assert_eq!(scene.table.rows[2], ["2.0", "missing", "missing"]);
    }

    #[test]
    fn without_a_range_the_axis_goes_from_zero_to_a_tick() {
        let mut series = lines(&[(0.0, Some([30.0, 87.0]))]);
        series.range = None;
        assert_eq!(series.shown_range().map(|v| v as i32), [0, 100]);
        series.columns.clear();
        assert_eq!(series.scene(300.0).summary, "Power: no reading.");
    }

    #[test]
    fn extremes_stay_inside() {
        for width in [0.0, 320.0, 3000.0] {
            let columns: Vec<(f64, Option<[f64; 2]>)> = (0..2000)
                .map(|i| {
                    (
                        f64::from(i) / 100.0 - 5.0,
                        Some([1e-3, 10_f64.powi(i % 9 - 3)]),
                    )
                })
                .collect();
            let mut series = lines(&columns);
            series.labels = true;
            for range in [None, Some([5.0, 5.0]), Some([10.0, 20.0])] {
                series.range = range;
                let scene = series.scene(width);
                for (x, y) in polylines(&scene).concat() {
                    assert!(x >= 0.0 && x <= scene.width && y >= 0.0 && y <= scene.height);
                }
            }
        }
    }
}
