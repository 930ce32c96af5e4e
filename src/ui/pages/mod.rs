//! The pages. Each has a form state of its own and draws what it is given.

pub mod dashboard;
pub mod history;
pub mod lab;
pub mod machine;
pub mod placement;
pub mod session;
pub mod settings;
pub mod tune;

use eframe::egui::Ui;

use crate::engine::message::{JobId, Outcome};

use super::app::Cx;
use super::link::Link;
use super::state::{AppState, Page};

/// Draws the page shown.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    match state.page {
        Page::Machine => machine::show(ui, state, cx),
        Page::Tune => tune::show(ui, state, cx),
        Page::Dashboard => dashboard::show(ui, state, cx),
        Page::Placement => placement::show(ui, state, cx),
        Page::History => history::show(ui, state, cx),
        Page::Lab => lab::show(ui, state, cx),
        Page::Settings => settings::show(ui, state, cx),
    }
}

/// What a job's end means for what the pages show.
pub fn job_ended(state: &mut AppState, link: &Link, job: JobId) {
    let view = [&state.job, &state.errand]
        .into_iter()
        .flatten()
        .find(|view| view.id == job);
    let Some(view) = view else { return };
    let kind = view.kind.clone();
    let outcome = view.outcome.clone();
    match (kind.as_str(), outcome) {
        ("install", Some(Outcome::Done { .. })) => {
            state.say("llama.cpp is installed");
            machine::ask_scan(state, link);
        }
        ("synth", Some(Outcome::Done { result })) => tune::model_made(state, link, &result),
        ("install" | "synth" | "serve", Some(Outcome::Failed { error })) => {
            state.complain(error.headline);
        }
        ("plan" | "bandwidth", outcome) => {
            state.placement.forget();
            if let Some(Outcome::Done { result }) = outcome
                && let Some(reason) = result["reason"].as_str()
            {
                state.say(reason);
            }
            history::refresh(state, link);
            dashboard::ask_recent(state, link);
        }
        ("lab", outcome) => {
            if let Some(Outcome::Cancelled { .. }) = outcome {
                state.say("Cancelled: what was measured is in the history");
            }
            lab::forget(state);
            state.placement.forget();
            history::refresh(state, link);
        }
        ("tune" | "ab" | "serve-check", _) => {
            tune::ended(state, link);
            tune::ask_broken_off(link);
            history::refresh(state, link);
            dashboard::ask_recent(state, link);
        }
        _ => {}
    }
}
