//! A slider over the places of a list: label and value above a thin track. Arrow keys move it a place, Home and End to its
//! ends; a screen reader hears label and value.

use std::ops::RangeInclusive;

use eframe::egui::{
    Align2, CornerRadius, EventFilter, Key, Modifiers, Rect, Response, Sense, Ui, WidgetInfo,
    accesskit::{Action, Role},
    pos2, vec2,
};

use crate::ui::theme::{self, size, tokens};

use super::button::focus_ring;

/// Label and value, then the track.
const HEIGHT: f32 = 36.0;
const TRACK: f32 = 4.0;
const KNOB: f32 = 7.0;

/// Shows it; `position` is changed within `places`, and `words` are a position's value.
pub fn slider(
    ui: &mut Ui,
    label: &str,
    position: &mut usize,
    places: RangeInclusive<usize>,
    words: impl Fn(usize) -> String,
) -> Response {
    let (first, last) = (*places.start(), (*places.end()).max(*places.start()));
    let wanted = vec2(ui.available_width(), HEIGHT);
    let (rect, mut response) = ui.allocate_exact_size(wanted, Sense::click_and_drag());
    let before = *position;
    let track = Rect::from_min_size(
        pos2(rect.left(), rect.bottom() - KNOB - TRACK / 2.0),
        vec2(rect.width(), TRACK),
    );
    let span = (track.left() + KNOB, track.width() - 2.0 * KNOB);
    if let Some(pointer) = response.interact_pointer_pos() {
        let share = ((pointer.x - span.0) / span.1).clamp(0.0, 1.0);
        *position = first + (share * (last - first) as f32).round() as usize;
        response.request_focus();
    }
    keys(ui, &response, position, last);
    *position = (*position).clamp(first, last);
    if *position != before {
        response.mark_changed();
    }
    let value = words(*position);
    paint(
        ui,
        (rect, track),
        label,
        &value,
        knob_at(span, *position, first..=last),
    );
    if response.has_focus() {
        focus_ring(ui, rect.shrink2(vec2(0.0, 2.0)));
    }
    describe(ui, &response, label, &value, (*position, first, last));
    response
}

fn knob_at((left, width): (f32, f32), position: usize, places: RangeInclusive<usize>) -> f32 {
    let (first, last) = (*places.start(), *places.end());
    let share = (position - first) as f32 / (last - first).max(1) as f32;
    left + width * share
}

fn keys(ui: &Ui, response: &Response, position: &mut usize, last: usize) {
    let asked = |action| ui.input(|i| i.num_accesskit_action_requests(response.id, action));
    *position += asked(Action::Increment);
    *position = position.saturating_sub(asked(Action::Decrement));
    if !response.has_focus() {
        return;
    }
    let filter = EventFilter {
        horizontal_arrows: true,
        vertical_arrows: true,
        ..EventFilter::default()
    };
    ui.memory_mut(|m| m.set_focus_lock_filter(response.id, filter));
    let pressed = |key| ui.input_mut(|i| i.count_and_consume_key(Modifiers::NONE, key));
    *position += pressed(Key::ArrowRight) + pressed(Key::ArrowUp);
    *position = position.saturating_sub(pressed(Key::ArrowLeft) + pressed(Key::ArrowDown));
    if pressed(Key::Home) > 0 {
        *position = 0;
    }
    if pressed(Key::End) > 0 {
        *position = last;
    }
}

fn paint(ui: &Ui, (rect, track): (Rect, Rect), label: &str, value: &str, knob: f32) {
    let t = tokens(ui);
    let painter = ui.painter();
    let line = rect.top() + 10.0;
    painter.text(
        pos2(rect.left(), line),
        Align2::LEFT_CENTER,
        label,
        theme::body(size::BODY),
        t.muted,
    );
    painter.text(
        pos2(rect.right(), line),
        Align2::RIGHT_CENTER,
        value,
        theme::strong(size::BODY),
        t.text,
    );
    let corner = CornerRadius::same((TRACK / 2.0) as u8);
    painter.rect_filled(track, corner, t.raised);
    let done = Rect::from_min_max(track.min, pos2(knob, track.bottom()));
    painter.rect_filled(done, corner, t.accent);
    painter.circle_filled(pos2(knob, track.center().y), KNOB, t.text);
}

fn describe(
    ui: &Ui,
    response: &Response,
    label: &str,
    value: &str,
    (position, first, last): (usize, usize, usize),
) {
    response.widget_info(|| {
        let mut info = WidgetInfo::labeled(Role::Slider, true, label);
        info.value = Some(position as f64);
        info
    });
    ui.ctx().accesskit_node_builder(response.id, |node| {
        node.set_value(value);
        node.set_min_numeric_value(first as f64);
        node.set_max_numeric_value(last as f64);
        node.set_numeric_value_step(1.0);
        node.add_action(Action::Increment);
        node.add_action(Action::Decrement);
    });
}
