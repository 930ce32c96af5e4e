//! Form controls with their labels tied to them.

use std::ops::RangeInclusive;

use eframe::egui::{
    Align, ComboBox, CornerRadius, DragValue, Label, Layout, ProgressBar, Rect, Response, RichText,
    Sense, Stroke, StrokeKind, TextEdit, Ui, WidgetInfo, accesskit::Role, emath::Numeric, pos2,
    vec2,
};

use crate::ui::theme::{self, size, space, tokens};

use super::button::focus_ring;
use super::text::caption;

/// A labelled control with a line of help below; the label names the control for screen readers.
pub fn field(
    ui: &mut Ui,
    label: &str,
    help: &str,
    control: impl FnOnce(&mut Ui) -> Response,
) -> Response {
    let narrow = ui.available_width() < 480.0;
    let color = tokens(ui).text;
    let words = |ui: &mut Ui| {
        ui.vertical(|ui| {
            ui.spacing_mut().item_spacing.y = 2.0;
            let text = RichText::new(label)
                .font(theme::body(size::BODY))
                .color(color);
            let id = ui.add(Label::new(text)).id;
            if !help.is_empty() {
                caption(ui, help);
            }
            id
        })
        .inner
    };
    let response = if narrow {
        let id = words(ui);
        control(ui).labelled_by(id)
    } else {
        ui.horizontal(|ui| {
            let room = ui.available_width();
            let id = ui
                .allocate_ui_with_layout(
                    vec2(room * 0.5, 0.0),
                    Layout::top_down(Align::Min),
                    |ui| {
                        ui.set_width(room * 0.5);
                        words(ui)
                    },
                )
                .inner;
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                control(ui).labelled_by(id)
            })
            .inner
        })
        .inner
    };
    ui.add_space(space::XS);
    response
}

/// A row of choices of which one holds.
pub fn segmented<T: Copy + PartialEq>(
    ui: &mut Ui,
    value: &mut T,
    choices: &[(T, &str)],
) -> Response {
    // As wide as its parts: at the right end of a row they keep their order.
    let parts = choices.iter().map(|(_, label)| segment_width(ui, label));
    let width = parts.sum::<f32>() + space::XS * choices.len().saturating_sub(1) as f32;
    let layout = Layout::left_to_right(Align::Center);
    let before = *value;
    let shown = ui.allocate_ui_with_layout(vec2(width, space::CONTROL), layout, |ui| {
        ui.spacing_mut().item_spacing.x = space::XS;
        for (choice, label) in choices {
            if segment(ui, *value == *choice, label).clicked() {
                *value = *choice;
            }
        }
    });
    let mut group = shown.response;
    if *value != before {
        group.mark_changed();
    }
    // What names the control names the group: each choice keeps its own name.
    ui.ctx()
        .accesskit_node_builder(group.id, |node| node.set_role(Role::RadioGroup));
    group
}

fn segment_width(ui: &Ui, label: &str) -> f32 {
    let (font, ink) = (theme::strong(size::SMALL), tokens(ui).text);
    let galley = ui.painter().layout_no_wrap(label.to_owned(), font, ink);
    galley.size().x + 2.0 * space::M
}

fn segment(ui: &mut Ui, chosen: bool, label: &str) -> Response {
    let t = tokens(ui);
    let ink = if chosen { t.on_accent } else { t.text };
    let galley = ui
        .painter()
        .layout_no_wrap(label.to_owned(), theme::strong(size::SMALL), ink);
    let wanted = vec2(galley.size().x + 2.0 * space::M, space::CONTROL);
    let (rect, response) = ui.allocate_exact_size(wanted, Sense::click());
    let fill = match (chosen, response.hovered()) {
        (true, _) => t.accent,
        (false, true) => t.hovered,
        (false, false) => t.raised,
    };
    ui.painter()
        .rect_filled(rect, CornerRadius::same(space::CONTROL_RADIUS), fill);
    ui.painter()
        .galley(rect.center() - galley.size() / 2.0, galley, ink);
    if response.has_focus() {
        focus_ring(ui, rect);
    }
    response.widget_info(|| WidgetInfo::selected(Role::RadioButton, true, chosen, label));
    response
}

