//! A scene as inline SVG: classes name roles, CSS variables hold their colours.

use std::fmt::Write as _;

use crate::domain::text::is_unseen;

use super::scene::{Anchor, Item, Mark, Point, Scene};

/// The scene as an `<svg>` element. It scales down with its column; colours are the page's `.NAME-fill` and
/// `.NAME-stroke` classes, one pair for every [`super::Role`].
pub fn svg(scene: &Scene) -> String {
    written(scene, "")
}

/// The scene as a file of its own. `style` has the CSS that a page would have, and `.card`, the ground it is painted on.
pub fn image(scene: &Scene, style: &str) -> String {
    let ground = "<rect class=\"card\" width=\"100%\" height=\"100%\" rx=\"8\"/>";
    written(scene, &format!("<style>\n{style}</style>\n{ground}\n"))
}

fn written(scene: &Scene, under: &str) -> String {
    let (width, height) = (number(scene.width), number(scene.height));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\">\n<title>{}</title>\n{under}",
        escaped(&scene.summary)
    );
    for item in &scene.items {
        text.push_str(&element(item));
    }
    text.push_str("</svg>\n");
    text
}

fn element(item: &Item) -> String {
    let (name, attributes, inside) = parts(&item.mark);
    let title = item.hint.as_ref().map_or_else(String::new, |hint| {
        format!("<title>{}</title>", escaped(hint))
    });
    if title.is_empty() && inside.is_empty() {
        return format!("<{name} {attributes}/>\n");
    }
    format!("<{name} {attributes}>{title}{inside}</{name}>\n")
}

/// Element, attributes, and what is inside of it.
fn parts(mark: &Mark) -> (&'static str, String, String) {
    match mark {
        Mark::Rect { .. } => ("rect", rect(mark), String::new()),
        Mark::Polyline {
            points,
            role,
            width,
            dash,
        } => {
            let dash = if *dash {
                " stroke-dasharray=\"3 3\""
            } else {
                ""
            };
            let attributes = format!(
                "class=\"{}-stroke\" fill=\"none\" stroke-width=\"{}\"{dash} points=\"{}\"",
                role.name(),
                number(*width),
                list(points)
            );
            ("polyline", attributes, String::new())
        }
        Mark::Area {
            points,
            base_y,
            role,
        } => {
            let ends = [points.last(), points.first()];
            let base = ends
                .into_iter()
                .flatten()
                .map(|p| Point { x: p.x, y: *base_y });
            let outline: Vec<Point> = points.iter().copied().chain(base).collect();
            let attributes = format!(
                "class=\"{}-fill area\" points=\"{}\"",
                role.name(),
                list(&outline)
            );
            ("polygon", attributes, String::new())
        }
        Mark::Circle { x, y, r, role } => {
            let attributes = format!(
                "class=\"{}-fill\" cx=\"{}\" cy=\"{}\" r=\"{}\"",
                role.name(),
                number(*x),
                number(*y),
                number(*r)
            );
            ("circle", attributes, String::new())
        }
        Mark::Text { text, .. } => ("text", text_attributes(mark), escaped(text)),
    }
}

fn rect(mark: &Mark) -> String {
    let Mark::Rect {
        x,
        y,
        w,
        h,
        radius,
        fill,
        stroke,
    } = mark
    else {
        return String::new();
    };
    let mut classes = Vec::new();
    classes.extend(fill.map(|role| format!("{}-fill", role.name())));
    classes.extend(stroke.map(|role| format!("{}-stroke", role.name())));
    let none = if fill.is_none() { " fill=\"none\"" } else { "" };
    // A stroke is centred on its path: half a point inwards it stays inside of the mark.
    let inset = if stroke.is_some() { 0.5 } else { 0.0 };
    format!(
        "class=\"{}\"{none} x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\"",
        classes.join(" "),
        number(x + inset),
        number(y + inset),
        number((w - 2.0 * inset).max(0.0)),
        number((h - 2.0 * inset).max(0.0)),
        number(*radius)
    )
}

fn text_attributes(mark: &Mark) -> String {
    let Mark::Text {
        x,
        y,
        anchor,
        size,
        strong,
        role,
        ..
    } = mark
    else {
        return String::new();
    };
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    let weight = if *strong { " font-weight=\"600\"" } else { "" };
    // Capitals and figures are about 0.7 em high: this puts their middle at `y` in every viewer.
    let baseline = y + 0.35 * size;
    format!(
        "class=\"{}-fill\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\" font-size=\"{}\"{weight}",
        role.name(),
        number(*x),
        number(baseline),
        number(*size)
    )
}

