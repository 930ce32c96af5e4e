//! The tuning wizard: model, goal, candidates, then the search as it runs, and its result.

mod candidates;
mod confirmation;
mod goal;
mod live;
mod model;
mod result;
mod screening;
mod steps;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use eframe::egui::Ui;

use crate::domain::settings::AppSettings;
use crate::domain::types::{Goal, ModelInfo, RequestShape};
use crate::engine::message::{Command, JobError, Outcome, TuneRequest};
use crate::engine::report::DryRun;
use crate::engine::serve_check::ServeCheckRequest;
use crate::engine::{models, prepare, resume as unfinished};
use crate::ports::SessionLine;
use crate::ui::app::{Cx, Order};
use crate::ui::link::{Link, Worker};
use crate::ui::pages::session::SessionView;
use crate::ui::pages::settings;
use crate::ui::state::{AppState, JobView, Page};
use crate::ui::widgets::Loadable;

pub use goal::LIMITS;
pub use result::serving;
pub use steps::Step;

/// The wizard's own state.
#[derive(Debug)]
pub struct State {
    /// The step shown.
    step: Step,
    /// A path typed or chosen.
    path: String,
    /// The file that was asked about.
    inspected: Loadable<ModelInfo>,
    /// Search among the models found.
    search: String,
    /// The shape to synthesise.
    shape: String,
    /// What is to become faster.
    goal: Goal,
    /// The request of the request goal.
    request: RequestShape,
    /// Reduced-precision KV cache may be tried.
    allow_kv_quant: bool,
    /// Minutes after which no further candidate is begun; 0 is no limit.
    limit_minutes: u32,
    /// Context depth of all tests, tokens.
    depth: u32,
    /// Processes per arm of the confirmation, where the user fixes them.
    processes: Option<u32>,
    /// The rarely used choices are shown.
    more: bool,
    /// What would be tried.
    plan: Loadable<DryRun>,
    /// What `plan` was made for.
    planned: Option<TuneRequest>,
    /// The user asked for a pause rather than for an end.
    pausing: bool,
    /// A live step the user looks at on purpose.
    looking_at: Option<Step>,
    /// The request of the job running, for going on with it.
    running: Option<TuneRequest>,
    /// The result, in full.
    result: Loadable<Arc<SessionView>>,
    /// The tuning whose profile is checked through live servers: where its result goes back to.
    checked: Option<i64>,
    /// The newest search, where it was broken off, and its model.
    broken_off: Option<(SessionLine, PathBuf)>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            step: Step::Model,
            path: String::new(),
            inspected: Loadable::Unasked,
            search: String::new(),
            shape: String::new(),
            goal: Goal::Generation,
            request: RequestShape::default(),
            allow_kv_quant: false,
            limit_minutes: 0,
            depth: 0,
            processes: None,
            more: false,
            plan: Loadable::Unasked,
            planned: None,
            pausing: false,
            looking_at: None,
            running: None,
            result: Loadable::Unasked,
            checked: None,
            broken_off: None,
        }
    }
}

impl State {
    /// Takes what the settings propose.
    pub fn begin_with(&mut self, settings: &AppSettings) {
        self.limit_minutes = settings.time_limit_secs.map_or(0, |secs| secs.div_ceil(60));
    }

    /// Why the model asked for last cannot be taken.
    pub const fn refused(&self) -> Option<&JobError> {
        self.inspected.error()
    }

    /// What would be tried must be asked again.
    pub fn forget_plan(&mut self) {
        self.plan = Loadable::Unasked;
        self.planned = None;
    }
}

/// Begins a new tuning, unless one is running: `false` then.
pub fn begin_anew(state: &mut AppState) -> bool {
    if state.job.as_ref().is_some_and(JobView::is_running) {
        return false;
    }
    let kept = std::mem::take(&mut state.tune);
    state.tune = State {
        path: kept.path,
        goal: kept.goal,
        request: kept.request,
        allow_kv_quant: kept.allow_kv_quant,
        limit_minutes: kept.limit_minutes,
        depth: kept.depth,
        processes: kept.processes,
        more: kept.more,
        broken_off: kept.broken_off,
        ..State::default()
    };
    state.job = None;
    true
}

