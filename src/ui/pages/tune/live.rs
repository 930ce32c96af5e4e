//! Steps 4 and 5, while the search runs: what is measured now, and the figure of the step looked at.

use eframe::egui::Ui;

use crate::domain::text::{capitalised, clean, count, purpose_words, settings_words, span};
use crate::engine::message::{JobError, Outcome};
use crate::engine::tune::NOTHING_RUNS;
use crate::ports::CancelMode;
use crate::ui::app::{Cx, Order};
use crate::ui::state::{AppState, Dialog, JobView, Page};
use crate::ui::theme::icons::Icon;
use crate::ui::theme::tokens;
use crate::ui::widgets::{
    Card, Column, Press, Table, Width, caption, columns, empty, failed, label, muted, notice_line,
    page_header, progress, status,
};

use super::{Step, confirmation, resume, screening, steps};

/// Draws the step.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let Some(job) = state.job.clone() else {
        if empty(
            ui,
            Icon::Tune,
            "Nothing is being measured",
            Some("Tune a model"),
        ) {
            state.tune.step = Step::Model;
        }
        return;
    };
    follow(state, &job);
    let step = state.tune.step;
    page_header(ui, &heading(state, &job), &under(&job), |_| {});
    let confirming = job.is_confirming();
    let done = state.tune.result.value().is_some();
    let open = |other: Step| match other {
        Step::Screening => true,
        Step::Confirmation => confirming,
        Step::Result => done,
        _ => false,
    };
    let reached = if confirming {
        step.max(Step::Screening)
    } else {
        Step::Screening
    };
    if let Some(chosen) = steps::line(ui, reached, open) {
        state.tune.step = chosen;
        state.tune.looking_at = Some(chosen);
    }
    match &job.outcome {
        Some(Outcome::Failed { error }) => broken(ui, state, cx, error, job.session),
        Some(Outcome::Cancelled { kept_runs, session }) => {
            stopped(ui, state, cx, &job, *kept_runs, *session);
        }
        _ => {}
    }
    if job.primary.is_none() && !job.is_running() {
        // It failed before it began: there is nothing to draw.
        return;
    }
    columns(
        ui,
        "live",
        &[1.85, 1.0],
        |column, ui, height| match column {
            0 if step == Step::Confirmation => confirmation::cards(ui, &job),
            0 => screening::card(ui, &job, height),
            _ => side(ui, state, cx, &job),
        },
    );
}

fn broken(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, error: &JobError, session: Option<i64>) {
    let everything = error.code == NOTHING_RUNS;
    Card::bare().show(ui, |ui| {
        failed(ui, error);
        if back(ui, state, cx) {
            return;
        }
        ui.horizontal(|ui| {
            if ui.add(Press::new("Back to the start").primary()).clicked() {
                super::begin_anew(state);
            }
            if everything && ui.add(Press::new("See every run")).clicked() {
                state.history.open(session);
                cx.go(Page::History);
            }
        });
    });
}

/// Back to the tuning whose profile was checked; false where none was.
fn back(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) -> bool {
    let is_there = state.tune.checked.is_some();
    if is_there && ui.add(Press::new("Back to the tuning").primary()).clicked() {
        super::back_to_tuning(state, cx.link);
    }
    is_there
}

/// The step shown follows the search, unless the user looks at another on purpose.
fn follow(state: &mut AppState, job: &JobView) {
    let reached = if job.is_confirming() {
        Step::Confirmation
    } else {
        Step::Screening
    };
    state.tune.step = state
        .tune
        .looking_at
        .filter(|step| *step <= reached)
        .unwrap_or(reached);
}

/// Is this a check of a profile through live servers?
fn is_check(job: &JobView) -> bool {
    job.kind == "serve-check"
}

fn heading(state: &AppState, job: &JobView) -> String {
    if is_check(job) {
        return "Check through a live server".to_owned();
    }
    format!("Tune for {}", super::goal_words(state.tune.goal))
}

fn under(job: &JobView) -> String {
    let stage = job
        .stage
        .as_deref()
        .map_or_else(|| "Getting ready".to_owned(), |s| capitalised(&clean(s)));
    let mut parts = vec![stage];
    if job.total > 0 {
        parts.push(format!(
            "run {} of about {}",
            (job.done + 1).min(job.total),
            job.total
        ));
    }
    parts.push("every run is a fresh process, kept before it is shown".to_owned());
    parts.join(" · ")
}

