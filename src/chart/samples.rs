//! Every run of every arm as a dot on one axis: none is dropped for being slow.

use super::axis::{Axis, Digits};
use super::parts::{count, skipped};
use super::scene::{
    Align, Anchor, BODY, Point, Role, Scene, Table, body, text_width_estimate, usable,
};
use super::swarm;

/// One run's mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Its number in the session, from 1.
    pub number: u32,
    /// Its mean.
    pub value: f64,
}

/// The runs of one arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its name.
    pub label: String,
    /// Its runs.
    pub runs: Vec<Run>,
    /// Colour.
    pub role: Role,
}

/// Arms on one axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    /// The arms, in the order shown.
    pub rows: Vec<Row>,
    /// Unit of all values, e.g. `t/s`.
    pub unit: String,
}

const PITCH: f32 = 36.0;
const TOP: f32 = 4.0;
const FOOT: f32 = 26.0;
const GAP: f32 = 12.0;
/// Half a tick label.
const SIDE: f32 = 20.0;
const DOT: f32 = 4.0;

impl Samples {
    /// The chart.
    pub fn scene(&self, width: f32) -> Scene {
        let width = usable(width);
        let bottom = TOP + PITCH * self.rows.len() as f32;
        let mut scene = Scene::new(width, bottom + FOOT);
        let label_width = self.label_width(width);
        let axis = Axis::over(self.values(), label_width + GAP + SIDE, width - SIDE);
        let digits = Digits::of(self.values());
        for (i, row) in self.rows.iter().enumerate() {
            let y = TOP + PITCH * (i as f32 + 0.5);
            let at = Point { x: 0.0, y };
            scene.label(
                at,
                Anchor::Start,
                label_width,
                body(&row.label, Role::Muted),
            );
            let (from, to) = (label_width + GAP + SIDE, width - SIDE);
            scene.line(
                Point { x: from, y },
                Point { x: to, y },
                Role::Hairline,
                1.0,
                false,
            );
            self.dots(&mut scene, &axis, row, y, digits);
        }
        axis.write(&mut scene, bottom + 12.0, |tick, decimals| {
            format!("{tick:.decimals$}").replace('-', "−")
        });
        scene.summary = self.summary(digits);
        scene.table = self.table(digits);
        scene
    }

