//! The list: filters, one line a session, pages.

use eframe::egui::{Color32, Label, RichText, ScrollArea, Ui};

use crate::domain::text::{
    capitalised, change, clean, decimals_for, grouped, moment, signed, when,
};
use crate::domain::types::{Timestamp, Verdict};
use crate::engine::profiles::Standing as ProfileStanding;
use crate::ports::{SessionFilter, SessionKind, SessionLine, SessionState, Standing};
use crate::ui::app::{Cx, Order};
use crate::ui::command::UiCommand;
use crate::ui::pages::tune;
use crate::ui::state::AppState;
use crate::ui::theme::icons::Icon;
use crate::ui::theme::{space, tokens};
use crate::ui::widgets::{
    Card, Cells, Column, Press, Table, Width, badge, caption, empty, failed, label, loading_note,
    muted, select, status, verdict_badge,
};

use super::{State, ask, compare, filtered, standing_words};

/// Rows left in sight above an open session.
const ROWS_ABOVE: f32 = 7.0;

/// The filters.
pub fn filters(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let filter = &mut state.history.filter;
    let before = filter.clone();
    let word = |verdict: Verdict| (Some(verdict), verdict.to_string());
    let verdicts = [
        (None, "Any verdict".to_owned()),
        word(Verdict::Improved),
        word(Verdict::Unchanged),
        word(Verdict::Regressed),
        word(Verdict::Inconclusive),
    ];
    select(ui, "Verdict", &mut filter.verdict, &verdicts);
    let kinds = [
        (None, "Any kind".to_owned()),
        (Some(SessionKind::Tune), "tune".to_owned()),
        (Some(SessionKind::Ab), "ab".to_owned()),
        (Some(SessionKind::Plan), "plan".to_owned()),
        (Some(SessionKind::Lab), "lab".to_owned()),
        (Some(SessionKind::ServeCheck), "serve-check".to_owned()),
    ];
    select(ui, "Kind", &mut filter.kind, &kinds);
    let ended = |state| Some(Standing::Ended(state));
    let standings = [
        (None, "However it ended".to_owned()),
        (ended(SessionState::Done), "with a result".to_owned()),
        (ended(SessionState::Cancelled), "cancelled".to_owned()),
        (ended(SessionState::Failed), "failed".to_owned()),
        (Some(Standing::Open), "not finished".to_owned()),
    ];
    select(ui, "Standing", &mut filter.standing, &standings);
    if state.history.filter != before {
        filtered(state, cx.link);
    }
    if is_filtered(&state.history.filter)
        && ui
            .add(Press::new("Clear filters").icon(Icon::Close).quiet())
            .clicked()
    {
        state.history.filter = SessionFilter::default();
        filtered(state, cx.link);
    }
}

fn is_filtered(filter: &SessionFilter) -> bool {
    let first = SessionFilter {
        offset: 0,
        ..filter.clone()
    };
    first != SessionFilter::default()
}

/// The sessions, or why there are none.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    stale(ui, state, cx);
    if let Some(error) = state.history.page.error().cloned() {
        Card::bare().show(ui, |ui| {
            failed(ui, &error);
            if ui.add(Press::new("Read again").icon(Icon::Again)).clicked() {
                ask(state, cx.link);
            }
        });
    }
    let Some(page) = state.history.page.value() else {
        if state.history.page.error().is_none() {
            Card::bare().show(ui, |ui| loading_note(ui, "Reading the history"));
        }
        return;
    };
    if page.lines.is_empty() {
        let filtered = is_filtered(&state.history.filter);
        Card::bare().show(ui, |ui| {
            if filtered {
                muted(ui, "No session passes the filters");
            } else if empty(ui, Icon::History, "No session yet", Some("Tune a model")) {
                cx.order(Order::Ui(UiCommand::NewTune));
            }
        });
        return;
    }
    let mut chosen = None;
    Card::bare().show(ui, |ui| {
        let now = cx.link.ports().clock.now();
        let below = state.history.open.is_some() || state.history.comparing.is_some();
        let table = |ui: &mut Ui| table(ui, &state.history, now);
        // A scroll area keeps what is to be brought into view to itself, so the page's own list has none.
        chosen = if below {
            let short = ScrollArea::vertical().max_height(ROWS_ABOVE * space::ROW);
            let short = short.id_salt("sessions").auto_shrink([false, true]);
            short.show(ui, table).inner
        } else {
            table(ui)
        };
    });
    pages(ui, state, cx);
    if let Some(session) = chosen {
        match &mut state.history.comparing {
            Some(comparing) => compare::pick(comparing, cx.link, session),
            None if state.history.open == Some(session) => state.history.open(None),
            None => state.history.open(Some(session)),
        }
    }
}

