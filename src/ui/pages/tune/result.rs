//! Step 6: the verdict first, what to do with it, and the evidence under it.

use eframe::egui::Ui;

use crate::domain::text::{clean, native_command};
use crate::engine::message::Command;
use crate::engine::run::{Access, RunRequest, prepare};
use crate::ports::SessionKind;
use crate::ui::app::{Cx, Order};
use crate::ui::link::{Link, Worker};
use crate::ui::pages::session::SessionView;
use crate::ui::pages::{history, session};
use crate::ui::state::{AppState, Page};
use crate::ui::theme::icons::Icon;
use crate::ui::theme::tokens;
use crate::ui::widgets::{Card, Press, failed, label, loading_note, page_header, status};

use super::{Step, begin_anew, steps};

/// Draws the step.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let Some(view) = state.tune.result.value().cloned() else {
        page_header(ui, "Result", "", |_| {});
        match state.tune.result.error() {
            Some(error) => Card::bare().show(ui, |ui| failed(ui, error)),
            None => Card::bare().show(ui, |ui| {
                loading_note(ui, "Reading every run back from the store");
            }),
        }
        return;
    };
    page_header(ui, &view.title, &view.under(), |ui| {
        actions(ui, state, cx, &view);
    });
    if let Some(step) = steps::line(ui, Step::Result, |step| step >= Step::Screening) {
        state.tune.step = step;
        state.tune.looking_at = Some(step);
    }
    serving(ui, state, cx);
    session::show(ui, &view, state, cx);
}

fn actions(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, view: &SessionView) {
    let session = view.id;
    let saved = view.profile.is_some();
    if view.kind == SessionKind::ServeCheck {
        if ui.add(Press::new("Back to the tuning").primary()).clicked() {
            super::back_to_tuning(state, cx.link);
        }
        shared(ui, state, cx, session, false);
        return;
    }
    if view.saveable && !saved {
        history::save_button(ui, state, cx.link, session);
    } else if saved {
        if ui
            .add(Press::new("Run server").icon(Icon::Server).primary())
            .clicked()
        {
            run_server(state, cx);
        }
        let check = Press::new("Check through a live server").icon(Icon::Dashboard);
        if ui.add(check).clicked() {
            super::check(state, cx, session, view.model_path.clone());
        }
        if ui
            .add(Press::new("Copy command").icon(Icon::Copy))
            .clicked()
        {
            copy_command(state, cx.link);
        }
    } else if ui.add(Press::new("Tune again").primary()).clicked() {
        begin_anew(state);
    }
    shared(ui, state, cx, session, saved);
}

/// What can be done with every result.
fn shared(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, session: i64, saved: bool) {
    history::export_menu(ui, cx.link, session, saved);
    if ui.add(Press::new("Show in history").quiet()).clicked() {
        state.history.open(Some(session));
        cx.go(Page::History);
    }
}

fn request(state: &AppState) -> Option<RunRequest> {
    Some(RunRequest {
        model: state.model_path()?,
        runtime: state.chosen_runtime().map(|r| r.name.clone()),
        goal: Some(state.tune.goal),
        stale_ok: false,
        extra: Vec::new(),
        access: Access::default(),
    })
}

/// The command goes to the clipboard as a shell would take it.
fn copy_command(state: &AppState, link: &Link) {
    let Some(request) = request(state) else {
        return;
    };
    link.ask(
        Worker::System,
        move |ports| prepare(&request, ports),
        |state, _, plan| match plan {
            Ok(plan) => {
                state.clipboard = Some(native_command(&plan.env, &plan.argv));
                state.say("The command is in the clipboard");
            }
            Err(error) => state.complain(error.headline),
        },
    );
}

fn run_server(state: &AppState, cx: &mut Cx) {
    if let Some(request) = request(state) {
        cx.order(Order::start(Command::Serve(request)));
    }
}

/// The server that was started here.
pub fn serving(ui: &mut Ui, state: &AppState, cx: &mut Cx) {
    let Some(job) = state.errand.as_ref().filter(|j| j.kind == "serve") else {
        return;
    };
    if let Some(error) = job.failed_as("serve") {
        Card::new("llama-server").show(ui, |ui| failed(ui, error));
    }
    if !job.is_running() {
        return;
    }
    Card::new("llama-server").show(ui, |ui| {
        let t = tokens(ui);
        match &job.serving {
            Some(url) => {
                status(
                    ui,
                    Icon::Server,
                    t.improved,
                    &format!("Answers on {}", clean(url)),
                );
                ui.horizontal(|ui| {
                    if ui
                        .add(Press::new("Copy address").icon(Icon::Copy))
                        .clicked()
                    {
                        ui.ctx().copy_text(url.clone());
                    }
                    if ui.add(Press::new("Stop server").icon(Icon::Stop)).clicked() {
                        cx.order(Order::StopErrand);
                    }
                });
            }
            None => loading_note(ui, "Loading the model"),
        }
        label(
            ui,
            "Nothing can be measured while it runs: it would spoil the measurement",
        );
    });
}
