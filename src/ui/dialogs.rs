//! What opens over a page: palette, keys, and the two questions that are asked before something is lost.

use eframe::egui::{Context, Id, Key, Modal, Modifiers, Ui};

use crate::ports::CancelMode;

use super::app::{Cx, Order};
use super::command::{self, ENTRIES, Entry};
use super::state::{AppState, Dialog};
use super::theme::space;
use super::widgets::{Column, Press, Table, Width, label, muted, search_field, section};

/// Draws the open dialog.
pub fn show(ctx: &Context, state: &mut AppState, cx: &mut Cx) {
    let keep = match state.dialog.clone() {
        Dialog::None => return,
        Dialog::Palette { text, marked } => palette(ctx, state, cx, text, marked),
        Dialog::Keys => keys(ctx),
        Dialog::Closing => closing(ctx, cx),
        Dialog::Stopping => {
            let goes_on = state.job.as_ref().is_some_and(|j| j.kind == "tune");
            stopping(ctx, cx, goes_on)
        }
    };
    if !keep {
        state.dialog = Dialog::None;
    }
}

/// A dialog; `false` when it is to close.
fn dialog(ctx: &Context, name: &str, width: f32, content: impl FnOnce(&mut Ui) -> bool) -> bool {
    let answer = Modal::new(Id::unique(name)).show(ctx, |ui| {
        ui.set_width(width);
        content(ui)
    });
    answer.inner && !answer.should_close()
}

fn palette(
    ctx: &Context,
    state: &mut AppState,
    cx: &mut Cx,
    mut text: String,
    marked: usize,
) -> bool {
    let (up, down, enter) = ctx.input_mut(|input| {
        let mut take = |key| input.consume_key(Modifiers::NONE, key);
        (take(Key::ArrowUp), take(Key::ArrowDown), take(Key::Enter))
    });
    let mut keep = true;
    let stays = dialog(ctx, "palette", 480.0, |ui| {
        let before = text.clone();
        search_field(
            ui,
            &mut text,
            "Command",
            ui.available_width() - 2.0 * space::M,
        )
        .request_focus();
        let found = command::matching(&text);
        let last = found.len().saturating_sub(1);
        let mut at = if before == text { marked.min(last) } else { 0 };
        if down {
            at = (at + 1).min(last);
        }
        if up {
            at = at.saturating_sub(1);
        }
        state.dialog = Dialog::Palette {
            text: text.clone(),
            marked: at,
        };
        if found.is_empty() {
            muted(ui, "No command of that name");
        }
        let name = |index: usize| found[index].name.to_owned();
        let columns = [
            Column::left("", Width::Share(1.0)),
            Column::right("", Width::Fixed(110.0)),
        ];
        let clicked = Table::new("palette", &columns)
            .headless()
            .choosable(Some(at), &name)
            .show(ui, found.len(), |index, cells| {
                cells.text(found[index].name);
                cells.muted(shortcut(ctx, found[index]));
            });
        let taken = clicked.or_else(|| (enter && !found.is_empty()).then_some(at));
        if let Some(index) = taken {
            cx.order(Order::Ui(found[index].command));
            keep = false;
        }
        true
    });
    keep && stays
}

fn shortcut(ctx: &Context, entry: &Entry) -> String {
    entry
        .shortcut
        .map(|keys| ctx.format_shortcut(&keys))
        .unwrap_or_default()
}

fn keys(ctx: &Context) -> bool {
    dialog(ctx, "keys", 460.0, |ui| {
        section(ui, "Keys");
        let with_keys: Vec<&Entry> = ENTRIES.iter().filter(|e| e.shortcut.is_some()).collect();
        let columns = [
            Column::left("", Width::Share(1.0)),
            Column::right("", Width::Fixed(110.0)),
        ];
        Table::new("keys", &columns)
            .headless()
            .show(ui, with_keys.len(), |index, cells| {
                cells.text(with_keys[index].name);
                cells.muted(shortcut(ctx, with_keys[index]));
            });
        ui.add_space(space::S);
        muted(
            ui,
            "1 to 4 go to a page, Tab moves on, Enter or Space presses, Esc closes",
        );
        ui.add_space(space::S);
        !ui.add(Press::new("Close").primary()).clicked()
    })
}

fn closing(ctx: &Context, cx: &mut Cx) -> bool {
    dialog(ctx, "closing", 440.0, |ui| {
        section(ui, "Flux is still working");
        label(
            ui,
            "Closing ends the run in progress. Every finished run is kept, and a tuning can go on later from the history.",
        );
        ui.add_space(space::S);
        let mut keep = true;
        ui.horizontal(|ui| {
            if ui.add(Press::new("Keep running").primary()).clicked() {
                keep = false;
            }
            if ui.add(Press::new("Stop and close")).clicked() {
                cx.order(Order::Leave);
                keep = false;
            }
        });
        keep
    })
}

fn stopping(ctx: &Context, cx: &mut Cx, goes_on: bool) -> bool {
    let (question, kept) = if goes_on {
        (
            "Stop this tuning?",
            "Every finished run is kept, and the tuning can go on later.",
        )
    } else {
        (
            "Stop this benchmark?",
            "Every finished run is kept, and predictions learn from it.",
        )
    };
    dialog(ctx, "stopping", 440.0, |ui| {
        section(ui, question);
        label(ui, kept);
        ui.add_space(space::S);
        let mut keep = true;
        ui.horizontal(|ui| {
            if ui
                .add(Press::new("Stop after this run").primary())
                .clicked()
            {
                cx.order(Order::Stop(CancelMode::AfterSample));
                keep = false;
            }
            if ui.add(Press::new("Stop now")).clicked() {
                cx.order(Order::Stop(CancelMode::Now));
                keep = false;
            }
            if ui.add(Press::new("Go on").quiet()).clicked() {
                keep = false;
            }
        });
        keep
    })
}