fn list(points: &[Point]) -> String {
    let each: Vec<String> = points
        .iter()
        .map(|p| format!("{},{}", number(p.x), number(p.y)))
        .collect();
    each.join(" ")
}

/// A coordinate to a hundredth of a point, without trailing zeros; what is no number is 0.
fn number(value: f32) -> String {
    if !value.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{value:.2}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0" } else { short }.to_owned()
}

/// Text as XML and HTML content or attribute value. Control characters, which XML forbids, become `\u{…}`.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            c if is_unseen(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                let _ = write!(safe, "{}", c.escape_unicode());
            }
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::{Kind, Ranking, RankingRow, Role};
    use super::*;

    /// The names of open elements after each tag; panics on markup that is not well formed.
    pub(crate) fn check_well_formed(text: &str, void: &[&str]) {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('<') {
            assert!(
                !rest[..at].contains('>'),
                "a bare > before {:?}",
                &rest[at..rest.len().min(at + 40)]
            );
            let end = at + rest[at..].find('>').expect("every tag ends");
            let tag = &rest[at + 1..end];
            rest = &rest[end + 1..];
            let name = tag
                .trim_start_matches('/')
                .split([' ', '/', '\n'])
                .next()
                .unwrap_or("");
            assert!(!tag.contains('<'), "a < inside of {tag}");
            assert_eq!(tag.matches('"').count() % 2, 0, "quotes of {tag}");
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "closed by {tag}");
            } else if !tag.ends_with('/') && !tag.starts_with('!') && !void.contains(&name) {
                open.push(name);
            }
        }
        assert!(
            open.is_empty() && !rest.contains('>'),
            "left open: {open:?}"
        );
    }

    #[test]
    fn marks_become_elements_at_their_places() {
        let mut scene = Scene::new(300.0, 20.0);
        scene.summary = "A < B".to_owned();
        scene.add(Mark::Rect {
            x: 1.0,
            y: 2.0,
            w: 10.0,
            h: 5.25,
            radius: 3.0,
            fill: Some(Role::Accent),
            stroke: None,
        });
        scene.hinted(
            Mark::Circle {
                x: 4.0,
                y: 5.126,
                r: 2.0,
                role: Role::Dot,
            },
            "run 1".to_owned(),
        );
        scene.add(Mark::Area {
            points: vec![Point { x: 0.0, y: 1.0 }, Point { x: 2.0, y: 3.0 }],
            base_y: 9.0,
            role: Role::Power,
        });
        assert_eq!(
            svg(&scene),
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" viewBox=\"0 0 300 20\" width=\"300\" height=\"20\">\n\
             <title>A &lt; B</title>\n\
             <rect class=\"accent-fill\" x=\"1\" y=\"2\" width=\"10\" height=\"5.25\" rx=\"3\"/>\n\
             <circle class=\"dot-fill\" cx=\"4\" cy=\"5.13\" r=\"2\"><title>run 1</title></circle>\n\
             <polygon class=\"power-fill area\" points=\"0,1 2,3 2,9 0,9\"/>\n\
             </svg>\n"
        );
    }

    #[test]
    fn hostile_names_stay_text() {
        let row = RankingRow {
            label: "<script>alert(\"1\")</script>' onload='x \u{1b}[2J\u{0}".to_owned(),
            emphasised: true,
            values: vec![1.0, 2.0],
            mean: Some(1.5),
            ci: Some([1.0, 2.0]),
            kind: Kind::Best,
        };
        let failed = RankingRow {
            mean: None,
            kind: Kind::Failed("]]> --> &amp; </svg>".to_owned()),
            ..row.clone()
        };
        let scene = Ranking {
            rows: vec![row, failed],
            baseline: Some(1.0),
            baseline_label: "stock".to_owned(),
            unit: "t/s".to_owned(),
            of: crate::chart::Ranked::SETTINGS,
        }
        .scene(600.0);
        let text = svg(&scene);
        check_well_formed(&text, &[]);
        assert!(!text.contains("<script") && !text.contains('\u{1b}') && !text.contains('\u{0}'));
        assert!(text.contains("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&#39; onload=&#39;x \\u{1b}[2J\\u{0}"), "{text}");
    }

    #[test]
    fn coordinates_are_short_and_always_numbers() {
        assert_eq!(number(12.5), "12.5");
        assert_eq!(number(100.0), "100");
        assert_eq!(number(-0.001), "0");
        assert_eq!(number(f32::NAN), "0");
    }
}
