//! What a chart is made of: marks in points with the origin top left, semantic colours, a summary, and a table.

/// Body text, points.
pub const BODY: f32 = 13.0;
/// Captions and axis labels, points.
pub const CAPTION: f32 = 11.0;
/// Narrower than this nothing is laid out: the scene keeps this width and the painter clips or scrolls.
pub const NARROWEST: f32 = 240.0;
/// Opacity a painter gives to an area, so that gridlines and shades show through it.
pub const AREA_OPACITY: f32 = 0.18;

/// A chart, ready to paint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scene {
    /// Width, points.
    pub width: f32,
    /// Height, points.
    pub height: f32,
    /// Back to front.
    pub items: Vec<Item>,
    /// One or two sentences for a screen reader.
    pub summary: String,
    /// The same numbers.
    pub table: Table,
}

/// A mark with its tooltip.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// What is painted.
    pub mark: Mark,
    /// The exact value, shown on hover.
    pub hint: Option<String>,
}

/// A place in a scene, points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// From the left.
    pub x: f32,
    /// From the top.
    pub y: f32,
}

/// What can be painted.
#[derive(Debug, Clone, PartialEq)]
pub enum Mark {
    /// A rectangle; without a fill it is an outline.
    Rect {
        /// Left.
        x: f32,
        /// Top.
        y: f32,
        /// Width.
        w: f32,
        /// Height.
        h: f32,
        /// Corner radius.
        radius: f32,
        /// Inside.
        fill: Option<Role>,
        /// One point wide.
        stroke: Option<Role>,
    },
    /// A line through points.
    Polyline {
        /// In order.
        points: Vec<Point>,
        /// Colour.
        role: Role,
        /// Stroke width.
        width: f32,
        /// Dashed.
        dash: bool,
    },
    /// The area between a line and a horizontal, painted with [`AREA_OPACITY`].
    Area {
        /// The top line.
        points: Vec<Point>,
        /// The horizontal.
        base_y: f32,
        /// Colour.
        role: Role,
    },
    /// A disc.
    Circle {
        /// Centre.
        x: f32,
        /// Centre.
        y: f32,
        /// Radius.
        r: f32,
        /// Colour.
        role: Role,
    },
    /// A line of text in tabular figures.
    Text {
        /// Where `anchor` stands.
        x: f32,
        /// Vertical centre.
        y: f32,
        /// What stands at `x`.
        anchor: Anchor,
        /// Font size, points.
        size: f32,
        /// Semibold.
        strong: bool,
        /// Colour.
        role: Role,
        /// The text, never with a line break.
        text: String,
    },
}

/// The part of a text that stands at its `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Left end.
    Start,
    /// Middle.
    Middle,
    /// Right end.
    End,
}

/// What a colour means; painters hold the colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Words and numbers.
    Text,
    /// Less important words.
    Muted,
    /// Gridlines and outlines.
    Hairline,
    /// The bed of a bar, and bars that are not the point.
    Track,
    /// The best, the running, the selected.
    Accent,
    /// The stock runtime.
    Stock,
    /// Verdict improved.
    Improved,
    /// Verdict regressed.
    Regressed,
    /// Verdict unchanged.
    Unchanged,
    /// Verdict inconclusive.
    Inconclusive,
    /// Something to look at: a failure, a limit.
    Warning,
    /// The ±1 % band.
    Band,
    /// One sample on a bar.
    Dot,
    /// The ring that keeps a dot apart from what it lies on.
    DotRing,
    /// The time in which a sample was measured.
    Shade,
    /// Watts.
    Power,
    /// Core and memory clocks.
    Clock,
    /// Degrees.
    Temperature,
    /// Device memory.
    Memory,
    /// Device load.
    Load,
    /// Processor and main memory.
    Host,
}

impl Role {
    /// Every role, for painters' colour tables.
    pub const ALL: [Self; 21] = [
        Self::Text,
        Self::Muted,
        Self::Hairline,
        Self::Track,
        Self::Accent,
        Self::Stock,
        Self::Improved,
        Self::Regressed,
        Self::Unchanged,
        Self::Inconclusive,
        Self::Warning,
        Self::Band,
        Self::Dot,
        Self::DotRing,
        Self::Shade,
        Self::Power,
        Self::Clock,
        Self::Temperature,
        Self::Memory,
        Self::Load,
        Self::Host,
    ];

    /// The role of a verdict.
    pub const fn of(verdict: crate::domain::types::Verdict) -> Self {
        use crate::domain::types::Verdict;
        match verdict {
            Verdict::Improved => Self::Improved,
            Verdict::Regressed => Self::Regressed,
            Verdict::Unchanged => Self::Unchanged,
            Verdict::Inconclusive => Self::Inconclusive,
        }
    }

    /// Stable kebab-case name: the class in an SVG.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Muted => "muted",
            Self::Hairline => "hairline",
            Self::Track => "track",
            Self::Accent => "accent",
            Self::Stock => "stock",
            Self::Improved => "improved",
            Self::Regressed => "regressed",
            Self::Unchanged => "unchanged",
            Self::Inconclusive => "inconclusive",
            Self::Warning => "warning",
            Self::Band => "band",
            Self::Dot => "dot",
            Self::DotRing => "dot-ring",
            Self::Shade => "shade",
            Self::Power => "power",
            Self::Clock => "clock",
            Self::Temperature => "temperature",
            Self::Memory => "memory",
            Self::Load => "load",
            Self::Host => "host",
        }
    }
}

/// Where a column's cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// The numbers of a chart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Titles.
    pub columns: Vec<(String, Align)>,
    /// Cells, as many as columns.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            columns: columns.iter().map(|&(t, a)| (t.to_owned(), a)).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.columns.len(), "as many cells as columns");
        self.rows.push(cells.into());
    }
}

