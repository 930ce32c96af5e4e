//! The Machine page: what the scan found, what can run on it, and what would spoil a measurement now.

mod gpu;
mod host;
mod runtimes;

use std::sync::Arc;

use eframe::egui::Ui;

use crate::domain::machine::{NoGpu, no_gpu};
use crate::domain::text::clean;
use crate::engine::{doctor, scan};
use crate::ui::app::{Cx, Order};
use crate::ui::command::UiCommand;
use crate::ui::files::Choice;
use crate::ui::link::{Link, Worker};
use crate::ui::state::AppState;
use crate::ui::theme::icons::Icon;
use crate::ui::theme::tokens;
use crate::ui::widgets::{
    Card, Press, columns, failed, label, loading_note, page_header, segmented, status,
};

/// The page's own state.
#[derive(Debug, Default)]
pub struct State {
    /// Which GPU is shown.
    gpu: usize,
    /// A folder typed, to be added as a llama.cpp build.
    folder: String,
}

/// Scans again, then looks what would spoil a measurement.
pub fn ask_scan(state: &mut AppState, link: &Link) {
    state.scan.ask();
    link.ask(Worker::System, scan::scan, |state, link, scan| {
        state.scan.answer(Ok(Arc::new(scan)));
        super::lab::forget(state);
        super::history::ask_profiles(state, link);
    });
    ask_findings(state, link);
}

/// Looks what would spoil a measurement now.
pub fn ask_findings(state: &mut AppState, link: &Link) {
    state.findings.ask();
    let model = state.model_path();
    link.ask(
        Worker::System,
        move |ports| doctor::findings(model.as_deref(), ports),
        |state, _, found| state.findings.answer(found),
    );
}

/// Draws the page.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let Some(scan) = state.scan.value().cloned() else {
        page_header(ui, "This machine", "", |_| {});
        match state.scan.error() {
            Some(error) => Card::bare().show(ui, |ui| failed(ui, error)),
            None => Card::bare().show(ui, |ui| {
                loading_note(ui, "Asking Vulkan, the system and every llama.cpp");
            }),
        }
        return;
    };
    let shown = state.machine.gpu.min(scan.gpus.len().saturating_sub(1));
    let (heading, under) = match scan.gpus.get(shown) {
        Some(gpu) => (clean(&gpu.name), gpu::under(gpu)),
        None => ("CPU only".to_owned(), clean(&scan.machine.host.cpu)),
    };
    page_header(ui, &heading, &under, |ui| {
        let again = Press::new("Scan again").icon(Icon::Again);
        // Without a build, installing one is what comes first.
        let again = if scan.runtimes.is_empty() {
            again
        } else {
            again.primary()
        };
        if ui.add(again.tooltip("F5")).clicked() {
            cx.order(Order::Ui(UiCommand::Rescan));
        }
        if ui.add(Press::new("Export…")).clicked() {
            export(state, cx);
        }
    });
    if scan.gpus.len() > 1 {
        let names: Vec<String> = scan.gpus.iter().map(|g| clean(&g.name)).collect();
        let choices: Vec<(usize, &str)> = names.iter().map(String::as_str).enumerate().collect();
        segmented(ui, &mut state.machine.gpu, &choices);
    }
    if let Some(none) = no_gpu(&scan.machine, &scan.gpus) {
        without_gpu(ui, &none);
    }
    if let Some(gpu) = scan.gpus.get(shown) {
        gpu::cards(ui, gpu, &state.settings);
    }
    columns(
        ui,
        "runtimes and readiness",
        &[1.37, 1.0],
        |column, ui, height| match column {
            0 => runtimes::card(ui, state, cx, &scan, height),
            _ => host::readiness(ui, state, height),
        },
    );
    columns(
        ui,
        "host and fingerprint",
        &[1.0, 1.0],
        |column, ui, height| match column {
            0 => host::computer(ui, &scan, &state.settings, height),
            _ => host::fingerprint(ui, &scan, height),
        },
    );
}

fn without_gpu(ui: &mut Ui, none: &NoGpu) {
    Card::new("No GPU to tune through Vulkan").show(ui, |ui| {
        label(ui, clean(&none.headline));
        let color = tokens(ui).accent;
        for hint in &none.hints {
            status(ui, Icon::Next, color, &clean(hint));
        }
    });
}

fn export(state: &AppState, cx: &Cx) {
    let Some(scan) = state.scan.value().cloned() else {
        return;
    };
    cx.link.choose(
        Choice::Folder("Where to write this machine down"),
        move |_, link, dir| {
            link.ask(
                Worker::System,
                move |ports| scan::export(&scan, &dir, ports),
                |state, _, written| match written {
                    Ok(path) => state.say(format!("Written to {}", path.display())),
                    Err(error) => state.complain(error.headline),
                },
            );
        },
    );
}
