//! The Dashboard page: what the sensors say, live or of a stored session, with the times shaded in which a run was
//! being measured.

mod live;
mod replay;
mod tile;
mod view;

use std::sync::Arc;

use eframe::egui::{Align, Layout, Ui};

use crate::domain::telemetry::{HOST, Rings, SeriesId};
use crate::domain::text::{capitalised, clean, metric_words, quantity, span, three_digits};
use crate::domain::types::{Side, Timestamp};
use crate::engine::scan::Scan;
use crate::ui::app::Cx;
use crate::ui::link::{Link, Worker};
use crate::ui::state::{AppState, JobView, Page, StoredLine};
use crate::ui::theme::icons::Icon;
use crate::ui::theme::{space, tokens};
use crate::ui::widgets::{
    Card, Loadable, caption, columns, failed, loading_note, muted, page_header, segmented, select,
    status, strong,
};

use live::Live;
use replay::Recorded;
use tile::{Tiles, owner};
use view::{Readings, View};

/// Minutes shown, as offered.
const WINDOWS: &[(u32, &str)] = &[(1, "1 min"), (5, "5 min"), (15, "15 min"), (60, "1 h")];
/// Readings that did not come for so many intervals: the value is no longer what is there now.
const FRESH_TICKS: i64 = 4;
/// From this width on there are two tiles in a row, and three.
const TWO: f32 = 640.0;
const THREE: f32 = 900.0;

/// The page's own state.
#[derive(Debug)]
pub struct State {
    /// The sensors as they are read.
    pub live: Live,
    minutes: u32,
    /// Sessions that have readings, with their words.
    recent: Loadable<Vec<(i64, String)>>,
    /// The session shown instead of now.
    replayed: Option<i64>,
    recorded: Loadable<Arc<Recorded>>,
    tiles: Tiles,
}

impl Default for State {
    fn default() -> Self {
        Self {
            live: Live::default(),
            minutes: 5,
            recent: Loadable::Unasked,
            replayed: None,
            recorded: Loadable::Unasked,
            tiles: Tiles::default(),
        }
    }
}

impl State {
    /// A stored session is shown.
    pub const fn is_replaying(&self) -> bool {
        self.replayed.is_some()
    }
}

/// Looks again which sessions have readings.
pub fn ask_recent(state: &mut AppState, link: &Link) {
    state.dashboard.recent.ask();
    link.ask(Worker::Store, replay::recent, |state, _, recent| {
        state.dashboard.recent.answer(recent);
    });
}

/// Shows what the sensors said during a stored session.
pub fn replay(state: &mut AppState, link: &Link, session: i64) {
    state.page = Page::Dashboard;
    state.dashboard.replayed = Some(session);
    state.dashboard.recorded = Loadable::Loading(None);
    link.ask(
        Worker::Store,
        move |ports| replay::recorded(session, ports).map(Arc::new),
        move |state, _, recorded| {
            // Another may have been chosen since.
            if state.dashboard.replayed == Some(session) {
                state.dashboard.recorded.answer(recorded);
            }
        },
    );
}

/// Draws the page.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    if state.dashboard.recent.is_unasked() {
        ask_recent(state, cx.link);
    }
    head(ui, state, cx);
    if state.dashboard.is_replaying() {
        match &state.dashboard.recorded {
            Loadable::Ready(recorded) => {
                let recorded = Arc::clone(recorded);
                tiles(ui, state, &of_session(&recorded));
            }
            Loadable::Failed(error, _) => Card::bare().show(ui, |ui| failed(ui, error)),
            _ => Card::bare().show(ui, |ui| loading_note(ui, "Reading the session back")),
        }
        return;
    }
    running(ui, state);
    // Taken out while it is drawn, so that the tiles beside it can be changed.
    let live = std::mem::take(&mut state.dashboard.live);
    match live.now() {
        Some(now) => tiles(ui, state, &of_now(&live, now, state.dashboard.minutes)),
        None => Card::bare().show(ui, |ui| loading_note(ui, "Reading the sensors")),
    }
    missing(ui, state, &live);
    state.dashboard.live = live;
}

