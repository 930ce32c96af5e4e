//! A session's evidence: figures, why each setting is there, what was rejected, every run. The wizard's result and the
//! history show the same.

mod figures;
mod findings;
mod runs;
mod view;

use eframe::egui::Ui;

use crate::ui::app::Cx;
use crate::ui::pages::lab;
use crate::ui::state::AppState;
use crate::ui::theme::space;
use crate::ui::widgets::columns;

pub use findings::not_tried;
pub use runs::State;
pub use view::SessionView;

/// Draws it under the verdict that the page has said.
pub fn show(ui: &mut Ui, view: &SessionView, state: &mut AppState, cx: &mut Cx) {
    if let Some(lab) = &view.lab {
        lab::cards(ui, lab, &mut state.session.layouts);
        return;
    }
    findings::meaning(ui, view);
    if !view.has_findings() {
        figures::cards(ui, view);
    } else if is_narrow(ui) {
        figures::cards(ui, view);
        findings::cards(ui, view, &state.settings);
    } else {
        columns(ui, "evidence", &[1.6, 1.0], |column, ui, _| {
            ui.spacing_mut().item_spacing.y = space::L;
            match column {
                0 => figures::cards(ui, view),
                _ => findings::cards(ui, view, &state.settings),
            }
        });
    }
    runs::card(ui, view, state, cx);
    findings::place(ui, view);
}

/// Cards stand below each other: beside each other they would be too narrow for their words.
fn is_narrow(ui: &Ui) -> bool {
    const NARROW: f32 = 860.0;
    ui.available_width() < NARROW
}
