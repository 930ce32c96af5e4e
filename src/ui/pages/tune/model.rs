//! Step 1: a model (chosen, found, typed or made) and the build that runs it.

use std::path::PathBuf;

use eframe::egui::{ScrollArea, TextEdit, Ui, WidgetInfo, accesskit::Role};

use crate::domain::settings::AppSettings;
use crate::domain::text::{clean, count, parameters};
use crate::domain::types::{ModelInfo, ModelKind, ModelListing};
use crate::engine::message::Command;
use crate::engine::models::{models_dir, needs};
use crate::engine::quick;
use crate::ports::SynthRequest;
use crate::ui::app::{Cx, Order};
use crate::ui::files::Choice;
use crate::ui::state::{AppState, Page};
use crate::ui::theme::icons::Icon;
use crate::ui::theme::{space, tokens};
use crate::ui::widgets::{
    Card, Cells, Column, Press, Table, Width, caption, columns, failed, label, loading_note, muted,
    page_header, progress, search_field, select, status, strong,
};

use super::{Step, ask_models, goal_words, resume, steps, take_model};

/// Most models listed at once: a search narrows it down.
const SHOWN: usize = 100;

/// Draws the step.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let why_not = why_not_next(state);
    page_header(
        ui,
        "Tune a model",
        "Flux measures which settings are really faster on this machine, and keeps only what it can prove",
        |ui| {
            let next = Press::new("Next").icon(Icon::Next).primary();
            if ui.add(next.unless(why_not)).clicked() {
                state.tune.step = Step::Goal;
            }
        },
    );
    if let Some(step) = steps::line(ui, Step::Model, |step| step == Step::Model) {
        state.tune.step = step;
    }
    broken_off(ui, state, cx);
    columns(ui, "model", &[1.9, 1.0], |column, ui, height| {
        if column == 0 {
            found(ui, state, cx, height);
        } else {
            chosen(ui, state, cx);
            make(ui, state, cx);
        }
    });
}

fn why_not_next(state: &AppState) -> Option<&'static str> {
    if state.model.is_none() {
        return Some("choose a model first");
    }
    if state.scan.value().is_some() && state.chosen_runtime().is_none() {
        return Some("install llama.cpp first, or add a folder that holds it");
    }
    None
}

/// A search that was broken off comes first: its runs are kept.
fn broken_off(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let Some((line, model)) = state.tune.broken_off.clone() else {
        return;
    };
    Card::new("A tuning was broken off").show(ui, |ui| {
        let kept = count(line.runs, "run");
        let goal = goal_words(line.goal);
        label(
            ui,
            format!(
                "{} for {goal}, session {}: {kept} kept",
                clean(&line.model),
                line.id
            ),
        );
        ui.horizontal_wrapped(|ui| {
            let go_on = Press::new("Go on with it").icon(Icon::Play).primary();
            let busy = state.is_busy().then_some("something else is running");
            if ui.add(go_on.unless(busy)).clicked() {
                state.tune.goal = line.goal;
                resume(state, cx, line.id, model);
            }
            if ui.add(Press::new("Not now").quiet()).clicked() {
                state.tune.broken_off = None;
            }
        });
    });
}

fn found(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, height: f32) {
    Card::new("Models on this machine")
        .caption("the usual folders, and those in Settings")
        .min_height(height)
        .show(ui, |ui| {
            ui.horizontal_wrapped(|ui| {
                if ui
                    .add(Press::new("Choose a file…").icon(Icon::Folder))
                    .clicked()
                {
                    cx.link.choose(Choice::Model, |state, link, path| {
                        take_model(state, link, &path);
                    });
                }
                search_field(ui, &mut state.tune.search, "Search models", 180.0);
                if ui
                    .add(Press::new("Look again").icon_only(Icon::Again))
                    .clicked()
                {
                    ask_models(state, cx.link);
                }
            });
            path_field(ui, state, cx);
            let Some(models) = state.models.value() else {
                loading_note(ui, "Looking through the model folders");
                return;
            };
            let known = models.len();
            let wanted = matching(models, &state.tune.search, &state.settings);
            if wanted.is_empty() {
                muted(ui, "No model found: choose a file, or make one to try");
                return;
            }
            ScrollArea::vertical()
                .max_height(420.0)
                .auto_shrink([false, true])
                .show(ui, |ui| {
                    list(ui, state, cx, &wanted);
                });
            if known > SHOWN {
                caption(
                    ui,
                    format!("The first {SHOWN} of {known}; a search narrows it down"),
                );
            }
        });
}

