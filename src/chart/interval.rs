//! Changes against the baseline with their 95 % intervals, the band in which nothing is claimed, and zero.

use crate::domain::stats::MIN_EFFECT_PCT;

use super::axis::Axis;
use super::parts::{count, skipped, whisker};
use super::scene::{
    Align, Anchor, BODY, Mark, Point, Role, Scene, Table, body, text_width_estimate, usable,
};

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What changed.
    pub label: String,
    /// The change in words, with the digits its interval carries, e.g. `+68.3 %`.
    pub change: String,
    /// The change, percent of the baseline.
    pub change_pct: f64,
    /// Its 95 % interval, percent; `None` where there is none yet.
    pub ci: Option<[f64; 2]>,
    /// Colour: the verdict's, or the accent while it is open.
    pub role: Role,
}

/// Changes on one axis, in the order given.
#[derive(Debug, Clone, PartialEq)]
pub struct Intervals {
    /// The changes.
    pub rows: Vec<Row>,
}

const PITCH: f32 = 34.0;
/// Where a label needs a line of its own.
const TALL_PITCH: f32 = 46.0;
const TOP: f32 = 8.0;
const FOOT: f32 = 30.0;
/// Half a tick label.
const SIDE: f32 = 24.0;
const GAP: f32 = 12.0;
const DOT: f32 = 4.0;
/// A plot narrower than this says nothing: then labels stand above.
const LEAST_PLOT: f32 = 200.0;

/// Where words and plot stand.
struct Layout {
    /// Labels have a column at the left; else a line of their own.
    beside: bool,
    /// Width of the labels.
    labels: f32,
    /// Left and right edge of the plot.
    plot: [f32; 2],
    pitch: f32,
}

impl Layout {
    fn of(rows: &[Row], width: f32) -> Self {
        let widest = |text: fn(&Row) -> &str| {
            let each = rows.iter().map(|row| text_width_estimate(text(row), BODY));
            each.fold(0.0, f32::max)
        };
        let (labels, changes) = (widest(|row| &row.label), widest(|row| &row.change));
        let right = width - changes - GAP;
        let beside = right - labels - GAP >= LEAST_PLOT;
        Self {
            beside,
            labels: if beside { labels } else { right },
            plot: [if beside { labels + GAP } else { 0.0 }, right],
            pitch: if beside { PITCH } else { TALL_PITCH },
        }
    }

    /// The middle of a row's mark.
    fn y(&self, row: usize) -> f32 {
        let top = TOP + self.pitch * row as f32;
        if self.beside {
            top + PITCH / 2.0
        } else {
            top + 32.0
        }
    }
}

impl Intervals {
    /// The chart: names at the left, changes at the right, nothing written across a mark.
    pub fn scene(&self, width: f32) -> Scene {
        let width = usable(width);
        let layout = Layout::of(&self.rows, width);
        let axis = self.axis(layout.plot);
        let bottom = TOP + layout.pitch * self.rows.len() as f32;
        let mut scene = Scene::new(width, bottom + FOOT);
        band(&mut scene, &axis, bottom);
        for (i, row) in self.rows.iter().enumerate() {
            let y = layout.y(i);
            mark(&mut scene, &axis, row, y);
            let above = if layout.beside { y } else { y - 20.0 };
            let start = Point { x: 0.0, y: above };
            scene.label(
                start,
                Anchor::Start,
                layout.labels,
                body(&row.label, Role::Muted),
            );
            let end = Point { x: width, y };
            scene.text(end, Anchor::End, body(&row.change, row.role));
        }
        axis.write(&mut scene, bottom + 16.0, percent);
        scene.summary = self.summary();
        scene.table = self.table();
        scene
    }

    /// Every interval, zero and the band.
    fn axis(&self, [left, right]: [f32; 2]) -> Axis {
        let ends = self.rows.iter().flat_map(ends);
        let band = [-MIN_EFFECT_PCT, MIN_EFFECT_PCT];
        Axis::around(ends.chain(band), left + SIDE, right - SIDE)
    }

