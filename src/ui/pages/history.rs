//! The History page: sessions searched and filtered, each with all its evidence; profiles and what became of them.

use eframe::egui::Ui;

use crate::ports::{SessionFilter, SessionPage};
use crate::ui::app::Cx;
use crate::ui::link::{Link, Worker};
use crate::ui::state::AppState;
use crate::ui::widgets::{Card, Loadable, label, page_header};

/// The page's own state.
#[derive(Debug, Default)]
pub struct State {
    page: Loadable<SessionPage>,
    filter: SessionFilter,
    open: Option<i64>,
}

impl State {
    /// The search field is to take what is typed next.
    pub fn focus_search(&mut self) {}

    /// Shows this session.
    pub fn open(&mut self, session: Option<i64>) {
        self.open = session;
    }

    /// Whether the newest profile is current, in words.
    pub fn profile_state(&self) -> Option<(bool, &str)> {
        None
    }
}

/// Reads the history again.
pub fn ask(state: &mut AppState, link: &Link) {
    state.history.page.ask();
    let filter = state.history.filter.clone();
    link.ask(
        Worker::Store,
        move |ports| ports.store.find_sessions(&filter).map_err(Into::into),
        |state, _, page| state.history.page.answer(page),
    );
}

/// Deletes a session, or brings it back.
pub fn set_deleted(_state: &mut AppState, link: &Link, session: i64, deleted: bool) {
    link.ask(
        Worker::Store,
        move |ports| ports.store.set_deleted(session, deleted, ports.clock.now()),
        |state, link, _| ask(state, link),
    );
}

/// Asks where to, and writes a session's report there.
pub fn export_report(_link: &Link, _session: i64) {}

/// Draws the page.
pub fn show(ui: &mut Ui, state: &mut AppState, _cx: &mut Cx) {
    page_header(ui, "History", "", |_| {});
    Card::bare().show(ui, |ui| {
        if let Some(page) = state.history.page.value() {
            for line in &page.lines {
                label(ui, format!("{} {}", line.id, line.model));
            }
        }
    });
}