/// A card-like choice with a title and what it means.
pub fn choice(ui: &mut Ui, chosen: bool, title: &str, meaning: &str) -> Response {
    let t = tokens(ui);
    let width = ui.available_width();
    let inner = width - 2.0 * space::M;
    let head = ui
        .painter()
        .layout(title.to_owned(), theme::strong(size::BODY), t.text, inner);
    let text = ui
        .painter()
        .layout(meaning.to_owned(), theme::body(size::SMALL), t.muted, inner);
    let height = head.size().y + text.size().y + 2.0 * space::M + 2.0;
    let (rect, response) = ui.allocate_exact_size(vec2(width, height), Sense::click());
    let fill = match (chosen, response.hovered()) {
        (true, _) => theme::Tokens::tint(t.accent, 0.14),
        (false, true) => t.raised,
        (false, false) => t.card,
    };
    let line = if chosen { t.accent } else { t.hairline };
    ui.painter().rect(
        rect,
        CornerRadius::same(space::CONTROL_RADIUS),
        fill,
        Stroke::new(1.0, line),
        StrokeKind::Inside,
    );
    let at = rect.min + vec2(space::M, space::M);
    let below = at + vec2(0.0, head.size().y + 2.0);
    ui.painter().galley(at, head, t.text);
    ui.painter().galley(below, text, t.muted);
    if response.has_focus() {
        focus_ring(ui, rect);
    }
    response.widget_info(|| WidgetInfo::selected(Role::RadioButton, true, chosen, title));
    response
}

/// A switch with its words.
pub fn toggle(ui: &mut Ui, on: &mut bool, label: &str) -> Response {
    const TRACK: eframe::egui::Vec2 = vec2(32.0, 18.0);
    let t = tokens(ui);
    let room = ui.available_width() - TRACK.x - space::S;
    let galley = ui
        .painter()
        .layout(label.to_owned(), theme::body(size::BODY), t.text, room);
    let wanted = vec2(
        TRACK.x + space::S + galley.size().x,
        galley.size().y.max(24.0),
    );
    let (rect, mut response) = ui.allocate_exact_size(wanted, Sense::click());
    if response.clicked() {
        *on = !*on;
        response.mark_changed();
    }
    let track = Rect::from_min_size(pos2(rect.left(), rect.center().y - TRACK.y / 2.0), TRACK);
    let fill = match (*on, response.hovered()) {
        (true, _) => t.accent,
        (false, true) => t.hovered,
        (false, false) => t.raised,
    };
    let (knob, x) = if *on {
        (t.on_accent, track.right() - 9.0)
    } else {
        (t.muted, track.left() + 9.0)
    };
    ui.painter().rect(
        track,
        CornerRadius::same(9),
        fill,
        Stroke::new(1.0, if *on { t.accent } else { t.muted }),
        StrokeKind::Inside,
    );
    ui.painter()
        .circle_filled(pos2(x, track.center().y), 5.5, knob);
    let at = pos2(
        track.right() + space::S,
        rect.center().y - galley.size().y / 2.0,
    );
    ui.painter().galley(at, galley, t.text);
    if response.has_focus() {
        focus_ring(ui, rect);
    }
    let state = *on;
    response.widget_info(|| WidgetInfo::selected(Role::Switch, true, state, label));
    response
}

/// A number to drag or type, as high as a button; the field around it names it.
pub fn number<N: Numeric>(
    ui: &mut Ui,
    value: &mut N,
    range: RangeInclusive<N>,
    suffix: &str,
) -> Response {
    ui.spacing_mut().interact_size = vec2(84.0, space::CONTROL);
    ui.add(DragValue::new(value).range(range).suffix(suffix))
}

/// One of several, as high as a button. `choices` are values with their words.
pub fn select<T: Clone + PartialEq>(
    ui: &mut Ui,
    name: &str,
    value: &mut T,
    choices: &[(T, String)],
) -> Response {
    ui.spacing_mut().interact_size.y = space::CONTROL;
    let shown = choices.iter().find(|(choice, _)| choice == value);
    let shown = shown.map_or("", |(_, words)| words.as_str());
    let before = value.clone();
    let mut response = ComboBox::from_id_salt(name)
        .selected_text(shown)
        .show_ui(ui, |ui| {
            for (choice, words) in choices {
                ui.selectable_value(value, choice.clone(), words);
            }
        })
        .response;
    if *value != before {
        response.mark_changed();
    }
    response.widget_info(|| WidgetInfo::labeled(Role::ComboBox, true, name));
    response
}

/// A field to search in.
pub fn search_field(ui: &mut Ui, text: &mut String, name: &str, width: f32) -> Response {
    let edit = TextEdit::singleline(text)
        .hint_text("Search…")
        .margin(vec2(space::M, space::S - 1.0))
        .desired_width(width);
    let response = ui.add(edit);
    response.widget_info(|| WidgetInfo::labeled(Role::TextInput, true, name));
    response
}

/// A determinate progress bar.
pub fn progress(ui: &mut Ui, share: f32, name: &str) -> Response {
    let t = tokens(ui);
    let bar = ProgressBar::new(share.clamp(0.0, 1.0))
        .desired_height(6.0)
        .corner_radius(CornerRadius::same(3))
        .fill(t.accent);
    let response = ui.add(bar);
    response.widget_info(|| {
        let mut info = WidgetInfo::labeled(Role::ProgressIndicator, true, name);
        info.value = Some(f64::from(share));
        info
    });
    response
}
