//! Text in the app's few sizes.

use eframe::egui::{Color32, Label, Response, RichText, Ui};

use crate::ui::theme::{self, size, tokens};

fn put(ui: &mut Ui, text: RichText) -> Response {
    ui.add(Label::new(text).wrap())
}

/// Title of a page.
pub fn title(ui: &mut Ui, text: impl Into<String>) -> Response {
    let color = tokens(ui).text;
    put(
        ui,
        RichText::new(text)
            .font(theme::strong(size::TITLE))
            .color(color),
    )
}

/// Title of a card or a part of it.
pub fn section(ui: &mut Ui, text: impl Into<String>) -> Response {
    let color = tokens(ui).text;
    put(
        ui,
        RichText::new(text)
            .font(theme::strong(size::SECTION))
            .color(color),
    )
}

/// Running text.
pub fn label(ui: &mut Ui, text: impl Into<String>) -> Response {
    let color = tokens(ui).text;
    put(
        ui,
        RichText::new(text)
            .font(theme::body(size::BODY))
            .color(color),
    )
}

/// Running text that matters.
pub fn strong(ui: &mut Ui, text: impl Into<String>) -> Response {
    let color = tokens(ui).text;
    put(
        ui,
        RichText::new(text)
            .font(theme::strong(size::BODY))
            .color(color),
    )
}

/// Text of second rank.
pub fn muted(ui: &mut Ui, text: impl Into<String>) -> Response {
    let color = tokens(ui).muted;
    put(
        ui,
        RichText::new(text)
            .font(theme::body(size::BODY))
            .color(color),
    )
}

/// Small text of second rank.
pub fn caption(ui: &mut Ui, text: impl Into<String>) -> Response {
    let text = caption_text(ui, text);
    put(ui, text)
}

/// The look of a caption.
pub fn caption_text(ui: &Ui, text: impl Into<String>) -> RichText {
    let color = tokens(ui).muted;
    RichText::new(text)
        .font(theme::body(size::CAPTION))
        .color(color)
}

/// Points that a caption takes in one line.
pub fn caption_width(ui: &Ui, text: &str) -> f32 {
    let (font, ink) = (theme::body(size::CAPTION), tokens(ui).muted);
    let galley = ui.painter().layout_no_wrap(text.to_owned(), font, ink);
    galley.size().x
}

/// Running text in a status colour; the caller puts icon and word beside it.
pub fn tinted(ui: &mut Ui, text: impl Into<String>, color: Color32) -> Response {
    put(
        ui,
        RichText::new(text)
            .font(theme::body(size::BODY))
            .color(color),
    )
}

/// A command or an identifier; it can be selected and copied.
pub fn code(ui: &mut Ui, text: impl Into<String>) -> Response {
    let color = tokens(ui).muted;
    let text = RichText::new(text)
        .font(theme::mono(size::SMALL))
        .color(color);
    ui.add(Label::new(text).wrap().selectable(true))
}
