//! Inter for text (its figures made tabular), `JetBrains Mono` for commands; egui's own fonts behind them for rare glyphs.

use std::sync::Arc;

use eframe::egui::{Context, FontData, FontDefinitions, FontFamily};

use super::STRONG;

const REGULAR: &[u8] = include_bytes!("../../../assets/fonts/Inter-Regular.otf");
const SEMIBOLD: &[u8] = include_bytes!("../../../assets/fonts/Inter-SemiBold.otf");
const MONO: &[u8] = include_bytes!("../../../assets/fonts/JetBrainsMono-Regular.ttf");

/// Makes them egui's fonts.
pub fn install(ctx: &Context) {
    let mut fonts = FontDefinitions::default();
    for (name, bytes) in [
        ("Inter", REGULAR),
        ("Inter SemiBold", SEMIBOLD),
        ("JetBrains Mono", MONO),
    ] {
        let data = Arc::new(FontData::from_static(bytes));
        fonts.font_data.insert(name.to_owned(), data);
    }
    let fallback = fonts
        .families
        .get(&FontFamily::Proportional)
        .cloned()
        .unwrap_or_default();
    let first = |name: &str| {
        let mut family = vec![name.to_owned()];
        family.extend(fallback.iter().cloned());
        family
    };
    fonts
        .families
        .insert(FontFamily::Name(STRONG.into()), first("Inter SemiBold"));
    fonts
        .families
        .insert(FontFamily::Proportional, first("Inter"));
    fonts
        .families
        .insert(FontFamily::Monospace, first("JetBrains Mono"));
    ctx.set_fonts(fonts);
}
