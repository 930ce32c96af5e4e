//! Settings ranked by their mean: bars from zero, every sample a dot, the baseline a dashed line.

use super::axis::Digits;
use super::parts::{count, finite, skipped, whisker};
use super::scene::{
    Align, Anchor, BODY, CAPTION, Mark, Point, Role, Scene, Table, body, caption,
    text_width_estimate, usable,
};
use super::swarm;

/// What a row is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// The stock runtime.
    Stock,
    /// The best so far.
    Best,
    /// Any other.
    Ordinary,
    /// No value; why, in words.
    Failed(String),
    /// Given up after one repetition; why, in words.
    StoppedEarly(String),
    /// Being measured.
    Running,
}

/// One setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its name.
    pub label: String,
    /// Written strongly.
    pub emphasised: bool,
    /// Every sample, in the ranking's unit.
    pub values: Vec<f64>,
    /// Mean, where there is one.
    pub mean: Option<f64>,
    /// 95 % interval of the mean, where one can be formed.
    pub ci: Option<[f64; 2]>,
    /// What it is.
    pub kind: Kind,
}

/// A ranking, its rows in any order.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking {
    /// The settings.
    pub rows: Vec<Row>,
    /// Value of the dashed line.
    pub baseline: Option<f64>,
    /// Its name, e.g. `stock`.
    pub baseline_label: String,
    /// Unit of all values, e.g. `t/s`.
    pub unit: String,
    /// What is ranked.
    pub of: Ranked,
}

/// What is ranked, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranked {
    /// A row.
    pub noun: &'static str,
    /// What the first row is of all.
    pub first: &'static str,
    /// What a row's value is of its samples.
    pub value: &'static str,
}

impl Ranked {
    /// Settings by their mean speed.
    pub const SETTINGS: Self = Self {
        noun: "setting",
        first: "the fastest",
        value: "Mean",
    };
}

const PITCH: f32 = 34.0;
/// From this many rows on they stand closer.
const MANY: usize = 40;
const CLOSE_PITCH: f32 = 24.0;
const BAR: f32 = 19.0;
const TOP: f32 = 8.0;
const FOOT: f32 = 30.0;
const GAP: f32 = 10.0;
const DOT: f32 = 2.0;

/// Where things stand.
struct Layout {
    left: f32,
    right: f32,
    highest: f64,
    pitch: f32,
    digits: Digits,
}

impl Layout {
    fn x(&self, value: f64) -> f32 {
        let share = (value / self.highest).clamp(0.0, 1.0) as f32;
        self.left + (self.right - self.left) * share
    }

    fn y(&self, row: usize) -> f32 {
        TOP + self.pitch * (row as f32 + 0.5)
    }
}

impl Ranking {
    /// The chart.
    pub fn scene(&self, width: f32) -> Scene {
        let rows = self.sorted();
        let layout = self.layout(&rows, usable(width));
        let height = TOP + layout.pitch * rows.len() as f32 + FOOT;
        let mut scene = Scene::new(width, height);
        for (i, row) in rows.iter().enumerate() {
            self.bar(&mut scene, &layout, row, layout.y(i));
        }
        let line = self.baseline_line(&mut scene, &layout, rows.len());
        for (i, row) in rows.iter().enumerate() {
            self.samples(&mut scene, &layout, row, layout.y(i));
            words(&mut scene, &layout, row, layout.y(i), line);
        }
        scene.summary = self.summary(&rows, layout.digits);
        scene.table = self.table(&rows, layout.digits);
        scene
    }

    /// Rows with a mean first, the largest first; then those without, in their own order.
    fn sorted(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        let key = |row: &Row| mean(row).unwrap_or(f64::NEG_INFINITY);
        rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
        let failed = |row: &&Row| matches!(row.kind, Kind::Failed(_));
        let (last, first): (Vec<&Row>, Vec<&Row>) = rows.into_iter().partition(failed);
        [first, last].concat()
    }