/// For keyboards, and for systems without file dialogs.
fn path_field(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    ui.horizontal(|ui| {
        let width = (ui.available_width() - 90.0).max(160.0);
        let edit = TextEdit::singleline(&mut state.tune.path)
            .hint_text("…or type the path of a GGUF file")
            .margin(eframe::egui::vec2(space::M, space::S - 1.0))
            .desired_width(width - 2.0 * space::M);
        let response = ui.add(edit);
        response.widget_info(|| WidgetInfo::labeled(Role::TextInput, true, "Path of a model file"));
        let entered =
            response.lost_focus() && ui.input(|i| i.key_pressed(eframe::egui::Key::Enter));
        let empty = state
            .tune
            .path
            .trim()
            .is_empty()
            .then_some("type a path first");
        if (ui.add(Press::new("Use").unless(empty)).clicked() || entered) && empty.is_none() {
            let path = PathBuf::from(state.tune.path.trim());
            take_model(state, cx.link, &path);
        }
    });
    if let Some(error) = state.tune.inspected.error() {
        failed(ui, error);
    }
}

/// Models whose name or path holds the text; recently used ones first.
fn matching(models: &[ModelListing], text: &str, settings: &AppSettings) -> Vec<ModelListing> {
    let text = text.trim().to_lowercase();
    let holds = |listing: &&ModelListing| {
        let name = listing.model.as_ref().map_or("", |m| m.name.as_str());
        name.to_lowercase().contains(&text)
            || listing
                .path
                .to_string_lossy()
                .to_lowercase()
                .contains(&text)
    };
    let mut wanted: Vec<&ModelListing> = models.iter().filter(holds).collect();
    let recent = |listing: &&ModelListing| {
        let place = settings
            .recent_models
            .iter()
            .position(|p| *p == listing.path);
        (listing.problem.is_some(), place.unwrap_or(usize::MAX))
    };
    wanted.sort_by_key(recent);
    // Copied are only those shown.
    wanted.into_iter().take(SHOWN).cloned().collect()
}

fn list(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, models: &[ModelListing]) {
    let columns = [
        Column::left("Model", Width::Share(1.6)),
        Column::left("Shape", Width::Share(1.0)),
        Column::left("Quantisation", Width::Fixed(96.0)),
        Column::right("Size", Width::Fixed(80.0)),
    ];
    let taken = state.model_path();
    let at = models.iter().position(|l| Some(&l.path) == taken.as_ref());
    let name = |row: usize| match &models[row].model {
        Some(model) => format!("Use {}", clean(&model.name)),
        None => format!(
            "Broken file {}",
            clean(&models[row].path.display().to_string())
        ),
    };
    let settings = state.settings.clone();
    let clicked =
        Table::new("models", &columns)
            .choosable(at, &name)
            .show(ui, models.len(), |row, cells| {
                line(cells, &models[row], &settings);
            });
    if let Some(row) = clicked {
        take_model(state, cx.link, &models[row].path);
    }
}

fn line(cells: &mut Cells, listing: &ModelListing, settings: &AppSettings) {
    let path = clean(&listing.path.display().to_string());
    let Some(model) = &listing.model else {
        let file = listing
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        cells.muted(clean(&file));
        let problem = clean(listing.problem.as_deref().unwrap_or("cannot be read"));
        cells.add(|ui| {
            let color = tokens(ui).warning;
            ui.label(eframe::egui::RichText::new(Icon::Warning.glyph()).color(color));
            muted(ui, &problem).on_hover_text(&path);
        });
        return;
    };
    cells.add(|ui| {
        strong(ui, clean(&model.name)).on_hover_text(path);
    });
    cells.muted(shape(model));
    cells.muted(quantisation(model));
    cells.text(settings.memory(model.file_bytes));
}

