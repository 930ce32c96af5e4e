//! Cards, rows of cards of one height, and the head of a page.

use eframe::egui::{
    Align, Color32, CornerRadius, Frame, Label, Layout, Margin, Rect, Stroke, Ui, UiBuilder, pos2,
    vec2,
};

use crate::ui::theme::{self, Tokens, size, space, tokens};

use super::text::{caption, caption_text, muted, section, title};

/// A card with an optional title and a caption at its right.
#[derive(Default)]
pub struct Card<'a> {
    title: Option<&'a str>,
    caption: Option<String>,
    min_height: f32,
}

impl<'a> Card<'a> {
    /// A card with a title.
    pub fn new(title: &'a str) -> Self {
        Self {
            title: Some(title),
            ..Self::default()
        }
    }

    /// A card without a title.
    pub fn bare() -> Self {
        Self::default()
    }

    /// With a caption beside the title.
    #[must_use]
    pub fn caption(mut self, text: impl Into<String>) -> Self {
        self.caption = Some(text.into());
        self
    }

    /// At least as high as this; see [`columns`].
    #[must_use]
    pub fn min_height(mut self, height: f32) -> Self {
        self.min_height = height;
        self
    }

    /// Shows it, as wide as there is room.
    pub fn show<R>(self, ui: &mut Ui, content: impl FnOnce(&mut Ui) -> R) -> R {
        let t = tokens(ui);
        let frame = frame(t);
        // With its line: a pixel less, and a row of cards would grow from frame to frame.
        let margin = frame.total_margin().sum().y;
        frame
            .show(ui, |ui| {
                ui.set_min_width(ui.available_width());
                ui.set_min_height((self.min_height - margin).max(0.0));
                ui.spacing_mut().item_spacing.y = space::S;
                if let Some(text) = self.title {
                    head(ui, text, self.caption.as_deref());
                    ui.add_space(space::XS);
                }
                content(ui)
            })
            .inner
    }
}

fn frame(t: &Tokens) -> Frame {
    Frame::new()
        .fill(t.card)
        .stroke(Stroke::new(1.0, t.hairline))
        .corner_radius(CornerRadius::same(space::CARD_RADIUS))
        .inner_margin(Margin::same(space::L as i8))
}

fn head(ui: &mut Ui, text: &str, beside: Option<&str>) {
    let Some(beside) = beside else {
        // As high as one with a caption.
        ui.horizontal(|ui| section(ui, text));
        return;
    };
    // Side by side where both fit, below each other where not.
    let width = |text: &str, font| {
        let galley = ui
            .painter()
            .layout_no_wrap(text.to_owned(), font, Color32::PLACEHOLDER);
        galley.size().x
    };
    let wanted =
        width(text, theme::strong(size::SECTION)) + width(beside, theme::body(size::CAPTION));
    if wanted + space::L > ui.available_width() {
        ui.vertical(|ui| {
            ui.spacing_mut().item_spacing.y = 2.0;
            section(ui, text);
            caption(ui, beside);
        });
        return;
    }
    ui.horizontal(|ui| {
        section(ui, text);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.add(Label::new(caption_text(ui, beside)).truncate());
        });
    });
}

/// Places cards side by side by weight, all as high as the highest; one below the other when the row is narrow.
/// `content` is called once per column with the height it should reach.
pub fn columns(
    ui: &mut Ui,
    id: &str,
    weights: &[f32],
    mut content: impl FnMut(usize, &mut Ui, f32),
) {
    const NARROWEST: f32 = 300.0;
    let width = ui.available_width();
    let total: f32 = weights.iter().sum();
    let gaps = space::L * (weights.len().saturating_sub(1)) as f32;
    let share = |weight: f32| (width - gaps) * weight / total;
    if weights
        .iter()
        .any(|w| share(*w) < NARROWEST * w / weights.iter().copied().fold(1.0, f32::max))
        && width < 760.0
    {
        for column in 0..weights.len() {
            content(column, ui, 0.0);
            if column + 1 < weights.len() {
                ui.add_space(space::S);
            }
        }
        return;
    }
    let id = ui.scope_id().with(("row height", id));
    let known = ui.data(|data| data.get_temp::<f32>(id)).unwrap_or(0.0);
    let start = ui.next_widget_position();
    let top = ui.available_rect_before_wrap().top();
    let mut left = start.x;
    let (mut highest, mut natural) = (0.0_f32, 0.0_f32);
    for (column, weight) in weights.iter().enumerate() {
        let rect = Rect::from_min_size(pos2(left, top), vec2(share(*weight), f32::INFINITY));
        let mut child = ui.new_child(
            UiBuilder::new()
                .id_salt((id, column))
                .max_rect(rect)
                .layout(Layout::top_down(Align::Min)),
        );
        content(column, &mut child, known);
        highest = highest.max(child.min_rect().height());
        natural = natural.max(child.min_rect().height());
        left += share(*weight) + space::L;
    }
    if (natural - known).abs() > 0.5 {
        ui.data_mut(|data| data.insert_temp(id, natural));
        if known == 0.0 {
            ui.ctx().request_discard("cards of a row take one height");
        }
    }
    ui.allocate_rect(
        Rect::from_min_size(pos2(start.x, top), vec2(width, highest)),
        eframe::egui::Sense::hover(),
    );
}

/// Narrower, and the actions of a page would lie over its words: they stand below, points.
const NARROW: f32 = 560.0;

/// The head of a page: title, one line under it, actions at the right.
pub fn page_header(ui: &mut Ui, heading: &str, under: &str, actions: impl FnOnce(&mut Ui)) {
    if ui.available_width() < NARROW {
        words(ui, heading, under);
        ui.horizontal_wrapped(actions);
        return;
    }
    // The words keep clear of the actions, as wide as these were in the frame before.
    let id = ui.scope_id().with("width of the page's actions");
    let known = ui.data(|data| data.get_temp::<f32>(id)).unwrap_or(0.0);
    ui.horizontal(|ui| {
        let room = ui.available_width();
        ui.vertical(|ui| {
            let clear = room - known - space::L;
            ui.set_max_width((room * 0.66).max(300.0).min(clear.max(200.0)));
            words(ui, heading, under);
        });
        let shown = ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            actions(ui);
            ui.min_rect().width()
        });
        if (shown.inner - known).abs() > 0.5 {
            ui.data_mut(|data| data.insert_temp(id, shown.inner));
            ui.ctx()
                .request_discard("the words of a page's head keep clear of its actions");
        }
    });
    ui.add_space(space::S);
}

fn words(ui: &mut Ui, heading: &str, under: &str) {
    ui.vertical(|ui| {
        ui.spacing_mut().item_spacing.y = 5.0;
        title(ui, heading);
        if !under.is_empty() {
            muted(ui, under);
        }
    });
}
