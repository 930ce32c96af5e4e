//! Which search space is in use: the one that ships with Flux, or a file of the owner's own.

use eframe::egui::Ui;

use crate::domain::text::{clean, count};
use crate::ui::app::Cx;
use crate::ui::files::Choice;
use crate::ui::link::{Link, Worker};
use crate::ui::state::AppState;
use crate::ui::theme::icons::Icon;
use crate::ui::widgets::{Card, Loadable, Press, caption, code, failed, label};

/// Draws the section.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, height: f32) {
    let spaces = &cx.link.ports().space;
    let (space, own) = (spaces.current(), spaces.own_file());
    let dimensions = count(space.dimensions().len() as u64, "setting");
    Card::new("Search space").min_height(height).show(ui, |ui| {
        if let Some(file) = &own {
            label(ui, format!("Your own file, with {dimensions}"));
            code(ui, clean(&file.display().to_string()));
        } else {
            label(
                ui,
                format!("The one that ships with Flux, with {dimensions}"),
            );
            caption(
                ui,
                "A file of your own may leave settings out, add some, or offer other values",
            );
        }
        ui.horizontal_wrapped(|ui| {
            if ui
                .add(Press::new("Use a file…").icon(Icon::Folder))
                .clicked()
            {
                let file = Choice::File("Choose a search space", "toml");
                cx.link.choose(file, |_, link, path| install(link, path));
            }
            if own.is_some() && ui.add(Press::new("Back to the shipped one")).clicked() {
                reset(cx.link);
            }
        });
        if let Some(error) = &state.settings_page.space_error {
            failed(ui, error);
        }
    });
}

fn install(link: &Link, path: std::path::PathBuf) {
    link.ask(
        Worker::System,
        move |ports| ports.space.install(&path),
        |state, _, done| match done {
            Ok(()) => changed(state, "The search space is checked and in use"),
            Err(error) => state.settings_page.space_error = Some(error.into()),
        },
    );
}

fn reset(link: &Link) {
    link.ask(
        Worker::System,
        |ports| ports.space.reset(),
        |state, _, done| match done {
            Ok(()) => changed(state, "The search space that ships with Flux is in use"),
            Err(error) => state.settings_page.space_error = Some(error.into()),
        },
    );
}

fn changed(state: &mut AppState, words: &str) {
    state.settings_page.space_error = None;
    state.tune.forget_plan();
    state.settings_page.usage = Loadable::Unasked;
    state.say(words);
}