impl Scene {
    /// An empty scene.
    pub(super) fn new(width: f32, height: f32) -> Self {
        Self {
            width: usable(width),
            height,
            ..Self::default()
        }
    }

    /// Adds a mark.
    pub(super) fn add(&mut self, mark: Mark) {
        self.items.push(Item { mark, hint: None });
    }

    /// Adds a mark with a tooltip.
    pub(super) fn hinted(&mut self, mark: Mark, hint: String) {
        self.items.push(Item {
            mark,
            hint: Some(hint),
        });
    }

    /// Adds a text, cut to `width` with the whole text as its tooltip.
    pub(super) fn label(&mut self, at: Point, anchor: Anchor, width: f32, text: Words) {
        let shown = truncated(text.text, text.size, width);
        let hint = (shown != text.text).then(|| text.text.to_owned());
        let mark = Mark::Text {
            x: at.x,
            y: at.y,
            anchor,
            size: text.size,
            strong: text.strong,
            role: text.role,
            text: shown,
        };
        self.items.push(Item { mark, hint });
    }

    /// Adds a short text that is never cut.
    pub(super) fn text(&mut self, at: Point, anchor: Anchor, text: Words) {
        self.label(at, anchor, f32::INFINITY, text);
    }

    /// Adds another scene with its corner at `at`, and room for it.
    pub(super) fn place(&mut self, other: Scene, at: Point) {
        self.height = self.height.max(at.y + other.height);
        self.items.extend(other.items.into_iter().map(|item| Item {
            mark: item.mark.moved(at),
            ..item
        }));
    }

    /// Adds a straight line.
    pub(super) fn line(&mut self, from: Point, to: Point, role: Role, width: f32, dash: bool) {
        self.add(Mark::Polyline {
            points: vec![from, to],
            role,
            width,
            dash,
        });
    }

    /// Adds a disc with a ring round it and a tooltip.
    pub(super) fn dot(&mut self, at: Point, r: f32, role: Role, hint: String) {
        const RING: f32 = 1.0;
        self.add(Mark::Circle {
            x: at.x,
            y: at.y,
            r: r + RING,
            role: Role::DotRing,
        });
        let mark = Mark::Circle {
            x: at.x,
            y: at.y,
            r,
            role,
        };
        self.hinted(mark, hint);
    }
}

impl Mark {
    /// The same with the origin moved to `by`.
    fn moved(mut self, by: Point) -> Self {
        let shift = |points: &mut Vec<Point>| {
            for point in points {
                point.x += by.x;
                point.y += by.y;
            }
        };
        match &mut self {
            Self::Rect { x, y, .. } | Self::Circle { x, y, .. } | Self::Text { x, y, .. } => {
                *x += by.x;
                *y += by.y;
            }
            Self::Polyline { points, .. } => shift(points),
            Self::Area { points, base_y, .. } => {
                shift(points);
                *base_y += by.y;
            }
        }
        self
    }
}

/// How a text looks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a> {
    pub text: &'a str,
    pub size: f32,
    pub strong: bool,
    pub role: Role,
}

/// Body text.
pub(super) fn body(text: &str, role: Role) -> Words<'_> {
    Words {
        text,
        size: BODY,
        strong: false,
        role,
    }
}

/// A caption.
pub(super) fn caption(text: &str, role: Role) -> Words<'_> {
    Words {
        size: CAPTION,
        ..body(text, role)
    }
}

/// The width scenes are laid out for.
pub(super) fn usable(width: f32) -> f32 {
    if width.is_finite() {
        width.max(NARROWEST)
    } else {
        NARROWEST
    }
}

/// About as wide as the text is painted: fonts are the painter's, so this errs on the wide side.
pub fn text_width_estimate(text: &str, size: f32) -> f32 {
    const MEAN_EM: f32 = 0.56;
    // Scripts from here on are mostly as wide as high.
    const WIDE_FROM: char = '\u{1100}';
    let em: f32 = text
        .chars()
        .map(|c| {
            let punctuation = ('\u{2000}'..='\u{2bff}').contains(&c);
            if c >= WIDE_FROM && !punctuation {
                1.0
            } else {
                MEAN_EM
            }
        })
        .sum();
    em * size
}

/// The text, or as much of it as fits `width` with an ellipsis at its end.
pub fn truncated(text: &str, size: f32, width: f32) -> String {
    if text_width_estimate(text, size) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if text_width_estimate(&kept, size) + text_width_estimate("…", size) > width {
            kept.pop();
            break;
        }
    }
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_err_on_the_wide_side_and_wide_scripts_are_wide() {
        assert!((text_width_estimate("abcd", 10.0) - 22.4).abs() < 1e-4);
        assert!((text_width_estimate("日本", 10.0) - 20.0).abs() < 1e-4);
        assert!((text_width_estimate("−…", 10.0) - 11.2).abs() < 1e-4);
    }

    #[test]
    fn a_text_is_cut_only_where_it_does_not_fit() {
        // Ten points and 0.56 em: five characters are 28 points.
        assert_eq!(truncated("abcde", 10.0, 28.1), "abcde");
        assert_eq!(truncated("abcde", 10.0, 27.9), "abc…");
        assert_eq!(truncated("ab de", 10.0, 23.0), "ab…");
        assert_eq!(truncated("abcde", 10.0, 0.0), "…");
    }

    #[test]
    fn role_names_are_distinct() {
        let mut names = Role::ALL.map(Role::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Role::ALL.len());
    }

    #[test]
    fn a_width_that_is_none_is_the_narrowest() {
        for width in [f32::NAN, f32::INFINITY, -5.0, 0.0] {
            assert!((usable(width) - NARROWEST).abs() < f32::EPSILON);
        }
    }
}
