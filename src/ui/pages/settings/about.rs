//! Version, and the licences of what is inside.

use eframe::egui::{Align, ScrollArea, Ui};

use crate::ui::state::AppState;
use crate::ui::theme::icons::Icon;
use crate::ui::widgets::{Card, Press, caption, code, label};

/// What is inside, its licence, and the licence's text.
const LICENCES: &[(&str, &str, &str)] = &[
    (
        "Flux",
        "Apache 2.0",
        include_str!("../../../../assets/licenses/Apache-2.0.txt"),
    ),
    (
        "Flux",
        "MIT",
        include_str!("../../../../assets/licenses/MIT.txt"),
    ),
    (
        "Inter",
        "OFL 1.1",
        include_str!("../../../../assets/licenses/inter-OFL-1.1.txt"),
    ),
    (
        "JetBrains Mono",
        "Apache 2.0",
        include_str!("../../../../assets/licenses/Apache-2.0.txt"),
    ),
    (
        "Lucide icons",
        "ISC",
        include_str!("../../../../assets/licenses/lucide-ISC.txt"),
    ),
];
/// Height of a licence's text, points.
const HEIGHT: f32 = 280.0;

/// Draws the section.
pub fn show(ui: &mut Ui, state: &mut AppState, height: f32) {
    Card::new("About").min_height(height).show(ui, |ui| {
        label(ui, format!("Flux {}", env!("CARGO_PKG_VERSION")));
        caption(ui, "Licences of Flux and of what is inside");
        ui.horizontal_wrapped(|ui| {
            for (at, (what, licence, _)) in LICENCES.iter().enumerate() {
                if ui.add(Press::new(&format!("{what} · {licence}"))).clicked() {
                    let shown = state.settings_page.licence == Some(at);
                    state.settings_page.licence = (!shown).then_some(at);
                    state.settings_page.licence_opened = !shown;
                }
            }
        });
    });
}

/// Draws the licence chosen.
pub fn licence(ui: &mut Ui, state: &mut AppState) {
    let chosen = state.settings_page.licence.and_then(|at| LICENCES.get(at));
    let Some((what, licence, text)) = chosen else {
        return;
    };
    if std::mem::take(&mut state.settings_page.licence_opened) {
        ui.scroll_to_cursor(Some(Align::TOP));
    }
    Card::new(what).caption(*licence).show(ui, |ui| {
        let area = ScrollArea::vertical().id_salt(what).max_height(HEIGHT);
        area.auto_shrink([false, true]).show(ui, |ui| {
            // Paragraph by paragraph: a screen reader takes one at a time.
            for paragraph in text.split("\n\n") {
                code(ui, paragraph.trim_matches('\n'));
            }
        });
        if ui
            .add(Press::new("Close the licence").icon(Icon::Close))
            .clicked()
        {
            state.settings_page.licence = None;
        }
    });
}
