//! The best of each tier, what was measured, and stock where it does not fit. Choosing a row shows it.

use eframe::egui::{Align, Color32, Layout, Ui};

use crate::domain::text::three_digits;
use crate::domain::types::Bytes;
use crate::ui::theme::icons::Icon;
use crate::ui::theme::{Tokens, tokens};
use crate::ui::widgets::{
    Card, Cells, Column, Press, Table, Width, failed, loading_note, muted, status,
};

use super::State;
use super::model::{Looked, Model, Row};
use super::words;

/// Rows shown before all are asked for: a page's height.
const SHOWN: usize = 8;

/// Draws the card.
pub(super) fn show(ui: &mut Ui, page: &mut State, model: &Model, height: f32) {
    Card::new("Candidates")
        .caption("tokens per second · choose one to look at it")
        .min_height(height)
        .show(ui, |ui| match page.rows.value().cloned() {
            Some(rows) => {
                if let Some(row) = table(ui, page, model, &rows.rows) {
                    page.looked = Some(looked(row));
                    if row.candidate.context.type_k != "f16" {
                        page.limits.allow_kv_quant = true;
                    }
                }
            }
            None => match page.rows.error() {
                Some(error) => failed(ui, error),
                None => loading_note(ui, "Judging hundreds of placements"),
            },
        });
}

fn looked(row: &Row) -> Looked {
    Looked {
        placement: row.candidate.placement.clone(),
        context: row.candidate.context.clone(),
    }
}

fn table<'r>(ui: &mut Ui, page: &mut State, model: &Model, rows: &'r [Row]) -> Option<&'r Row> {
    if rows.is_empty() {
        muted(
            ui,
            "No placement of this model fits the memory that may be used",
        );
        return None;
    }
    let columns = [
        Column::left("Tier", Width::Fixed(130.0)),
        Column::left("Placement", Width::Share(1.0)),
        Column::right("ub", Width::Fixed(34.0)),
        Column::right("Predicted", Width::Fixed(56.0)),
        Column::right("Measured", Width::Fixed(68.0)),
        Column::left("Status", Width::Fixed(126.0)),
    ];
    let name = |i: usize| {
        let row = &rows[i];
        let ub = row.candidate.context.micro_batch;
        format!("{}, {}, micro-batch {ub}", tier(row), placement(row, model))
    };
    let chosen = rows
        .iter()
        .position(|r| page.looked.as_ref() == Some(&looked(r)));
    let t = tokens(ui);
    let all = page.all_rows || rows.len() <= SHOWN + 1 || chosen.is_some_and(|i| i >= SHOWN);
    let count = if all { rows.len() } else { SHOWN };
    let shown = Table::new("placements", &columns).choosable(chosen, &name);
    let clicked = shown.show(ui, count, |i, cells| cells_of(cells, &rows[i], model, t));
    if !all {
        let words = format!("Show all {}", rows.len());
        page.all_rows = ui
            .add(Press::new(&words).icon(Icon::Right).link())
            .clicked();
    }
    clicked.map(|i| &rows[i])
}

fn tier(row: &Row) -> String {
    if row.stock {
        "Stock llama.cpp".to_owned()
    } else {
        words::tier(row.candidate.tier)
    }
}

fn placement(row: &Row, model: &Model) -> String {
    if row.stock {
        let over = row.candidate.memory.iter().find(|m| m.excess() > Bytes(0));
        over.map_or_else(
            || "needs too large a buffer".to_owned(),
            |m| format!("needs {:.2} of {}", m.total().as_gib(), m.usable),
        )
    } else {
        words::placed(model, &looked(row))
    }
}

fn cells_of(cells: &mut Cells, row: &Row, model: &Model, t: &Tokens) {
    cells.text(tier(row));
    cells.muted(placement(row, model));
    cells.muted(row.candidate.context.micro_batch.to_string());
    if row.candidate.fits() {
        cells.text(three_digits(row.candidate.predicted.tg));
    } else {
        cells.muted("–");
    }
    match &row.measured {
        Some(measured) => cells.text(measured.text()),
        None => cells.muted("–"),
    }
    let (icon, color, word) = standing(row, t);
    cells.add(|ui| {
        ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
            status(ui, icon, color, word);
        });
    });
}

/// How a row is known.
fn standing(row: &Row, t: &Tokens) -> (Icon, Color32, &'static str) {
    if row.stock {
        return (Icon::Problem, t.regressed, "stock fails here");
    }
    match &row.measured {
        _ if !row.candidate.fits() => (Icon::Problem, t.regressed, "does not fit"),
        Some(_) if row.confirmed => (Icon::Confirmed, t.improved, "confirmed"),
        Some(_) => (Icon::Check, t.accent, "measured"),
        None => (Icon::Inconclusive, t.muted, "predicted"),
    }
}