    fn layout(&self, rows: &[&Row], width: f32) -> Layout {
        const LEAST_LABEL: f32 = 60.0;
        const LABEL_SHARE: f32 = 0.36;
        let digits = Digits::of(rows.iter().filter_map(|r| mean(r)).chain(self.baseline));
        let widest_label = rows
            .iter()
            .map(|row| text_width_estimate(&row.label, BODY))
            .fold(LEAST_LABEL, f32::max);
        let left = (widest_label + GAP).min(LABEL_SHARE * width);
        let widest_value = rows
            .iter()
            .filter_map(|row| mean(row))
            .map(|v| text_width_estimate(&digits.text(v), BODY))
            .fold(40.0, f32::max);
        let highest = rows
            .iter()
            .flat_map(|row| everything(row))
            .chain(self.baseline)
            .filter(|v| v.is_finite())
            .fold(0.0, f64::max);
        Layout {
            left,
            right: (width - widest_value - 2.0 * GAP).max(left + 20.0),
            highest: if highest > 0.0 { highest } else { 1.0 },
            pitch: if rows.len() >= MANY {
                CLOSE_PITCH
            } else {
                PITCH
            },
            digits,
        }
    }

    fn bar(&self, scene: &mut Scene, layout: &Layout, row: &Row, y: f32) {
        let Some(value) = mean(row) else { return };
        let (fill, stroke) = match row.kind {
            Kind::Best => (Role::Accent, None),
            Kind::Stock => (Role::Stock, None),
            Kind::Running => (Role::Track, Some(Role::Accent)),
            Kind::Ordinary | Kind::StoppedEarly(_) | Kind::Failed(_) => (Role::Track, None),
        };
        let mark = Mark::Rect {
            x: layout.left,
            y: y - BAR / 2.0,
            w: (layout.x(value) - layout.left).max(1.0),
            h: BAR,
            radius: 3.0,
            fill: Some(fill),
            stroke,
        };
        scene.hinted(mark, self.hint(row, layout.digits));
    }

    fn hint(&self, row: &Row, digits: Digits) -> String {
        let value = mean(row).map_or_else(String::new, |v| {
            format!(" {} {}", digits.text(v), self.unit)
        });
        format!("{}{value}", row.label)
    }

    /// The dashed line and its label; its place, for the values to keep clear of it.
    fn baseline_line(&self, scene: &mut Scene, layout: &Layout, rows: usize) -> Option<f32> {
        let value = self.baseline.filter(|v| v.is_finite())?;
        let x = layout.x(value);
        let bottom = TOP + layout.pitch * rows as f32 + 2.0;
        let (from, to) = (Point { x, y: 0.0 }, Point { x, y: bottom });
        scene.line(from, to, Role::Muted, 1.0, true);
        let text = format!("{} {}", self.baseline_label, layout.digits.text(value));
        let half = text_width_estimate(&text, CAPTION) / 2.0;
        let at = Point {
            x: x.min(scene.width - half).max(half),
            y: bottom + 14.0,
        };
        scene.text(at, Anchor::Middle, caption(&text, Role::Muted));
        Some(x)
    }

    fn samples(&self, scene: &mut Scene, layout: &Layout, row: &Row, y: f32) {
        if let Some([lo, hi]) = row.ci.filter(|ci| ci.iter().all(|v| v.is_finite())) {
            whisker(scene, [layout.x(lo), layout.x(hi)], y, Role::Text);
        }
        let values: Vec<f64> = finite(&row.values).collect();
        let xs: Vec<f32> = values.iter().map(|&v| layout.x(v)).collect();
        let dys = swarm::offsets(&xs, DOT + 0.5, BAR / 2.0 - DOT);
        for (n, ((value, x), dy)) in values.iter().zip(xs).zip(dys).enumerate() {
            let text = layout.digits.text(*value);
            let hint = format!("{}, sample {} {text} {}", row.label, n + 1, self.unit);
            scene.dot(Point { x, y: y + dy }, DOT, Role::Dot, hint);
        }
    }

    fn summary(&self, rows: &[&Row], digits: Digits) -> String {
        let measured: Vec<&&Row> = rows.iter().filter(|r| mean(r).is_some()).collect();
        let mut text = match measured.first() {
            None => format!(
                "{} ranked, none measured yet.",
                count(rows.len(), self.of.noun)
            ),
            Some(best) => format!(
                "{} ranked by {}; {} is {}.",
                count(rows.len(), self.of.noun),
                self.unit,
                self.of.first,
                self.hint(best, digits)
            ),
        };
        let left_out = self.rows.iter().flat_map(everything);
        text.push_str(&skipped(left_out.filter(|v| !v.is_finite()).count()));
        text
    }

