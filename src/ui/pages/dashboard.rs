//! The Dashboard page: what the sensors say, live or of a stored session.

use eframe::egui::Ui;

use crate::ui::app::Cx;
use crate::ui::state::AppState;
use crate::ui::widgets::page_header;

/// The page's own state.
#[derive(Debug, Default)]
pub struct State {}

/// Draws the page.
pub fn show(ui: &mut Ui, _state: &mut AppState, _cx: &mut Cx) {
    page_header(ui, "Dashboard", "", |_| {});
}