/// Architecture, size, kind: `qwen3 · 4.0B · 36 layers`.
pub fn shape(model: &ModelInfo) -> String {
    let mut parts = vec![clean(&model.architecture), parameters(model.parameters)];
    match model.kind {
        ModelKind::Model => parts.extend(model.layers.map(|n| count(n.into(), "layer"))),
        ModelKind::Projector => parts.push("projector".to_owned()),
        ModelKind::VocabularyOnly => parts.push("vocabulary only".to_owned()),
    }
    if model.experts > 0 {
        parts.push(count(model.experts.into(), "expert"));
    }
    parts.join(" · ")
}

/// The type most of its weights have.
pub fn quantisation(model: &ModelInfo) -> String {
    model
        .quant_mix
        .first()
        .map_or_else(|| "unknown".to_owned(), |(name, _)| clean(name))
}

fn chosen(ui: &mut Ui, state: &AppState, cx: &mut Cx) {
    Card::new("This tuning").show(ui, |ui| {
        let t = tokens(ui);
        match &state.model {
            Some(model) => {
                strong(ui, clean(&model.name));
                muted(ui, format!("{} · {}", shape(model), quantisation(model)));
                let (need, _) = needs(model);
                caption(
                    ui,
                    format!(
                        "needs about {} with a short context",
                        state.settings.memory(need)
                    ),
                );
                for notice in &model.notices {
                    status(ui, Icon::Info, t.accent, &clean(notice));
                }
            }
            None if state.tune.inspected.is_loading() => loading_note(ui, "Reading the header"),
            None => {
                muted(ui, "No model chosen yet");
            }
        }
        ui.add_space(space::XS);
        match state.chosen_runtime() {
            Some(runtime) => {
                strong(ui, format!("llama.cpp {}", clean(&runtime.name)));
                let backends: Vec<&str> = runtime.backends.iter().map(|b| b.name()).collect();
                muted(ui, backends.join(", "));
            }
            None if state.scan.value().is_none() => loading_note(ui, "Looking for llama.cpp"),
            None => {
                status(
                    ui,
                    Icon::Problem,
                    t.regressed,
                    "No llama.cpp with llama-bench is known",
                );
            }
        }
        if ui.add(Press::new("Choose another build").quiet()).clicked() {
            cx.go(Page::Machine);
        }
    });
}

/// One to try, where there is none: random weights are as fast as real ones.
fn make(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    Card::new("No model at hand?").show(ui, |ui| {
        muted(
            ui,
            "Flux can write one with random weights. It talks nonsense, at exactly the speed of the real one.",
        );
        let shapes = cx.link.ports().models.shapes();
        let proposed = state.scan.value().map_or("tiny", |scan| quick::shape_for(scan));
        if state.tune.shape.is_empty() {
            proposed.clone_into(&mut state.tune.shape);
        }
        let writing = state.errand.as_ref().filter(|j| j.is_running() && j.kind == "synth");
        if let Some(job) = writing {
            progress(ui, job.share(), "Writing the model");
            if ui.add(Press::new("Cancel").quiet()).clicked() {
                cx.order(Order::StopErrand);
            }
            return;
        }
        ui.horizontal_wrapped(|ui| {
            let choices: Vec<(String, String)> =
                shapes.iter().map(|shape| (shape.clone(), shape.clone())).collect();
            select(ui, "Shape to synthesise", &mut state.tune.shape, &choices);
            if ui.add(Press::new("Synthesise").icon(Icon::Spark)).clicked() {
                synthesise(state, cx);
            }
        });
    });
}

fn synthesise(state: &mut AppState, cx: &mut Cx) {
    let shape = state.tune.shape.clone();
    let output = models_dir(&cx.link.ports().data_dir).join(format!("{shape}.gguf"));
    if let Some(made) = state
        .models
        .value()
        .and_then(|all| all.iter().find(|l| l.path == output))
    {
        // Made before: the same file everywhere.
        let path = made.path.clone();
        take_model(state, cx.link, &path);
        return;
    }
    cx.order(Order::start(Command::Synth(SynthRequest {
        shape,
        output,
        sparse: false,
        seed: quick::SEED,
    })));
}