    fn table(&self, rows: &[&Row], digits: Digits) -> Table {
        let mean_title = format!("{}, {}", self.of.value, self.unit);
        let mut table = Table::new(&[
            (&crate::domain::text::capitalised(self.of.noun), Align::Left),
            (&mean_title, Align::Right),
            ("Samples", Align::Left),
            ("State", Align::Left),
        ]);
        for row in rows {
            let samples: Vec<String> = row.values.iter().map(|&v| digits.text(v)).collect();
            table.row([
                row.label.clone(),
                row.mean.map_or_else(String::new, |v| digits.text(v)),
                samples.join(" "),
                state(&row.kind),
            ]);
        }
        table
    }
}

fn words(scene: &mut Scene, layout: &Layout, row: &Row, y: f32, line: Option<f32>) {
    let role = if row.emphasised {
        Role::Text
    } else {
        Role::Muted
    };
    let label = super::scene::Words {
        strong: row.emphasised,
        ..body(&row.label, role)
    };
    let at = Point {
        x: layout.left - GAP,
        y,
    };
    scene.label(at, Anchor::End, layout.left - GAP, label);
    let (text, role) = value_words(row, layout.digits);
    let end = everything(row)
        .filter(|v| v.is_finite())
        .fold(0.0, f64::max);
    let start = match mean(row) {
        Some(_) => layout.x(end) + GAP + 2.0,
        None => layout.left + 2.0,
    };
    let wide = text_width_estimate(&text, BODY);
    // A value that the dashed line would strike through stands behind it.
    let x = match line {
        Some(line)
            if start < line + 5.0
                && line < start + wide + 3.0
                && line + 8.0 + wide <= scene.width =>
        {
            line + 8.0
        }
        _ => start,
    };
    let words = super::scene::Words {
        strong: row.emphasised && mean(row).is_some(),
        ..body(&text, role)
    };
    scene.label(Point { x, y }, Anchor::Start, scene.width - x, words);
}

fn mean(row: &Row) -> Option<f64> {
    row.mean
        .filter(|v| v.is_finite() && !matches!(row.kind, Kind::Failed(_)))
}

fn everything(row: &Row) -> impl Iterator<Item = f64> + '_ {
    let ci = row.ci.into_iter().flatten();
    row.values.iter().copied().chain(row.mean).chain(ci)
}

fn value_words(row: &Row, digits: Digits) -> (String, Role) {
    let value = mean(row).map(|v| digits.text(v));
    match (&row.kind, value) {
        (Kind::Failed(why), _) => (why.clone(), Role::Warning),
        (Kind::StoppedEarly(why), Some(value)) => (format!("{value} · {why}"), Role::Muted),
        (Kind::StoppedEarly(why), None) => (why.clone(), Role::Muted),
        (Kind::Running, None) => ("running".to_owned(), Role::Accent),
        (_, Some(value)) => (value, Role::Text),
        (_, None) => ("not measured".to_owned(), Role::Muted),
    }
}

