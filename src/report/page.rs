//! The page itself: markup, escaping, and both colour schemes.

use std::fmt::Write as _;

use crate::chart::{self, Align, Role, Scene, Table};
use crate::domain::text::clean;

/// Text from anywhere, harmless: shown, never sent on, and never markup.
pub(super) fn text(words: &str) -> String {
    chart::escaped(&clean(words))
}

/// As `text`, line by line.
pub(super) fn lines(words: &str) -> String {
    chart::escaped(&crate::domain::text::clean_lines(words))
}

/// A section with its heading and a caption; nothing without content.
pub(super) fn section(title: &str, caption: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    let caption = if caption.is_empty() {
        String::new()
    } else {
        format!("<p class=\"caption\">{}</p>\n", text(caption))
    };
    format!(
        "<section>\n<h2>{}</h2>\n{caption}{content}</section>\n",
        text(title)
    )
}

/// A chart with the same numbers as a table under it.
pub(super) fn figure(scene: &Scene) -> String {
    format!(
        "<figure>\n{}<details><summary>Show table</summary>\n{}</details>\n</figure>\n",
        chart::svg(scene),
        table(&scene.table)
    )
}

/// A table; nothing without rows.
pub(super) fn table(table: &Table) -> String {
    if table.rows.is_empty() {
        return String::new();
    }
    let class = |at: usize| match table.columns.get(at) {
        Some((_, Align::Right)) => " class=\"number\"",
        _ => "",
    };
    let mut html = "<div class=\"wide\"><table>\n".to_owned();
    if table.columns.iter().any(|(title, _)| !title.is_empty()) {
        html.push_str("<thead><tr>");
        for (at, (title, _)) in table.columns.iter().enumerate() {
            let _ = write!(html, "<th{}>{}</th>", class(at), text(title));
        }
        html.push_str("</tr></thead>\n");
    }
    html.push_str("<tbody>\n");
    for row in &table.rows {
        html.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let _ = write!(html, "<td{}>{}</td>", class(at), text(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table></div>\n");
    html
}

/// Name and value pairs under each other; those without a value are left out.
pub(super) fn pairs(rows: &[(&str, String)]) -> String {
    let mut html = String::new();
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = writeln!(html, "<dt>{}</dt><dd>{}</dd>", text(name), text(value));
    }
    if html.is_empty() {
        return html;
    }
    format!("<dl>\n{html}</dl>\n")
}

/// The whole file.
pub(super) fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"dark light\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        text(title),
        style()
    )
}

/// Colours of a role on a dark and on a light page.
const fn colours(role: Role) -> [&'static str; 2] {
    match role {
        Role::Text => ["#e6e9ef", "#1b2130"],
        Role::Muted | Role::Unchanged => ["#98a0b3", "#5b6478"],
        Role::Hairline => ["#2a303c", "#dfe3ea"],
        Role::Track => ["#252b37", "#e6e9f0"],
        Role::Accent | Role::Clock | Role::Load => ["#5b9bff", "#1f63d6"],
        Role::Stock => ["#8f97ad", "#8a93a8"],
        Role::Improved | Role::Memory => ["#3dbfae", "#0b7d70"],
        Role::Regressed | Role::Temperature => ["#f08c4a", "#b4510f"],
        Role::Inconclusive | Role::Host => ["#b79cff", "#6a46c8"],
        Role::Warning | Role::Power => ["#e5b454", "#8a5d00"],
        Role::Band => ["#262d3a", "#e9edf4"],
        Role::Dot => ["#ffffff", "#1b2130"],
        Role::DotRing => ["#1a1e26", "#ffffff"],
        Role::Shade => ["#20252f", "#eef1f6"],
    }
}

/// CSS of a chart that is a file of its own: plain colours, since not every viewer of images knows variables; light where
/// the reader's choice is not known.
pub(super) fn image_style() -> String {
    let rules = |scheme: usize, card: &str| {
        let roles = Role::ALL
            .iter()
            .map(|role| (role.name(), colours(*role)[scheme]));
        roles.fold(
            format!(".card{{fill:{card}}}"),
            |mut css, (name, colour)| {
                let _ = write!(
                    css,
                    ".{name}-fill{{fill:{colour}}}.{name}-stroke{{stroke:{colour}}}"
                );
                css
            },
        )
    };
    format!(
        "text{{font-family:Inter,system-ui,-apple-system,\"Segoe UI\",Roboto,sans-serif;font-variant-numeric:tabular-nums}}\n\
         {}\n@media (prefers-color-scheme:dark){{{}}}\n.area{{fill-opacity:{}}}\n",
        rules(1, "#ffffff"),
        rules(0, "#1a1e26"),
        chart::AREA_OPACITY
    )
}

fn style() -> String {
    let variables = |scheme: usize| {
        Role::ALL.iter().fold(String::new(), |mut css, role| {
            let _ = write!(css, "--{}:{};", role.name(), colours(*role)[scheme]);
            css
        })
    };
    let (dark, light) = (variables(0), variables(1));
    let (dark_page, light_page) = (
        "--page:#0f1115;--card:#1a1e26;",
        "--page:#f5f6f9;--card:#ffffff;",
    );
    let mut css = format!(
        ":root{{color-scheme:dark light;{dark}{dark_page}}}\n\
         @media (prefers-color-scheme:light){{:root{{{light}{light_page}}}}}\n\
         @media print{{:root{{color-scheme:light;{light}--page:#ffffff;--card:#ffffff;}}}}\n"
    );
    css.push_str(include_str!("page.css"));
    for role in Role::ALL {
        let name = role.name();
        let _ = writeln!(
            css,
            ".{name}-fill{{fill:var(--{name})}}.{name}-stroke{{stroke:var(--{name})}}"
        );
    }
    let _ = writeln!(css, ".area{{fill-opacity:{}}}", chart::AREA_OPACITY);
    css
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_shown_for_nothing() {
        assert_eq!(section("Title", "caption", ""), "");
        assert_eq!(table(&Table::new(&[("A", Align::Left)])), "");
        assert_eq!(pairs(&[("CPU", String::new())]), "");
    }

    #[test]
    fn cells_are_aligned_and_harmless() {
        let mut cells = Table::new(&[("Name", Align::Left), ("t/s", Align::Right)]);
        cells.row(["<b>\u{202e}".to_owned(), "1.5".to_owned()]);
        assert_eq!(
            table(&cells),
            "<div class=\"wide\"><table>\n<thead><tr><th>Name</th><th class=\"number\">t/s</th></tr></thead>\n<tbody>\n\
             <tr><td>&lt;b&gt;\\u{202e}</td><td class=\"number\">1.5</td></tr>\n</tbody>\n</table></div>\n"
        );
    }

    /// WCAG's relative luminance.
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    #[test]
    fn words_are_readable_on_both_pages() {
        let written = [
            Role::Text,
            Role::Muted,
            Role::Accent,
            Role::Improved,
            Role::Regressed,
            Role::Unchanged,
            Role::Inconclusive,
            Role::Warning,
        ];
        for (scheme, pages) in [["#0f1115", "#1a1e26"], ["#f5f6f9", "#ffffff"]]
            .iter()
            .enumerate()
        {
            for (role, page) in written.iter().flat_map(|r| pages.map(|p| (r, p))) {
                let (a, b) = (luminance(colours(*role)[scheme]), luminance(page));
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(contrast >= 4.5, "{role:?} on {page}: {contrast:.2}");
            }
        }
    }
}