    fn values(&self) -> impl Iterator<Item = f64> + '_ {
        let runs = self.rows.iter().flat_map(|row| &row.runs);
        runs.map(|run| run.value)
    }

    fn label_width(&self, width: f32) -> f32 {
        const LEAST: f32 = 60.0;
        const SHARE: f32 = 0.3;
        let labels = self
            .rows
            .iter()
            .map(|row| text_width_estimate(&row.label, BODY));
        labels.fold(LEAST, f32::max).min(SHARE * width)
    }

    fn dots(&self, scene: &mut Scene, axis: &Axis, row: &Row, y: f32, digits: Digits) {
        let runs: Vec<&Run> = row.runs.iter().filter(|r| r.value.is_finite()).collect();
        let xs: Vec<f32> = runs.iter().map(|run| axis.at(run.value)).collect();
        // Dots may touch, so that a dense arm still reads as one.
        let dys = swarm::offsets(&xs, DOT * 0.75, PITCH / 2.0 - DOT - 2.0);
        for ((run, x), dy) in runs.iter().zip(xs).zip(dys) {
            let text = digits.text(run.value);
            let hint = format!("{}, run {} {text} {}", row.label, run.number, self.unit);
            scene.dot(Point { x, y: y + dy }, DOT, row.role, hint);
        }
    }

    fn summary(&self, digits: Digits) -> String {
        let each: Vec<String> = self
            .rows
            .iter()
            .map(|row| self.sentence(row, digits))
            .collect();
        let lost = self.values().filter(|v| !v.is_finite()).count();
        match each.len() {
            0 => "No run yet.".to_owned(),
            n if n <= 4 => format!("{}.{}", each.join("; "), skipped(lost)),
            n => format!(
                "{} on one axis, in {}.{}",
                count(n, "arm"),
                self.unit,
                skipped(lost)
            ),
        }
    }

    fn sentence(&self, row: &Row, digits: Digits) -> String {
        let values: Vec<f64> = row
            .runs
            .iter()
            .map(|r| r.value)
            .filter(|v| v.is_finite())
            .collect();
        let runs = count(values.len(), "run");
        if values.is_empty() {
            return format!("{}: {runs}", row.label);
        }
        let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (lowest, highest) = (digits.text(lowest), digits.text(highest));
        format!(
            "{}: {runs} from {lowest} to {highest} {}",
            row.label, self.unit
        )
    }

    fn table(&self, digits: Digits) -> Table {
        let title = format!("Mean, {}", self.unit);
        let mut table = Table::new(&[
            ("Arm", Align::Left),
            ("Run", Align::Right),
            (&title, Align::Right),
        ]);
        for row in &self.rows {
            for run in &row.runs {
                table.row([
                    row.label.clone(),
                    run.number.to_string(),
                    digits.text(run.value),
                ]);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mark;
    use super::*;

    fn row(label: &str, values: &[f64]) -> Row {
        let numbered = values.iter().zip(1..);
        Row {
            label: label.to_owned(),
            runs: numbered
                .map(|(&value, number)| Run { number, value })
                .collect(),
            role: Role::Stock,
        }
    }

    fn samples(rows: Vec<Row>) -> Samples {
        Samples {
            rows,
            unit: "t/s".to_owned(),
        }
    }

    fn discs(scene: &Scene) -> Vec<(f32, f32, &str)> {
        let disc = |item: &'_ super::super::Item| match item.mark {
            Mark::Circle { x, y, .. } if item.hint.is_some() => Some((x, y)),
            _ => None,
        };
        let places = scene.items.iter().filter_map(disc);
        let hints = scene.items.iter().filter_map(|i| i.hint.as_deref());
        places
            .zip(hints)
            .map(|((x, y), hint)| (x, y, hint))
            .collect()
    }

    #[test]
    fn every_run_is_a_dot_on_the_common_axis() {
        let scene =
            samples(vec![row("Stock", &[20.0, 20.0]), row("Candidate", &[40.0])]).scene(440.0);
        // "Candidate" is 9 × 0.56 × 13 = 65.52 wide: the axis goes from 65.52 + 12 + 20 = 97.52 to 420.
        let dots = discs(&scene);
        assert_eq!(dots.len(), 3);
        assert!(
            (dots[0].0 - 97.52).abs() < 0.01 && (dots[0].1 - 22.0).abs() < 0.01,
            "{dots:?}"
        );
        assert!(
            (dots[1].0 - 97.52).abs() < 0.01 && (dots[1].1 - 16.0).abs() < 0.01,
            "{dots:?}"
        );
        assert!(
            (dots[2].0 - 420.0).abs() < 0.01 && (dots[2].1 - 58.0).abs() < 0.01,
            "{dots:?}"
        );
        assert_eq!(dots[2].2, "Candidate, run 1 40.00 t/s");
        assert!((scene.height - 102.0).abs() < 1e-3);
    }

    #[test]
    fn summary_and_table_have_the_numbers() {
        let scene = samples(vec![row("Stock", &[22.7, f64::NAN, 22.9])]).scene(440.0);
        assert_eq!(
            scene.summary,
            "Stock: 2 runs from 22.70 to 22.90 t/s. 1 value left out: not a finite number."
        );
        assert_eq!(scene.table.rows[1], ["Stock", "2", "–"]);
    }

    #[test]
    fn extremes_stay_inside() {
        for width in [-1.0, 320.0, 3000.0] {
            for n in [0, 1, 200] {
                let values: Vec<f64> = (0..n).map(|i| 10_f64.powi(i % 10 - 3)).collect();
                let scene = samples(vec![row("A", &values), row("B", &[5.0; 200])]).scene(width);
                for (x, y, hint) in discs(&scene) {
                    assert!(x >= 0.0 && x <= scene.width, "{hint} at {x}");
                    assert!(y >= 0.0 && y <= scene.height, "{hint} at {y}");
                }
            }
        }
    }
}
