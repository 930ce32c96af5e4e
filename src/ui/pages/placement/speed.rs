//! Predicted against measured, and the speed as the context grows.

use eframe::egui::Ui;

use crate::chart::{Growth, Scatter};
use crate::ui::charts;
use crate::ui::theme::icons::Icon;
use crate::ui::theme::tokens;
use crate::ui::widgets::{Card, label, loading_note, muted, status};

use super::State;

/// Height of both charts.
const HEIGHT: f32 = 150.0;

/// Draws the card of what was measured.
pub(super) fn scatter(ui: &mut Ui, page: &State, height: f32) {
    Card::new("Predicted against measured").min_height(height).show(ui, |ui| {
        let Some(rows) = page.rows.value() else {
            loading_note(ui, "Judging hundreds of placements");
            return;
        };
        if rows.dots.is_empty() {
            let t = tokens(ui);
            status(ui, Icon::Info, t.accent, "Nothing of this model is measured here yet");
            muted(ui, "Benchmark these candidates: each run becomes a point here, and the prediction is fitted to them all");
            return;
        }
        charts::kept(ui, "predicted against measured", page.version, |width| {
            Scatter {
                unit: "t/s".to_owned(),
                dots: rows.dots.clone(),
                height: HEIGHT,
            }
            .scene(width)
        });
    });
}

/// Draws the card of contexts.
pub(super) fn growth(ui: &mut Ui, page: &State, height: f32) {
    Card::new("Speed as the context grows")
        .caption("tokens per second")
        .min_height(height)
        .show(ui, |ui| {
            let Some((_, steps)) = &page.growth else {
                loading_note(ui, "Judging this placement at other contexts");
                return;
            };
            if steps.is_empty() {
                label(ui, "This placement fits at no context");
                return;
            }
            charts::kept(ui, "speed as the context grows", page.version, |width| {
                Growth {
                    steps: steps.to_vec(),
                    height: HEIGHT,
                }
                .scene(width)
            });
        });
}