fn state(kind: &Kind) -> String {
    match kind {
        Kind::Stock => "stock".to_owned(),
        Kind::Best => "best so far".to_owned(),
        Kind::Ordinary => "measured".to_owned(),
        Kind::Failed(why) => format!("failed: {why}"),
        Kind::StoppedEarly(why) => format!("stopped early: {why}"),
        Kind::Running => "running".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, mean: f64, kind: Kind) -> Row {
        Row {
            label: label.to_owned(),
            emphasised: false,
            values: vec![mean],
            mean: Some(mean),
            ci: None,
            kind,
        }
    }

    fn ranking(rows: Vec<Row>) -> Ranking {
        Ranking {
            rows,
            baseline: Some(20.0),
            baseline_label: "stock".to_owned(),
            unit: "t/s".to_owned(),
            of: Ranked::SETTINGS,
        }
    }

    fn small() -> Ranking {
        let failed = Row {
            values: vec![],
            mean: None,
            ..row("Batch 8", 0.0, Kind::Failed("out of memory".to_owned()))
        };
        ranking(vec![
            failed,
            row("Stock", 20.0, Kind::Stock),
            row("Queue on", 40.0, Kind::Best),
        ])
    }

    fn rects(scene: &Scene) -> Vec<[f32; 4]> {
        let rect = |item: &super::super::Item| match item.mark {
            Mark::Rect { x, y, w, h, .. } => Some([x, y, w, h]),
            _ => None,
        };
        scene.items.iter().filter_map(rect).collect()
    }

    fn texts(scene: &Scene) -> Vec<(String, f32, f32)> {
        let text = |item: &super::super::Item| match &item.mark {
            Mark::Text { x, y, text, .. } => Some((text.clone(), *x, *y)),
            _ => None,
        };
        scene.items.iter().filter_map(text).collect()
    }

    #[test]
    fn bars_are_sorted_and_in_proportion() {
        let scene = small().scene(400.0);
        // "Queue on": 8 × 0.56 × 13 = 58.24, below the least column of 60; and the gap of 10.
        // Values: "40.00" is 36.4 wide, the least is 40; two gaps: the longest bar ends at 400 − 60 = 340.
        assert_eq!(
            rects(&scene),
            [[70.0, 15.5, 270.0, 19.0], [70.0, 49.5, 135.0, 19.0]]
        );
        assert!((scene.height - (8.0 + 3.0 * 34.0 + 30.0)).abs() < 1e-3);
        let texts = texts(&scene);
        assert!(
            texts.contains(&("40.00".to_owned(), 352.0, 25.0)),
            "{texts:?}"
        );
        // 70 + 135 + 12 = 217: twelve points right of the dashed line, clear of it.
        assert!(
            texts.contains(&("20.00".to_owned(), 217.0, 59.0)),
            "{texts:?}"
        );
        assert!(
            texts.contains(&("out of memory".to_owned(), 72.0, 93.0)),
            "{texts:?}"
        );
        assert!(
            texts.contains(&("stock 20.00".to_owned(), 205.0, 126.0)),
            "{texts:?}"
        );
    }

    #[test]
    fn a_value_under_the_dashed_line_moves_behind_it() {
        let scene = ranking(vec![
            row("A", 40.0, Kind::Best),
            row("B", 19.0, Kind::Ordinary),
        ]);
        let scene = scene.scene(400.0);
        // B's bar ends at 70 + 270 × 19/40 = 198.25, its value would begin at 210.25; the line is at 205.
        let at = |text: &str| texts(&scene).into_iter().find(|t| t.0 == text).unwrap().1;
        assert!((at("19.00") - 213.0).abs() < 3.0, "{}", at("19.00"));
    }

    #[test]
    fn summary_and_table_have_the_numbers() {
        let scene = small().scene(400.0);
        assert_eq!(
            scene.summary,
            "3 settings ranked by t/s; the fastest is Queue on 40.00 t/s."
        );
        assert_eq!(
            scene.table.rows[0],
            ["Queue on", "40.00", "40.00", "best so far"]
        );
        assert_eq!(
            scene.table.rows[2],
            ["Batch 8", "", "", "failed: out of memory"]
        );
    }

    #[test]
    fn extremes_stay_inside() {
        for width in [0.0, 320.0, 3000.0] {
            for n in [0, 1, 200] {
                let mut rows: Vec<Row> = (0..n)
                    .map(|i| {
                        row(
                            &"long name ".repeat(i as usize % 9 + 1),
                            10_f64.powi(i % 10 - 3),
                            Kind::Ordinary,
                        )
                    })
                    .collect();
                if let Some(first) = rows.first_mut() {
                    first.values = vec![f64::NAN, 1.0, f64::INFINITY];
                }
                let scene = ranking(rows).scene(width);
                for [x, y, w, h] in rects(&scene) {
                    assert!(x >= 0.0 && x + w <= scene.width && y + h <= scene.height && w >= 0.0);
                }
                for (text, x, _) in texts(&scene) {
                    assert!(
                        x.is_finite() && x >= 0.0 && x <= scene.width,
                        "{text} at {x} of {width}"
                    );
                }
                if n > 0 {
                    assert!(
                        scene
                            .summary
                            .ends_with("2 values left out: not a finite number."),
                        "{}",
                        scene.summary
                    );
                }
            }
        }
    }
}
