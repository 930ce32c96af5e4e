//! Marks of status: always colour, icon and word together.

use eframe::egui::{
    Color32, CornerRadius, Response, Sense, Stroke, StrokeKind, Ui, WidgetInfo, accesskit::Role,
    pos2, vec2,
};

use crate::domain::doctor::Level;
use crate::domain::text::capitalised;
use crate::domain::types::Verdict;
use crate::ui::theme::icons::Icon;
use crate::ui::theme::{self, size, space, tokens};

use super::button::icon_at;

/// An outlined word with its icon.
pub fn badge(ui: &mut Ui, icon: Option<Icon>, word: &str, color: Color32) -> Response {
    let galley = ui
        .painter()
        .layout_no_wrap(word.to_owned(), theme::body(size::CAPTION), color);
    let icon_width = icon.map_or(0.0, |_| size::CAPTION + space::XS);
    let wanted = vec2(galley.size().x + icon_width + 2.0 * space::S, 20.0);
    let (rect, response) = ui.allocate_exact_size(wanted, Sense::hover());
    ui.painter().rect_stroke(
        rect.shrink(0.5),
        CornerRadius::same(4),
        Stroke::new(1.0, color.gamma_multiply(0.8)),
        StrokeKind::Inside,
    );
    let mut x = rect.left() + space::S;
    if let Some(icon) = icon {
        let at = pos2(x + size::CAPTION / 2.0, rect.center().y);
        icon_at(ui, icon, at, size::CAPTION, color);
        x += icon_width;
    }
    let at = pos2(x, rect.center().y - galley.size().y / 2.0);
    ui.painter().galley(at, galley, color);
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, word));
    response
}

/// A verdict.
pub fn verdict_badge(ui: &mut Ui, verdict: Verdict) -> Response {
    let color = tokens(ui).verdict(verdict);
    badge(
        ui,
        Some(Icon::verdict(verdict)),
        &capitalised(&verdict.to_string()),
        color,
    )
}

/// A pill that says what is there and what is not.
pub fn chip(ui: &mut Ui, icon: Option<Icon>, word: &str, present: bool) -> Response {
    let t = tokens(ui);
    let ink = if present { t.text } else { t.muted };
    let galley = ui
        .painter()
        .layout_no_wrap(word.to_owned(), theme::body(size::SMALL), ink);
    let icon_width = icon.map_or(0.0, |_| size::SMALL + space::XS);
    let wanted = vec2(galley.size().x + icon_width + 2.0 * space::M, 26.0);
    let (rect, response) = ui.allocate_exact_size(wanted, Sense::hover());
    ui.painter().rect_stroke(
        rect.shrink(0.5),
        CornerRadius::same(13),
        Stroke::new(1.0, t.hairline),
        StrokeKind::Inside,
    );
    let mut x = rect.left() + space::M;
    if let Some(icon) = icon {
        let color = if present { t.improved } else { t.muted };
        icon_at(
            ui,
            icon,
            pos2(x + size::SMALL / 2.0, rect.center().y),
            size::SMALL,
            color,
        );
        x += icon_width;
    }
    let at = pos2(x, rect.center().y - galley.size().y / 2.0);
    ui.painter().galley(at, galley, ink);
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, word));
    response
}

/// An icon and a line of text in its colour's company: the text itself stays in the text colour.
pub fn status(ui: &mut Ui, icon: Icon, color: Color32, text: &str) {
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = space::XS + 2.0;
        let (rect, _) =
            ui.allocate_exact_size(vec2(size::BODY * 1.2, size::BODY * 1.3), Sense::hover());
        icon_at(ui, icon, rect.center(), size::BODY, color);
        super::text::label(ui, text);
    });
}

/// Icon and colour of a finding's level.
pub fn level_mark(ui: &Ui, level: Level) -> (Icon, Color32) {
    let t = tokens(ui);
    match level {
        Level::Info => (Icon::Info, t.accent),
        Level::Warning => (Icon::Warning, t.warning),
        Level::Problem => (Icon::Problem, t.regressed),
    }
}
