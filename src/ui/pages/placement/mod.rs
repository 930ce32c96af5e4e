//! The Placement page: where each tensor of the model lives, what that takes of each memory and how fast it will be; every
//! change is answered at once.

mod ask;
mod basis;
mod candidates;
mod grid;
mod memory;
mod model;
mod speed;
mod what_if;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use eframe::egui::Ui;

use crate::chart::GrowthStep;
use crate::domain::placement::planner::{Ask, Candidate, Predicted};
use crate::domain::text::{capitalised, clean, native_command};
use crate::domain::types::Backend;
use crate::engine::message::{Command, JobError};
use crate::engine::plan::{CandidateDocument, PlanRequest};
use crate::engine::run::{Access, RunRequest};
use crate::ui::app::{Cx, Order};
use crate::ui::files::Choice;
use crate::ui::state::{AppState, Dialog, Page};
use crate::ui::theme::icons::Icon;
use crate::ui::theme::tokens;
use crate::ui::widgets::{
    Card, Loadable, Press, caption, columns, empty, failed, label, loading_note, muted,
    notice_line, page_header, progress, status,
};

use super::tune;
use model::{Key, Limits, Looked, Measured, Model, Rows};

/// A narrower page has one card a row.
const NARROW: f32 = 860.0;

/// The page's own state.
#[derive(Debug, Default)]
pub struct State {
    /// What the base was asked for.
    asked: Option<PlanRequest>,
    model: Loadable<Arc<Model>>,
    /// The placement on the page.
    looked: Option<Looked>,
    limits: Limits,
    rows: Loadable<Arc<Rows>>,
    /// What the table was asked for.
    tabled: Option<(Ask, Limits)>,
    /// The newest exact answer, and for what.
    judged: Option<(Key, Arc<Candidate>)>,
    judging: bool,
    growth: Option<(Key, Arc<Vec<GrowthStep>>)>,
    growing: bool,
    /// What is drawn in this frame, kept while nothing changes.
    drawn: Option<(Key, Drawn)>,
    /// Changes with every answer that a kept scene shows.
    version: u64,
    /// The cell the keyboard is on: its layer.
    marked: u32,
    /// The constants are shown.
    open: bool,
    /// Every row of the table is shown.
    all_rows: bool,
}

/// What follows from a placement at once.
#[derive(Debug)]
struct Drawn {
    grid: grid::Grid,
    predicted: Predicted,
    measured: Option<Measured>,
}

impl State {
    /// Another model, build or measurement: everything is asked anew, and what is looked at stays where the model does.
    fn begin(&mut self, request: PlanRequest) {
        let same = self
            .asked
            .as_ref()
            .is_some_and(|a| a.model == request.model);
        let kept = std::mem::take(self);
        *self = Self {
            asked: Some(request),
            version: kept.version + 1,
            open: kept.open,
            ..Self::default()
        };
        if same {
            self.looked = kept.looked;
            self.limits = kept.limits;
            self.model = kept.model;
            self.rows = kept.rows;
        }
        self.model.ask();
    }

    /// What was measured meanwhile counts from the next frame on.
    pub fn forget(&mut self) {
        self.asked = None;
    }

    fn is_of(&self, model: &Arc<Model>) -> bool {
        self.ready().is_some_and(|now| Arc::ptr_eq(now, model))
    }

    /// The base, unless it is read again or could not be.
    const fn ready(&self) -> Option<&Arc<Model>> {
        match &self.model {
            Loadable::Ready(model) => Some(model),
            _ => None,
        }
    }

    fn key(&self) -> Option<Key> {
        Some((self.looked.clone()?, self.limits.clone()))
    }

    fn take_rows(&mut self, rows: Arc<Rows>) {
        if self.looked.is_none() {
            self.looked = rows.rows.first().map(|row| Looked {
                placement: row.candidate.placement.clone(),
                context: row.candidate.context.clone(),
            });
        }
        self.rows.answer(Ok(rows));
        self.version += 1;
    }

    /// The exact answer for what is looked at, or the last one.
    fn candidate(&self) -> Option<&Arc<Candidate>> {
        self.judged.as_ref().map(|(_, candidate)| candidate)
    }

    /// What follows at once is worked out where something changed.
    fn draw(&mut self, model: &Model) {
        let Some(key) = self.key() else { return };
        let streams = self.candidate().is_some_and(|c| c.streams);
        let is_known = |(k, d): &(Key, Drawn)| *k == key && d.grid.streams == streams;
        if !self.drawn.as_ref().is_some_and(is_known) {
            let drawn = Drawn {
                grid: grid::Grid::of(model, &key.0, streams),
                predicted: model.predicted(&key),
                measured: model.measured(&key.0),
            };
            self.drawn = Some((key, drawn));
        }
    }
}

