//! Every profile: whether it holds, what changed since, how it is used.

use eframe::egui::Ui;

use crate::domain::text::{clean, field_change, moment, settings_words};
use crate::engine::import::Kept;
use crate::engine::message::Command;
use crate::engine::profiles::{ProfileLine, Standing};
use crate::engine::run::{Access, RunRequest};
use crate::ui::app::{Cx, Order};
use crate::ui::command::UiCommand;
use crate::ui::pages::tune;
use crate::ui::state::{AppState, JobView};
use crate::ui::theme::icons::Icon;
use crate::ui::theme::tokens;
use crate::ui::widgets::{Card, Press, caption, code, empty, failed, label, loading_note, status};

use super::{set_deleted, standing_words, undo_import};

/// Profiles shown at first, and again at every asking for older ones: all of a thousand would slow every frame.
const PAGE: usize = 50;

/// Draws them.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let Some(lines) = state.history.profiles.value().cloned() else {
        match state.history.profiles.error() {
            Some(error) => Card::bare().show(ui, |ui| failed(ui, error)),
            None => Card::bare().show(ui, |ui| {
                loading_note(ui, "Holding every profile against this machine");
            }),
        }
        return;
    };
    let imports = state.history.imports.clone();
    if lines.is_empty() && imports.is_empty() {
        Card::bare().show(ui, |ui| {
            if empty(ui, Icon::Save, "No profile yet", Some("Tune a model")) {
                cx.order(Order::Ui(UiCommand::NewTune));
            }
        });
    }
    let shown = PAGE * (1 + state.history.older_profiles);
    for line in lines.iter().take(shown) {
        card(ui, line, state, cx);
    }
    if lines.len() > shown && ui.add(Press::new("Older profiles")).clicked() {
        state.history.older_profiles += 1;
    }
    for kept in &imports {
        import(ui, kept, cx);
    }
}

/// A profile that came from elsewhere: `flux run` and a new search take it where none of one's own holds.
fn import(ui: &mut Ui, kept: &Kept, cx: &mut Cx) {
    let profile = &kept.import.profile;
    let title = format!("{} for {}", clean(&profile.model.name), profile.goal);
    let id = kept.import.id;
    let came = moment(kept.import.imported_at);
    let words = format!("import {id} · {came} · {}", clean(&profile.confirmed));
    Card::new(&title).caption(words).show(ui, |ui| {
        let t = tokens(ui);
        if kept.holds {
            status(ui, Icon::Check, t.improved, "Measured on this machine");
        } else {
            status(ui, Icon::Warning, t.warning, "Measured elsewhere");
        }
        label(ui, settings_words(&profile.settings));
        let forget = Press::new("Forget").icon(Icon::Delete).quiet();
        let told = format!("`flux run` and searches do not take import {id} any more");
        if ui.add(forget.tooltip(told)).clicked() {
            undo_import(cx.link, kept.import.clone());
        }
    });
}

fn card(ui: &mut Ui, line: &ProfileLine, state: &mut AppState, cx: &mut Cx) {
    let profile = &line.profile;
    let title = format!("{} for {}", clean(&line.model), profile.goal);
    let caption_text = format!(
        "profile {} · session {} · {} · {}",
        profile.id,
        profile.session,
        clean(&line.runtime),
        moment(profile.created_at)
    );
    Card::new(&title).caption(caption_text).show(ui, |ui| {
        standing(ui, &line.standing);
        label(ui, settings_words(&profile.settings));
        code(ui, clean(&line.command));
        ui.horizontal_wrapped(|ui| actions(ui, line, state, cx));
    });
}

fn standing(ui: &mut Ui, standing: &Standing) {
    let t = tokens(ui);
    let (current, words) = standing_words(standing);
    let words = crate::domain::text::capitalised(&words);
    if current {
        status(ui, Icon::Check, t.improved, &words);
    } else {
        status(ui, Icon::Warning, t.warning, &words);
    }
    if let Standing::Stale(changes) = standing
        && changes.len() > 1
    {
        let all: Vec<String> = changes.iter().map(field_change).collect();
        caption(ui, all.join(" · "));
    }
}

fn actions(ui: &mut Ui, line: &ProfileLine, state: &mut AppState, cx: &mut Cx) {
    let profile = &line.profile;
    let running = state.job.as_ref().is_some_and(JobView::is_running);
    let busy = running.then_some("A measurement is running");
    if line.standing == Standing::Current
        && ui
            .add(Press::new("Run server").icon(Icon::Server).unless(busy))
            .clicked()
    {
        cx.order(Order::start(Command::Serve(RunRequest {
            model: line.model_path.clone(),
            runtime: None,
            goal: Some(profile.goal),
            stale_ok: false,
            extra: Vec::new(),
            access: Access::default(),
        })));
    }
    if ui
        .add(Press::new("Copy command").icon(Icon::Copy))
        .clicked()
    {
        ui.ctx().copy_text(line.command.clone());
        state.say("The command is in the clipboard");
    }
    if ui
        .add(Press::new("Measure again").icon(Icon::Again).unless(busy))
        .clicked()
    {
        tune::measure_again(cx.link, line.model_path.clone(), profile.goal);
    }
    if ui.add(Press::new("Show its session").quiet()).clicked() {
        state.history.open(Some(profile.session));
    }
    let delete = Press::new("Delete").icon(Icon::Delete).quiet();
    if ui
        .add(delete.tooltip("Deletes its session with it; both can be brought back"))
        .clicked()
    {
        set_deleted(state, cx.link, profile.session, true);
    }
}
