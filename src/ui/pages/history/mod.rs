//! The History page: sessions searched and filtered, each with all its evidence; two compared; profiles and what became of
//! them.

mod compare;
mod detail;
mod list;
mod profiles;

pub use detail::export_menu;

use std::sync::Arc;

use eframe::egui::Ui;
use jiff::tz::TimeZone;

use crate::domain::text::{changes_words, count, grouped_count};
use crate::engine::import::{self, Kept, imports};
use crate::engine::message::JobError;
use crate::engine::profiles::{ProfileLine, Standing, profiles};
use crate::engine::tune::save_profile;
use crate::ports::{CancelMode, CancelToken, ImportedProfile, SessionFilter, SessionPage};
use crate::report::{self, Format};
use crate::ui::app::Cx;
use crate::ui::files::Choice;
use crate::ui::link::{Link, Worker};
use crate::ui::state::{AppState, Toast, Undo};
use crate::ui::theme::icons::Icon;
use crate::ui::widgets::{Loadable, Press, page_header, search_field, segmented};

use super::session::SessionView;
use super::tune;

/// What the page lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Tab {
    /// Sessions.
    #[default]
    Sessions,
    /// Profiles.
    Profiles,
}

/// The page's own state.
#[derive(Debug, Default)]
pub struct State {
    tab: Tab,
    page: Loadable<SessionPage>,
    filter: SessionFilter,
    /// The search field takes what is typed next.
    focus: bool,
    /// Where the user lives; known with the first page.
    zone: Option<TimeZone>,
    open: Option<i64>,
    view: Loadable<Arc<SessionView>>,
    profiles: Loadable<Arc<Vec<ProfileLine>>>,
    /// How often older profiles were asked for.
    older_profiles: usize,
    imports: Vec<Kept>,
    /// The newest profile of this machine: current or not, and in words.
    newest: Option<(bool, String)>,
    comparing: Option<compare::State>,
    /// Ends the output check of a profile that is being saved.
    saving: Option<CancelToken>,
}

impl Drop for State {
    /// A window that closes ends what saving started.
    fn drop(&mut self) {
        if let Some(saving) = &self.saving {
            saving.cancel(CancelMode::Now);
        }
    }
}

impl State {
    /// The search field is to take what is typed next.
    pub fn focus_search(&mut self) {
        self.tab = Tab::Sessions;
        self.focus = true;
    }

    /// Shows this session.
    pub fn open(&mut self, session: Option<i64>) {
        self.tab = Tab::Sessions;
        self.open = session;
        self.view = Loadable::Unasked;
    }

    /// Whether the newest profile is current, in words.
    pub fn profile_state(&self) -> Option<(bool, &str)> {
        let (current, words) = self.newest.as_ref()?;
        Some((*current, words))
    }

    fn standing(&self, profile: i64) -> Option<&Standing> {
        let mut known = self.profiles.value()?.iter();
        Some(&known.find(|line| line.profile.id == profile)?.standing)
    }

    /// The newest profile of this machine.
    fn newest_profile(&self) -> Option<&ProfileLine> {
        let mut known = self.profiles.value()?.iter();
        known.find(|line| line.standing != Standing::Simulated)
    }
}

/// Reads the history again.
pub fn ask(state: &mut AppState, link: &Link) {
    state.history.page.ask();
    let filter = state.history.filter.clone();
    link.ask(
        Worker::Store,
        move |ports| {
            let page = ports.store.find_sessions(&filter).map_err(JobError::from);
            (page, TimeZone::system())
        },
        |state, _, (page, zone)| {
            state.history.zone = Some(zone);
            state.history.page.answer(page);
        },
    );
    ask_profiles(state, link);
}

/// A session may have gone on: reads the open one again, and the history.
pub fn refresh(state: &mut AppState, link: &Link) {
    state.history.view = Loadable::Unasked;
    ask(state, link);
}

