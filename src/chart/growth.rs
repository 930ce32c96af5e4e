//! A speed as the context grows: contexts at equal steps of doubling, the one in use marked, and what must change at a
//! longer one said below it.

use super::axis::Axis;
use super::scene::{Align, Anchor, Mark, Point, Role, Scene, Table, caption, usable};
use crate::domain::text::three_digits;

/// One context.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Tokens of context.
    pub context: u64,
    /// Tokens per second at its end.
    pub rate: f64,
    /// What must be otherwise there, e.g. `2 more layers must move to RAM`.
    pub note: Option<String>,
    /// It is the one in use.
    pub now: bool,
}

/// The chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    /// Ascending contexts.
    pub steps: Vec<Step>,
    /// Height, points.
    pub height: f32,
}

/// Below the plot: contexts, then the first note.
const BELOW: f32 = 38.0;
const ABOVE: f32 = 10.0;
const LABEL_ROOM: f32 = 62.0;
const SIDE: f32 = 4.0;
/// Room for the rates at the left.
const LEFT: f32 = 40.0;

/// `8k`, `1536`.
pub fn tokens_words(tokens: u64) -> String {
    if tokens >= 1024 && tokens.is_multiple_of(1024) {
        format!("{}k", tokens / 1024)
    } else {
        tokens.to_string()
    }
}

impl Growth {
    /// The scene.
    pub fn scene(&self, width: f32) -> Scene {
        let mut scene = Scene::new(usable(width), self.height);
        let (top, base) = (ABOVE, self.height - BELOW);
        let rates = self.steps.iter().map(|s| s.rate).chain([0.0]);
        let axis = Axis::over(rates, 0.0, 192.0);
        let ticks = axis.ticks();
        let hi = ticks[ticks.len() - 1];
        let up = |v: f64| base - (base - top) * (v / hi).clamp(0.0, 1.0) as f32;
        for tick in &ticks {
            let y = up(*tick);
            let to = Point { x: scene.width, y };
            scene.line(Point { x: LEFT, y }, to, Role::Hairline, 1.0, false);
            let text = format!("{tick:.*}", axis.decimals());
            let at = Point { x: LEFT - 8.0, y };
            scene.text(at, Anchor::End, caption(&text, Role::Muted));
        }
        let xs = self.places(scene.width);
        let line: Vec<Point> = self
            .steps
            .iter()
            .zip(&xs)
            .map(|(s, x)| Point {
                x: *x,
                y: up(s.rate),
            })
            .collect();
        scene.add(Mark::Area {
            points: line.clone(),
            base_y: base,
            role: Role::Accent,
        });
        scene.add(Mark::Polyline {
            points: line.clone(),
            role: Role::Accent,
            width: 1.5,
            dash: false,
        });
        for (step, at) in self.steps.iter().zip(&line) {
            let role = if step.note.is_some() {
                Role::Regressed
            } else {
                Role::Accent
            };
            let note = step
                .note
                .as_ref()
                .map_or_else(String::new, |n| format!("; {n}"));
            let hint = format!(
                "{} tokens: {} t/s{note}",
                step.context,
                three_digits(step.rate)
            );
            let radius = if step.now { 4.0 } else { 2.5 };
            scene.dot(*at, radius, role, hint);
        }
        self.words(&mut scene, &xs, base + 12.0);
        scene.summary = self.summary();
        scene.table = self.table();
        scene
    }

    /// Where each context stands: the logarithm counts.
    fn places(&self, width: f32) -> Vec<f32> {
        let log = |s: &Step| (s.context.max(1) as f64).log2();
        let lo = self.steps.first().map_or(0.0, log);
        let hi = self.steps.last().map_or(1.0, log);
        let room = f64::from(width - LEFT - 2.0 * SIDE);
        let share = |s: &Step| {
            if hi > lo {
                (log(s) - lo) / (hi - lo)
            } else {
                0.0
            }
        };
        self.steps
            .iter()
            .map(|s| LEFT + SIDE + (room * share(s)) as f32)
            .collect()
    }

    fn words(&self, scene: &mut Scene, xs: &[f32], y: f32) {
        let last = self.steps.len().saturating_sub(1);
        let now = self.steps.iter().position(|s| s.now).map(|i| xs[i]);
        let mut free_from = f32::NEG_INFINITY;
        for (i, (step, x)) in self.steps.iter().zip(xs).enumerate() {
            let crowds_now = !step.now && now.is_some_and(|n| (n - x).abs() < LABEL_ROOM);
            if crowds_now || (!step.now && *x < free_from) {
                continue;
            }
            let mut text = tokens_words(step.context);
            if step.now {
                text.push_str(" · now");
            }
            let anchor = match i {
                0 => Anchor::Start,
                _ if i == last => Anchor::End,
                _ => Anchor::Middle,
            };
            scene.text(Point { x: *x, y }, anchor, caption(&text, Role::Muted));
            free_from = x + LABEL_ROOM;
        }
        if let Some((context, note)) = self.first_note() {
            let text = format!("{}: {note}", tokens_words(context));
            let at = Point {
                x: scene.width,
                y: y + 17.0,
            };
            scene.label(at, Anchor::End, scene.width, caption(&text, Role::Text));
        }
    }

    fn first_note(&self) -> Option<(u64, &str)> {
        self.steps
            .iter()
            .find_map(|s| Some((s.context, s.note.as_deref()?)))
    }

    fn summary(&self) -> String {
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else {
            return "No context to predict for.".to_owned();
        };
        let note = self
            .first_note()
            .map_or_else(String::new, |(c, n)| format!(" At {c} tokens {n}."));
        format!(
            "Generation from {} t/s at {} tokens of context to {} at {}.{note}",
            three_digits(first.rate),
            first.context,
            three_digits(last.rate),
            last.context
        )
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            ("Context", Align::Right),
            ("t/s", Align::Right),
            ("Change", Align::Left),
        ]);
        for step in &self.steps {
            let note = step.note.clone().unwrap_or_else(|| "–".to_owned());
            table.row([step.context.to_string(), three_digits(step.rate), note]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(context: u64, rate: f64) -> Step {
        Step {
            context,
            rate,
            note: None,
            now: context == 4096,
        }
    }

    #[test]
    fn doublings_are_equal_steps() {
        let growth = Growth {
            steps: vec![step(2048, 9.0), step(4096, 8.0), step(8192, 6.0)],
            height: 120.0,
        };
        // Between 44 and 344 − 4 points the middle one is at 192.
        assert_eq!(growth.places(344.0), [44.0, 192.0, 340.0]);
        let scene = growth.scene(344.0);
        assert!(
            scene
                .summary
                .starts_with("Generation from 9.00 t/s at 2048")
        );
        assert_eq!(scene.table.rows[1], ["4096", "8.00", "–"]);
    }

    #[test]
    fn the_first_change_is_said() {
        let mut longer = step(32_768, 3.0);
        longer.note = Some("2 more layers must move to RAM".to_owned());
        let growth = Growth {
            steps: vec![step(4096, 8.0), longer],
            height: 120.0,
        };
        assert_eq!(
            growth.first_note(),
            Some((32_768, "2 more layers must move to RAM"))
        );
    }

    #[test]
    fn one_context_or_none_is_no_failure() {
        for steps in [vec![], vec![step(4096, 0.0)]] {
            Growth {
                steps,
                height: 50.0,
            }
            .scene(200.0);
        }
    }

    #[test]
    fn whole_thousands_are_short() {
        assert_eq!(tokens_words(8192), "8k");
        assert_eq!(tokens_words(1536), "1536");
        assert_eq!(tokens_words(512), "512");
    }
}
