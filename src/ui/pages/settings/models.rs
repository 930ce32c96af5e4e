//! Where models are looked for, and which were used last.

use std::path::Path;

use eframe::egui::{Align, Label, Layout, Ui};

use crate::domain::text::{clean, count};
use crate::ui::app::Cx;
use crate::ui::files::Choice;
use crate::ui::state::AppState;
use crate::ui::theme::icons::Icon;
use crate::ui::widgets::{Card, Loadable, Press, caption, caption_text};

/// Draws the section.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, height: f32) {
    Card::new("Models").min_height(height).show(ui, |ui| {
        caption(ui, "Folders searched for models, beside the usual ones");
        let mut gone = None;
        for (at, folder) in state.settings.model_folders.iter().enumerate() {
            if folder_line(ui, folder) {
                gone = Some(at);
            }
        }
        if let Some(at) = gone {
            state.settings.model_folders.remove(at);
            state.models = Loadable::Unasked;
        }
        if ui
            .add(Press::new("Add a folder…").icon(Icon::Add))
            .clicked()
        {
            let folder = Choice::Folder("Choose a folder with models");
            cx.link.choose(folder, |state, link, path| {
                if !state.settings.model_folders.contains(&path) {
                    state.settings.model_folders.push(path);
                    state.models = Loadable::Unasked;
                    super::store(state, link);
                }
            });
        }
        let recent = state.settings.recent_models.len() as u64;
        if recent > 0 {
            caption(ui, "Models used last come first in the list");
            let words = format!("Forget {}", count(recent, "model"));
            if ui.add(Press::new(&words)).clicked() {
                state.settings.recent_models.clear();
            }
        }
    });
}

fn folder_line(ui: &mut Ui, folder: &Path) -> bool {
    let shown = clean(&folder.display().to_string());
    ui.horizontal(|ui| {
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let words = format!("Remove {shown}");
            let pressed = ui.add(Press::new(&words).icon_only(Icon::Delete)).clicked();
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                ui.add(Label::new(caption_text(ui, &shown)).truncate());
            });
            pressed
        })
        .inner
    })
    .inner
}
