//! The states a page can be in beside its content: empty, loading, failed. A value that is loaded again stays on
//! screen, dimmed, until the new one is there.

use eframe::egui::{Align, Layout, Sense, Ui, vec2};

use crate::domain::text::{capitalised, clean};
use crate::engine::message::JobError;
use crate::ports::{Notice, NoticeLevel};
use crate::ui::theme::icons::Icon;
use crate::ui::theme::{space, tokens};

use super::button::{Press, icon_at};
use super::text::{caption, code, label, muted, section};

/// Something asked of a worker.
#[derive(Debug, Clone, Default)]
pub enum Loadable<T> {
    /// Nobody asked yet.
    #[default]
    Unasked,
    /// Asked; the value before, where there is one.
    Loading(Option<T>),
    /// There.
    Ready(T),
    /// Refused; the value before, where there is one.
    Failed(JobError, Option<T>),
}

impl<T> Loadable<T> {
    /// The newest value known.
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::Ready(value) | Self::Loading(Some(value)) | Self::Failed(_, Some(value)) => {
                Some(value)
            }
            _ => None,
        }
    }

    /// Nobody asked yet.
    pub const fn is_unasked(&self) -> bool {
        matches!(self, Self::Unasked)
    }

    /// On its way.
    pub const fn is_loading(&self) -> bool {
        matches!(self, Self::Loading(_))
    }

    /// Why it is not there.
    pub const fn error(&self) -> Option<&JobError> {
        match self {
            Self::Failed(error, _) => Some(error),
            _ => None,
        }
    }

    /// Asked again: the value stays.
    pub fn ask(&mut self) {
        let before = match std::mem::take(self) {
            Self::Ready(value) | Self::Loading(Some(value)) | Self::Failed(_, Some(value)) => {
                Some(value)
            }
            _ => None,
        };
        *self = Self::Loading(before);
    }

    /// Answered.
    pub fn answer(&mut self, answer: Result<T, JobError>) {
        let before = match std::mem::take(self) {
            Self::Loading(before) | Self::Failed(_, before) => before,
            Self::Ready(value) => Some(value),
            Self::Unasked => None,
        };
        *self = match answer {
            Ok(value) => Self::Ready(value),
            Err(error) => Self::Failed(error, before),
        };
    }
}

/// Nothing here yet: one sentence and one thing to do.
pub fn empty(ui: &mut Ui, icon: Icon, sentence: &str, action: Option<&str>) -> bool {
    let mut pressed = false;
    ui.with_layout(Layout::top_down(Align::Center), |ui| {
        ui.add_space(space::XL * 2.0);
        let (rect, _) = ui.allocate_exact_size(vec2(40.0, 40.0), Sense::hover());
        icon_at(ui, icon, rect.center(), 28.0, tokens(ui).muted);
        ui.add_space(space::S);
        muted(ui, sentence);
        if let Some(action) = action {
            ui.add_space(space::S);
            pressed = ui.add(Press::new(action).primary()).clicked();
        }
        ui.add_space(space::XL);
    });
    pressed
}

/// On its way, without a value to keep on screen.
pub fn loading_note(ui: &mut Ui, what: &str) {
    ui.horizontal(|ui| {
        let (rect, _) = ui.allocate_exact_size(vec2(18.0, 18.0), Sense::hover());
        icon_at(ui, Icon::Clock, rect.center(), 14.0, tokens(ui).muted);
        muted(ui, what);
    });
}

/// What failed: headline, causes, what to do; the details can be copied.
pub fn failed(ui: &mut Ui, error: &JobError) {
    let color = tokens(ui).regressed;
    ui.horizontal_top(|ui| {
        let (rect, _) = ui.allocate_exact_size(vec2(20.0, 20.0), Sense::hover());
        icon_at(ui, Icon::Problem, rect.center(), 16.0, color);
        ui.vertical(|ui| {
            section(ui, capitalised(&clean(&error.headline)));
            for cause in &error.cause {
                code(ui, clean(cause));
            }
            if let Some(hint) = &error.hint {
                label(ui, capitalised(&clean(hint)));
            }
            ui.add_space(space::XS);
            let copy = Press::new("Copy details").icon(Icon::Copy).quiet();
            if ui.add(copy).clicked() {
                ui.ctx().copy_text(details(error));
            }
        });
    });
}

/// An error as text for a report.
fn details(error: &JobError) -> String {
    let mut lines = vec![format!("{}: {}", error.code, error.headline)];
    lines.extend(error.cause.iter().map(|cause| format!("  {cause}")));
    lines.extend(error.hint.iter().map(|hint| format!("  hint: {hint}")));
    lines.join("\n")
}

/// One notice with its level.
pub fn notice_line(ui: &mut Ui, notice: &Notice) {
    let t = tokens(ui);
    let (icon, color, word) = match notice.level {
        NoticeLevel::Info => (Icon::Info, t.accent, "Note"),
        NoticeLevel::Warning => (Icon::Warning, t.warning, "Warning"),
    };
    ui.horizontal_top(|ui| {
        let (rect, _) = ui.allocate_exact_size(vec2(18.0, 18.0), Sense::hover());
        icon_at(ui, icon, rect.center(), 13.0, color);
        ui.vertical(|ui| {
            ui.spacing_mut().item_spacing.y = 0.0;
            label(ui, clean(&notice.text));
            caption(ui, word);
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_while_a_new_one_is_on_its_way_and_when_it_does_not_come() {
        let mut it = Loadable::Unasked;
        it.ask();
        assert!(it.is_loading() && it.value().is_none());
        it.answer(Ok(1));
        it.ask();
        assert_eq!((it.is_loading(), it.value()), (true, Some(&1)));
        it.answer(Err(JobError::new("x", "y")));
        assert_eq!(it.value(), Some(&1));
        assert_eq!(it.error().map(|e| e.code.as_str()), Some("x"));
        it.answer(Ok(2));
        assert_eq!((it.value(), it.error()), (Some(&2), None));
    }
}