/// The newest profile does not hold any more: said where results are looked for.
fn stale(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let Some(line) = state.history.newest_profile() else {
        return;
    };
    if !matches!(line.standing, ProfileStanding::Stale(_)) {
        return;
    }
    let (_, words) = standing_words(&line.standing);
    let (path, goal) = (line.model_path.clone(), line.profile.goal);
    let title = format!("Profile {} is {words}", line.profile.id);
    let model = clean(&line.model);
    Card::bare().show(ui, |ui| {
        status(ui, Icon::Warning, tokens(ui).warning, &title);
        label(ui, format!("It was measured for {model} on this machine as it was, and is not used as it is now"));
        ui.horizontal(|ui| {
            if ui.add(Press::new("Measure again").icon(Icon::Again)).clicked() {
                tune::measure_again(cx.link, path, goal);
            }
        });
    });
}

fn table(ui: &mut Ui, history: &State, now: Timestamp) -> Option<i64> {
    let lines = &history.page.value()?.lines;
    let width = ui.available_width();
    let (wide, wider) = (width > 800.0, width > 1000.0);
    let columns = columns(history, wide, wider);
    let picked = |session: i64| {
        let picks = &history.comparing.as_ref()?.picks;
        let is = |at: usize| picks.get(at).is_some_and(|(id, _)| *id == session);
        match (is(0), is(1)) {
            (true, true) => Some("A B"),
            (true, false) => Some("A"),
            (false, true) => Some("B"),
            (false, false) => None,
        }
    };
    let name = |row: usize| {
        let line = &lines[row];
        let state = verdict_words(line);
        format!("Session {}, {}, {state}", line.id, clean(&line.model))
    };
    let chosen = lines.iter().position(|line| match &history.comparing {
        Some(_) => picked(line.id).is_some(),
        None => Some(line.id) == history.open,
    });
    let clicked = Table::new("sessions", &columns)
        .choosable(chosen, &name)
        .in_sight()
        .show(ui, lines.len(), |row, cells| {
            let line = &lines[row];
            began(cells, history, line, now, picked(line.id));
            cells.text(clean(&line.model));
            if wider {
                cells.muted(clean(&line.runtime));
            }
            cells.muted(match line.kind {
                SessionKind::Tune => line.goal.to_string(),
                SessionKind::Lab => line.kind.word().to_owned(),
                kind => format!("{}, {}", line.goal, kind.word()),
            });
            cells.add(|ui| outcome(ui, line));
            figures(cells, line, wide);
            profile(cells, history, line);
        });
    clicked.map(|row| lines[row].id)
}

fn columns(history: &State, wide: bool, wider: bool) -> Vec<Column<'static>> {
    let when = if history.comparing.is_some() {
        150.0
    } else {
        112.0
    };
    let mut columns = vec![
        Column::left("When", Width::Fixed(when)),
        Column::left("Model", Width::Share(1.8)),
    ];
    if wider {
        columns.push(Column::left("Build", Width::Share(0.9)));
    }
    columns.extend([
        Column::left("Goal", Width::Share(0.9)),
        Column::left("Verdict", Width::Fixed(112.0)),
        Column::right("Change", Width::Fixed(72.0)),
    ]);
    if wide {
        columns.push(Column::right("95 % interval", Width::Fixed(116.0)));
    }
    columns.push(Column::left("Profile", Width::Share(1.7)));
    columns
}

