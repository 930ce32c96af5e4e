//! One session: its verdict, what can be done with it, its evidence.

use std::sync::Arc;

use eframe::egui::{Popup, Ui};

use crate::domain::text::moment;
use crate::domain::types::Profile;
use crate::engine::message::{Command, JobError};
use crate::engine::profiles::Standing;
use crate::engine::run::RunRequest;
use crate::engine::tune::save_profile;
use crate::ports::SessionKind;
use crate::report::Format;
use crate::ui::app::{Cx, Order};
use crate::ui::link::{Link, Worker};
use crate::ui::pages::session::{self, SessionView};
use crate::ui::pages::tune;
use crate::ui::state::{AppState, JobView};
use crate::ui::theme::icons::Icon;
use crate::ui::widgets::{
    Card, Loadable, Press, caption, failed, loading_note, muted, page_header, verdict_badge,
};

use super::{ask, export, set_deleted};

/// Draws it; `alone` where it has the page for itself.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, id: i64, alone: bool) {
    let mut leave = false;
    let view = state
        .history
        .view
        .value()
        .filter(|view| view.id == id)
        .cloned();
    let title = view
        .as_ref()
        .map_or_else(|| format!("Session {id}"), |v| v.headline.clone());
    let under = view
        .as_ref()
        .map_or_else(String::new, |v| v.judgement.clone());
    page_header(ui, &title, &under, |ui| {
        let words = if alone {
            "Back to the history"
        } else {
            "Close the session"
        };
        let icon = if alone { Icon::Left } else { Icon::Close };
        leave = ui.add(Press::new(words).icon(icon).quiet()).clicked();
    });
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
    ui.horizontal_wrapped(|ui| {
        if let Some(verdict) = view.verdict {
            verdict_badge(ui, verdict);
        }
        muted(ui, facts(&view));
    });
    ui.horizontal_wrapped(|ui| actions(ui, state, cx, &view));
    tune::serving(ui, state, cx);
    if let Some((_, command)) = &view.profile {
        Card::new("Profile").show(ui, |ui| {
            crate::ui::widgets::code(ui, crate::domain::text::clean(command));
            caption(ui, "What `flux run` and Run server start");
        });
    }
    session::show(ui, &view, state, cx);
}

fn facts(view: &SessionView) -> String {
    let kind = match view.kind {
        SessionKind::Tune => "tune",
        SessionKind::Ab => "ab",
    };
    format!(
        "Session {}: {kind} for {} · {}",
        view.id,
        view.goal,
        moment(view.started_at)
    )
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
    if view.saveable
        && ui
            .add(Press::new("Save profile").icon(Icon::Save).primary())
            .clicked()
    {
        save(cx.link, view.id);
    }
    if let Some((profile, command)) = &view.profile {
        if state.history.standing(*profile) == Some(&Standing::Current) {
            let serve = Press::new("Run server")
                .icon(Icon::Server)
                .primary()
                .unless(busy);
            if ui.add(serve).clicked() {
                cx.order(Order::Start(serve_command(view)));
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
    export_menu(ui, cx.link, view.id);
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
    })
}

/// The forms a session can be written in.
fn export_menu(ui: &mut Ui, link: &Link, session: i64) {
    let button = ui.add(Press::new("Export").icon(Icon::Report));
    Popup::menu(&button).show(|ui| {
        for format in Format::ALL {
            if ui.button(format!("{}…", format.words())).clicked() {
                export(link, session, format);
            }
        }
    });
}

fn save(link: &Link, session: i64) {
    link.ask(
        Worker::Store,
        move |ports| save_profile(session, ports),
        |state, link, saved: Result<Profile, JobError>| match saved {
            Ok(profile) => {
                state.say(format!("Saved as profile {}", profile.id));
                state.history.view = Loadable::Unasked;
                ask(state, link);
            }
            Err(error) => state.complain(error.headline),
        },
    );
}
