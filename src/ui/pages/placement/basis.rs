//! What the prediction rests on: every constant, its value, and whether it was measured, fitted or assumed.

use eframe::egui::Ui;

use crate::domain::placement::speed::Status;
use crate::domain::text::{clean, count, three_digits};
use crate::engine::plan::{FitDocument, told};
use crate::ui::theme::icons::Icon;
use crate::ui::theme::tokens;
use crate::ui::widgets::{Card, Column, Press, Table, Width, muted, status};

use super::State;
use super::model::Model;

/// Draws the card.
pub(super) fn show(ui: &mut Ui, page: &mut State, model: &Model) {
    Card::new("What the prediction rests on").show(ui, |ui| {
        muted(ui, summary(model));
        if let Some(errors) = told(&model.base.errors) {
            muted(ui, errors);
        }
        let (words, icon) = if page.open {
            ("Hide the constants", Icon::Down)
        } else {
            ("Show the constants", Icon::Right)
        };
        if ui.add(Press::new(words).icon(icon).link()).clicked() {
            page.open = !page.open;
        }
        if page.open {
            constants(ui, model);
        }
    });
}

fn summary(model: &Model) -> String {
    let of = |wanted| {
        let all = model.base.fit.constants.values();
        all.filter(|known| known.status == wanted).count()
    };
    format!(
        "{} · {} measured, {} fitted, {} assumed",
        count(model.base.fit.constants.len() as u64, "constant"),
        of(Status::Measured),
        of(Status::Fitted),
        of(Status::Assumed)
    )
}

fn constants(ui: &mut Ui, model: &Model) {
    let known = FitDocument::of(&model.base).constants;
    let columns = [
        Column::left("Constant", Width::Share(1.2)),
        Column::right("Value", Width::Fixed(76.0)),
        Column::left("Unit", Width::Fixed(56.0)),
        Column::left("Status", Width::Fixed(100.0)),
        Column::left("From", Width::Share(2.0)),
    ];
    let t = tokens(ui);
    Table::new("constants", &columns)
        .wrap()
        .show(ui, known.len(), |i, cells| {
            let constant = &known[i];
            cells.text(clean(&constant.name));
            cells.text(
                constant
                    .value
                    .map_or_else(|| "no limit".to_owned(), three_digits),
            );
            cells.muted(constant.unit.as_str());
            cells.add(|ui| match constant.status {
                Status::Measured => status(ui, Icon::Check, t.improved, "measured"),
                Status::Fitted => status(ui, Icon::Check, t.accent, "fitted"),
                Status::Assumed => status(ui, Icon::Inconclusive, t.muted, "assumed"),
            });
            cells.muted(clean(&constant.origin));
        });
}
