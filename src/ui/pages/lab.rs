//! The Lab page: what the card can do by itself. The finding first, then bandwidth against size, layouts, queue families.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eframe::egui::Ui;

use crate::domain::lab::Format;
use crate::domain::text::{capitalised, clean};
use crate::engine::lab::{self, LabAsked};
use crate::engine::message::Command;
use crate::engine::scan::Scan;
use crate::ports::CancelMode;
use crate::report::lab::{LabFigures, size_words};
use crate::ui::app::{Cx, Order};
use crate::ui::charts;
use crate::ui::link::{Link, Worker};
use crate::ui::state::{AppState, JobView};
use crate::ui::theme::icons::Icon;
use crate::ui::theme::space;
use crate::ui::widgets::{
    Card, Loadable, Press, caption, columns, empty, failed, label, loading_note, page_header,
    progress, segmented, strong,
};

/// What a page without a lab says.
const NOTHING: &str = "No kernel lab on this machine yet: it measures what the card's memory gives to kernels, and what its queue families cost, in about a quarter of a minute";

/// The page's own state.
#[derive(Debug, Default)]
pub struct State {
    /// The newest lab of each card, the newest first.
    labs: Loadable<Arc<Vec<View>>>,
    /// Which of them is shown.
    shown: usize,
    /// Which GPU of the scan is measured next.
    gpu: usize,
    chosen: Chosen,
}

/// A lab as it is drawn.
#[derive(Debug)]
pub struct View {
    /// Tells its charts from those of every other view.
    version: u64,
    figures: LabFigures,
    card: String,
}

impl View {
    /// Of figures.
    pub fn of(figures: LabFigures, card: &str) -> Self {
        static VERSION: AtomicU64 = AtomicU64::new(1);
        Self {
            version: VERSION.fetch_add(1, Ordering::Relaxed),
            figures,
            card: clean(card),
        }
    }
}

/// Which format's layouts are shown; of a session on another page too.
#[derive(Debug)]
pub struct Chosen(Format);

impl Default for Chosen {
    fn default() -> Self {
        Self(Format::F32)
    }
}

/// A lab has ended, or the machine is another: reads them again when the page is shown.
pub fn forget(state: &mut AppState) {
    state.lab.labs = Loadable::Unasked;
    state.lab.shown = 0;
}

fn ask(state: &mut AppState, link: &Link, scan: &Scan) {
    state.lab.labs.ask();
    let key = scan.fingerprint.clone();
    link.ask(
        Worker::Store,
        move |ports| {
            let labs = lab::stored(ports, &key)?;
            let view = |lab: &lab::LabDocument| {
                let card = lab.report.card.as_ref().map_or("", |card| &card.name);
                View::of(LabFigures::of(lab), card)
            };
            Ok(Arc::new(labs.iter().map(view).collect()))
        },
        |state, _, labs| state.lab.labs.answer(labs),
    );
}

/// Draws the page.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let Some(scan) = state.scan.value().cloned() else {
        page_header(ui, "Kernel lab", "", |_| {});
        Card::bare().show(ui, |ui| {
            loading_note(ui, "Asking Vulkan which cards there are");
        });
        return;
    };
    if matches!(state.lab.labs, Loadable::Unasked) {
        ask(state, cx.link, &scan);
    }
    let labs = state.lab.labs.value().cloned();
    let view = labs.as_ref().and_then(|labs| {
        let at = state.lab.shown.min(labs.len().saturating_sub(1));
        labs.get(at)
    });
    let under = view.map_or("", |view| view.figures.under.as_str());
    page_header(ui, "Kernel lab", under, |ui| actions(ui, state, cx, &scan));
    choose_card(ui, state, &scan);
    let job = state.job.as_ref().filter(|job| job.kind == "lab");
    if let Some(job) = job.filter(|job| job.is_running()) {
        running(ui, job, cx);
    }
    if let Some(error) = job.and_then(|job| job.failed_as("lab")) {
        Card::bare().show(ui, |ui| failed(ui, error));
    }
    let is_running = job.is_some_and(JobView::is_running);
    if let Some(error) = state.lab.labs.error() {
        Card::bare().show(ui, |ui| failed(ui, error));
    }
    match (&labs, view) {
        (_, Some(view)) => {
            shown_card(ui, &mut state.lab.shown, labs.as_deref());
            cards(ui, view, &mut state.lab.chosen);
        }
        (Some(_), None) if !is_running => nothing(ui, cx, state, &scan),
        _ => {}
    }
}

/// Why nothing can be measured now.
fn hindrance(state: &AppState, scan: &Scan) -> Option<&'static str> {
    if scan.machine.simulated {
        return Some("This machine is an exported one");
    }
    if lab::names(&scan.gpus).is_empty() {
        return Some("Vulkan lists no GPU here; flux lab --device can name a software renderer");
    }
    let job = state.job.as_ref();
    job.is_some_and(JobView::is_running)
        .then_some("A measurement is running")
}

fn actions(ui: &mut Ui, state: &AppState, cx: &mut Cx, scan: &Scan) {
    let run = Press::new("Run lab").icon(Icon::Play).primary();
    if ui.add(run.unless(hindrance(state, scan))).clicked() {
        start(state, cx, scan);
    }
}