fn stopped(
    ui: &mut Ui,
    state: &mut AppState,
    cx: &mut Cx,
    job: &JobView,
    kept: u32,
    session: Option<i64>,
) {
    if is_check(job) {
        Card::new("Cancelled").show(ui, |ui| {
            let runs = count(u64::from(kept), "run");
            label(ui, format!("{runs} kept, nothing is concluded from them"));
            back(ui, state, cx);
        });
        return;
    }
    let t = tokens(ui);
    let paused = state.tune.pausing;
    let title = if paused { "Paused" } else { "Cancelled" };
    Card::new(title).show(ui, |ui| {
        let runs = count(u64::from(kept), "run");
        status(
            ui,
            Icon::Check,
            t.improved,
            &format!("{runs} kept; going on continues as if nothing had happened"),
        );
        ui.horizontal(|ui| {
            if let (Some(session), Some(model)) = (session, state.model_path())
                && ui
                    .add(Press::new("Go on").icon(Icon::Play).primary())
                    .clicked()
            {
                resume(state, cx, session, model);
            }
            if ui.add(Press::new("Start anew")).clicked() {
                super::begin_anew(state);
            }
        });
    });
}

fn side(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, job: &JobView) {
    now(ui, job);
    if !is_check(job) {
        candidates(ui, job);
    }
    if job.is_running() {
        ui.horizontal_wrapped(|ui| controls(ui, state, cx, job));
    }
    if !job.notices.is_empty() {
        Card::new("Noticed").show(ui, |ui| {
            for notice in &job.notices {
                notice_line(ui, notice);
            }
        });
    }
}

fn now(ui: &mut Ui, job: &JobView) {
    Card::new("Now").show(ui, |ui| {
        let doing = if job.doing.is_empty() {
            let tool = if is_check(job) {
                "llama-server"
            } else {
                "llama-bench"
            };
            format!("Starting {tool}")
        } else {
            purpose_words(&job.doing)
        };
        label(
            ui,
            if job.is_running() {
                doing
            } else {
                "Nothing is measured".to_owned()
            },
        );
        progress(ui, job.share(), "Runs done");
        ui.horizontal(|ui| {
            let left = match job.eta_secs {
                _ if !job.is_running() => "ended".to_owned(),
                Some(secs) => format!("about {} left", span(secs)),
                None => "time left known after the first run".to_owned(),
            };
            caption(ui, left);
        });
    });
}

fn controls(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, job: &JobView) {
    if let Some(mode) = job.stopping {
        muted(
            ui,
            match (state.tune.pausing, mode) {
                (true, _) => "Pausing when this run has ended",
                (false, CancelMode::AfterSample) => "Stopping when this run has ended",
                (false, CancelMode::Now) => "Stopping now",
            },
        );
        if mode == CancelMode::AfterSample && ui.add(Press::new("Stop now")).clicked() {
            cx.order(Order::Stop(CancelMode::Now));
        }
        return;
    }
    if !is_check(job) && ui.add(Press::new("Pause").icon(Icon::Pause)).clicked() {
        state.tune.pausing = true;
        cx.order(Order::Stop(CancelMode::AfterSample));
    }
    if ui.add(Press::new("Cancel…").icon(Icon::Stop)).clicked() {
        state.tune.pausing = false;
        state.dialog = Dialog::Stopping;
    }
}

/// What was tried so far, newest last, and what is tried now.
fn candidates(ui: &mut Ui, job: &JobView) {
    Card::new("Candidates").show(ui, |ui| {
        if job.candidates.is_empty() {
            muted(ui, "Stock comes first: every candidate is compared with it");
            return;
        }
        let columns = [
            Column::left("", Width::Share(1.4)),
            Column::right("", Width::Fixed(76.0)),
            Column::right("", Width::Fixed(22.0)),
        ];
        let shown = &job.candidates;
        let table = Table::new("live candidates", &columns).headless();
        // Rows of one height, so that those out of sight cost nothing.
        let table = if shown.len() > 50 {
            table
        } else {
            table.wrap()
        };
        table.show(ui, shown.len(), |row, cells| {
            let candidate = &shown[row];
            cells.text(settings_words(&candidate.settings));
            match candidate.change_pct {
                Some(change) => cells.muted(crate::domain::text::change(change, 1)),
                None => cells.muted(clean(&candidate.status.replace('-', " "))),
            }
            let ok = candidate.status == "ok";
            cells.add(|ui| {
                let t = tokens(ui);
                let (icon, color) = if ok {
                    (Icon::Check, t.improved)
                } else {
                    (Icon::Problem, t.regressed)
                };
                let text = eframe::egui::RichText::new(icon.glyph()).color(color);
                ui.label(text)
                    .on_hover_text(clean(candidate.reason.as_deref().unwrap_or("measured")));
            });
        });
    });
}