fn head(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let under = under(&state.dashboard);
    let narrow = ui.available_width() < THREE;
    if narrow {
        page_header(ui, "Dashboard", &under, |_| {});
        ui.horizontal(|ui| choices(ui, state, cx));
    } else {
        page_header(ui, "Dashboard", &under, |ui| choices(ui, state, cx));
    }
}

fn under(state: &State) -> String {
    if state.is_replaying() {
        let words = state.recorded.value().map(|r| r.words.as_str());
        return words.map_or_else(String::new, |words| {
            format!("{words} · shaded: a run was being measured")
        });
    }
    let live = &state.live;
    let every = span(f64::from(live.interval_ms()) / 1000.0);
    let cost = live
        .cost_ms()
        .map_or_else(String::new, |ms| format!(" · sampling costs {ms:.2} ms"));
    format!("Every {every}{cost} · shaded: a run is being measured")
}

fn choices(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let form = &mut state.dashboard;
    if !form.is_replaying() {
        segmented(ui, &mut form.minutes, WINDOWS);
    }
    let recent = form.recent.value().cloned().unwrap_or_default();
    if recent.is_empty() && !form.is_replaying() {
        return;
    }
    let mut sources = vec![(None, "Live".to_owned())];
    sources.extend(recent.into_iter().map(|(id, words)| (Some(id), words)));
    if let Some(shown) = form
        .replayed
        .filter(|id| sources.iter().all(|s| s.0 != Some(*id)))
    {
        sources.push((Some(shown), format!("Session {shown}")));
    }
    let mut chosen = form.replayed;
    if select(ui, "Shown", &mut chosen, &sources).changed() {
        match chosen {
            Some(session) => replay(state, cx.link, session),
            None => state.dashboard.replayed = None,
        }
    }
}

fn of_now(live: &Live, now: Timestamp, minutes: u32) -> View<'_> {
    View {
        readings: Readings::Live(live.rings()),
        spans: live.spans().collect(),
        from: Timestamp(now.0 - i64::from(minutes) * 60_000),
        to: now,
        fresh_ms: Some(FRESH_TICKS * i64::from(live.interval_ms())),
        session: 0,
    }
}

fn of_session(recorded: &Recorded) -> View<'_> {
    View {
        readings: Readings::Stored(&recorded.series),
        spans: recorded.spans.iter().collect(),
        from: recorded.from,
        to: recorded.to,
        fresh_ms: None,
        session: recorded.session,
    }
}

fn tiles(ui: &mut Ui, state: &mut AppState, view: &View) {
    let in_a_row = match ui.available_width() {
        w if w < TWO => 1,
        w if w < THREE => 2,
        _ => 3,
    };
    let mut drawn = std::mem::take(&mut state.dashboard.tiles);
    let scan = state.scan.value();
    let scan = scan.map(AsRef::as_ref);
    let mut shown = tile::shown(view.readings);
    let all = shown.len();
    for owned in by_owner(&mut shown) {
        tile::first_things_first(owned);
        let source = &owned[0].source;
        if owned.len() < all {
            strong(ui, owner(source, scan));
        }
        // All tiles are as high as each other by themselves.
        for (row, series) in owned.chunks(in_a_row).enumerate() {
            let weights = vec![1.0; in_a_row];
            let id = format!("tiles {source} {row}");
            columns(ui, &id, &weights, |column, ui, _| {
                if let Some(series) = series.get(column) {
                    drawn.show(ui, series, view, &state.settings, scan);
                }
            });
        }
    }
    state.dashboard.tiles = drawn;
}

/// The series of each GPU and of the host in a row of their own, where there are several GPUs; else all together.
fn by_owner<'s, 'a>(shown: &'s mut [&'a SeriesId]) -> Vec<&'s mut [&'a SeriesId]> {
    let owned = shown.chunk_by(|a, b| a.source == b.source);
    let gpus = owned.filter(|owned| owned[0].source != HOST);
    if gpus.count() > 1 {
        shown.chunk_by_mut(|a, b| a.source == b.source).collect()
    } else {
        Some(shown)
            .filter(|all| !all.is_empty())
            .into_iter()
            .collect()
    }
}