/// Holds every profile against the last scan; without one there is nothing to hold them against.
pub fn ask_profiles(state: &mut AppState, link: &Link) {
    let Some(scan) = state.scan.value() else {
        return;
    };
    let (machine, mut runtimes) = (scan.machine.clone(), scan.runtimes.clone());
    let chosen = state.chosen_runtime().map(|r| r.name.clone());
    runtimes.sort_by_key(|runtime| Some(&runtime.name) != chosen.as_ref());
    state.history.profiles.ask();
    link.ask(
        Worker::Store,
        move |ports| {
            let imports = imports(&machine, &runtimes, ports)?;
            Ok((Arc::new(profiles(&machine, &runtimes, ports)?), imports))
        },
        |state, _, known| {
            let lines = known.map(|(lines, imports)| {
                state.history.imports = imports;
                lines
            });
            state.history.profiles.answer(lines);
            state.history.newest = state.history.newest_profile().map(|line| {
                let (current, words) = standing_words(&line.standing);
                (current, format!("profile {words}"))
            });
        },
    );
}

/// Whether a profile holds, and how that is said.
fn standing_words(standing: &Standing) -> (bool, String) {
    match standing {
        Standing::Current => (true, "current".to_owned()),
        Standing::Stale(changes) => (false, format!("stale: {}", changes_words(changes))),
        Standing::Simulated => (false, "of a simulated machine".to_owned()),
    }
}

fn ask_view(state: &mut AppState, link: &Link, session: i64) {
    state.history.view.ask();
    link.ask(
        Worker::Store,
        move |ports| SessionView::load(session, ports).map(Arc::new),
        move |state, _, view| {
            // Another session may have been opened meanwhile.
            if state.history.open == Some(session) {
                state.history.view.answer(view);
            }
        },
    );
}

/// Deletes a session with its profile, or brings it back.
pub fn set_deleted(_state: &mut AppState, link: &Link, session: i64, deleted: bool) {
    link.ask(
        Worker::Store,
        move |ports| ports.store.set_deleted(session, deleted, ports.clock.now()),
        move |state, link, done| {
            match done {
                Ok(()) if deleted => {
                    if state.history.open == Some(session) {
                        state.history.open(None);
                    }
                    state.toast = Some(Toast {
                        text: format!("Session {session} is deleted, and its profile with it"),
                        undo: Some(Undo::Session(session)),
                        failed: false,
                    });
                }
                Ok(()) => state.say(format!("Session {session} is back")),
                Err(error) => state.complain(error.headline),
            }
            ask(state, link);
        },
    );
}

/// Forgets an import.
fn undo_import(link: &Link, import: ImportedProfile) {
    link.ask(
        Worker::Store,
        move |ports| import::undo(import.id, ports).map(|()| import),
        |state, link, done| {
            match done {
                Ok(import) => {
                    state.toast = Some(Toast {
                        text: format!("Import {} is forgotten", import.id),
                        undo: Some(Undo::Import(Box::new(import))),
                        failed: false,
                    });
                }
                Err(error) => state.complain(error.headline),
            }
            ask_profiles(state, link);
        },
    );
}

/// Brings back what was taken away.
pub fn bring_back(state: &mut AppState, link: &Link, undo: Undo) {
    match undo {
        Undo::Session(session) => set_deleted(state, link, session, false),
        Undo::Import(import) => link.ask(
            Worker::Store,
            move |ports| {
                ports
                    .store
                    .append_import(import.imported_at, &import.profile)
            },
            |state, link, done| {
                match done {
                    Ok(id) => state.say(format!("Import {id} is back")),
                    Err(error) => state.complain(error.headline),
                }
                ask_profiles(state, link);
            },
        ),
    }
}

/// Saves a session's winner, or ends the check that saving it waits for.
pub fn save_button(ui: &mut Ui, state: &mut AppState, link: &Link, session: i64) {
    if let Some(saving) = &state.history.saving {
        // Of this session or another: servers answer, and nothing is measured beside them.
        let stop = Press::new("Stop saving").icon(Icon::Stop);
        let told = "Stock and the winner answer the same prompts before a profile is saved";
        if ui.add(stop.tooltip(told)).clicked() {
            saving.cancel(CancelMode::Now);
        }
        return;
    }
    let press = Press::new("Save profile").icon(Icon::Save).primary();
    if ui.add(press).clicked() {
        save(state, link, session);
    }
}

