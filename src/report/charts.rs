//! The figures as inline SVG, each with its numbers as a table.

use crate::engine::report::ConfirmationDocument;

use super::figures::{self, StripFigure};
use super::lab::{LabFigures, size_words};
use super::page::{figure, section, table, text};
use super::story::Story;

/// Charts are laid out for this width, points; the page scales them down where it is narrower.
pub(super) const WIDTH: f32 = 778.0;

/// Every confirmation, the one the verdict is of first.
pub(super) fn confirmations(story: &Story) -> String {
    let judged = story.confirmations.iter().rev();
    let mut html: String = judged.map(|c| confirmation(story, c)).collect();
    let open = figures::not_judged(story);
    html.push_str(&section("Not judged yet", "", &strip(open.as_ref())));
    html
}

fn confirmation(story: &Story, confirmation: &ConfirmationDocument) -> String {
    let figures = figures::confirmation(story, confirmation);
    let intervals = figures.intervals.as_ref();
    let mut html = intervals.map_or_else(String::new, |intervals| figure(&intervals.scene(WIDTH)));
    html.push_str(&table(&figures.judgements));
    html.push_str(&strip(figures.strip.as_ref()));
    for samples in &figures.samples {
        html.push_str(&captioned(
            &format!("Every run, {}", samples.label),
            &samples.caption,
            &figure(&samples.samples.scene(WIDTH)),
        ));
    }
    if html.is_empty() {
        html = format!("<p>{}</p>\n", text(&figures.reason));
    }
    section(
        &figures.title,
        "Shaded is ±1 %, within which nothing is claimed",
        &html,
    )
}

fn strip(strip: Option<&StripFigure>) -> String {
    strip.map_or_else(String::new, |strip| {
        captioned(
            "Confirmation, in the order it ran",
            &strip.caption,
            &figure(&strip.strip.scene(WIDTH)),
        )
    })
}

fn captioned(title: &str, caption: &str, figure: &str) -> String {
    format!(
        "<h3>{}</h3>\n<p class=\"caption\">{}</p>\n{figure}",
        text(title),
        text(caption)
    )
}

/// All that was measured outside of a confirmation, ranked.
pub(super) fn screening(story: &Story) -> String {
    figures::screening(story).map_or_else(String::new, |screening| {
        let chart = figure(&screening.ranking.scene(WIDTH));
        section("Screening", &screening.caption, &chart)
    })
}

/// What a kernel lab found.
pub(super) fn lab(story: &Story) -> String {
    let Some(document) = story.lab() else {
        return String::new();
    };
    let figures = LabFigures::of(&document);
    let curves = figure(&figures.curves.scene(WIDTH, size_words));
    let mut html = section("Bandwidth against size", &figures.under, &curves);
    for (format, ranking) in &figures.layouts {
        let title = format!("Matrix times vector, {}", format.name());
        let caption = "every layout at the largest size it was measured at";
        html.push_str(&section(&title, caption, &figure(&ranking.scene(WIDTH))));
    }
    let queues = figures.queues.iter();
    let mut charts: String = queues
        .map(|(title, ranking)| captioned(title, "µs", &figure(&ranking.scene(WIDTH))))
        .collect();
    charts.push_str(&table(&figures.costs));
    let verdict = figures.verdict.as_deref().unwrap_or_default();
    html.push_str(&section("Queue families", verdict, &charts));
    html
}
