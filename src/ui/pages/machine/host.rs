//! What is around the GPU: whether one can measure now, the computer, and the fingerprint with what changed.

use eframe::egui::Ui;

use crate::domain::settings::AppSettings;
use crate::domain::text::{capitalised, clean, cores_words};
use crate::engine::scan::Scan;
use crate::ui::state::AppState;
use crate::ui::theme::icons::Icon;
use crate::ui::theme::{space, tokens};
use crate::ui::widgets::{
    Card, Column, Table, Width, caption, code, failed, level_mark, loading_note, muted, status,
};

/// Doctor's findings, with what to do.
pub fn readiness(ui: &mut Ui, state: &AppState, height: f32) {
    Card::new("Ready to measure?")
        .min_height(height)
        .show(ui, |ui| {
            if let Some(error) = state.findings.error() {
                failed(ui, error);
            }
            let Some(found) = state.findings.value() else {
                loading_note(ui, "Looking at power, load, memory and caches");
                return;
            };
            if found.is_empty() {
                status(
                    ui,
                    Icon::Check,
                    tokens(ui).improved,
                    "Nothing here would spoil a measurement",
                );
            }
            for finding in found {
                let (icon, color) = level_mark(ui, finding.level);
                status(ui, icon, color, &capitalised(&clean(&finding.title)));
                ui.indent(&finding.code, |ui| {
                    caption(ui, capitalised(&clean(&finding.advice)))
                });
            }
        });
}

/// Processor, memory, system.
pub fn computer(ui: &mut Ui, scan: &Scan, settings: &AppSettings, height: f32) {
    let host = &scan.machine.host;
    let cores = cores_words(host);
    let mut rows = vec![
        ("Processor", clean(&host.cpu)),
        ("Cores", format!("{cores}, {}", clean(&host.arch))),
        (
            "RAM",
            format!(
                "{} free of {}",
                settings.memory(host.ram_available),
                settings.memory(host.ram_total)
            ),
        ),
        ("System", clean(&host.os)),
        ("Kernel", clean(&host.kernel)),
    ];
    if let Some(plan) = &host.power_plan {
        rows.push(("Power plan", clean(plan)));
    }
    if let Some(battery) = host.on_battery {
        rows.push((
            "Power",
            if battery { "battery" } else { "mains" }.to_owned(),
        ));
    }
    for source in &scan.machine.telemetry {
        let readable = if source.available {
            "readable"
        } else {
            "not readable"
        };
        rows.push((
            "Sensors",
            format!(
                "{} {readable}, {}",
                clean(&source.source),
                clean(&source.detail)
            ),
        ));
    }
    Card::new("This computer")
        .min_height(height)
        .show(ui, |ui| pairs(ui, "computer", &rows));
}

/// The fingerprint, field by field, what changed first.
pub fn fingerprint(ui: &mut Ui, scan: &Scan, height: f32) {
    let key = &scan.fingerprint;
    Card::new("Fingerprint")
        .caption("results are kept for this machine and no other")
        .min_height(height)
        .show(ui, |ui| {
            code(ui, key.short());
            let t = tokens(ui);
            match &scan.changes {
                None => {
                    muted(ui, "First scan of this machine");
                }
                Some(changes) if changes.is_empty() => {
                    status(ui, Icon::Check, t.improved, "Unchanged since the last scan");
                }
                Some(changes) => {
                    let words = "Changed since the last scan; profiles measured before are stale";
                    status(ui, Icon::Warning, t.warning, words);
                    for change in changes {
                        let shown = |value: &Option<String>| {
                            value.as_deref().map_or_else(|| "nothing".to_owned(), clean)
                        };
                        ui.indent(&change.field, |ui| {
                            caption(
                                ui,
                                format!(
                                    "{} {} → {}",
                                    clean(&change.field),
                                    shown(&change.old),
                                    shown(&change.new)
                                ),
                            )
                        });
                    }
                }
            }
            ui.add_space(space::XS);
            let rows: Vec<(&str, String)> = key
                .fields
                .iter()
                .map(|(name, value)| (name.as_str(), clean(value)))
                .collect();
            pairs(ui, "fingerprint", &rows);
            // Sessions and profiles are keyed by the machine and the build together.
            for (runtime, with) in scan.runtimes.iter().zip(&scan.runtime_fingerprints) {
                let words = format!("with llama.cpp {}", clean(&runtime.name));
                caption(ui, format!("{words} {}", with.short()));
            }
        });
}

/// Names and values.
fn pairs(ui: &mut Ui, id: &str, rows: &[(&str, String)]) {
    let columns = [
        Column::left("", Width::Share(1.0)),
        Column::left("", Width::Share(1.7)),
    ];
    Table::new(id, &columns)
        .headless()
        .show(ui, rows.len(), |row, cells| {
            cells.muted(rows[row].0);
            cells.text(rows[row].1.as_str());
        });
}
