//! The wizard's steps, and the line that shows where one is.

use eframe::egui::{
    Align2, CornerRadius, CursorIcon, Rect, Sense, Stroke, Ui, WidgetInfo, accesskit::Role, pos2,
    vec2,
};

use crate::ui::theme::icons::Icon;
use crate::ui::theme::{self, size, space, tokens};

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Step {
    /// Which model, on which build.
    #[default]
    Model,
    /// What is to become faster, and what may change.
    Goal,
    /// What will be tried.
    Candidates,
    /// One candidate after the other.
    Screening,
    /// The best against stock, interleaved.
    Confirmation,
    /// The verdict.
    Result,
}

/// Every step in order.
const STEPS: [(Step, &str); 6] = [
    (Step::Model, "Model"),
    (Step::Goal, "Goal"),
    (Step::Candidates, "Candidates"),
    (Step::Screening, "Screening"),
    (Step::Confirmation, "Confirmation"),
    (Step::Result, "Result"),
];

/// Shows the steps; returns one that was chosen among those `open` to be looked at.
pub fn line(ui: &mut Ui, current: Step, open: impl Fn(Step) -> bool) -> Option<Step> {
    let mut chosen = None;
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = space::S;
        for (number, (step, name)) in (1..).zip(STEPS) {
            if number > 1 {
                let (rect, _) = ui.allocate_exact_size(vec2(24.0, 22.0), Sense::hover());
                let stroke = Stroke::new(1.0, tokens(ui).hairline);
                ui.painter().hline(rect.x_range(), rect.center().y, stroke);
            }
            if one(ui, number, name, step.cmp(&current), open(step)) {
                chosen = Some(step);
            }
        }
    });
    chosen
}

fn one(ui: &mut Ui, number: u32, name: &str, order: std::cmp::Ordering, open: bool) -> bool {
    const RADIUS: f32 = 10.0;
    let t = tokens(ui);
    let is_current = order.is_eq();
    let font = if is_current {
        theme::strong(size::BODY)
    } else {
        theme::body(size::BODY)
    };
    let ink = if is_current { t.text } else { t.muted };
    let galley = ui.painter().layout_no_wrap(name.to_owned(), font, ink);
    let wanted = vec2(2.0 * RADIUS + space::S + galley.size().x, 24.0);
    let sense = if open { Sense::click() } else { Sense::hover() };
    let (rect, response) = ui.allocate_exact_size(wanted, sense);
    let center = pos2(rect.left() + RADIUS, rect.center().y);
    let (fill, on) = match order {
        std::cmp::Ordering::Less => (t.improved, t.card),
        std::cmp::Ordering::Equal => (t.accent, t.on_accent),
        std::cmp::Ordering::Greater => (t.raised, t.muted),
    };
    let painter = ui.painter();
    painter.circle_filled(center, RADIUS, fill);
    let mark = if order.is_lt() {
        Icon::Check.glyph().to_string()
    } else {
        number.to_string()
    };
    painter.text(
        center,
        Align2::CENTER_CENTER,
        mark,
        theme::strong(size::CAPTION),
        on,
    );
    let at = pos2(
        rect.left() + 2.0 * RADIUS + space::S,
        rect.center().y - galley.size().y / 2.0,
    );
    painter.galley(at, galley, ink);
    if response.has_focus() {
        let around = Rect::from_min_max(rect.min, rect.max).expand(2.0);
        let stroke = Stroke::new(2.0, t.accent);
        let corner = CornerRadius::same(space::CONTROL_RADIUS);
        painter.rect_stroke(around, corner, stroke, eframe::egui::StrokeKind::Outside);
    }
    let label = format!("Step {number}, {name}");
    response.widget_info(|| WidgetInfo::selected(Role::Tab, open, is_current, &label));
    if open {
        response.on_hover_cursor(CursorIcon::PointingHand).clicked()
    } else {
        false
    }
}