    fn summary(&self) -> String {
        let each: Vec<String> = self.rows.iter().map(sentence).collect();
        let lost = self
            .rows
            .iter()
            .filter(|r| !r.change_pct.is_finite())
            .count();
        match each.len() {
            0 => "No change measured yet.".to_owned(),
            n if n <= 3 => format!("{}.{}", each.join("; "), skipped(lost)),
            n => format!(
                "{} against the baseline. First: {}.{}",
                count(n, "change"),
                each[0],
                skipped(lost)
            ),
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            ("", Align::Left),
            ("Change", Align::Right),
            ("95 % interval, from", Align::Right),
            ("to", Align::Right),
        ]);
        for row in &self.rows {
            let [lo, hi] = row
                .ci
                .map_or_else(Default::default, |ci| ci.map(two_decimals));
            table.row([row.label.clone(), row.change.clone(), lo, hi]);
        }
        table
    }
}

fn ends(row: &Row) -> impl Iterator<Item = f64> + '_ {
    row.ci.into_iter().flatten().chain([row.change_pct])
}

fn label(row: &Row) -> String {
    format!("{} {}", row.label, row.change)
}

fn sentence(row: &Row) -> String {
    let interval = interval_of(row).map_or_else(
        || ", no interval".to_owned(),
        |[lo, hi]| {
            let (lo, hi) = (two_decimals(lo), two_decimals(hi));
            format!(", 95 % interval {lo} to {hi}")
        },
    );
    format!("{}{interval}", label(row))
}

fn interval_of(row: &Row) -> Option<[f64; 2]> {
    row.ci.filter(|ci| ci.iter().all(|v| v.is_finite()))
}

fn two_decimals(value: f64) -> String {
    format!("{value:+.2} %").replace('-', "−")
}

fn percent(tick: f64, decimals: usize) -> String {
    if tick == 0.0 {
        return "0 %".to_owned();
    }
    format!("{tick:+.decimals$} %").replace('-', "−")
}

fn band(scene: &mut Scene, axis: &Axis, bottom: f32) {
    let (left, right) = (axis.at(-MIN_EFFECT_PCT), axis.at(MIN_EFFECT_PCT));
    let mark = Mark::Rect {
        x: left,
        y: 0.0,
        w: (right - left).max(1.0),
        h: bottom,
        radius: 0.0,
        fill: Some(Role::Band),
        stroke: None,
    };
    scene.hinted(mark, "Within ±1 % nothing is claimed".to_owned());
    let x = axis.at(0.0);
    let to = Point { x, y: bottom };
    scene.line(Point { x, y: 0.0 }, to, Role::Muted, 1.0, true);
}

