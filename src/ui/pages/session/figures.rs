//! The left column: what changed, in what order it was measured, every run, the ranking.

use eframe::egui::Ui;

use crate::domain::text::{CLIENTS_TITLES, SPECULATION_TITLES, capitalised};
use crate::report::figures::{ConfirmationFigures, StripFigure};
use crate::report::placements;
use crate::ui::charts;
use crate::ui::widgets::{Card, Cells, Column, Table, Width, caption, label, verdict_badge};

use super::SessionView;

/// The cards.
pub fn cards(ui: &mut Ui, view: &SessionView) {
    live(ui, view);
    placements(ui, view);
    for (at, confirmation) in view.confirmations.iter().enumerate() {
        // A session of several finalists: the one the verdict is of stands first, the others say whom they are about.
        let of = (at > 0).then_some(confirmation.title.as_str());
        judged(ui, view, confirmation, of, at);
    }
    if let Some(open) = &view.open {
        strip(ui, view, "Confirmation, not judged yet", open, "open");
    }
    if let Some(screening) = &view.screening {
        Card::new("Screening")
            .caption(&screening.caption)
            .show(ui, |ui| {
                charts::kept(ui, "screening", view.version, |width| {
                    screening.ranking.scene(width)
                });
            });
    }
}

/// What a benchmark predicted of placements, and what they ran at.
fn placements(ui: &mut Ui, view: &SessionView) {
    let (rows, error) = &view.placements;
    let mut widths = [2.6, 1.0, 1.0, 1.0, 1.0, 1.8].into_iter().map(Width::Share);
    let columns = placements::TITLES.map(|(title, is_rate)| {
        let width = widths.next().unwrap_or(Width::Share(1.0));
        let column = if is_rate { Column::right } else { Column::left };
        column(title, width)
    });
    let title = (placements::TITLE, "placements");
    table(ui, title, columns, rows, error, |row, cells| {
        for cell in row {
            cells.text(cell);
        }
    });
}

/// What was measured through live servers: a verdict and both arms of every metric, or a row per number of clients.
fn live(ui: &mut Ui, view: &SessionView) {
    if !view.live.is_empty() {
        Card::new("Through a live server").show(ui, |ui| {
            let columns = [
                Column::left("Metric", Width::Share(1.0)),
                Column::left("Verdict", Width::Fixed(112.0)),
                Column::right("Stock → candidate", Width::Fixed(150.0)),
                Column::right("Change", Width::Fixed(170.0)),
            ];
            Table::new("live metrics", &columns)
                .wrap()
                .show(ui, view.live.len(), |row, cells| {
                    let line = &view.live[row];
                    cells.text(&line.title);
                    cells.add(|ui| drop(verdict_badge(ui, line.verdict)));
                    cells.text(&line.values);
                    cells.text(&line.change);
                });
            caption(ui, "Of a time, a minus is what is saved of it");
        });
    }
    table(
        ui,
        ("Several clients", "clients"),
        CLIENTS_TITLES.map(|title| Column::right(title, Width::Share(1.0))),
        &view.clients,
        "One server with as many slots as clients; ± is one standard deviation of its servers",
        |row, cells| {
            for cell in row {
                cells.text(cell);
            }
        },
    );
    let share = Width::Share;
    let widths = [
        share(1.4),
        share(0.6),
        Width::Fixed(112.0),
        share(1.4),
        share(1.9),
        share(1.6),
    ];
    let mut widths = widths.into_iter();
    table(
        ui,
        ("Speculation", "speculation"),
        SPECULATION_TITLES.map(|title| Column::left(title, widths.next().unwrap_or(share(1.0)))),
        &view.speculation,
        "Against the same settings without it, every request another text",
        |(verdict, [kind, text, word, rest @ ..]), cells| {
            cells.text(kind);
            cells.text(text);
            match verdict {
                Some(verdict) => cells.add(|ui| drop(verdict_badge(ui, *verdict))),
                None => cells.text(word),
            }
            for cell in rest {
                cells.text(cell);
            }
        },
    );
}

/// A card with a table, where there is a row of it.
fn table<Row, const N: usize>(
    ui: &mut Ui,
    (title, id): (&str, &str),
    columns: [Column; N],
    rows: &[Row],
    under: &str,
    write: impl Fn(&Row, &mut Cells),
) {
    if rows.is_empty() {
        return;
    }
    Card::new(title).show(ui, |ui| {
        Table::new(id, &columns)
            .wrap()
            .show(ui, rows.len(), |row, cells| write(&rows[row], cells));
        caption(ui, under);
    });
}

fn judged(
    ui: &mut Ui,
    view: &SessionView,
    confirmation: &ConfirmationFigures,
    of: Option<&str>,
    at: usize,
) {
    let title = of.map_or_else(
        || format!("Change against {}", confirmation.baseline),
        str::to_owned,
    );
    let effect = confirmation.hedges_g.map_or_else(String::new, |g| {
        format!(" · Hedges’ g {g:.1}").replace('-', "−")
    });
    let band = format!("band ±1 %: below it nothing is kept{effect}");
    Card::new(&title).caption(band).show(ui, |ui| {
        match &confirmation.intervals {
            Some(intervals) => {
                let id = format!("intervals {at}");
                charts::kept(ui, &id, view.version, |width| intervals.scene(width));
            }
            None => drop(label(ui, &confirmation.reason)),
        }
        if of.is_some() && confirmation.intervals.is_some() {
            let verdict = confirmation.verdict.map_or_else(String::new, |v| {
                format!("{}: ", capitalised(&v.to_string()))
            });
            caption(ui, format!("{verdict}{}", confirmation.reason));
        }
    });
    if let Some(figure) = &confirmation.strip {
        let id = format!("strip {at}");
        strip(ui, view, "Confirmation, in the order it ran", figure, &id);
    }
    for samples in &confirmation.samples {
        Card::new(&format!("Every run, {}", samples.label))
            .caption(&samples.caption)
            .show(ui, |ui| {
                let id = format!("samples {at} {}", samples.label);
                charts::kept(ui, &id, view.version, |width| samples.samples.scene(width));
            });
    }
}

fn strip(ui: &mut Ui, view: &SessionView, title: &str, figure: &StripFigure, id: &str) {
    Card::new(title).show(ui, |ui| {
        charts::kept(ui, id, view.version, |width| figure.strip.scene(width));
        caption(ui, &figure.caption);
    });
}
