//! Design tokens: every colour, size and distance of the app, once for dark and once for light (style B4).
//! The colours are those of the target screens; contrast is checked by the tests below.

use eframe::egui::Color32;

use crate::domain::types::Verdict;

/// One theme.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tokens {
    /// Behind everything.
    pub background: Color32,
    /// The rail.
    pub panel: Color32,
    /// Cards.
    pub card: Color32,
    /// Quiet fills: buttons, tracks of bars, the chosen row.
    pub raised: Color32,
    /// Fill of what the pointer is on.
    pub hovered: Color32,
    /// Thin lines around cards and between rows.
    pub hairline: Color32,
    /// Text.
    pub text: Color32,
    /// Text of second rank.
    pub muted: Color32,
    /// The one primary action, and what is running.
    pub accent: Color32,
    /// Text on the accent.
    pub on_accent: Color32,
    /// Better than stock.
    pub improved: Color32,
    /// Worse than stock.
    pub regressed: Color32,
    /// No difference that matters.
    pub unchanged: Color32,
    /// Not known.
    pub inconclusive: Color32,
    /// May spoil something.
    pub warning: Color32,
    /// The same as the fill of a bar, never of text.
    pub warning_fill: Color32,
}

const fn rgb(hex: u32) -> Color32 {
    Color32::from_rgb((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

/// Black of this opacity, for shadows and what lies behind a dialog.
pub const fn shade(alpha: u8) -> Color32 {
    Color32::from_black_alpha(alpha)
}

/// Dark.
pub const DARK: Tokens = Tokens {
    background: rgb(0x0e_10_14),
    panel: rgb(0x15_18_1e),
    card: rgb(0x1a_1e_26),
    raised: rgb(0x25_2a_35),
    hovered: rgb(0x30_36_43),
    hairline: rgb(0x26_2b_35),
    text: rgb(0xe7_ea_f0),
    muted: rgb(0x9a_a3_b2),
    accent: rgb(0x5b_9d_ff),
    on_accent: rgb(0x0a_12_20),
    improved: rgb(0x3c_b9_a9),
    regressed: rgb(0xf0_8c_4a),
    unchanged: rgb(0x8e_98_a8),
    inconclusive: rgb(0xb3_9b_ff),
    warning: rgb(0xe8_b8_4a),
    warning_fill: rgb(0xe8_b8_4a),
};

/// Light.
pub const LIGHT: Tokens = Tokens {
    background: rgb(0xf6_f7_f9),
    panel: rgb(0xee_f0_f4),
    card: rgb(0xff_ff_ff),
    raised: rgb(0xe4_e9_f3),
    hovered: rgb(0xd6_dd_eb),
    hairline: rgb(0xdd_e1_e8),
    text: rgb(0x17_1b_22),
    muted: rgb(0x4e_58_69),
    accent: rgb(0x1f_6f_eb),
    on_accent: rgb(0xff_ff_ff),
    improved: rgb(0x0b_72_67),
    regressed: rgb(0xa8_4b_0d),
    unchanged: rgb(0x5a_65_76),
    inconclusive: rgb(0x6d_4f_d0),
    warning: rgb(0x85_5d_00),
    warning_fill: rgb(0xdf_a8_2c),
};

impl Tokens {
    /// The colour a verdict is shown in, always beside its icon and its word.
    pub const fn verdict(&self, verdict: Verdict) -> Color32 {
        match verdict {
            Verdict::Improved => self.improved,
            Verdict::Regressed => self.regressed,
            Verdict::Unchanged => self.unchanged,
            Verdict::Inconclusive => self.inconclusive,
        }
    }

    /// A colour laid thinly over the background: fills under lines, bands.
    pub fn tint(color: Color32, share: f32) -> Color32 {
        color.gamma_multiply(share)
    }
}

/// Text sizes in points.
pub mod size {
    /// Captions, table heads.
    pub const CAPTION: f32 = 11.0;
    /// Small text under headings.
    pub const SMALL: f32 = 12.0;
    /// Running text.
    pub const BODY: f32 = 13.0;
    /// Titles of cards.
    pub const SECTION: f32 = 14.5;
    /// Title of the page.
    pub const TITLE: f32 = 22.0;
    /// The one number a tile is about.
    pub const HERO: f32 = 20.0;
}

/// Distances in points, on a grid of four.
pub mod space {
    /// Between what belongs together.
    pub const XS: f32 = 4.0;
    /// Between items.
    pub const S: f32 = 8.0;
    /// Inside controls.
    pub const M: f32 = 12.0;
    /// Between cards, inside cards.
    pub const L: f32 = 16.0;
    /// Around the page.
    pub const XL: f32 = 24.0;
    /// Corner radius of cards.
    pub const CARD_RADIUS: u8 = 8;
    /// Corner radius of controls.
    pub const CONTROL_RADIUS: u8 = 6;
    /// Height of buttons and fields.
    pub const CONTROL: f32 = 30.0;
    /// Width of the rail.
    pub const RAIL: f32 = 200.0;
    /// Widest the content becomes.
    pub const CONTENT: f32 = 1320.0;
    /// A row of a table.
    pub const ROW: f32 = 30.0;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance and contrast as WCAG 2.2 defines them.
    fn contrast(a: Color32, b: Color32) -> f64 {
        let channel = |c: u8| {
            let c = f64::from(c) / 255.0;
            if c <= 0.040_45 {
                c / 12.92
            } else {
                ((c + 0.055) / 1.055).powf(2.4)
            }
        };
        let luminance = |c: Color32| {
            0.2126 * channel(c.r()) + 0.7152 * channel(c.g()) + 0.0722 * channel(c.b())
        };
        let (x, y) = (luminance(a), luminance(b));
        (x.max(y) + 0.05) / (x.min(y) + 0.05)
    }

    #[test]
    fn contrast_is_wcags() {
        assert!((contrast(Color32::BLACK, Color32::WHITE) - 21.0).abs() < 1e-9);
        // WebAIM's contrast checker gives 4.54 for #767676 on white.
        assert!((contrast(rgb(0x76_76_76), Color32::WHITE) - 4.54).abs() < 0.01);
    }

    #[test]
    fn every_text_colour_can_be_read_on_every_surface() {
        for (theme, t) in [("dark", DARK), ("light", LIGHT)] {
            let surfaces = [
                ("background", t.background),
                ("panel", t.panel),
                ("card", t.card),
            ];
            let inks = [
                ("text", t.text),
                ("muted", t.muted),
                ("improved", t.improved),
                ("regressed", t.regressed),
                ("unchanged", t.unchanged),
                ("inconclusive", t.inconclusive),
                ("warning", t.warning),
            ];
            for (surface, below) in surfaces {
                for (ink, color) in inks {
                    let ratio = contrast(color, below);
                    assert!(ratio >= 4.5, "{theme}: {ink} on {surface}: {ratio:.2}");
                }
            }
            for (what, ink, below) in [
                ("button text", t.text, t.raised),
                ("hovered button text", t.text, t.hovered),
                ("primary button text", t.on_accent, t.accent),
            ] {
                assert!(
                    contrast(ink, below) >= 4.5,
                    "{theme}: {what}: {:.2}",
                    contrast(ink, below)
                );
            }
            // Large or non-text marks need 3 : 1.
            assert!(contrast(t.accent, t.card) >= 3.0, "{theme}: accent on card");
        }
    }
}
