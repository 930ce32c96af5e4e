//! The Settings page: how Flux looks, what it keeps, and where.

use eframe::egui::{self, ThemePreference, Ui};

use crate::domain::settings::Theme;
use crate::ui::app::Cx;
use crate::ui::link::{Link, Worker};
use crate::ui::state::AppState;
use crate::ui::widgets::page_header;

/// The page's own state.
#[derive(Debug, Default)]
pub struct State {}

/// egui's word for it.
pub const fn preference(theme: Theme) -> ThemePreference {
    match theme {
        Theme::System => ThemePreference::System,
        Theme::Dark => ThemePreference::Dark,
        Theme::Light => ThemePreference::Light,
    }
}

/// The theme that is not shown now.
pub const fn opposite(shown: egui::Theme) -> Theme {
    match shown {
        egui::Theme::Dark => Theme::Light,
        egui::Theme::Light => Theme::Dark,
    }
}

/// Writes the settings down.
pub fn store(state: &AppState, link: &Link) {
    let settings = state.settings.clone();
    link.ask(
        Worker::Store,
        move |ports| ports.settings.save(&settings),
        |state, _, saved| {
            if let Err(error) = saved {
                state.complain(error.headline);
            }
        },
    );
}

/// Draws the page.
pub fn show(ui: &mut Ui, _state: &mut AppState, _cx: &mut Cx) {
    page_header(ui, "Settings", "", |_| {});
}