/// Asks whether the newest search was broken off: by a crash, a pause or a cancel.
pub fn ask_broken_off(link: &Link) {
    link.ask(
        Worker::Store,
        unfinished::broken_off,
        |state, _, found| match found {
            Ok(found) => state.tune.broken_off = found,
            Err(error) => state.complain(error.headline),
        },
    );
}

/// Draws the page.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    if state.models.is_unasked() {
        ask_models(state, cx.link);
    }
    match state.tune.step {
        Step::Model => model::show(ui, state, cx),
        Step::Goal => goal::show(ui, state, cx),
        Step::Candidates => candidates::show(ui, state, cx),
        Step::Screening | Step::Confirmation => live::show(ui, state, cx),
        Step::Result => result::show(ui, state, cx),
    }
}

/// Looks through the model folders.
pub fn ask_models(state: &mut AppState, link: &Link) {
    state.models.ask();
    let also = state.settings.model_folders.clone();
    link.ask(
        Worker::System,
        move |ports| models::usual(&also, ports),
        |state, _, found| {
            state.notices.extend(found.notices);
            state.models.answer(Ok(found.models));
        },
    );
}

/// Reads a model's header and takes the model if it can run.
pub fn take_model(state: &mut AppState, link: &Link, path: &Path) {
    state.tune.path = path.display().to_string();
    state.tune.inspected.ask();
    let path = path.to_owned();
    link.ask(
        Worker::System,
        move |ports| ports.models.inspect(&path).map_err(Into::into),
        |state, link, read: Result<ModelInfo, _>| {
            if let Ok(model) = &read {
                state.model = Some(model.clone());
                state.settings.remember_model(model.path.clone());
                settings::store(state, link);
                state.tune.plan = Loadable::Unasked;
            }
            state.tune.inspected.answer(read);
        },
    );
}

/// A model was synthesised: it is taken at once.
pub fn model_made(state: &mut AppState, link: &Link, result: &serde_json::Value) {
    if let Ok(model) = serde_json::from_value::<ModelInfo>(result.clone()) {
        state.say(format!("{} is written", model.name));
        take_model(state, link, &model.path);
        ask_models(state, link);
    }
}

/// What is to become better.
const fn goal_words(goal: Goal) -> &'static str {
    match goal {
        Goal::Generation => "generation speed",
        Goal::Prompt => "prompt speed",
        Goal::Request => "whole requests",
        Goal::Energy => "tokens per joule",
    }
}

/// What the wizard's form asks for.
fn request(state: &AppState) -> Option<TuneRequest> {
    let form = &state.tune;
    Some(TuneRequest {
        runtime: state.chosen_runtime().map(|r| r.name.clone()),
        goal: form.goal,
        request_shape: form.request,
        allow_kv_quant: form.allow_kv_quant,
        processes: form.processes,
        time_limit_secs: (form.limit_minutes > 0).then(|| f64::from(form.limit_minutes) * 60.0),
        depth: form.depth,
        memory_reserve: Some(state.settings.vram_reserve),
        save: false,
        ..TuneRequest::new(state.model.as_ref()?.path.clone())
    })
}

/// Asks what would be tried, unless that is known for this very request.
fn ask_plan(state: &mut AppState, link: &Link) {
    let Some(request) = request(state) else {
        return;
    };
    if state.tune.planned.as_ref() == Some(&request) {
        return;
    }
    state.tune.plan = Loadable::Loading(None);
    state.tune.planned = Some(request.clone());
    link.ask(
        Worker::System,
        move |ports| prepare::dry_run(&request, ports),
        |state, _, plan| state.tune.plan.answer(plan),
    );
}