/// Which readings this machine does not give, and why.
fn missing(ui: &mut Ui, state: &AppState, live: &Live) {
    let Some(scan) = state.scan.value() else {
        return;
    };
    let mut silent = silent(scan, live.rings());
    silent.extend(live.absent().iter().map(|absent| {
        let owner = owner(&absent.series.source, Some(scan));
        let what = metric_words(absent.series.metric);
        format!("{owner}: no {what}: {}", clean(&absent.reason))
    }));
    if !silent.is_empty() {
        caption(ui, format!("No readings here · {}", silent.join(" · ")));
    }
}

fn silent(scan: &Scan, rings: &Rings) -> Vec<String> {
    let sources = &scan.machine.telemetry;
    let refused = sources.iter().filter(|s| !s.available);
    let mut silent: Vec<String> = refused
        .map(|s| format!("{}: {}", clean(&s.source), clean(&s.detail)))
        .collect();
    for gpu in &scan.gpus {
        let source = gpu.pci.map(|pci| pci.to_string());
        let told = source.is_some_and(|pci| rings.series().any(|s| s.source == pci));
        let explained = sources
            .iter()
            .any(|s| s.pci.is_some() && s.pci == gpu.pci && !s.available);
        if !told && !explained {
            silent.push(format!(
                "{}: no sensor that Flux can read",
                clean(&gpu.name)
            ));
        }
    }
    silent
}

/// The line of the measuring job.
fn running(ui: &mut Ui, state: &AppState) {
    let Some(job) = state
        .job
        .as_ref()
        .filter(|j| j.is_running() && j.measures())
    else {
        return;
    };
    let what = job_words(job, state.model.as_ref().map(|m| clean(&m.name)).as_deref());
    let scored = |line: &&StoredLine| line.score().is_some();
    let last = job.runs.iter().rev().find(scored);
    let rate = last.map(|line| {
        let primary = job.primary.as_deref().unwrap_or_default();
        let (rate, unit) = quantity(primary, line.score().unwrap_or_default());
        let of = format!("last run {primary}");
        let mut parts = vec![format!("{} {} {unit}", of.trim_end(), three_digits(rate))];
        // Of the test that the goal is about; of whole requests, of generation.
        let of_goal = |e: &&String| e.starts_with(primary);
        let energy = line.energy.iter().find(of_goal).or(line.energy.last());
        parts.extend(energy.filter(|_| unit != "t/J").cloned());
        parts.join(" · ")
    });
    let left = job
        .eta_secs
        .map(|secs| format!("about {} left", span(secs)));
    Card::bare().show(ui, |ui| {
        let accent = tokens(ui).accent;
        if ui.available_width() < TWO {
            status(ui, Icon::Play, accent, &what);
            caption(
                ui,
                [rate, left]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join(" · "),
            );
            return;
        }
        ui.horizontal(|ui| {
            status(ui, Icon::Play, accent, &what);
            ui.add_space(space::M);
            muted(ui, rate.unwrap_or_default());
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                muted(ui, left.unwrap_or_default());
            });
        });
    });
}

/// `Tuning Qwen3-4B: confirmation, run 6 of 16, arm B`.
fn job_words(job: &JobView, model: Option<&str>) -> String {
    let verb = if job.kind == "ab" {
        "Comparing"
    } else {
        "Tuning"
    };
    let subject = model.map_or_else(|| verb.to_owned(), |model| format!("{verb} {model}"));
    let mut parts: Vec<String> = job.stage.iter().map(|stage| clean(stage)).collect();
    if job.total > 0 {
        parts.push(format!(
            "run {} of {}",
            (job.done + 1).min(job.total),
            job.total
        ));
    }
    let confirming = job.confirmation.as_ref().filter(|c| c.judged.is_none());
    let side = confirming.and_then(|c| c.order().get(c.runs.len()).copied());
    parts.extend(side.map(|side| match side {
        Side::A => "arm A".to_owned(),
        Side::B => "arm B".to_owned(),
    }));
    if parts.is_empty() {
        return subject;
    }
    capitalised(&format!("{subject}: {}", parts.join(", ")))
}
