//! What the app knows and shows. Pages change their own forms; everything else changes by events and answers only.

mod job;

use std::path::PathBuf;
use std::sync::Arc;

use crate::domain::doctor::Finding;
use crate::domain::types::{ModelInfo, ModelListing, Runtime};
use crate::engine::message::{Event, JobId};
use crate::engine::scan::Scan;
use crate::ports::{ImportedProfile, Notice};

use super::pages;
use super::widgets::Loadable;

pub use job::{JobView, LiveConfirmation, StoredLine};

/// A page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Page {
    /// What the scan found.
    #[default]
    Machine,
    /// The wizard.
    Tune,
    /// Readings.
    Dashboard,
    /// Where each tensor lives.
    Placement,
    /// Sessions and profiles.
    History,
    /// What the card can do by itself.
    Lab,
    /// Settings.
    Settings,
}

/// Which dialog is open over the page.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Dialog {
    /// None.
    #[default]
    None,
    /// The palette, with what is typed and which entry is marked.
    Palette {
        /// What is typed.
        text: String,
        /// The marked entry.
        marked: usize,
    },
    /// The keys.
    Keys,
    /// A job runs and the window is to close.
    Closing,
    /// A job is to stop: after this run, or now.
    Stopping,
}

/// A line that says what was done, with a way back where there is one.
#[derive(Debug, Clone, PartialEq)]
pub struct Toast {
    /// What was done.
    pub text: String,
    /// What can be brought back.
    pub undo: Option<Undo>,
    /// It tells of a failure.
    pub failed: bool,
}

/// Something taken away that can be brought back.
#[derive(Debug, Clone, PartialEq)]
pub enum Undo {
    /// A session, with its profile.
    Session(i64),
    /// A profile that came from elsewhere.
    Import(Box<ImportedProfile>),
}

/// Everything.
#[derive(Default)]
pub struct AppState {
    /// The page shown.
    pub page: Page,
    /// The dialog over it.
    pub dialog: Dialog,
    /// What the next frame puts into the clipboard: between frames nothing reaches it.
    pub clipboard: Option<String>,
    /// The newest toast.
    pub toast: Option<Toast>,
    /// This machine and its runtimes.
    pub scan: Loadable<Arc<Scan>>,
    /// What would spoil a measurement now.
    pub findings: Loadable<Vec<Finding>>,
    /// Model files of the usual folders.
    pub models: Loadable<Vec<ModelListing>>,
    /// The model chosen.
    pub model: Option<ModelInfo>,
    /// The runtime chosen by the user, by name; `None` takes the best known.
    pub runtime: Option<String>,
    /// The measuring job, running or the last.
    pub job: Option<JobView>,
    /// The other job (install, synthesise, serve), running or the last.
    pub errand: Option<JobView>,
    /// Things to say about the data folder.
    pub notices: Vec<Notice>,
    /// The settings.
    pub settings: crate::domain::settings::AppSettings,
    /// The Machine page's own.
    pub machine: pages::machine::State,
    /// The wizard's own.
    pub tune: pages::tune::State,
    /// The dashboard's own.
    pub dashboard: pages::dashboard::State,
    /// The placement explorer's own.
    pub placement: pages::placement::State,
    /// The history's own.
    pub history: pages::history::State,
    /// The Lab page's own.
    pub lab: pages::lab::State,
    /// The session shown: which of its runs is open.
    pub session: pages::session::State,
    /// The settings page's own.
    pub settings_page: pages::settings::State,
}

impl AppState {
    /// Takes an event in.
    pub fn apply(&mut self, event: Event) {
        let owns = |view: &Option<JobView>, job: JobId| view.as_ref().is_some_and(|v| v.id == job);
        let view = if owns(&self.job, event.job) {
            self.dashboard.live.note(&event);
            &mut self.job
        } else if owns(&self.errand, event.job) {
            &mut self.errand
        } else {
            return;
        };
        if let Some(view) = view {
            view.apply(event);
        }
    }

    /// A measurement or an errand is running.
    pub fn is_busy(&self) -> bool {
        let running = |view: &Option<JobView>| view.as_ref().is_some_and(JobView::is_running);
        running(&self.job) || running(&self.errand)
    }

    /// The runtime a tuning would take.
    pub fn chosen_runtime(&self) -> Option<&Runtime> {
        let known = &self.scan.value()?.runtimes;
        let named = self.runtime.as_ref();
        named
            .and_then(|name| known.iter().find(|r| r.name == *name))
            .or_else(|| known.iter().find(|r| r.bench.is_some()))
            .or_else(|| known.iter().find(|r| r.server.is_some()))
    }

    /// Says what was done.
    pub fn say(&mut self, text: impl Into<String>) {
        self.toast = Some(Toast {
            text: text.into(),
            undo: None,
            failed: false,
        });
    }

    /// Says what failed.
    pub fn complain(&mut self, text: impl Into<String>) {
        self.toast = Some(Toast {
            text: text.into(),
            undo: None,
            failed: true,
        });
    }

    /// Where a model file was chosen.
    pub fn model_path(&self) -> Option<PathBuf> {
        self.model.as_ref().map(|m| m.path.clone())
    }
}
