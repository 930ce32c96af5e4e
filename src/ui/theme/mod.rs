//! How Flux looks: tokens, fonts, icons, and egui's style made of them (style B4).

mod fonts;
pub mod icons;
pub mod tokens;

use eframe::egui::{
    Context, CornerRadius, FontFamily, FontId, Margin, Shadow, Stroke, Style, TextStyle, Theme, Ui,
    Visuals, vec2,
};

pub use tokens::{DARK, LIGHT, Tokens, size, space};

/// Family of headings and numbers that matter.
pub const STRONG: &str = "strong";

/// Installs fonts, icons and both styles.
pub fn install(ctx: &Context, reduce_motion: bool) {
    fonts::install(ctx);
    icons::install(ctx);
    for (theme, tokens) in [(Theme::Dark, &DARK), (Theme::Light, &LIGHT)] {
        ctx.set_style_of(theme, style(theme, tokens, reduce_motion));
    }
}

/// The tokens of the theme in use.
pub fn tokens(ui: &Ui) -> &'static Tokens {
    of_context(ui.ctx())
}

/// The tokens of the theme in use.
pub fn of_context(ctx: &Context) -> &'static Tokens {
    match ctx.theme() {
        Theme::Dark => &DARK,
        Theme::Light => &LIGHT,
    }
}

/// Running text.
pub fn body(points: f32) -> FontId {
    FontId::new(points, FontFamily::Proportional)
}

/// Headings.
pub fn strong(points: f32) -> FontId {
    FontId::new(points, FontFamily::Name(STRONG.into()))
}

/// Commands and identifiers.
pub fn mono(points: f32) -> FontId {
    FontId::new(points, FontFamily::Monospace)
}

fn style(theme: Theme, t: &Tokens, reduce_motion: bool) -> Style {
    let mut style = theme.default_style();
    style.text_styles = [
        (TextStyle::Small, body(size::CAPTION)),
        (TextStyle::Body, body(size::BODY)),
        (TextStyle::Button, body(size::BODY)),
        (TextStyle::Heading, strong(size::TITLE)),
        (TextStyle::Monospace, mono(size::SMALL)),
    ]
    .into();
    // A measurement must not be disturbed: nothing moves for long, and nothing at all where the user says so.
    style.animation_time = if reduce_motion { 0.0 } else { 0.08 };
    style.spacing.item_spacing = vec2(space::S, space::S);
    style.spacing.button_padding = vec2(space::M, space::XS);
    style.spacing.interact_size = vec2(40.0, 20.0);
    style.spacing.menu_margin = Margin::same(space::S as i8);
    style.spacing.window_margin = Margin::same(space::L as i8);
    style.spacing.combo_width = 160.0;
    style.spacing.text_edit_width = 240.0;
    style.interaction.selectable_labels = false;
    style.visuals = visuals(theme, t);
    style
}

fn visuals(theme: Theme, t: &Tokens) -> Visuals {
    let mut v = theme.default_visuals();
    let control = CornerRadius::same(space::CONTROL_RADIUS);
    v.panel_fill = t.background;
    v.window_fill = t.card;
    v.window_stroke = Stroke::new(1.0, t.hairline);
    v.window_corner_radius = CornerRadius::same(space::CARD_RADIUS);
    v.menu_corner_radius = control;
    v.window_shadow = shadow(theme);
    v.popup_shadow = shadow(theme);
    v.faint_bg_color = t.panel;
    v.extreme_bg_color = t.panel;
    v.text_edit_bg_color = Some(t.panel);
    v.code_bg_color = t.panel;
    v.warn_fg_color = t.warning;
    v.error_fg_color = t.regressed;
    v.hyperlink_color = t.accent;
    v.weak_text_color = Some(t.muted);
    v.selection.bg_fill = Tokens::tint(t.accent, 0.35);
    v.selection.stroke = Stroke::new(1.5, t.accent);
    v.slider_trailing_fill = true;
    let w = &mut v.widgets;
    for (state, fill, line) in [
        (&mut w.noninteractive, t.card, t.hairline),
        (&mut w.inactive, t.raised, t.hairline),
        (&mut w.hovered, t.hovered, t.muted),
        (&mut w.active, t.hovered, t.accent),
        (&mut w.open, t.raised, t.hairline),
    ] {
        state.bg_fill = fill;
        state.weak_bg_fill = fill;
        state.bg_stroke = Stroke::new(1.0, line);
        state.fg_stroke = Stroke::new(1.0, t.text);
        state.corner_radius = control;
        state.expansion = 0.0;
    }
    v
}

fn shadow(theme: Theme) -> Shadow {
    let alpha = match theme {
        Theme::Dark => 110,
        Theme::Light => 40,
    };
    Shadow {
        offset: [0, 8],
        blur: 24,
        spread: 0,
        color: tokens::shade(alpha),
    }
}
