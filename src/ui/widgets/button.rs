//! Buttons: one primary action per page, the others quiet. The accessible name is the label, or what an icon stands for.

use eframe::egui::{
    Align2, Color32, CornerRadius, CursorIcon, FontId, Rect, Response, Sense, Stroke, StrokeKind,
    Ui, Widget, WidgetInfo, accesskit::Role, pos2, vec2,
};

use crate::ui::theme::icons::Icon;
use crate::ui::theme::{self, Tokens, size, space, tokens};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rank {
    Primary,
    Secondary,
    Quiet,
    Link,
}

/// A button.
pub struct Press<'a> {
    label: &'a str,
    icon: Option<Icon>,
    icon_only: bool,
    rank: Rank,
    enabled: bool,
    why_not: Option<&'a str>,
    tooltip: Option<String>,
}

impl<'a> Press<'a> {
    /// An ordinary button.
    pub const fn new(label: &'a str) -> Self {
        Self {
            label,
            icon: None,
            icon_only: false,
            rank: Rank::Secondary,
            enabled: true,
            why_not: None,
            tooltip: None,
        }
    }

    /// The page's one primary action.
    #[must_use]
    pub const fn primary(mut self) -> Self {
        self.rank = Rank::Primary;
        self
    }

    /// Without a frame, for what is used rarely.
    #[must_use]
    pub const fn quiet(mut self) -> Self {
        self.rank = Rank::Quiet;
        self
    }

    /// As small as a caption and without a frame, for what belongs to the text above it.
    #[must_use]
    pub const fn link(mut self) -> Self {
        self.rank = Rank::Link;
        self
    }

    /// With an icon before the label.
    #[must_use]
    pub const fn icon(mut self, icon: Icon) -> Self {
        self.icon = Some(icon);
        self
    }

    /// The icon alone; the label becomes accessible name and tooltip.
    #[must_use]
    pub fn icon_only(mut self, icon: Icon) -> Self {
        self.icon = Some(icon);
        self.icon_only = true;
        self.tooltip = Some(self.label.to_owned());
        self.rank = Rank::Quiet;
        self
    }

    /// Text under the pointer.
    #[must_use]
    pub fn tooltip(mut self, text: impl Into<String>) -> Self {
        self.tooltip = Some(text.into());
        self
    }

    /// Cannot be pressed now, and why.
    #[must_use]
    pub const fn unless(mut self, why_not: Option<&'a str>) -> Self {
        self.enabled = why_not.is_none();
        self.why_not = why_not;
        self
    }

    fn letters(&self) -> (f32, FontId) {
        match self.rank {
            Rank::Link => (size::CAPTION, theme::body(size::CAPTION)),
            Rank::Quiet => (size::BODY, theme::body(size::BODY)),
            Rank::Primary | Rank::Secondary => (size::BODY, theme::strong(size::BODY)),
        }
    }

    /// Padding at either side, and height.
    const fn room(&self) -> (f32, f32) {
        match self.rank {
            Rank::Link => (0.0, 20.0),
            _ if self.icon_only => (space::S, space::CONTROL),
            _ => (space::M + 2.0, space::CONTROL),
        }
    }

    fn colors(&self, t: &Tokens, response: &Response) -> (Color32, Color32) {
        let hovered = response.hovered() || response.has_focus();
        match (self.rank, self.enabled) {
            (Rank::Primary, true) if hovered => (t.accent.gamma_multiply(0.88), t.on_accent),
            (Rank::Primary, true) => (t.accent, t.on_accent),
            (Rank::Link, true) if hovered => (Color32::TRANSPARENT, t.text),
            (Rank::Quiet, true) if hovered => (t.raised, t.text),
            (Rank::Link, _) | (Rank::Quiet, true) => (Color32::TRANSPARENT, t.muted),
            (Rank::Secondary, true) if hovered => (t.hovered, t.text),
            (Rank::Secondary, true) => (t.raised, t.text),
            (Rank::Quiet, false) => (Color32::TRANSPARENT, t.muted.gamma_multiply(0.6)),
            (_, false) => (t.raised.gamma_multiply(0.6), t.muted.gamma_multiply(0.8)),
        }
    }
}

impl Widget for Press<'_> {
    fn ui(self, ui: &mut Ui) -> Response {
        let t = tokens(ui);
        let (points, font) = self.letters();
        let words = if self.icon_only { "" } else { self.label };
        let galley = ui
            .painter()
            .layout_no_wrap(words.to_owned(), font, Color32::PLACEHOLDER);
        let icon_width = self.icon.map_or(0.0, |_| points * 1.25);
        let gap = if self.icon.is_some() && !words.is_empty() {
            space::S - 2.0
        } else {
            0.0
        };
        let (padding, height) = self.room();
        let width = galley.size().x + icon_width + gap + 2.0 * padding;
        let sense = if self.enabled {
            Sense::click()
        } else {
            Sense::hover()
        };
        let (rect, response) = ui.allocate_exact_size(vec2(width, height), sense);
        let (fill, ink) = self.colors(t, &response);
        let corner = CornerRadius::same(space::CONTROL_RADIUS);
        let painter = ui.painter();
        painter.rect_filled(rect, corner, fill);
        if response.has_focus() {
            focus_ring(ui, rect);
        }
        let mut x = rect.left() + padding;
        if let Some(icon) = self.icon {
            let at = pos2(x + icon_width / 2.0, rect.center().y);
            icon_at(ui, icon, at, points, ink);
            x += icon_width + gap;
        }
        let at = pos2(x, rect.center().y - galley.size().y / 2.0);
        ui.painter().galley(at, galley, ink);
        let enabled = self.enabled;
        response.widget_info(|| WidgetInfo::labeled(Role::Button, enabled, self.label));
        if let Some(why_not) = self.why_not {
            ui.ctx()
                .accesskit_node_builder(response.id, |node| node.set_description(why_not));
        }
        let response = match self.why_not.map(str::to_owned).or(self.tooltip) {
            Some(text) => response.on_hover_text(text),
            None => response,
        };
        if enabled {
            response.on_hover_cursor(CursorIcon::PointingHand)
        } else {
            response
        }
    }
}

/// The visible ring around what the keyboard is on.
pub fn focus_ring(ui: &Ui, rect: Rect) {
    let stroke = Stroke::new(2.0, tokens(ui).accent);
    let corner = CornerRadius::same(space::CONTROL_RADIUS + 2);
    ui.painter()
        .rect_stroke(rect.expand(2.0), corner, stroke, StrokeKind::Outside);
}

/// Paints an icon around a point.
pub fn icon_at(ui: &Ui, icon: Icon, center: eframe::egui::Pos2, points: f32, ink: Color32) {
    ui.painter().text(
        center,
        Align2::CENTER_CENTER,
        icon.glyph(),
        theme::body(points),
        ink,
    );
}