/// The GPU that the next lab measures, where there are several.
fn choose_card(ui: &mut Ui, state: &mut AppState, scan: &Scan) {
    let names: Vec<String> = lab::names(&scan.gpus)
        .iter()
        .map(|name| clean(name))
        .collect();
    if names.len() > 1 {
        let choices: Vec<(usize, &str)> = names.iter().map(String::as_str).enumerate().collect();
        segmented(ui, &mut state.lab.gpu, &choices);
    }
}

fn start(state: &AppState, cx: &mut Cx, scan: &Scan) {
    // With one GPU the lab finds it by itself.
    let names = lab::names(&scan.gpus);
    let chosen = names.get(state.lab.gpu).filter(|_| names.len() > 1);
    cx.order(Order::start(Command::Lab(LabAsked {
        device: chosen.cloned(),
        ..LabAsked::default()
    })));
}

fn nothing(ui: &mut Ui, cx: &mut Cx, state: &AppState, scan: &Scan) {
    Card::bare().show(ui, |ui| {
        let why = hindrance(state, scan);
        let action = why.is_none().then_some("Measure the card");
        if empty(ui, Icon::Lab, NOTHING, action) {
            start(state, cx, scan);
        }
        if let Some(why) = why {
            caption(ui, why);
        }
    });
}

fn running(ui: &mut Ui, job: &JobView, cx: &mut Cx) {
    Card::new("Measuring").show(ui, |ui| {
        progress(ui, job.share(), "Kernel lab");
        ui.horizontal(|ui| {
            caption(ui, clean(&job.doing));
            if job.stopping.is_some() {
                caption(ui, "stopping");
            } else if ui.add(Press::new("Cancel").quiet()).clicked() {
                cx.order(Order::Stop(CancelMode::Now));
            }
        });
    });
}

/// Which card's lab is shown, where several were measured.
fn shown_card(ui: &mut Ui, shown: &mut usize, labs: Option<&Vec<View>>) {
    let Some(labs) = labs.filter(|labs| labs.len() > 1) else {
        return;
    };
    let choices: Vec<(usize, &str)> = labs.iter().map(|v| v.card.as_str()).enumerate().collect();
    segmented(ui, shown, &choices);
}

/// A lab's cards; a session's page shows the same.
pub fn cards(ui: &mut Ui, view: &View, chosen: &mut Chosen) {
    let figures = &view.figures;
    Card::new("What it found").show(ui, |ui| {
        label(ui, &figures.sentence);
        for notice in &figures.notices {
            caption(ui, notice);
        }
    });
    columns(
        ui,
        "curves and card",
        &[2.2, 1.0],
        |column, ui, height| match column {
            0 => curves(ui, view, height),
            _ => facts(ui, figures, height),
        },
    );
    layouts(ui, view, chosen);
    queues(ui, view);
}

fn curves(ui: &mut Ui, view: &View, height: f32) {
    Card::new("Bandwidth against size")
        .caption("medians, GB/s; small sizes stay in caches")
        .min_height(height)
        .show(ui, |ui| {
            charts::kept(ui, "curves", view.version, |width| {
                view.figures.curves.scene(width, size_words)
            });
        });
}

fn facts(ui: &mut Ui, figures: &LabFigures, height: f32) {
    Card::new("Card").min_height(height).show(ui, |ui| {
        for (name, value) in &figures.facts {
            ui.vertical(|ui| {
                ui.spacing_mut().item_spacing.y = 2.0;
                caption(ui, *name);
                label(ui, clean(value));
            });
        }
    });
}

fn layouts(ui: &mut Ui, view: &View, chosen: &mut Chosen) {
    let figures = &view.figures;
    Card::new("Matrix times vector, by layout")
        .caption("median and every repetition at the largest size, GB/s")
        .show(ui, |ui| {
            let choices: Vec<(Format, &str)> = figures
                .layouts
                .iter()
                .map(|(f, _)| (*f, f.name()))
                .collect();
            segmented(ui, &mut chosen.0, &choices);
            ui.add_space(space::S);
            let shown = figures.layouts.iter().find(|(f, _)| *f == chosen.0);
            if let Some((format, ranking)) = shown.filter(|(_, r)| !r.rows.is_empty()) {
                let id = format!("layouts {}", format.name());
                charts::kept(ui, &id, view.version, |width| ranking.scene(width));
            } else {
                label(ui, "Not measured");
            }
        });
}

fn queues(ui: &mut Ui, view: &View) {
    let figures = &view.figures;
    let Some(verdict) = &figures.verdict else {
        return;
    };
    Card::new("Queue families")
        .caption("mean over rounds and 95 % interval, µs")
        .show(ui, |ui| {
            strong(ui, capitalised(verdict));
            for (title, ranking) in &figures.queues {
                ui.add_space(space::S);
                caption(ui, format!("{title}, by the host’s clock, with barriers"));
                charts::kept(ui, title, view.version, |width| ranking.scene(width));
            }
            ui.add_space(space::S);
            charts::numbers(ui, &figures.costs);
        });
}
