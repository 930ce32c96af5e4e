//! Changes against the baseline with their 95 % intervals, the band in which nothing is claimed, and zero.

use crate::domain::stats::MIN_EFFECT_PCT;

use super::axis::Axis;
use super::ranking::{count, skipped, whisker};
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
const GAP: f32 = 10.0;
const DOT: f32 = 4.0;

impl Intervals {
    /// The chart.
    pub fn scene(&self, width: f32) -> Scene {
        let width = usable(width);
        let axis = self.axis(width);
        let all_fit = self
            .rows
            .iter()
            .all(|row| beside(row, &axis, width).is_some());
        let pitch = if all_fit { PITCH } else { TALL_PITCH };
        let bottom = TOP + pitch * self.rows.len() as f32;
        let mut scene = Scene::new(width, bottom + FOOT);
        band(&mut scene, &axis, bottom);
        for (i, row) in self.rows.iter().enumerate() {
            let top = TOP + pitch * i as f32;
            let y = if all_fit {
                top + pitch / 2.0
            } else {
                top + 32.0
            };
            mark(&mut scene, &axis, row, y);
            let text = label(row);
            let words = body(&text, Role::Text);
            match beside(row, &axis, width).filter(|_| all_fit) {
                Some((x, anchor)) => scene.text(Point { x, y }, anchor, words),
                None => above(&mut scene, &axis, row, top + 12.0, words),
            }
        }
        axis.write(&mut scene, bottom + 16.0, percent);
        scene.summary = self.summary();
        scene.table = self.table();
        scene
    }

    /// Every interval, zero and the band.
    fn axis(&self, width: f32) -> Axis {
        let ends = self.rows.iter().flat_map(ends);
        let band = [-MIN_EFFECT_PCT, MIN_EFFECT_PCT];
        Axis::around(ends.chain(band), SIDE, width - SIDE)
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

/// Left and right end of what is painted; the zero line where there is nothing.
fn extent(row: &Row, axis: &Axis) -> [f32; 2] {
    let finite = || ends(row).filter(|v| v.is_finite());
    let (lo, hi) = (
        finite().fold(f64::INFINITY, f64::min),
        finite().fold(f64::NEG_INFINITY, f64::max),
    );
    if lo > hi {
        return [axis.at(0.0); 2];
    }
    [axis.at(lo) - DOT, axis.at(hi) + DOT]
}

/// Where a label fits beside its interval: right of it, else left, and never across the band.
fn beside(row: &Row, axis: &Axis, width: f32) -> Option<(f32, Anchor)> {
    let wide = text_width_estimate(&label(row), BODY);
    let [left, right] = extent(row, axis);
    let band = [axis.at(-MIN_EFFECT_PCT), axis.at(MIN_EFFECT_PCT)];
    let is_clear = |from: f32| from + wide <= band[0] || from >= band[1];
    let (after, before) = (right + GAP, left - GAP - wide);
    if after + wide <= width && is_clear(after) {
        Some((after, Anchor::Start))
    } else if before >= 0.0 && is_clear(before) {
        Some((left - GAP, Anchor::End))
    } else {
        None
    }
}

/// The label over its interval, kept inside of the scene.
fn above(scene: &mut Scene, axis: &Axis, row: &Row, y: f32, words: super::scene::Words) {
    let half = text_width_estimate(words.text, BODY).min(scene.width) / 2.0;
    let [left, right] = extent(row, axis);
    let x = f32::midpoint(left, right).clamp(half, (scene.width - half).max(half));
    scene.label(Point { x, y }, Anchor::Middle, scene.width, words);
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
    fn labels_stand_where_there_is_room_and_the_axis_is_in_percent() {
        // 448 points minus 24 on either side: 400 for −3.792 … 71.592, 5.3062 points a percent; zero at 44.121.
        let scene = small().scene(448.0);
        let texts = texts(&scene);
        // Generation: left of 67.9, which is at 404.41, by the dot of 4 and the gap of 10.
        assert_eq!(texts[0].0, "Generation +68.3 %");
        assert!((texts[0].1 - 390.41).abs() < 0.02, "{texts:?}");
        assert_eq!((texts[0].2, texts[0].3), (25.0, Anchor::End));
        // Prompt: right of 8, which is at 86.57.
        assert_eq!(texts[1].0, "Prompt +5.8 %");
        assert!((texts[1].1 - 100.57).abs() < 0.02, "{texts:?}");
        let ticks: Vec<&str> = texts[2..].iter().map(|t| t.0).collect();
        assert_eq!(ticks, ["0 %", "+20 %", "+40 %", "+60 %"]);
        let Mark::Rect { x, w, .. } = scene.items[0].mark else {
            panic!("the band comes first")
        };
        assert!(
            (x - 38.815).abs() < 0.02 && (w - 10.612).abs() < 0.02,
            "{x} {w}"
        );
    }

    #[test]
    fn no_label_lies_across_the_band() {
        // +3.2 % with ±2: the axis ends at 5.5 or so, and the band takes the room left of the interval.
        let near = row("Generation", "+3 %", 3.2, Some([1.2, 5.2]));
        let scene = Intervals { rows: vec![near] }.scene(600.0);
        assert_eq!(texts(&scene)[0].3, Anchor::Middle, "it stands above");
    }

    #[test]
    fn a_label_without_room_stands_above_its_interval() {
        let wide = row(
            "Generation with a long name",
            "+5 %",
            5.0,
            Some([-80.0, 90.0]),
        );
        let scene = Intervals { rows: vec![wide] }.scene(320.0);
        let texts = texts(&scene);
        assert_eq!((texts[0].2, texts[0].3), (20.0, Anchor::Middle));
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
