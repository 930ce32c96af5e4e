//! What the data folder is, and what it holds.

use std::fs;
use std::path::Path;

use eframe::egui::Ui;

use crate::domain::text::{clean, count};
use crate::domain::types::Bytes;
use crate::engine::message::JobError;
use crate::ports::SessionFilter;
use crate::ui::app::Cx;
use crate::ui::link::{Link, Worker};
use crate::ui::state::AppState;
use crate::ui::theme::icons::Icon;
use crate::ui::widgets::{Card, Press, caption, code, failed, label, loading_note};

/// What the data folder holds.
#[derive(Debug)]
pub struct Usage {
    /// Sessions listed.
    sessions: u64,
    /// Size of every file.
    size: Bytes,
}

/// Draws the section.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, height: f32) {
    if state.settings_page.usage.is_unasked() {
        ask(state, cx.link);
    }
    let folder = clean(&cx.link.ports().data_dir.display().to_string());
    Card::new("Data").min_height(height).show(ui, |ui| {
        caption(ui, "Everything measured stays in this folder");
        code(ui, &folder);
        match (
            state.settings_page.usage.value(),
            state.settings_page.usage.error(),
        ) {
            (Some(usage), _) => {
                let sessions = count(usage.sessions, "session");
                label(
                    ui,
                    format!("{sessions}, {}", state.settings.memory(usage.size)),
                );
            }
            (None, Some(error)) => failed(ui, error),
            (None, None) => loading_note(ui, "Looking how much it holds"),
        }
        caption(
            ui,
            "`flux data compact` on the command line makes it smaller: it asks first, and keeps every sample and verdict",
        );
        if ui
            .add(Press::new("Copy the path").icon(Icon::Copy))
            .clicked()
        {
            ui.ctx().copy_text(folder.clone());
            state.say("The path is copied");
        }
    });
}

fn ask(state: &mut AppState, link: &Link) {
    state.settings_page.usage.ask();
    link.ask(
        Worker::System,
        |ports| {
            let one = SessionFilter {
                limit: 1,
                ..SessionFilter::default()
            };
            Ok::<_, JobError>(Usage {
                sessions: ports.store.find_sessions(&one)?.total,
                size: Bytes(size(&ports.data_dir)),
            })
        },
        |state, _, usage| state.settings_page.usage.answer(usage),
    );
}

/// Bytes of the files below; what cannot be read, or is a link out of the folder, counts nothing.
fn size(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(known) if known.is_dir() => size(&entry.path()),
        Ok(known) if known.is_file() => known.len(),
        _ => 0,
    });
    sizes.sum()
}
