//! Step 3: what will be tried and what will not, each with its reason, and about how long it takes.

use eframe::egui::Ui;

use crate::domain::text::{capitalised, clean, count, setting_title, settings_words, span};
use crate::engine::report::DryRun;
use crate::report::findings::not_tried;
use crate::ui::app::Cx;
use crate::ui::pages::session;
use crate::ui::state::AppState;
use crate::ui::theme::icons::Icon;
use crate::ui::theme::tokens;
use crate::ui::widgets::{
    Card, Column, Press, Table, Width, badge, caption, columns, failed, loading_note, muted,
    page_header, status,
};

use super::{Step, ask_plan, request, start, steps};

/// Dimensions that change what the model answers.
const INEXACT: &[&str] = &["cache-type", "kv"];

/// Draws the step.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    ask_plan(state, cx.link);
    let plan = state.tune.plan.value().cloned();
    let under = plan.as_ref().map_or_else(String::new, under);
    let why_not = why_not_start(state, plan.as_ref());
    page_header(ui, "What will be tried", &under, |ui| {
        let go = Press::new("Start measuring").icon(Icon::Play).primary();
        if ui.add(go.unless(why_not)).clicked()
            && let Some(request) = request(state)
        {
            start(state, cx, request);
        }
        if ui.add(Press::new("Back")).clicked() {
            state.tune.step = Step::Goal;
        }
    });
    if let Some(step) = steps::line(ui, Step::Candidates, |step| step <= Step::Candidates) {
        state.tune.step = step;
    }
    if let Some(error) = state.tune.plan.error() {
        Card::bare().show(ui, |ui| failed(ui, error));
    }
    let Some(plan) = plan else {
        if state.tune.plan.is_loading() {
            Card::bare().show(ui, |ui| {
                loading_note(ui, "Asking the build what it can do here");
            });
        }
        return;
    };
    columns(ui, "candidates", &[1.35, 1.0], |column, ui, height| {
        if column == 0 {
            tried(ui, &plan, height);
        } else {
            effort(ui, &plan, state);
            session::not_tried(ui, &not_tried(&plan.refused), 0);
        }
    });
}

fn under(plan: &DryRun) -> String {
    let runs = plan.processes.map_or_else(String::new, |n| {
        format!(", about {}", count(u64::from(n), "run"))
    });
    let time = plan
        .expected_secs
        .map_or_else(String::new, |secs| format!(" in about {}", span(secs)));
    format!(
        "{}{runs}{time}",
        count(plan.candidates.len() as u64, "candidate")
    )
}

fn why_not_start(state: &AppState, plan: Option<&DryRun>) -> Option<&'static str> {
    match plan {
        _ if state
            .errand
            .as_ref()
            .is_some_and(|j| j.is_running() && j.kind == "serve") =>
        {
            Some("stop the server first: it would spoil the measurement")
        }
        _ if state.is_busy() => Some("something else is running"),
        None => Some("the plan is not there yet"),
        Some(plan) if plan.candidates.is_empty() => Some("nothing can be tried here"),
        Some(_) => None,
    }
}

fn tried(ui: &mut Ui, plan: &DryRun, height: f32) {
    let caption = format!("measured as {}", plan.tests.join(", "));
    Card::new("Candidates").caption(caption).min_height(height).show(ui, |ui| {
        if plan.candidates.is_empty() {
            muted(ui, "No setting can be tried with this build, device and workload: the reasons are beside");
            return;
        }
        let mut dimensions: Vec<(String, Vec<String>, String)> = Vec::new();
        for candidate in &plan.candidates {
            // A candidate may bring another setting it needs: the one it is about is the one described.
            let Some((dimension, value)) = about(candidate.settings.beyond(&plan.start).0.iter(), &dimensions) else { continue };
            match dimensions.iter_mut().find(|(known, ..)| *known == dimension) {
                Some((_, values, _)) => values.push(value),
                None => dimensions.push((dimension, vec![value], candidate.description.clone())),
            }
        }
        let columns = [
            Column::left("Setting", Width::Share(1.0)),
            Column::left("Values tried", Width::Share(0.9)),
            Column::left("What it does", Width::Share(2.0)),
        ];
        Table::new("tried", &columns).wrap().show(ui, dimensions.len(), |row, cells| {
            let (dimension, values, description) = &dimensions[row];
            cells.strong(setting_title(dimension));
            let inexact = INEXACT.iter().any(|part| dimension.contains(part));
            cells.add(|ui| {
                muted(ui, clean(&few(values)));
                if inexact {
                    let color = tokens(ui).warning;
                    badge(ui, Some(Icon::Warning), "changes answers", color);
                }
            });
            cells.muted(clean(description));
        });
    });
}

/// As many values as fit in a few lines.
fn few(values: &[String]) -> String {
    /// More are only counted.
    const SHOWN: usize = 12;
    let shown = values[..values.len().min(SHOWN)].join(" · ");
    match values.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} · and {more} more"),
    }
}

/// The setting a candidate is about: its only one, else the one whose dimension comes last in what is known.
fn about<'a>(
    mut settings: impl Iterator<Item = (&'a String, &'a String)>,
    known: &[(String, Vec<String>, String)],
) -> Option<(String, String)> {
    let all: Vec<(&String, &String)> = settings.by_ref().collect();
    let fresh = all
        .iter()
        .find(|(dimension, _)| !known.iter().any(|(k, ..)| k == *dimension));
    let last = all.last();
    let (dimension, value) = if all.len() == 1 {
        last?
    } else {
        fresh.or(last)?
    };
    Some(((*dimension).clone(), (*value).clone()))
}

fn effort(ui: &mut Ui, plan: &DryRun, state: &AppState) {
    Card::new("How it goes").show(ui, |ui| {
        let t = tokens(ui);
        let runs = plan.processes.map_or_else(|| "runs".to_owned(), |n| format!("about {n} runs"));
        status(ui, Icon::Check, t.improved, &format!("llama.cpp {}, {runs}, each in a fresh process", clean(&plan.runtime)));
        match plan.expected_secs {
            Some(secs) => status(ui, Icon::Clock, t.accent, &format!("About {}, from past runs of this model", span(secs))),
            None => status(ui, Icon::Clock, t.muted, "How long a run takes is known after the first one"),
        }
        for notice in &plan.notices {
            status(ui, Icon::Info, t.accent, &capitalised(&clean(&notice.text)));
        }
        if let Some(minutes) = Some(state.tune.limit_minutes).filter(|m| *m > 0) {
            status(ui, Icon::Clock, t.muted, &format!("No further candidate after {minutes} min"));
        }
        caption(ui, format!("{} is measured at the start, the middle and the end. The best is then confirmed against it, interleaved A-B-B-A, and kept only if the whole 95 % interval of its gain lies above 1 %.", settings_words(&plan.start)));
    });
}
