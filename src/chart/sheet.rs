//! Charts under each other with their words: what a page says around them, where there is no page.

use super::scene::{Anchor, CAPTION, Point, Role, Scene, Words, text_width_estimate};

/// Space round the charts, points.
const MARGIN: f32 = 24.0;
/// Space above a panel, points.
const GAP: f32 = 20.0;
/// Space between a panel's caption and its chart, points.
const BELOW: f32 = 4.0;
/// Font size of the headline, points.
const HEADLINE: f32 = 18.0;
/// Font size of a panel's title, points.
const TITLE: f32 = 14.0;
/// Height of a line by its font size.
const LEADING: f32 = 1.45;

/// A chart with its words.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// What is shown.
    pub title: String,
    /// How to read it; empty for nothing.
    pub caption: String,
    /// The chart.
    pub scene: Scene,
}

/// Charts that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Sheet {
    /// What they show, in a sentence.
    pub headline: String,
    /// Of what.
    pub caption: String,
    /// From the top.
    pub panels: Vec<Panel>,
}

impl Sheet {
    /// All of it, a margin wider than its charts. The summary says what each chart says.
    pub fn scene(self, width: f32) -> Scene {
        let mut sheet = Scene::new(width + 2.0 * MARGIN, MARGIN);
        sheet.summary.clone_from(&self.headline);
        sheet.paragraph(words(&self.headline, HEADLINE, true, Role::Text), width);
        sheet.paragraph(under(&self.caption), width);
        for panel in self.panels {
            sheet.height += GAP;
            sheet.paragraph(words(&panel.title, TITLE, true, Role::Text), width);
            sheet.paragraph(under(&panel.caption), width);
            sheet.summary.push(' ');
            sheet.summary.push_str(&panel.scene.summary);
            let corner = Point {
                x: MARGIN,
                y: sheet.height + BELOW,
            };
            sheet.place(panel.scene, corner);
        }
        sheet.height += MARGIN;
        sheet
    }
}

const fn words(text: &str, size: f32, strong: bool, role: Role) -> Words<'_> {
    Words {
        text,
        size,
        strong,
        role,
    }
}

/// What stands under a title.
const fn under(text: &str) -> Words<'_> {
    words(text, CAPTION, false, Role::Muted)
}

impl Scene {
    /// Adds a text at the lower end, in as many lines as it needs.
    fn paragraph(&mut self, words: Words, width: f32) {
        for line in lines(words.text, words.size, width) {
            let height = LEADING * words.size;
            let at = Point {
                x: MARGIN,
                y: self.height + height / 2.0,
            };
            let words = Words {
                text: &line,
                ..words
            };
            self.label(at, Anchor::Start, width, words);
            self.height += height;
        }
    }
}

/// A text in lines that fit `width`, broken between words.
fn lines(text: &str, size: f32, width: f32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let longer = lines.last().map(|line| format!("{line} {word}"));
        match longer.filter(|line| text_width_estimate(line, size) <= width) {
            Some(longer) => lines
                .last_mut()
                .expect("a line was made longer")
                .clone_from(&longer),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}