/// Draws the page.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    if nothing_yet(ui, state, cx) {
        return;
    }
    ask::follow(state, cx.link);
    let Some(model) = state.placement.model.value().cloned() else {
        page_header(ui, "Placement", "", |_| {});
        Card::bare().show(ui, |ui| match state.placement.model.error() {
            Some(error) => failed(ui, error),
            None => loading_note(ui, "Reading the model's tensors and what was measured"),
        });
        return;
    };
    if let Some(error) = state.placement.model.error() {
        Card::bare().show(ui, |ui| failed(ui, error));
    }
    state.placement.draw(&model);
    if state.placement.drawn.is_none() {
        page_header(ui, "Placement", "", |_| {});
        Card::bare().show(ui, |ui| loading_note(ui, "Judging hundreds of placements"));
        return;
    }
    head(ui, state, cx, &model);
    notices(ui, state, &model);
    tune::serving(ui, state, cx);
    benchmarking(ui, state);
    let page = &mut state.placement;
    row(ui, "where", [3.0, 1.0], |column, ui, height| match column {
        0 => grid::show(ui, page, &model, height),
        _ => what_if::show(ui, page, &model, height),
    });
    row(ui, "which", [2.0, 1.0], |column, ui, height| match column {
        0 => candidates::show(ui, page, &model, height),
        _ => memory::show(ui, page, &model, height),
    });
    row(
        ui,
        "speed",
        [1.0, 1.15],
        |column, ui, height| match column {
            0 => speed::scatter(ui, page, height),
            _ => speed::growth(ui, page, height),
        },
    );
    basis::show(ui, page, &model);
}

/// Two cards beside each other, or below each other on a narrow page.
fn row(ui: &mut Ui, id: &str, weights: [f32; 2], mut content: impl FnMut(usize, &mut Ui, f32)) {
    if ui.available_width() < NARROW {
        content(0, ui, 0.0);
        content(1, ui, 0.0);
    } else {
        columns(ui, id, &weights, content);
    }
}

/// Without a model or a build there is nothing to place; says so.
fn nothing_yet(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) -> bool {
    if state.model.is_none() {
        page_header(
            ui,
            "Placement",
            "Where each tensor of a model should live on this machine",
            |ui| {
                if ui
                    .add(Press::new("Choose a file…").icon(Icon::Folder))
                    .clicked()
                {
                    cx.link.choose(Choice::Model, |state, link, path| {
                        tune::take_model(state, link, &path);
                    });
                }
            },
        );
        if let Some(error) = state.tune.refused() {
            Card::bare().show(ui, |ui| failed(ui, error));
        }
        let words = "Choose a model: its header alone tells where its tensors fit and how fast that will be";
        if empty(ui, Icon::Placement, words, Some("Show the models found")) {
            cx.go(Page::Tune);
        }
        return true;
    }
    if state.scan.value().is_some() && state.chosen_runtime().is_none() {
        page_header(
            ui,
            "Placement",
            "Where each tensor of a model should live on this machine",
            |_| {},
        );
        let words =
            "There is no llama.cpp to place it for: its build says which devices it can use";
        if empty(ui, Icon::Install, words, Some("Install llama.cpp")) {
            cx.go(Page::Machine);
        }
        return true;
    }
    state.scan.value().is_none() && {
        page_header(ui, "Placement", "", |_| {});
        Card::bare().show(ui, |ui| loading_note(ui, "Looking at this machine"));
        true
    }
}

fn head(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, model: &Model) {
    let page = &state.placement;
    let (Some(looked), Some((_, drawn))) = (&page.looked, &page.drawn) else {
        return;
    };
    let judged = page.candidate().map(Arc::as_ref);
    let speed = (drawn.predicted.tg, drawn.measured);
    let title = words::title(model, looked, judged, speed);
    let under = words::under(model, looked, judged, speed);
    ui.vertical(|ui| {
        ui.spacing_mut().item_spacing.y = 0.0;
        page_header(ui, &title, "", |ui| actions(ui, state, cx, model));
        muted(ui, under);
    });
}

fn actions(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, model: &Model) {
    let fits = state.placement.candidate().is_some_and(|c| c.fits());
    let has_server = model
        .base
        .runtime
        .as_ref()
        .is_some_and(|r| r.server.is_some());
    let why_not = match () {
        () if !fits => Some("it does not fit"),
        () if !has_server => Some("this build has no llama-server"),
        () if state.is_busy() => Some("something else is running"),
        () => None,
    };
    let plan = Press::new("Use this plan").primary();
    let plan = plan.tooltip("Starts llama-server with exactly this placement");
    if ui.add(plan.unless(why_not)).clicked() {
        use_plan(state, cx, model);
    }
    let bench = Press::new("Benchmark these").unless(benchmark_refused(state, model));
    if ui.add(bench).clicked() {
        benchmark(&state.placement, cx);
    }
    if ui.add(Press::new("Copy command")).clicked() {
        match command(&state.placement, model) {
            Ok(text) => {
                state.clipboard = Some(text);
                state.say("The command is in the clipboard");
            }
            Err(error) => state.complain(error.headline),
        }
    }
}