fn began(
    cells: &mut Cells,
    history: &State,
    line: &SessionLine,
    now: Timestamp,
    picked: Option<&str>,
) {
    cells.add(|ui| {
        let t = tokens(ui);
        if let Some(side) = picked {
            badge(ui, None, side, t.accent);
        }
        let words = history.zone.as_ref().map_or_else(
            || moment(line.started_at),
            |zone| when(line.started_at, now, zone),
        );
        label(ui, words).on_hover_text(format!("Session {}, {}", line.id, moment(line.started_at)));
    });
}

fn verdict_words(line: &SessionLine) -> String {
    match (line.verdict, line.state) {
        (Some(verdict), _) => verdict.to_string(),
        (None, Some(SessionState::Cancelled)) => "cancelled".to_owned(),
        (None, Some(SessionState::Failed)) => "failed".to_owned(),
        (None, Some(SessionState::Done)) => "no verdict".to_owned(),
        (None, None) => "not finished".to_owned(),
    }
}

fn outcome(ui: &mut Ui, line: &SessionLine) {
    let t = tokens(ui);
    if let Some(verdict) = line.verdict {
        verdict_badge(ui, verdict);
        return;
    }
    let (icon, color) = match line.state {
        Some(SessionState::Failed) => (Icon::Problem, t.regressed),
        Some(SessionState::Cancelled) => (Icon::Stop, t.unchanged),
        _ => (Icon::Clock, t.unchanged),
    };
    badge(ui, Some(icon), &capitalised(&verdict_words(line)), color);
}

fn figures(cells: &mut Cells, line: &SessionLine, wide: bool) {
    let decimals = line
        .ci95_pct
        .map_or(0, |[lo, hi]| decimals_for((hi - lo) / 2.0));
    match line.change_pct {
        Some(pct) => cells.text(change(pct, decimals)),
        None => cells.muted("–"),
    }
    if wide {
        cells.muted(line.ci95_pct.map_or_else(
            || "–".to_owned(),
            |[lo, hi]| format!("[{}, {}]", signed(lo, decimals), signed(hi, decimals)),
        ));
    }
}

fn profile(cells: &mut Cells, history: &State, line: &SessionLine) {
    match (line.profile, line.state) {
        (Some(id), _) => match history.standing(id) {
            Some(standing) => {
                let (current, words) = standing_words(standing);
                if current {
                    cells.muted(words);
                } else {
                    cells.add(|ui| {
                        let t = tokens(ui);
                        mark(ui, Icon::Warning, t.warning);
                        let text = RichText::new(&words).color(t.warning);
                        ui.add(Label::new(text).truncate()).on_hover_text(words);
                    });
                }
            }
            None => cells.muted("saved"),
        },
        (None, Some(SessionState::Done)) if line.kind == SessionKind::Tune => {
            cells.muted("not saved");
        }
        _ => cells.muted("–"),
    }
}

fn mark(ui: &mut Ui, icon: Icon, color: Color32) {
    ui.add(Label::new(RichText::new(icon.glyph()).color(color)));
}

fn pages(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let Some(page) = state.history.page.value() else {
        return;
    };
    let (shown, total) = (page.lines.len() as u64, page.total);
    let filter = &mut state.history.filter;
    let (from, size) = (u64::from(filter.offset), filter.limit);
    if total <= shown && from == 0 {
        return;
    }
    let mut turned = false;
    ui.horizontal(|ui| {
        let newest = (from == 0).then_some("These are the newest");
        let newer = Press::new("Newer sessions").icon(Icon::Left).unless(newest);
        if ui.add(newer).clicked() {
            filter.offset = filter.offset.saturating_sub(size);
            turned = true;
        }
        caption(
            ui,
            format!(
                "{}–{} of {}",
                grouped(from + 1),
                grouped(from + shown),
                grouped(total)
            ),
        );
        let oldest = (from + shown >= total).then_some("These are the oldest");
        let older = Press::new("Older sessions")
            .icon(Icon::Right)
            .unless(oldest);
        if ui.add(older).clicked() {
            filter.offset += size;
            turned = true;
        }
    });
    if turned {
        ask(state, cx.link);
    }
}
