//! Every run of a session as a table; a run can be opened to see what its process said.

use eframe::egui::{ScrollArea, Ui};

use crate::domain::text::{clean, clean_lines, count, shell_command};
use crate::domain::types::RawOutput;
use crate::engine::message::JobError;
use crate::report::findings::ended;
use crate::ui::app::Cx;
use crate::ui::link::{Link, Worker};
use crate::ui::pages::lab;
use crate::ui::state::AppState;
use crate::ui::theme::icons::Icon;
use crate::ui::theme::{space, tokens};
use crate::ui::widgets::{
    Card, Column, Loadable, Press, Table, Width, caption, code, failed, label, loading_note,
};

use super::SessionView;
use super::view::RunRow;

/// Lines of a log that are drawn; all of it goes to the clipboard.
const LINES: usize = 200;
/// Tests that have a column of their own; the others are in the open run.
const COLUMNS: usize = 3;

/// The open run.
#[derive(Debug, Default)]
pub struct State {
    /// Which layouts of a kernel lab are shown.
    pub(super) layouts: lab::Chosen,
    run: Option<i64>,
    raw: Loadable<Option<Shown>>,
}

/// What a process left behind, ready to draw.
#[derive(Debug)]
struct Shown {
    command: String,
    ended: String,
    log: String,
    cut: u64,
    whole: String,
}

impl Shown {
    fn of(raw: &RawOutput) -> Self {
        let command = clean(&shell_command(&raw.env, &raw.argv));
        let output = [raw.stdout.as_str(), raw.stderr.as_str()];
        let printed: Vec<&str> = output.into_iter().filter(|text| !text.is_empty()).collect();
        let log = clean_lines(&printed.join("\n"));
        let lines: Vec<&str> = log.lines().collect();
        let cut = lines.len().saturating_sub(LINES);
        Self {
            ended: ended(raw),
            cut: cut as u64,
            whole: format!("$ {command}\n{log}"),
            log: lines[cut..].join("\n"),
            command,
        }
    }
}

/// The card.
pub fn card(ui: &mut Ui, view: &SessionView, state: &mut AppState, cx: &mut Cx) {
    if view.runs.is_empty() {
        return;
    }
    let runs = count(view.runs.len() as u64, "run");
    Card::new("Every run of this session")
        .caption(format!(
            "{runs} · mean of each, t/s · choose one for its samples and raw output"
        ))
        .show(ui, |ui| {
            let open = view
                .runs
                .iter()
                .position(|run| Some(run.id) == state.session.run);
            let until = open.map_or(view.runs.len(), |at| at + 1);
            let mut chosen = rows(ui, view, 0..until, open, true);
            if let Some(at) = open {
                details(ui, &view.runs[at], &state.session);
                chosen = chosen.or_else(|| rows(ui, view, until..view.runs.len(), open, false));
            }
            if let Some(row) = chosen {
                let id = view.runs[row].id;
                if state.session.run == Some(id) {
                    state.session.run = None;
                } else {
                    ask_raw(state, cx.link, id);
                }
            }
        });
}

fn rows(
    ui: &mut Ui,
    view: &SessionView,
    range: std::ops::Range<usize>,
    open: Option<usize>,
    head: bool,
) -> Option<usize> {
    let wide = ui.available_width() > 640.0;
    let tests = view.tests.iter().take(COLUMNS);
    let mut columns = vec![
        Column::right("#", Width::Fixed(34.0)),
        Column::left("Arm", Width::Share(2.0)),
    ];
    if wide {
        columns.push(Column::left("Stage", Width::Share(0.8)));
    }
    columns.extend(
        tests
            .clone()
            .map(|label| Column::right(label, Width::Share(0.7))),
    );
    columns.push(Column::right("Took", Width::Fixed(64.0)));
    columns.push(Column::left("State", Width::Share(0.8)));
    let name = |row: usize| {
        let run = &view.runs[range.start + row];
        format!("Run {}, {}, {}", run.number, run.arm, run.state)
    };
    let chosen = open.and_then(|at| at.checked_sub(range.start));
    let mut table = Table::new(if head { "runs" } else { "further runs" }, &columns);
    table = table.choosable(chosen, &name);
    if !head {
        table = table.headless();
    }
    let picked = table.show(ui, range.len(), |row, cells| {
        let run = &view.runs[range.start + row];
        cells.muted(run.number.to_string());
        cells.text(&run.arm);
        if wide {
            cells.muted(run.stage);
        }
        for value in run.values.iter().take(COLUMNS) {
            cells.text(value);
        }
        cells.muted(&run.took);
        let color = if run.valid { None } else { Some(()) };
        match color {
            None => cells.muted(&run.state),
            Some(()) => cells.add(|ui| {
                let t = tokens(ui);
                crate::ui::widgets::badge(ui, Some(Icon::Problem), &run.state, t.regressed);
            }),
        }
    });
    picked.map(|row| range.start + row)
}

fn ask_raw(state: &mut AppState, link: &Link, run: i64) {
    state.session.run = Some(run);
    state.session.raw = Loadable::Loading(None);
    link.ask(
        Worker::Store,
        move |ports| {
            let raw = ports.store.raw(run).map_err(JobError::from)?;
            Ok(raw.as_ref().map(Shown::of))
        },
        move |state, _, raw| {
            // Another run may have been opened meanwhile.
            if state.session.run == Some(run) {
                state.session.raw.answer(raw);
            }
        },
    );
}

fn details(ui: &mut Ui, run: &RunRow, state: &State) {
    ui.add_space(space::S);
    ui.indent("run", |ui| {
        ui.spacing_mut().item_spacing.y = space::XS;
        for line in &run.lines {
            label(ui, line);
        }
        match &state.raw {
            Loadable::Ready(Some(shown)) => raw(ui, shown),
            Loadable::Ready(None) => drop(caption(ui, "Its process left nothing behind")),
            Loadable::Failed(error, _) => failed(ui, error),
            _ => loading_note(ui, "Reading what its process said"),
        }
    });
    ui.add_space(space::S);
}

fn raw(ui: &mut Ui, shown: &Shown) {
    if !shown.command.is_empty() {
        code(ui, format!("$ {}", shown.command));
    }
    let cut = match shown.cut {
        0 => String::new(),
        n => format!(" · {} before these are in the copy", count(n, "line")),
    };
    ui.horizontal(|ui| {
        let copy = Press::new("Copy raw output").icon(Icon::Copy).quiet();
        if ui.add(copy).clicked() {
            ui.ctx().copy_text(shown.whole.clone());
        }
        caption(ui, format!("{}{cut}", shown.ended));
    });
    if !shown.log.is_empty() {
        ScrollArea::vertical()
            .id_salt("raw output")
            .max_height(280.0)
            .auto_shrink([false, true])
            .show(ui, |ui| code(ui, &shown.log));
    }
}