/// Why the candidates cannot be measured now.
fn benchmark_refused(state: &AppState, model: &Model) -> Option<&'static str> {
    let has_bench = model
        .base
        .runtime
        .as_ref()
        .is_some_and(|r| r.bench.is_some());
    match () {
        () if state.is_busy() => Some("something else is running"),
        () if !has_bench => Some("this build has no llama-bench"),
        () => None,
    }
}

/// Measures stock, llama.cpp's own fitting and the best candidates within what may be used.
fn benchmark(page: &State, cx: &mut Cx) {
    let Some(asked) = &page.asked else { return };
    let request = PlanRequest {
        context: page.looked.as_ref().map(|l| l.context.context),
        vram_limit: page.limits.vram,
        ram_limit: page.limits.ram,
        allow_kv_quant: page.limits.allow_kv_quant,
        ..asked.clone()
    };
    cx.order(Order::start(Command::Plan(Box::new(request))));
}

/// The benchmark that runs, or why the last one ended early.
fn benchmarking(ui: &mut Ui, state: &mut AppState) {
    let Some(job) = state.job.as_ref().filter(|j| j.kind == "plan") else {
        return;
    };
    if let Some(error) = job.failed_as("plan") {
        Card::new("Benchmark").show(ui, |ui| failed(ui, error));
    }
    if !job.is_running() {
        return;
    }
    let (share, stopping) = (job.share(), job.stopping);
    let doing = capitalised(&clean(&job.doing));
    let runs = format!("{} of {} runs", job.done, job.total);
    Card::new("Benchmark").caption(runs).show(ui, |ui| {
        label(
            ui,
            if doing.is_empty() {
                "Beginning".to_owned()
            } else {
                doing
            },
        );
        progress(ui, share, "Runs done");
        ui.horizontal(|ui| match stopping {
            Some(_) => {
                caption(ui, "Stopping: what was measured is kept");
            }
            None if ui.add(Press::new("Cancel…").icon(Icon::Stop)).clicked() => {
                state.dialog = Dialog::Stopping;
            }
            None => {}
        });
    });
}

/// The server's arguments for what is looked at.
fn server_args(page: &State, model: &Model) -> Result<Vec<String>, JobError> {
    let key = page
        .key()
        .ok_or_else(|| JobError::new("placement", "no placement is chosen"))?;
    let candidate = match &page.judged {
        Some((known, candidate)) if *known == key => Arc::clone(candidate),
        _ => Arc::new(model.judge(&key)),
    };
    Ok(CandidateDocument::of(&candidate, &model.base)?.args.server)
}

/// The command as a shell takes it.
fn command(page: &State, model: &Model) -> Result<String, JobError> {
    let server = model.base.runtime.as_ref().and_then(|r| r.server.as_ref());
    let program = server.map_or_else(
        || "llama-server".to_owned(),
        |path| path.display().to_string(),
    );
    let path = model.base.layout.info.path.display().to_string();
    let mut argv = vec![program, "-m".to_owned(), path];
    argv.extend(server_args(page, model)?);
    let env = model
        .base
        .runtime
        .as_ref()
        .map(|r| r.environment(&BTreeMap::new()));
    Ok(native_command(&env.unwrap_or_default(), &argv))
}

/// Starts the server with exactly this placement.
fn use_plan(state: &mut AppState, cx: &mut Cx, model: &Model) {
    match server_args(&state.placement, model) {
        Ok(extra) => cx.order(Order::start(Command::Serve(RunRequest {
            model: model.base.layout.info.path.clone(),
            runtime: model.base.runtime.as_ref().map(|r| r.name.clone()),
            goal: None,
            stale_ok: false,
            extra,
            access: Access::default(),
        }))),
        Err(error) => state.complain(error.headline),
    }
}

fn notices(ui: &mut Ui, state: &AppState, model: &Model) {
    let t = tokens(ui);
    let misfits = state.placement.candidate().map_or(&[][..], |c| &c.misfits);
    if misfits.len() > 1 {
        Card::bare().show(ui, |ui| {
            for misfit in misfits {
                status(
                    ui,
                    Icon::Problem,
                    t.regressed,
                    &format!("Does not fit: {misfit}"),
                );
            }
        });
    }
    let remote = model
        .base
        .memories
        .devices
        .iter()
        .any(|d| d.backend == Backend::Rpc);
    if remote || !model.base.notices.is_empty() {
        Card::bare().show(ui, |ui| {
            if remote {
                status(ui, Icon::Warning, t.warning, words::RPC);
            }
            for notice in &model.base.notices {
                notice_line(ui, notice);
            }
        });
    }
}
