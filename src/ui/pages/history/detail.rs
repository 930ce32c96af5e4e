//! One session: its verdict, what can be done with it, its evidence.

use std::sync::Arc;

use eframe::egui::{Align, Layout, Popup, Ui, vec2};

use crate::domain::text::{clean, moment};
use crate::engine::message::Command;
use crate::engine::profiles::Standing;
use crate::engine::run::{Access, RunRequest};
use crate::ports::SessionKind;
use crate::report::Format;
use crate::ui::app::{Cx, Order};
use crate::ui::link::Link;
use crate::ui::pages::session::{self, SessionView};
use crate::ui::pages::{dashboard, tune};
use crate::ui::state::{AppState, JobView};
use crate::ui::theme::icons::Icon;
use crate::ui::theme::space;
use crate::ui::widgets::{
    Card, Press, caption, code, failed, heading, loading_note, muted, verdict_badge,
};

use super::{export, save_button, set_deleted};

/// Draws it; `alone` where it has the page for itself.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, id: i64, alone: bool) {
    let view = state
        .history
        .view
        .value()
        .filter(|view| view.id == id)
        .cloned();
    let title = view
        .as_ref()
        .map_or_else(|| format!("Session {id}"), |v| v.title.clone());
    let under = view.as_ref().map_or_else(String::new, |v| v.under());
    ui.vertical(|ui| {
        ui.spacing_mut().item_spacing.y = space::XS;
        heading(ui, title);
        if !under.is_empty() {
            muted(ui, under);
        }
    });
    let leave = facts_row(ui, view.as_deref(), alone);
    if leave {
        state.history.open(None);
        return;
    }
    let Some(view) = view else {
        match state.history.view.error() {
            Some(error) => Card::bare().show(ui, |ui| failed(ui, error)),
            None => Card::bare().show(ui, |ui| loading_note(ui, "Reading every run")),
        }
        return;
    };
    ui.horizontal_wrapped(|ui| actions(ui, state, cx, &view));
    tune::serving(ui, state, cx);
    if let Some((_, command)) = &view.profile {
        Card::new("Profile").show(ui, |ui| {
            code(ui, clean(command));
            caption(ui, "What flux run and Run server start");
        });
    }
    session::show(ui, &view, state, cx);
}

/// What session it is, and the way out; `true` when that was taken.
fn facts_row(ui: &mut Ui, view: Option<&SessionView>, alone: bool) -> bool {
    let mut leave = false;
    let (words, icon) = if alone {
        ("Back to the history", Icon::Left)
    } else {
        ("Close the session", Icon::Close)
    };
    let close = Press::new(words).icon(icon).quiet();
    let narrow = ui.available_width() < 600.0;
    let row = vec2(ui.available_width(), space::CONTROL);
    let middle = Layout::left_to_right(Align::Center);
    ui.allocate_ui_with_layout(row, middle, |ui| {
        if let (Some(view), false) = (view, narrow) {
            if let Some(verdict) = view.verdict {
                verdict_badge(ui, verdict);
            }
            muted(ui, facts(view));
        }
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            leave = ui.add(close).clicked();
        });
    });
    if let (Some(view), true) = (view, narrow) {
        muted(ui, facts(view));
    }
    leave
}

fn facts(view: &SessionView) -> String {
    let kind = view.kind.word();
    format!(
        "Session {}: {kind} for {} · {}",
        view.id,
        view.goal,
        moment(view.started_at)
    )
}

/// What can be done with the profile it stored.
fn with_profile(
    ui: &mut Ui,
    state: &mut AppState,
    cx: &mut Cx,
    view: &Arc<SessionView>,
    busy: Option<&str>,
) {
    if let Some((profile, command)) = &view.profile {
        if state.history.standing(*profile) == Some(&Standing::Current) {
            let serve = Press::new("Run server")
                .icon(Icon::Server)
                .primary()
                .unless(busy);
            if ui.add(serve).clicked() {
                cx.order(Order::start(serve_command(view)));
            }
        }
        if ui
            .add(Press::new("Copy command").icon(Icon::Copy))
            .clicked()
        {
            ui.ctx().copy_text(command.clone());
            state.say("The command is in the clipboard");
        }
    }
}

fn actions(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, view: &Arc<SessionView>) {
    let runs_now = state.job.as_ref().is_some_and(JobView::is_running);
    let is_this = state
        .job
        .as_ref()
        .is_some_and(|job| job.session == Some(view.id));
    let busy = runs_now.then_some("A measurement is running");
    if view.can_resume && !(runs_now && is_this) {
        let go_on = Press::new("Go on").icon(Icon::Play).primary().unless(busy);
        if ui.add(go_on).clicked() {
            tune::go_on(state, cx, view.id, view.model_path.clone(), view.goal);
        }
    }
    if view.saveable {
        save_button(ui, state, cx.link, view.id);
    }
    with_profile(ui, state, cx, view, busy);
    export_menu(ui, cx.link, view.id, view.profile.is_some());
    let dashboard = Press::new("Show in dashboard").icon(Icon::Dashboard);
    if view.has_telemetry && ui.add(dashboard).clicked() {
        dashboard::replay(state, cx.link, view.id);
    }
    if view.kind == SessionKind::Tune
        && ui
            .add(Press::new("Measure again").icon(Icon::Again).unless(busy))
            .clicked()
    {
        tune::measure_again(cx.link, view.model_path.clone(), view.goal);
    }
    let measured = (runs_now && is_this).then_some("It is being measured");
    if ui
        .add(
            Press::new("Delete")
                .icon(Icon::Delete)
                .quiet()
                .unless(measured),
        )
        .clicked()
    {
        set_deleted(state, cx.link, view.id, true);
    }
}

fn serve_command(view: &SessionView) -> Command {
    Command::Serve(RunRequest {
        model: view.model_path.clone(),
        runtime: None,
        goal: Some(view.goal),
        stale_ok: false,
        extra: Vec::new(),
        access: Access::default(),
    })
}

/// The forms a session can be written in, and its profile, where it saved one.
pub fn export_menu(ui: &mut Ui, link: &Link, session: i64, has_profile: bool) {
    let button = ui.add(Press::new("Export").icon(Icon::Report));
    Popup::menu(&button).show(|ui| {
        let offer = |ui: &mut Ui, title: &str, formats: &[Format]| {
            caption(ui, title);
            for &format in formats {
                if ui.button(format!("{}…", format.words())).clicked() {
                    export(link, session, format);
                }
            }
        };
        offer(ui, "What was measured", &Format::MEASURED);
        if has_profile {
            ui.separator();
            offer(ui, "Its profile, to start servers with", &Format::PROFILE);
        }
    });
}