/// Starts the search.
fn start(state: &mut AppState, cx: &mut Cx, request: TuneRequest) {
    let form = &mut state.tune;
    form.result = Loadable::Unasked;
    form.pausing = false;
    form.looking_at = None;
    form.running = Some(request.clone());
    form.step = Step::Screening;
    cx.order(Order::start(Command::Tune(request)));
}

/// Checks the profile of the result shown through live servers.
fn check(state: &mut AppState, cx: &mut Cx, tuning: i64, model: PathBuf) {
    let request = ServeCheckRequest {
        runtime: state.chosen_runtime().map(|r| r.name.clone()),
        goal: Some(state.tune.goal),
        ..ServeCheckRequest::new(model)
    };
    let form = &mut state.tune;
    form.result = Loadable::Unasked;
    form.pausing = false;
    form.looking_at = None;
    form.checked = Some(tuning);
    form.step = Step::Confirmation;
    cx.order(Order::start(Command::ServeCheck(request)));
}

/// Shows the tuning again whose profile was checked.
fn back_to_tuning(state: &mut AppState, link: &Link) {
    if let Some(tuning) = state.tune.checked.take() {
        state.tune.step = Step::Result;
        state.tune.looking_at = None;
        read_back(state, link, tuning);
    }
}

/// Goes on with a stored session that was paused, cancelled or broken off.
pub fn resume(state: &mut AppState, cx: &mut Cx, session: i64, model: PathBuf) {
    if state.model_path().as_ref() != Some(&model) {
        take_model(state, cx.link, &model);
    }
    state.tune.broken_off = None;
    let mut request = state.tune.running.take().unwrap_or_else(|| TuneRequest {
        save: false,
        ..TuneRequest::new(model.clone())
    });
    // The session's own plan wins over everything else in the request.
    request.model = model;
    request.resume = Some(session);
    start(state, cx, request);
}

/// Goes on with a session chosen in the history.
pub fn go_on(state: &mut AppState, cx: &mut Cx, session: i64, model: PathBuf, goal: Goal) {
    state.tune.goal = goal;
    state.tune.running = None;
    resume(state, cx, session, model);
    cx.go(Page::Tune);
}

/// Begins a tuning of this model for this goal, at the choice of what may change.
pub fn measure_again(link: &Link, model: PathBuf, goal: Goal) {
    link.ask(
        Worker::System,
        move |ports| ports.models.inspect(&model),
        move |state, link, read| match read {
            Ok(_) if state.job.as_ref().is_some_and(JobView::is_running) => {
                state.complain("A measurement is running: begin another when it has ended");
            }
            Ok(model) => {
                begin_anew(state);
                state.tune.path = model.path.display().to_string();
                state.tune.goal = goal;
                state.tune.inspected = Loadable::Ready(model.clone());
                state.settings.remember_model(model.path.clone());
                settings::store(state, link);
                state.model = Some(model);
                state.tune.step = Step::Goal;
                state.page = Page::Tune;
            }
            Err(error) => state.complain(error.headline),
        },
    );
}

/// A measuring job has ended: its result is read back from the store, where it is kept.
pub fn ended(state: &mut AppState, link: &Link) {
    let Some(job) = &state.job else { return };
    let (Some(Outcome::Done { .. }), Some(session)) = (&job.outcome, job.session) else {
        return;
    };
    state.tune.step = Step::Result;
    state.tune.looking_at = None;
    read_back(state, link, session);
}

/// Reads the result shown again, where it is this session's.
pub fn read_again(state: &mut AppState, link: &Link, session: i64) {
    let shown = state.tune.result.value().map(|view| view.id);
    if shown == Some(session) {
        read_back(state, link, session);
    }
}

/// Reads a session's result and evidence from the store.
fn read_back(state: &mut AppState, link: &Link, session: i64) {
    state.tune.result.ask();
    link.ask(
        Worker::Store,
        move |ports| SessionView::load(session, ports).map(Arc::new),
        |state, _, result| state.tune.result.answer(result),
    );
}
