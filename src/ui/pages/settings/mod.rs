//! The Settings page: how Flux looks, how it measures, what it keeps, and where. A change holds at once and is written
//! once, when the control it was made with is let go of.

mod about;
mod data;
mod models;
mod space;

use eframe::egui::{self, ThemePreference, Ui};

use crate::domain::settings::{MemoryUnits, Theme};
use crate::domain::types::Bytes;
use crate::engine::message::JobError;
use crate::ui::app::{Cx, Order};
use crate::ui::link::{Link, Worker};
use crate::ui::state::AppState;
use crate::ui::widgets::{
    Card, Loadable, columns, field, notice_line, number, page_header, segmented, toggle,
};

use super::tune;

/// The page's own state.
#[derive(Debug, Default)]
pub struct State {
    /// Something was changed that is not written yet.
    changed: bool,
    /// Why a search space was refused.
    space_error: Option<JobError>,
    /// What the data folder holds.
    usage: Loadable<data::Usage>,
    /// The licence shown.
    licence: Option<usize>,
    /// It was opened just now: the page goes there.
    licence_opened: bool,
}

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
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let before = state.settings.clone();
    page_header(ui, "Settings", "What is changed here holds at once", |_| {});
    if !state.notices.is_empty() {
        Card::new("Found at the start").show(ui, |ui| {
            for notice in &state.notices {
                notice_line(ui, notice);
            }
        });
    }
    columns(
        ui,
        "first",
        &[1.0, 1.0],
        |column, ui, height| match column {
            0 => looks(ui, state, height),
            _ => measuring(ui, state, height),
        },
    );
    columns(
        ui,
        "second",
        &[1.0, 1.0],
        |column, ui, height| match column {
            0 => models::show(ui, state, cx, height),
            _ => space::show(ui, state, cx, height),
        },
    );
    columns(
        ui,
        "third",
        &[1.0, 1.0],
        |column, ui, height| match column {
            0 => data::show(ui, state, cx, height),
            _ => about::show(ui, state, height),
        },
    );
    about::licence(ui, state);
    if before.time_limit_secs != state.settings.time_limit_secs {
        state.tune.begin_with(&state.settings);
    }
    state.settings_page.changed |= before != state.settings;
    if state.settings_page.changed && is_at_rest(ui) {
        state.settings_page.changed = false;
        state.settings.bring_into_bounds();
        cx.order(Order::SettingsChanged);
    }
}

/// Nothing is being dragged or typed.
fn is_at_rest(ui: &Ui) -> bool {
    let dragging = ui.input(|input| input.pointer.any_down());
    !dragging && !ui.ctx().egui_wants_keyboard_input()
}

fn looks(ui: &mut Ui, state: &mut AppState, height: f32) {
    Card::new("Looks").min_height(height).show(ui, |ui| {
        let settings = &mut state.settings;
        field(ui, "Theme", "", |ui| {
            let themes = [
                (Theme::System, "System"),
                (Theme::Dark, "Dark"),
                (Theme::Light, "Light"),
            ];
            segmented(ui, &mut settings.theme, &themes)
        });
        field(
            ui,
            "Size",
            "Of everything, against the system's own scale",
            |ui| {
                let mut percent = (settings.zoom * 100.0).round() as u32;
                let response = number(ui, &mut percent, 50..=300, " %");
                if response.changed() {
                    settings.zoom = f64::from(percent) / 100.0;
                }
                response
            },
        );
        field(ui, "Memory units", "", |ui| {
            let units = [
                (MemoryUnits::Binary, "MiB, GiB"),
                (MemoryUnits::Decimal, "MB, GB"),
            ];
            segmented(ui, &mut settings.memory_units, &units)
        });
        toggle(ui, &mut settings.reduce_motion, "Reduce motion");
    });
}

fn measuring(ui: &mut Ui, state: &mut AppState, height: f32) {
    Card::new("Measuring and sensors")
        .min_height(height)
        .show(ui, |ui| {
            let settings = &mut state.settings;
            field(
                ui,
                "Time limit",
                "Of a new search, unless it is given another",
                |ui| {
                    let mut minutes = settings.time_limit_secs.map_or(0, |secs| secs.div_ceil(60));
                    let response = segmented(ui, &mut minutes, tune::LIMITS);
                    if response.changed() {
                        settings.time_limit_secs = (minutes > 0).then_some(minutes * 60);
                    }
                    response
                },
            );
            field(
                ui,
                "Device memory left free",
                "A winner that needs more is not taken",
                |ui| {
                    let mut mib = settings.vram_reserve.as_mib().round() as u64;
                    let response = number(ui, &mut mib, 0..=65_536, " MiB");
                    if response.changed() {
                        settings.vram_reserve = Bytes::mib(mib);
                    }
                    response
                },
            );
            field(
                ui,
                "Sensors are read every",
                "Reading costs well under a millisecond",
                |ui| number(ui, &mut settings.telemetry_interval_ms, 100..=10_000, " ms"),
            );
            toggle(
                ui,
                &mut settings.store_telemetry,
                "Store readings with what is measured",
            );
            field(
                ui,
                "Readings are kept for",
                "Older ones are deleted at the start; 0 keeps them for ever. Runs and their energy always stay",
                |ui| number(ui, &mut settings.telemetry_days, 0..=3_650, " days"),
            );
        });
}
