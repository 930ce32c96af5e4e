//! Used of total: one horizontal bar a heap, its parts in their colours.

use super::parts::skipped;
use super::scene::{
    Align, Anchor, BODY, Mark, Point, Role, Scene, Table, body, caption, text_width_estimate,
    usable,
};

/// A part of a heap.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// What it is.
    pub label: String,
    /// Its size, in the heap's unit.
    pub value: f64,
    /// Its size in words, e.g. `2.75 GiB`.
    pub text: String,
    /// Colour.
    pub role: Role,
}

/// A heap.
#[derive(Debug, Clone, PartialEq)]
pub struct Heap {
    /// Its name.
    pub label: String,
    /// All of it, in any unit.
    pub total: f64,
    /// How full it is, in words, e.g. `2.75 of 7.4 GiB`.
    pub text: String,
    /// From the left.
    pub segments: Vec<Segment>,
}

/// Heaps, in the order shown; every bar is its own heap's whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// The heaps.
    pub heaps: Vec<Heap>,
}

const PITCH: f32 = 44.0;
const BAR: f32 = 10.0;
const GAP: f32 = 12.0;

impl Bars {
    /// The chart.
    pub fn scene(&self, width: f32) -> Scene {
        let mut scene = Scene::new(usable(width), PITCH * self.heaps.len() as f32);
        for (i, heap) in self.heaps.iter().enumerate() {
            heap_bar(&mut scene, heap, PITCH * i as f32);
        }
        scene.summary = self.summary();
        scene.table = self.table();
        scene
    }

    fn summary(&self) -> String {
        let each: Vec<String> = self
            .heaps
            .iter()
            .map(|heap| format!("{}: {}", heap.label, heap.text))
            .collect();
        let parts = self.heaps.iter().flat_map(|heap| &heap.segments);
        let lost = parts.filter(|part| !part.value.is_finite()).count();
        match each.len() {
            0 => "No memory known.".to_owned(),
            _ => format!("{}.{}", each.join("; "), skipped(lost)),
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            ("Memory", Align::Left),
            ("Part", Align::Left),
            ("Size", Align::Right),
        ]);
        for heap in &self.heaps {
            table.row([heap.label.clone(), "in all".to_owned(), heap.text.clone()]);
            for part in &heap.segments {
                table.row([heap.label.clone(), part.label.clone(), part.text.clone()]);
            }
        }
        table
    }
}

fn heap_bar(scene: &mut Scene, heap: &Heap, top: f32) {
    let width = scene.width;
    let words = text_width_estimate(&heap.text, BODY).min(width / 2.0);
    let y = top + 12.0;
    let label = body(&heap.label, Role::Text);
    scene.label(
        Point { x: 0.0, y },
        Anchor::Start,
        width - words - GAP,
        label,
    );
    let text = caption(&heap.text, Role::Muted);
    scene.label(Point { x: width, y }, Anchor::End, width / 2.0, text);
    let bar = |x: f32, w: f32, role: Role| Mark::Rect {
        x,
        y: top + 24.0,
        w,
        h: BAR,
        radius: 3.0,
        fill: Some(role),
        stroke: None,
    };
    scene.add(bar(0.0, width, Role::Track));
    let total = if heap.total.is_finite() {
        heap.total
    } else {
        0.0
    };
    let mut x = 0.0;
    for part in heap
        .segments
        .iter()
        .filter(|s| s.value.is_finite() && s.value > 0.0)
    {
        let share = if total > 0.0 { part.value / total } else { 1.0 };
        // What does not fit ends at the end of the bar; its words say how much it is.
        let w = (width * share.min(1.0) as f32).min(width - x);
        if w > 0.0 {
            scene.hinted(
                bar(x, w, part.role),
                format!("{} {}", part.label, part.text),
            );
        }
        x += w;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heap(parts: &[f64]) -> Heap {
        let part = |&value: &f64| Segment {
            label: "Weights".to_owned(),
            value,
            text: format!("{value} GiB"),
            role: Role::Memory,
        };
        Heap {
            label: "Device".to_owned(),
            total: 8.0,
            text: "3 of 8 GiB".to_owned(),
            segments: parts.iter().map(part).collect(),
        }
    }

    fn rects(scene: &Scene) -> Vec<(f32, f32, f32)> {
        let rect = |item: &super::super::Item| match item.mark {
            Mark::Rect { x, y, w, .. } => Some((x, y, w)),
            _ => None,
        };
        scene.items.iter().filter_map(rect).collect()
    }

    #[test]
    fn parts_stand_one_after_the_other_in_proportion() {
        let heaps = vec![heap(&[2.0, f64::NAN, 1.0]), heap(&[])];
        let scene = Bars { heaps }.scene(400.0);
        assert_eq!(
            rects(&scene),
            [
                (0.0, 24.0, 400.0),
                (0.0, 24.0, 100.0),
                (100.0, 24.0, 50.0),
                (0.0, 68.0, 400.0)
            ]
        );
        assert_eq!(
            scene.summary,
            "Device: 3 of 8 GiB; Device: 3 of 8 GiB. 1 value left out: not a finite number."
        );
        assert_eq!(scene.table.rows[1], ["Device", "Weights", "2 GiB"]);
    }

    #[test]
    fn more_than_all_ends_at_the_end_of_the_bar() {
        let scene = Bars {
            heaps: vec![heap(&[6.0, 1e6, 3.0])],
        }
        .scene(320.0);
        assert_eq!(
            rects(&scene),
            [(0.0, 24.0, 320.0), (0.0, 24.0, 240.0), (240.0, 24.0, 80.0)]
        );
        let none = Bars { heaps: vec![] }.scene(3000.0);
        assert_eq!(none.summary, "No memory known.");
    }
}
