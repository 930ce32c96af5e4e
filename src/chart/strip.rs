//! The confirmation in the order it ran: one cell a process, A the baseline, B the candidate.

use crate::domain::types::Side;

use super::axis::Digits;
use super::parts::{count, skipped};
use super::scene::{
    Align, Anchor, BODY, CAPTION, Mark, Point, Role, Scene, Table, Words, body, caption,
    text_width_estimate, usable,
};

/// How far a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellState {
    /// Measured.
    Done,
    /// Failed: no value.
    Failed,
    /// Being measured.
    Running,
    /// To come.
    Planned,
}

/// One process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// Arm.
    pub side: Side,
    /// Its mean, where it has one.
    pub value: Option<f64>,
    /// How far it is.
    pub state: CellState,
}

/// The strip.
#[derive(Debug, Clone, PartialEq)]
pub struct Strip {
    /// In the order they run.
    pub cells: Vec<Cell>,
    /// Colour of B's values: the verdict's, or the accent while it is open.
    pub candidate: Role,
    /// Unit of the values, e.g. `t/s`.
    pub unit: String,
}

const GAP: f32 = 6.0;
const HEIGHT: f32 = 51.0;
const LEAST: f32 = 60.0;
/// A-B-B-A: rows break between blocks.
const BLOCK: usize = 4;
const MOST_ACROSS: usize = 8;

impl Strip {
    /// The chart: eight cells across, four where it is narrow.
    pub fn scene(&self, width: f32) -> Scene {
        let digits = Digits::of(self.cells.iter().filter_map(|c| c.value));
        let across = self.across(usable(width), digits);
        let rows = self.cells.len().div_ceil(across).max(1);
        let height = rows as f32 * (HEIGHT + GAP) - GAP;
        let mut scene = Scene::new(width, height);
        let w = (scene.width - GAP * (across - 1) as f32) / across as f32;
        for (i, cell) in self.cells.iter().enumerate() {
            let at = Point {
                x: (i % across) as f32 * (w + GAP),
                y: (i / across) as f32 * (HEIGHT + GAP),
            };
            self.cell(&mut scene, i, cell, at, w, digits);
        }
        scene.summary = self.summary();
        scene.table = self.table(digits);
        scene
    }

    fn across(&self, width: f32, digits: Digits) -> usize {
        let widest = self
            .cells
            .iter()
            .filter_map(|c| c.value)
            .map(|v| text_width_estimate(&digits.text(v), BODY) + GAP)
            .fold(LEAST, f32::max);
        let fit = ((width + GAP) / (widest + GAP)).floor() as usize;
        match fit {
            0 | 1 => 1,
            2 | 3 => 2,
            n => (n / BLOCK * BLOCK).min(MOST_ACROSS),
        }
    }

    fn cell(&self, scene: &mut Scene, i: usize, cell: &Cell, at: Point, w: f32, digits: Digits) {
        let (fill, stroke) = match (cell.state, cell.side) {
            (CellState::Running, _) => (None, Role::Accent),
            (CellState::Done, Side::A) => (Some(Role::Track), Role::Track),
            _ => (None, Role::Hairline),
        };
        let mark = Mark::Rect {
            x: at.x,
            y: at.y,
            w,
            h: HEIGHT,
            radius: 6.0,
            fill,
            stroke: Some(stroke),
        };
        scene.hinted(mark, self.hint(i, cell, digits));
        let x = at.x + w / 2.0;
        let side = format!("{:?}", cell.side);
        let top = Point { x, y: at.y + 16.0 };
        scene.text(top, Anchor::Middle, caption(&side, Role::Muted));
        let (text, role) = self.words(cell, digits);
        let strong = value(cell).is_some();
        let size = if strong { BODY } else { CAPTION };
        let bottom = Point { x, y: at.y + 34.0 };
        let words = Words {
            size,
            strong,
            ..body(&text, role)
        };
        scene.label(bottom, Anchor::Middle, w - 4.0, words);
    }

    fn words(&self, cell: &Cell, digits: Digits) -> (String, Role) {
        match (cell.state, value(cell)) {
            (CellState::Failed, _) => ("failed".to_owned(), Role::Warning),
            (CellState::Running, _) => ("running".to_owned(), Role::Accent),
            (CellState::Planned, _) => ("–".to_owned(), Role::Muted),
            (CellState::Done, None) => ("no value".to_owned(), Role::Warning),
            (CellState::Done, Some(v)) => match cell.side {
                Side::A => (digits.text(v), Role::Text),
                Side::B => (digits.text(v), self.candidate),
            },
        }
    }

