//! Two sessions, or two runs, held against each other: what differs, and by how much. Never a verdict.

use std::sync::Arc;

use eframe::egui::Ui;

use crate::domain::text::{
    arm_values, capitalised, clean, effect, field_change, moment, setting_title,
};
use crate::domain::types::{Comparison, Verdict};
use crate::engine::difference::{Difference, Pick, difference};
use crate::ui::app::Cx;
use crate::ui::link::{Link, Worker};
use crate::ui::state::AppState;
use crate::ui::theme::icons::Icon;
use crate::ui::theme::tokens;
use crate::ui::widgets::{
    Card, Column, Loadable, Press, Table, Width, caption, columns, failed, label, loading_note,
    muted, select, status,
};

/// What is compared.
#[derive(Debug, Default)]
pub struct State {
    /// Session and what of it: none, one, or two.
    pub(super) picks: Vec<(i64, Pick)>,
    result: Loadable<Arc<Difference>>,
}

/// Takes a session as the next side. The same one twice compares its candidate with its baseline.
pub(super) fn pick(comparing: &mut State, link: &Link, session: i64) {
    comparing.picks.truncate(1);
    match comparing.picks.first_mut() {
        Some((first, pick)) if *first == session => {
            *pick = Pick::Baseline;
            comparing.picks.push((session, Pick::Candidate));
        }
        _ => comparing.picks.push((session, Pick::Candidate)),
    }
    ask(comparing, link);
}

fn ask(comparing: &mut State, link: &Link) {
    let [first, second] = comparing.picks[..] else {
        comparing.result = Loadable::Unasked;
        return;
    };
    comparing.result.ask();
    link.ask(
        Worker::Store,
        move |ports| difference([first, second], ports).map(Arc::new),
        move |state, _, result| {
            if let Some(comparing) = &mut state.history.comparing
                && comparing.picks == [first, second]
            {
                if let Ok(result) = &result {
                    // What a session does not have was replaced by what it has.
                    comparing.picks = result.sides.iter().map(|s| (s.session, s.pick)).collect();
                }
                comparing.result.answer(result);
            }
        },
    );
}

/// Draws it under the list.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let Some(comparing) = &mut state.history.comparing else {
        return;
    };
    let needed = match comparing.picks.len() {
        0 => Some("Choose the first session: the other is measured by it"),
        1 => Some("Choose the second session; the same one again compares two of its own runs"),
        _ => None,
    };
    if let Some(needed) = needed {
        Card::new("Compare two").show(ui, |ui| {
            status(ui, Icon::Compare, tokens(ui).accent, needed);
        });
        return;
    }
    let Some(found) = comparing.result.value().cloned() else {
        match comparing.result.error() {
            Some(error) => Card::bare().show(ui, |ui| failed(ui, error)),
            None => Card::bare().show(ui, |ui| loading_note(ui, "Reading both")),
        }
        return;
    };
    let before = comparing.picks.clone();
    columns(ui, "sides", &[1.0, 1.0], |at, ui, height| {
        side(ui, &found, comparing, at, height);
    });
    if ui
        .add(Press::new("Swap").icon(Icon::Compare).quiet())
        .clicked()
    {
        comparing.picks.reverse();
    }
    if comparing.picks != before {
        ask(comparing, cx.link);
    }
    metrics(ui, &found);
    differing(ui, &found);
}

fn side(ui: &mut Ui, found: &Difference, comparing: &mut State, at: usize, height: f32) {
    let side = &found.sides[at];
    let letter = ["A", "B"][at];
    let title = format!("{letter}: session {}", side.session);
    Card::new(&title)
        .caption(moment(side.started_at))
        .min_height(height)
        .show(ui, |ui| {
            label(
                ui,
                format!("{} · {}", clean(&side.model), clean(&side.runtime)),
            );
            let Some((_, pick)) = comparing.picks.get_mut(at) else {
                return;
            };
            select(ui, &format!("What of {letter}"), pick, &side.picks);
        });
}

fn metrics(ui: &mut Ui, found: &Difference) {
    Card::new("Difference, B against A").show(ui, |ui| {
        let t = tokens(ui);
        let words = if found.interleaved {
            "Both are arms of one confirmation and took turns: its own verdict takes the order into account and is the better word"
        } else {
            "These runs did not take turns: whatever else changed between them, from temperature to other programs, is in the difference too. It is no verdict"
        };
        status(ui, Icon::Info, t.accent, words);
        if found.metrics.is_empty() {
            muted(ui, "No test was measured in both");
            return;
        }
        let columns = [
            Column::left("Test", Width::Fixed(110.0)),
            Column::right("A", Width::Share(0.5)),
            Column::right("B", Width::Share(0.5)),
            Column::left("Difference", Width::Share(1.7)),
            Column::left("In words", Width::Share(1.3)),
        ];
        Table::new("metrics", &columns).wrap().show(ui, found.metrics.len(), |row, cells| {
            let (test, comparison) = &found.metrics[row];
            cells.strong(clean(test));
            for value in arm_values(test, comparison).0 {
                cells.text(value);
            }
            cells.text(effect(comparison));
            cells.add(|ui| {
                muted(ui, in_words(comparison)).on_hover_text(clean(&comparison.reason));
            });
        });
    });
}

/// Runs that did not take turns are neither improved nor regressed.
fn in_words(comparison: &Comparison) -> String {
    match comparison.verdict {
        Verdict::Improved => "B was faster".to_owned(),
        Verdict::Regressed => "B was slower".to_owned(),
        Verdict::Unchanged => "no difference that matters".to_owned(),
        Verdict::Inconclusive => format!("cannot be told apart: {}", clean(&comparison.reason)),
    }
}

fn differing(ui: &mut Ui, found: &Difference) {
    columns(
        ui,
        "differing",
        &[1.0, 1.0],
        |column, ui, height| match column {
            0 => Card::new("Settings that differ")
                .min_height(height)
                .show(ui, |ui| settings(ui, found)),
            _ => Card::new("Machine and build")
                .min_height(height)
                .show(ui, |ui| {
                    if found.other_model {
                        label(ui, "The models are not the same file");
                    }
                    if found.fields.is_empty() {
                        muted(ui, "The same machine, driver and llama.cpp");
                    }
                    for change in &found.fields {
                        label(ui, capitalised(&field_change(change)));
                    }
                }),
        },
    );
}

fn settings(ui: &mut Ui, found: &Difference) {
    if found.settings.is_empty() {
        muted(ui, "None");
        return;
    }
    let columns = [
        Column::left("Setting", Width::Share(1.2)),
        Column::left("A", Width::Share(1.0)),
        Column::left("B", Width::Share(1.0)),
    ];
    Table::new("settings", &columns)
        .wrap()
        .show(ui, found.settings.len(), |row, cells| {
            let change = &found.settings[row];
            cells.text(setting_title(&change.dimension));
            for value in &change.values {
                cells.muted(value.as_deref().map_or_else(|| "stock".to_owned(), clean));
            }
        });
    caption(ui, "A value that is not set is the build's own");
}
