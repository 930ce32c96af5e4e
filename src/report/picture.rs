//! A session's charts as one SVG image, to be shown where a whole report is too much.

use crate::chart::{Panel, Sheet, image};
use crate::domain::text::clean;
use crate::engine::evidence::Evidence;
use crate::engine::message::JobError;

use super::charts::WIDTH;
use super::figures;
use super::lab::{LabFigures, size_words};
use super::page::image_style;
use super::place::place;
use super::story::Story;

/// The image: what was judged last, or what was screened where nothing was, or what a kernel lab found.
///
/// # Errors
/// Nothing was measured that could be drawn.
pub(super) fn picture(evidence: &Evidence) -> Result<String, JobError> {
    let story = Story::of(evidence);
    let panels = panels(&story);
    let session = &evidence.session;
    if panels.is_empty() {
        let text = format!("session {} has no chart: nothing was measured", session.id);
        return Err(JobError::new("no-chart", text));
    }
    let begun = &session.begun;
    let facts = [
        begun.model.name.clone(),
        begun.runtime.name.clone(),
        machine(story.evidence),
        format!("session {}", session.id),
    ];
    let facts = facts.iter().filter(|fact| !fact.is_empty());
    let facts: Vec<String> = facts.map(|fact| clean(fact)).collect();
    let sheet = Sheet {
        headline: clean(&story.headline()),
        caption: facts.join(" · "),
        panels,
    };
    Ok(image(&sheet.scene(WIDTH), &image_style()))
}

/// Its GPUs, or its processor where it has none.
fn machine(evidence: &Evidence) -> String {
    let [(_, rows), ..] = place(&evidence.session.begun);
    let named = |name: &str| -> Vec<String> {
        let rows = rows.iter().filter(|(row, _)| *row == name);
        rows.map(|(_, value)| value.clone()).collect()
    };
    let gpus = named("GPU");
    let shown = if gpus.is_empty() { named("CPU") } else { gpus };
    shown.join(" and ")
}

fn panels(story: &Story) -> Vec<Panel> {
    if let Some(document) = story.lab() {
        let figures = LabFigures::of(&document);
        return vec![Panel {
            title: "Bandwidth against size".to_owned(),
            scene: figures.curves.scene(WIDTH, size_words),
            caption: figures.under,
        }];
    }
    let mut panels = Vec::new();
    if let Some(confirmation) = story.confirmations.last() {
        let figures = figures::confirmation(story, confirmation);
        panels.extend(figures.intervals.map(|intervals| Panel {
            title: figures.title,
            caption: "Change with its 95 % interval · shaded is ±1 %, within which nothing is claimed".to_owned(),
            scene: intervals.scene(WIDTH),
        }));
        let goal = figures.samples.into_iter().next();
        panels.extend(goal.map(|samples| Panel {
            title: format!("Every run, {}", samples.label),
            caption: samples.caption,
            scene: samples.samples.scene(WIDTH),
        }));
    }
    if panels.is_empty() {
        panels.extend(figures::screening(story).map(|screening| Panel {
            title: "Screening".to_owned(),
            caption: screening.caption,
            scene: screening.ranking.scene(WIDTH),
        }));
    }
    panels
}
