//! The llama.cpp builds known here: choose, add, install, forget.

use std::path::PathBuf;

use eframe::egui::{Key, TextEdit, Ui, WidgetInfo, accesskit::Role, vec2};

use crate::domain::text::{clean, shell_command};
use crate::domain::types::{Runtime, RuntimeOrigin};
use crate::engine::message::Command;
use crate::engine::quick;
use crate::engine::scan::Scan;
use crate::ports::NewRuntime;
use crate::ui::app::{Cx, Order};
use crate::ui::files::Choice;
use crate::ui::link::{Link, Worker};
use crate::ui::state::{AppState, JobView};
use crate::ui::theme::icons::Icon;
use crate::ui::theme::{space, tokens};
use crate::ui::widgets::{
    Card, Cells, Column, Press, Table, Width, caption, failed, muted, progress, status,
};

use super::ask_scan;

/// The card.
pub fn card(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, scan: &Scan, height: f32) {
    Card::new("llama.cpp").min_height(height).show(ui, |ui| {
        if scan.runtimes.is_empty() {
            let t = tokens(ui);
            status(
                ui,
                Icon::Problem,
                t.regressed,
                "No llama.cpp is known on this machine",
            );
            muted(
                ui,
                "Flux can install one into its data folder, or use a folder that you choose",
            );
        } else {
            list(ui, state, cx, &scan.runtimes);
        }
        if let Some(job) = state
            .errand
            .as_ref()
            .filter(|j| j.is_running() && j.kind == "install")
        {
            installing(ui, job, cx);
        }
        if let Some(error) = state
            .errand
            .as_ref()
            .and_then(|job| job.failed_as("install"))
        {
            failed(ui, error);
        }
        ui.add_space(space::S);
        ui.horizontal_wrapped(|ui| actions(ui, state, cx, scan));
        ui.add_space(space::S);
        folder_field(ui, state, cx);
    });
}

fn list(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, runtimes: &[Runtime]) {
    let chosen = state.chosen_runtime().map(|r| r.name.clone());
    let columns = [
        Column::left("Build", Width::Share(1.1)),
        Column::left("Brings", Width::Share(1.6)),
        Column::right("", Width::Fixed(70.0)),
        Column::right("", Width::Fixed(30.0)),
    ];
    let at = runtimes
        .iter()
        .position(|r| Some(&r.name) == chosen.as_ref());
    let name = |row: usize| format!("Use llama.cpp {}", clean(&runtimes[row].name));
    let mut forget = None;
    let clicked = Table::new("runtimes", &columns).choosable(at, &name).show(
        ui,
        runtimes.len(),
        |row, cells| {
            let runtime = &runtimes[row];
            line(cells, runtime, at == Some(row));
            cells.add(|ui| {
                let words = format!("Forget llama.cpp {}", clean(&runtime.name));
                let why = match runtime.origin {
                    RuntimeOrigin::Found => Some("found in a usual place: it would be found again"),
                    RuntimeOrigin::Added | RuntimeOrigin::Installed => None,
                };
                if why.is_none() && ui.add(Press::new(&words).icon_only(Icon::Delete)).clicked() {
                    forget = Some(runtime.name.clone());
                }
            });
        },
    );
    if let Some(row) = clicked {
        state.runtime = Some(runtimes[row].name.clone());
        state.settings.runtime.clone_from(&state.runtime);
        cx.order(Order::SettingsChanged);
    }
    if let Some(name) = forget {
        cx.link.ask(
            Worker::System,
            move |ports| ports.runtimes.remove(&name),
            |state, link, done| match done {
                Ok(runtime) => {
                    state.say(format!("llama.cpp {} is forgotten", clean(&runtime.name)));
                    ask_scan(state, link);
                }
                Err(error) => state.complain(error.headline),
            },
        );
    }
}

fn line(cells: &mut Cells, runtime: &Runtime, in_use: bool) {
    let backends: Vec<&str> = runtime.backends.iter().map(|b| b.name()).collect();
    cells.text(format!(
        "{} · {}",
        clean(&runtime.name),
        backends.join(", ")
    ));
    let mut brings = Vec::new();
    if runtime.bench.is_some() {
        brings.push("llama-bench");
    }
    if runtime.server.is_some() {
        brings.push("llama-server");
    }
    let variables = clean(&shell_command(&runtime.env, &[]));
    if !variables.is_empty() {
        brings.push(&variables);
    }
    cells.muted(brings.join(", "));
    cells.add(|ui| {
        let t = tokens(ui);
        if in_use {
            crate::ui::widgets::tinted(ui, "in use", t.improved);
        } else if runtime.bench.is_none() {
            muted(ui, "tunes by its server");
        } else {
            muted(ui, "known");
        }
    });
}

fn installing(ui: &mut Ui, job: &JobView, cx: &mut Cx) {
    ui.add_space(space::S);
    progress(ui, job.share(), "Installing llama.cpp");
    ui.horizontal(|ui| {
        caption(ui, clean(&job.doing));
        if job.stopping.is_some() {
            caption(ui, "tidying up");
        } else if ui.add(Press::new("Cancel").quiet()).clicked() {
            cx.order(Order::StopErrand);
        }
    });
}

fn actions(ui: &mut Ui, state: &AppState, cx: &mut Cx, scan: &Scan) {
    if ui
        .add(Press::new("Add folder…").icon(Icon::Folder))
        .clicked()
    {
        let title = Choice::Folder("Folder with llama-bench");
        cx.link.choose(title, add);
    }
    let backend = quick::backend_for(&scan.machine);
    let busy = state
        .errand
        .as_ref()
        .filter(|job| job.is_running())
        .map(|_| "something is being installed or written already");
    let install = Press::new("Install").icon(Icon::Install).unless(busy);
    let install = if scan.runtimes.is_empty() {
        install.primary()
    } else {
        install
    };
    let words = format!("llama.cpp for {}, into Flux's data folder", backend.name());
    if ui.add(install.tooltip(words)).clicked() {
        cx.order(Order::start(Command::Install(backend)));
    }
}

/// For keyboards, and for systems without file dialogs.
fn folder_field(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    ui.horizontal(|ui| {
        let width = (ui.available_width() - 80.0).max(120.0);
        let edit = TextEdit::singleline(&mut state.machine.folder)
            .hint_text("…or type a folder that holds llama-bench")
            .margin(vec2(space::M, space::S - 1.0))
            .desired_width(width - 2.0 * space::M);
        let response = ui.add(edit);
        response
            .widget_info(|| WidgetInfo::labeled(Role::TextInput, true, "Folder with llama-bench"));
        let entered = response.lost_focus() && ui.input(|i| i.key_pressed(Key::Enter));
        let empty = state.machine.folder.trim().is_empty();
        let button = Press::new("Add").unless(empty.then_some("type a folder first"));
        if (ui.add(button).clicked() || entered) && !empty {
            let dir = PathBuf::from(std::mem::take(&mut state.machine.folder).trim());
            add(state, cx.link, dir);
        }
    });
}

/// Asks the build what it is, which takes seconds, and keeps it.
fn add(state: &mut AppState, link: &Link, dir: PathBuf) {
    state.say("Asking the build in this folder what it is");
    link.ask(
        Worker::System,
        move |ports| {
            let new = NewRuntime {
                dir,
                ..NewRuntime::default()
            };
            ports.runtimes.add(&new)
        },
        |state, link, added| match added {
            Ok(runtime) => {
                state.say(format!("llama.cpp {} is known now", clean(&runtime.name)));
                ask_scan(state, link);
            }
            Err(error) => state.complain(error.headline),
        },
    );
}
