//! Icons as glyphs of a private-use block: tinted like text and crisp at any scale (style B4). All are Lucide's.

use eframe::egui::Context;
use egui_extras::SvgGlyph;

use crate::domain::types::Verdict;

/// First character of the block.
const FIRST: u32 = 0xE000;

/// An icon. Never alone: a word stands beside it, or an accessible name in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Icon {
    /// The machine page.
    Machine,
    /// The tuning wizard.
    Tune,
    /// The dashboard.
    Dashboard,
    /// The placement page.
    Placement,
    /// The history page.
    History,
    /// The kernel lab.
    Lab,
    /// The settings page.
    Settings,
    /// Done, or there.
    Check,
    /// May spoil something.
    Warning,
    /// Failed.
    Problem,
    /// Good to know.
    Info,
    /// Not there.
    Absent,
    /// Close.
    Close,
    /// Open.
    Down,
    /// Forward, or closed.
    Right,
    /// Back.
    Left,
    /// Search.
    Search,
    /// Choose a folder or file.
    Folder,
    /// Install or write out.
    Install,
    /// Start or go on.
    Play,
    /// Pause.
    Pause,
    /// Cancel.
    Stop,
    /// Copy.
    Copy,
    /// Again.
    Again,
    /// Delete.
    Delete,
    /// Undo.
    Undo,
    /// Save.
    Save,
    /// A document.
    Report,
    /// Faster.
    Improved,
    /// Slower.
    Regressed,
    /// No difference that matters.
    Unchanged,
    /// Not known.
    Inconclusive,
    /// Add.
    Add,
    /// Next.
    Next,
    /// Keys.
    Keys,
    /// A running server.
    Server,
    /// Confirmed.
    Confirmed,
    /// Time.
    Clock,
    /// Compare.
    Compare,
    /// Not tried.
    Refused,
    /// Make one.
    Spark,
}

/// Every icon with its drawing, in the order of the enum.
const ALL: &[(Icon, &[u8])] = &[
    (
        Icon::Machine,
        include_bytes!("../../../assets/icons/monitor.svg"),
    ),
    (
        Icon::Tune,
        include_bytes!("../../../assets/icons/chart-column.svg"),
    ),
    (
        Icon::Dashboard,
        include_bytes!("../../../assets/icons/activity.svg"),
    ),
    (
        Icon::Placement,
        include_bytes!("../../../assets/icons/layout-dashboard.svg"),
    ),
    (
        Icon::History,
        include_bytes!("../../../assets/icons/history.svg"),
    ),
    (
        Icon::Lab,
        include_bytes!("../../../assets/icons/flask-conical.svg"),
    ),
    (
        Icon::Settings,
        include_bytes!("../../../assets/icons/settings.svg"),
    ),
    (
        Icon::Check,
        include_bytes!("../../../assets/icons/check.svg"),
    ),
    (
        Icon::Warning,
        include_bytes!("../../../assets/icons/triangle-alert.svg"),
    ),
    (
        Icon::Problem,
        include_bytes!("../../../assets/icons/circle-x.svg"),
    ),
    (Icon::Info, include_bytes!("../../../assets/icons/info.svg")),
    (
        Icon::Absent,
        include_bytes!("../../../assets/icons/minus.svg"),
    ),
    (Icon::Close, include_bytes!("../../../assets/icons/x.svg")),
    (
        Icon::Down,
        include_bytes!("../../../assets/icons/chevron-down.svg"),
    ),
    (
        Icon::Right,
        include_bytes!("../../../assets/icons/chevron-right.svg"),
    ),
    (
        Icon::Left,
        include_bytes!("../../../assets/icons/chevron-left.svg"),
    ),
    (
        Icon::Search,
        include_bytes!("../../../assets/icons/search.svg"),
    ),
    (
        Icon::Folder,
        include_bytes!("../../../assets/icons/folder-open.svg"),
    ),
    (
        Icon::Install,
        include_bytes!("../../../assets/icons/download.svg"),
    ),
    (Icon::Play, include_bytes!("../../../assets/icons/play.svg")),
    (
        Icon::Pause,
        include_bytes!("../../../assets/icons/pause.svg"),
    ),
    (
        Icon::Stop,
        include_bytes!("../../../assets/icons/square.svg"),
    ),
    (Icon::Copy, include_bytes!("../../../assets/icons/copy.svg")),
    (
        Icon::Again,
        include_bytes!("../../../assets/icons/refresh-cw.svg"),
    ),
    (
        Icon::Delete,
        include_bytes!("../../../assets/icons/trash-2.svg"),
    ),
    (
        Icon::Undo,
        include_bytes!("../../../assets/icons/undo-2.svg"),
    ),
    (Icon::Save, include_bytes!("../../../assets/icons/save.svg")),
    (
        Icon::Report,
        include_bytes!("../../../assets/icons/file-text.svg"),
    ),
    (
        Icon::Improved,
        include_bytes!("../../../assets/icons/trending-up.svg"),
    ),
    (
        Icon::Regressed,
        include_bytes!("../../../assets/icons/trending-down.svg"),
    ),
    (
        Icon::Unchanged,
        include_bytes!("../../../assets/icons/equal.svg"),
    ),
    (
        Icon::Inconclusive,
        include_bytes!("../../../assets/icons/circle-question-mark.svg"),
    ),
    (Icon::Add, include_bytes!("../../../assets/icons/plus.svg")),
    (
        Icon::Next,
        include_bytes!("../../../assets/icons/arrow-right.svg"),
    ),
    (
        Icon::Keys,
        include_bytes!("../../../assets/icons/keyboard.svg"),
    ),
    (
        Icon::Server,
        include_bytes!("../../../assets/icons/server.svg"),
    ),
    (
        Icon::Confirmed,
        include_bytes!("../../../assets/icons/circle-check.svg"),
    ),
    (
        Icon::Clock,
        include_bytes!("../../../assets/icons/clock.svg"),
    ),
    (
        Icon::Compare,
        include_bytes!("../../../assets/icons/git-compare.svg"),
    ),
    (
        Icon::Refused,
        include_bytes!("../../../assets/icons/ban.svg"),
    ),
    (Icon::Spark, include_bytes!("../../../assets/icons/zap.svg")),
];

impl Icon {
    /// The character it is drawn for.
    pub fn glyph(self) -> char {
        char::from_u32(FIRST + self as u32).unwrap_or('?')
    }

    /// The icon of a verdict.
    pub const fn verdict(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Improved => Self::Improved,
            Verdict::Regressed => Self::Regressed,
            Verdict::Unchanged => Self::Unchanged,
            Verdict::Inconclusive => Self::Inconclusive,
        }
    }
}

/// Registers every icon.
pub fn install(ctx: &Context) {
    for (icon, svg) in ALL {
        match SvgGlyph::from_bytes(svg) {
            // A little below the baseline, so that it sits in the middle of a line of text.
            Ok(glyph) => ctx.add_glyph_rasterizer(
                glyph
                    .with_height(1.1)
                    .with_baseline_offset(-0.19)
                    .into_rasterizer(icon.glyph()),
            ),
            Err(error) => tracing::warn!(?icon, error, "an icon cannot be drawn"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_icon_is_a_drawing_in_one_ink_at_its_own_place() {
        for (place, (icon, svg)) in (0_u32..).zip(ALL) {
            assert_eq!(*icon as u32, place, "{icon:?}");
            assert!(SvgGlyph::from_bytes(svg).is_ok(), "{icon:?}");
        }
    }
}