/// Stores a session's winner as a profile; what shows the session is read again. Where its output was never compared,
/// servers answer first: that takes its time, and can be cancelled.
fn save(state: &mut AppState, link: &Link, session: i64) {
    let cancel = CancelToken::new();
    state.history.saving = Some(cancel.clone());
    link.ask(
        Worker::System,
        move |ports| save_profile(session, ports, &cancel),
        |state, link, saved| {
            state.history.saving = None;
            match saved {
                Ok(profile) => {
                    state.say(format!(
                        "Saved as profile {}: `flux run` and Run server use it from now on",
                        profile.id
                    ));
                    tune::read_again(state, link, profile.session);
                    refresh(state, link);
                }
                Err(error) => state.complain(error.headline),
            }
        },
    );
}

/// Asks where to, and writes a session there.
fn export(link: &Link, session: i64, format: Format) {
    let name = format.file_name(session);
    link.choose(Choice::Save(name), move |_, link, path| {
        let shown = path.display().to_string();
        link.ask(
            Worker::Store,
            move |ports| report::export(session, format, &path, ports),
            move |state, _, written| match written {
                Ok(()) => state.say(format!("Written to {shown}")),
                Err(error) => state.complain(error.headline),
            },
        );
    });
}

/// Draws the page.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    /// A narrower page shows a session alone.
    const NARROW: f32 = 860.0;
    if state.history.page.is_unasked() {
        ask(state, cx.link);
    }
    if let (Some(session), true) = (state.history.open, state.history.view.is_unasked()) {
        ask_view(state, cx.link, session);
    }
    let alone = ui.available_width() < NARROW;
    if let Some(session) = state.history.open.filter(|_| alone) {
        detail::show(ui, state, cx, session, true);
        return;
    }
    head(ui, state, cx);
    match state.history.tab {
        Tab::Sessions => {
            list::show(ui, state, cx);
            if state.history.comparing.is_some() {
                compare::show(ui, state, cx);
            } else if let Some(session) = state.history.open {
                detail::show(ui, state, cx, session, false);
            }
        }
        Tab::Profiles => profiles::show(ui, state, cx),
    }
}

fn head(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let under = state.history.page.value().map_or_else(String::new, |page| {
        let sessions = grouped_count(page.total, "session");
        let samples = grouped_count(page.samples, "sample");
        format!("{sessions} · {samples} · nothing is ever overwritten")
    });
    page_header(ui, "History", &under, |ui| {
        let comparing = state.history.comparing.is_some();
        let words = if comparing {
            "Stop comparing"
        } else {
            "Compare two"
        };
        if ui.add(Press::new(words).icon(Icon::Compare)).clicked() {
            state.history.tab = Tab::Sessions;
            state.history.comparing = (!comparing).then(compare::State::default);
        }
        let mut text = state.history.filter.text.clone();
        let field = search_field(ui, &mut text, "Search the history", 190.0);
        if std::mem::take(&mut state.history.focus) {
            field.request_focus();
        }
        if text != state.history.filter.text {
            state.history.filter.text = text;
            filtered(state, cx.link);
        }
    });
    ui.horizontal_wrapped(|ui| {
        let own = state
            .history
            .profiles
            .value()
            .map_or(0, |lines| lines.len());
        let profiles = (own + state.history.imports.len()) as u64;
        let profiles = match profiles {
            0 => "Profiles".to_owned(),
            n => count(n, "profile"),
        };
        let tabs = [(Tab::Sessions, "Sessions"), (Tab::Profiles, &profiles)];
        segmented(ui, &mut state.history.tab, &tabs);
        if state.history.tab == Tab::Sessions {
            list::filters(ui, state, cx);
        }
    });
}

/// Another filter: from its first page on.
fn filtered(state: &mut AppState, link: &Link) {
    state.history.tab = Tab::Sessions;
    state.history.filter.offset = 0;
    ask(state, link);
}