    fn hint(&self, i: usize, cell: &Cell, digits: Digits) -> String {
        let what = match value(cell) {
            Some(v) => format!("{} {}", digits.text(v), self.unit),
            None => self.words(cell, digits).0.replace('–', "planned"),
        };
        format!(
            "Run {} of {}, {:?}, {what}",
            i + 1,
            self.cells.len(),
            cell.side
        )
    }

    fn summary(&self) -> String {
        let done = |side| {
            let cells = self.cells.iter().filter(|c| c.side == side);
            cells.filter(|c| value(c).is_some()).count()
        };
        let lost = self.cells.iter().filter_map(|c| c.value);
        let lost = lost.filter(|v| !v.is_finite()).count();
        format!(
            "{} in the order they run, {} of A and {} of B measured.{}",
            count(self.cells.len(), "process"),
            done(Side::A),
            done(Side::B),
            skipped(lost)
        )
    }

    fn table(&self, digits: Digits) -> Table {
        let title = format!("Mean, {}", self.unit);
        let mut table = Table::new(&[
            ("Run", Align::Right),
            ("Arm", Align::Left),
            (&title, Align::Right),
            ("State", Align::Left),
        ]);
        for (i, cell) in self.cells.iter().enumerate() {
            table.row([
                (i + 1).to_string(),
                format!("{:?}", cell.side),
                cell.value.map_or_else(String::new, |v| digits.text(v)),
                state(cell.state).to_owned(),
            ]);
        }
        table
    }
}

fn value(cell: &Cell) -> Option<f64> {
    let done = cell.state == CellState::Done;
    cell.value.filter(|v| done && v.is_finite())
}

const fn state(state: CellState) -> &'static str {
    match state {
        CellState::Done => "done",
        CellState::Failed => "failed",
        CellState::Running => "running",
        CellState::Planned => "planned",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strip(n: usize) -> Strip {
        let order = [Side::A, Side::B, Side::B, Side::A];
        let cell = |i: usize| Cell {
            side: order[i % 4],
            value: Some(22.71 + i as f64),
            state: CellState::Done,
        };
        Strip {
            cells: (0..n).map(cell).collect(),
            candidate: Role::Improved,
            unit: "t/s".to_owned(),
        }
    }

    fn lefts_and_tops(scene: &Scene) -> Vec<(f32, f32)> {
        let place = |item: &super::super::Item| match item.mark {
            Mark::Rect { x, y, .. } => Some((x, y)),
            _ => None,
        };
        scene.items.iter().filter_map(place).collect()
    }

    #[test]
    fn eight_cells_stand_across_where_there_is_room() {
        let scene = strip(8).scene(602.0);
        // (602 − 7 × 6) / 8 = 70 wide.
        let places = lefts_and_tops(&scene);
        assert_eq!(places[1], (76.0, 0.0));
        assert_eq!(places[7], (532.0, 0.0));
        assert!((scene.height - 51.0).abs() < 1e-3);
    }

    #[test]
    fn a_narrow_strip_breaks_between_blocks() {
        let scene = strip(12).scene(320.0);
        let places = lefts_and_tops(&scene);
        // 320 holds four of 75.5; the fifth begins the second row.
        assert_eq!(places[4], (0.0, 57.0));
        assert_eq!(places[8], (0.0, 114.0));
        assert!((scene.height - 165.0).abs() < 1e-3);
    }

    #[test]
    fn only_finished_b_cells_take_the_verdicts_colour() {
        let mut strip = strip(4);
        strip.cells[2].state = CellState::Failed;
        strip.cells[3].state = CellState::Planned;
        let scene = strip.scene(600.0);
        let roles: Vec<(String, Role)> = scene
            .items
            .iter()
            .filter_map(|item| match &item.mark {
                Mark::Text { text, role, y, .. } if *y > 20.0 => Some((text.clone(), *role)),
                _ => None,
            })
            .collect();
        let expected = [
            ("22.71", Role::Text),
            ("23.71", Role::Improved),
            ("failed", Role::Warning),
            ("–", Role::Muted),
        ];
        assert_eq!(roles, expected.map(|(t, r)| (t.to_owned(), r)));
        assert_eq!(
            scene.summary,
            "4 processes in the order they run, 1 of A and 1 of B measured."
        );
        assert_eq!(scene.table.rows[1], ["2", "B", "23.71", "done"]);
    }

    #[test]
    fn extremes_stay_inside() {
        for width in [f32::NAN, 320.0, 3000.0] {
            for n in [0, 1, 200] {
                let mut strip = strip(n);
                if let Some(cell) = strip.cells.first_mut() {
                    cell.value = Some(f64::NAN);
                }
                let scene = strip.scene(width);
                for (x, y) in lefts_and_tops(&scene) {
                    assert!(x >= 0.0 && x < scene.width && y + HEIGHT <= scene.height + 1e-3);
                }
            }
        }
    }
}