fn mark(scene: &mut Scene, axis: &Axis, row: &Row, y: f32) {
    if let Some([lo, hi]) = interval_of(row) {
        whisker(scene, [axis.at(lo), axis.at(hi)], y, row.role);
    }
    if row.change_pct.is_finite() {
        let disc = Mark::Circle {
            x: axis.at(row.change_pct),
            y,
            r: DOT,
            role: row.role,
        };
        scene.hinted(disc, sentence(row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, change: &str, change_pct: f64, ci: Option<[f64; 2]>) -> Row {
        Row {
            label: label.to_owned(),
            change: change.to_owned(),
            change_pct,
            ci,
            role: Role::Improved,
        }
    }

    fn small() -> Intervals {
        Intervals {
            rows: vec![
                row("Generation", "+68.3 %", 68.3, Some([67.9, 68.8])),
                row("Prompt", "+5.8 %", 5.8, Some([3.0, 8.0])),
            ],
        }
    }

    fn texts(scene: &Scene) -> Vec<(&str, f32, f32, Anchor)> {
        let text = |item: &'_ super::super::Item| match &item.mark {
            Mark::Text { x, y, anchor, .. } => Some((*x, *y, *anchor)),
            _ => None,
        };
        let places = scene.items.iter().filter_map(text);
        let words = scene.items.iter().filter_map(|item| match &item.mark {
            Mark::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        words
            .zip(places)
            .map(|(t, (x, y, a))| (t, x, y, a))
            .collect()
    }

    #[test]
    fn names_stand_left_changes_right_and_the_axis_between_is_in_percent() {
        // The columns are as wide as their widest text is estimated.
        let scene = small().scene(600.0);
        let texts = texts(&scene);
        assert_eq!(texts[0], ("Generation", 0.0, 25.0, Anchor::Start));
        assert_eq!(texts[1], ("+68.3 %", 600.0, 25.0, Anchor::End));
        assert_eq!(texts[2], ("Prompt", 0.0, 59.0, Anchor::Start));
        assert_eq!(texts[3], ("+5.8 %", 600.0, 59.0, Anchor::End));
        let ticks: Vec<&str> = texts[4..].iter().map(|t| t.0).collect();
        assert_eq!(ticks, ["0 %", "+20 %", "+40 %", "+60 %"]);
        let labels = text_width_estimate("Generation", BODY);
        let changes = text_width_estimate("+68.3 %", BODY);
        // −1 … 68.8 and 4 % of that on either side, between the columns less half a tick label.
        let (left, right) = (labels + 12.0 + 24.0, 600.0 - changes - 12.0 - 24.0);
        let margin = 0.04 * 69.8;
        let at = |v: f32| left + (right - left) * (v + 1.0 + margin) / (69.8 + 2.0 * margin);
        let Mark::Rect { x, w, .. } = scene.items[0].mark else {
            panic!("the band comes first")
        };
        assert!((x - at(-1.0)).abs() < 0.05 && (w - (at(1.0) - at(-1.0))).abs() < 0.05);
    }

    #[test]
    fn where_it_is_narrow_a_name_stands_above_its_interval() {
        let name = "Generation with a long name";
        let wide = row(name, "+5 %", 5.0, Some([-80.0, 90.0]));
        let scene = Intervals { rows: vec![wide] }.scene(320.0);
        let texts = texts(&scene);
        assert_eq!(texts[0], (name, 0.0, 20.0, Anchor::Start));
        assert_eq!(texts[1], ("+5 %", 320.0, 40.0, Anchor::End));
        assert!((scene.height - (8.0 + 46.0 + 30.0)).abs() < 1e-3);
    }

    #[test]
    fn summary_and_table_have_the_numbers() {
        let scene = small().scene(448.0);
        assert_eq!(
            scene.summary,
            "Generation +68.3 %, 95 % interval +67.90 % to +68.80 %; Prompt +5.8 %, 95 % interval +3.00 % to +8.00 %."
        );
        assert_eq!(
            scene.table.rows[1],
            ["Prompt", "+5.8 %", "+3.00 %", "+8.00 %"]
        );
    }

    #[test]
    fn extremes_stay_inside() {
        for width in [0.0, 320.0, 3000.0] {
            for n in [0, 1, 200] {
                let each = |i: i32| {
                    let v = 10_f64.powi(i % 10 - 3);
                    let ci = (i % 3 > 0).then_some([-v, if i % 7 == 0 { f64::NAN } else { v }]);
                    row(
                        "A rather long name of a setting",
                        "+1 %",
                        if i == 1 { f64::NAN } else { v },
                        ci,
                    )
                };
                let scene = Intervals {
                    rows: (0..n).map(each).collect(),
                }
                .scene(width);
                for (text, x, y, _) in texts(&scene) {
                    assert!(
                        x >= 0.0 && x <= scene.width && y <= scene.height,
                        "{text} at {x} {y}"
                    );
                }
                assert_eq!(
                    n > 1,
                    scene.summary.contains("1 value left out"),
                    "{}",
                    scene.summary
                );
            }
        }
    }
}
