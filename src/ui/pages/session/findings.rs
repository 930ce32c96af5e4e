//! The right column and what stands above it: what the result means, why each setting is there, what was checked,
//! rejected, not tried, noticed; and where all of it was measured.

use eframe::egui::{Color32, Ui};

use crate::domain::search::{MemoryUse, Rejection};
use crate::domain::settings::AppSettings;
use crate::domain::text::{change, clean};
use crate::domain::types::Verdict;
use crate::ports::SessionKind;
use crate::report::findings::{Check, Fate, NotTried};
use crate::ui::theme::icons::Icon;
use crate::ui::theme::{space, tokens};
use crate::ui::widgets::{
    Card, Column, Press, Table, Width, badge, caption, code, columns, label, muted, notice_line,
    status, strong, verdict_badge,
};

use super::SessionView;
use super::view::Ending;

/// Rows of a list before the rest is asked for.
const SHOWN: usize = 12;

/// What a result means that is neither a gain nor a loss, or that there is none; in words.
pub fn meaning(ui: &mut Ui, view: &SessionView) {
    let t = tokens(ui);
    if let Some(rejection) = view.rejection {
        Card::new("May be faster, and is not saved").show(ui, |ui| {
            status(ui, Icon::Warning, t.warning, rejected_because(rejection));
        });
        return;
    }
    if let Some(unfit) = &view.unfit {
        Card::new("Faster, and not saved").show(ui, |ui| {
            status(ui, Icon::Warning, t.warning, unfit);
        });
        return;
    }
    let Some((title, lines)) = said(view) else {
        return;
    };
    Card::new(title).show(ui, |ui| {
        for (icon, line) in lines {
            let color = if icon == Icon::Inconclusive {
                t.inconclusive
            } else {
                t.accent
            };
            status(ui, icon, color, line);
        }
    });
}

/// Title and lines of the card.
fn said(view: &SessionView) -> Option<(&'static str, Vec<(Icon, &'static str)>)> {
    Some(match (&view.ending, view.verdict) {
        (Ending::Done, Some(Verdict::Inconclusive)) => (
            "Not decided",
            vec![
                (
                    Icon::Inconclusive,
                    "The runs vary more than the difference they are to show: it may be a gain, a loss, or nothing. That is a result too, and nothing is claimed",
                ),
                (Icon::Next, more_runs(view.kind)),
                (
                    Icon::Next,
                    "Close what else uses this machine, and let it cool down: Machine lists what would spoil a measurement",
                ),
            ],
        ),
        (Ending::Done, Some(Verdict::Regressed)) => (
            "Slower",
            vec![(
                Icon::Regressed,
                "The candidate is shown to be slower than the baseline. Nothing is saved: the baseline stays",
            )],
        ),
        (Ending::Done, Some(Verdict::Unchanged)) => (
            "No difference that matters",
            vec![(
                Icon::Unchanged,
                "Whatever difference there is, it is not shown to exceed 1 %. The baseline stays, and that is a result",
            )],
        ),
        (Ending::Cancelled, _) => (
            "Cancelled before a result",
            vec![(
                Icon::Check,
                "Every finished run is kept; going on continues as if nothing had happened",
            )],
        ),
        (Ending::Open, _) => (
            "No result yet",
            vec![(
                Icon::Clock,
                "It is being measured, or was broken off; every finished run is kept",
            )],
        ),
        _ => return None,
    })
}

const fn rejected_because(rejection: Rejection) -> &'static str {
    match rejection {
        Rejection::Failed => "Runs of the candidate failed: what does not run cannot be kept",
        Rejection::Memory => {
            "It would take memory that the desktop or other programs need; the reserve is a setting"
        }
        Rejection::GuardRegressed => {
            "The goal's metric gained and another one lost: a profile must not trade one for the other unasked. The goal Whole request weighs both"
        }
        Rejection::GuardUnproven => {
            "The goal's metric gained, and another one could not be shown to be unharmed: more processes per arm would settle it"
        }
    }
}

const fn more_runs(kind: SessionKind) -> &'static str {
    match kind {
        SessionKind::Tune => {
            "Measure again with more processes per arm: they are among the rarely needed choices of the goal"
        }
        SessionKind::Ab => "Compare again with more processes per arm: flux ab has --processes",
        SessionKind::Plan => "Measure again with more processes per arm: flux plan has --processes",
        SessionKind::Lab => "Measure again on the Lab page",
        SessionKind::ServeCheck => {
            "Check again with more servers per arm: flux serve-check has --processes"
        }
    }
}

/// The cards.
pub fn cards(ui: &mut Ui, view: &SessionView, settings: &AppSettings) {
    why(ui, view);
    checked(ui, view, settings);
    rejected(ui, view);
    not_tried(ui, &view.not_tried, view.version);
    if !view.notices.is_empty() {
        Card::new("Noticed").show(ui, |ui| {
            for notice in &view.notices {
                notice_line(ui, notice);
            }
        });
    }
}

fn why(ui: &mut Ui, view: &SessionView) {
    if view.settings.is_empty() {
        return;
    }
    Card::new("Why these settings").show(ui, |ui| {
        for setting in &view.settings {
            ui.vertical(|ui| {
                ui.spacing_mut().item_spacing.y = 2.0;
                strong(ui, format!("{} {}", setting.title, clean(&setting.value)));
                if !setting.describe.is_empty() {
                    label(ui, &setting.describe);
                }
                let parts = [&setting.introduced, &setting.without];
                let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
                if !parts.is_empty() {
                    caption(ui, parts.join(" · "));
                }
            });
        }
    });
}

fn checked(ui: &mut Ui, view: &SessionView, settings: &AppSettings) {
    // A check through live servers shows every metric with its verdict.
    if view.checks.is_empty() || !view.live.is_empty() {
        return;
    }
    let title = match view.kind {
        SessionKind::Tune => "Checked before saving",
        SessionKind::Ab | SessionKind::Plan | SessionKind::Lab | SessionKind::ServeCheck => {
            "Also measured"
        }
    };
    Card::new(title).show(ui, |ui| {
        let columns = [
            Column::left("", Width::Fixed(18.0)),
            Column::left("", Width::Share(1.0)),
            Column::right("", Width::Fixed(150.0)),
        ];
        Table::new("checks", &columns).headless().wrap().show(
            ui,
            view.checks.len(),
            |row, cells| {
                let check = &view.checks[row];
                cells.add(|ui| {
                    let t = tokens(ui);
                    let (icon, color, word) = if check.passed {
                        (Icon::Check, t.improved, "passed")
                    } else {
                        (Icon::Warning, t.warning, "not passed")
                    };
                    mark(ui, icon, color, word);
                });
                cells.text(&check.title);
                cells.text(result(check, view, settings));
            },
        );
    });
}

/// Sizes in the owner's units.
fn result(check: &Check, view: &SessionView, settings: &AppSettings) -> String {
    let units = settings.memory_units;
    let in_units = |m: &&MemoryUse| check.result == format!("{} of {}", m.used, m.limit);
    view.memory.iter().find(in_units).map_or_else(
        || check.result.clone(),
        |m| format!("{} of {}", units.text(m.used), units.text(m.limit)),
    )
}

fn mark(ui: &mut Ui, icon: Icon, color: Color32, word: &str) {
    let text = eframe::egui::RichText::new(icon.glyph()).color(color);
    ui.label(text).on_hover_text(word);
}

fn rejected(ui: &mut Ui, view: &SessionView) {
    if view.rejected.is_empty() {
        return;
    }
    Card::new("Rejected").show(ui, |ui| {
        let shown = more(ui, "rejected", view.version, view.rejected.len());
        let columns = [
            Column::left("", Width::Share(1.0)),
            Column::right("", Width::Fixed(58.0)),
            Column::left("", Width::Fixed(104.0)),
        ];
        Table::new("rejected", &columns)
            .headless()
            .wrap()
            .show(ui, shown, |row, cells| {
                let rejected = &view.rejected[row];
                cells.text(&rejected.words);
                cells.text(
                    rejected
                        .change_pct
                        .map_or_else(|| "–".to_owned(), |pct| change(pct, 1)),
                );
                cells.add(|ui| {
                    let response = fate(ui, rejected.fate);
                    if !rejected.reason.is_empty() {
                        response.on_hover_text(clean(&rejected.reason));
                    }
                });
            });
        all(ui, "rejected", view.version, view.rejected.len());
    });
}

fn fate(ui: &mut Ui, fate: Fate) -> eframe::egui::Response {
    let t = tokens(ui);
    let (icon, color) = match fate {
        Fate::Confirmed(verdict) => return verdict_badge(ui, verdict),
        Fate::Slower => (Some(Icon::Regressed), t.regressed),
        Fate::Failed => (Some(Icon::Problem), t.regressed),
        Fate::Rejected(_) | Fate::Harmful => (Some(Icon::Warning), t.warning),
        Fate::NoGain
        | Fate::NoFurtherGain
        | Fate::SmallerGain
        | Fate::StoppedEarly
        | Fate::NotConfirmed
        | Fate::NotJudged => (None, t.unchanged),
    };
    badge(ui, icon, &fate.words(), color)
}

fn id(ui: &Ui, list: &str, version: u64) -> eframe::egui::Id {
    ui.scope_id().with(("shown", list, version))
}

/// How many rows of a list are shown.
fn more(ui: &Ui, list: &str, version: u64, rows: usize) -> usize {
    let id = id(ui, list, version);
    let whole = ui.data(|data| data.get_temp::<bool>(id)).unwrap_or(false);
    if whole { rows } else { rows.min(SHOWN) }
}

/// The switch for the rest of a list.
fn all(ui: &mut Ui, list: &str, version: u64, rows: usize) {
    let id = id(ui, list, version);
    if rows > SHOWN && more(ui, list, version, rows) < rows {
        let words = format!("Show all {rows}");
        if ui
            .add(Press::new(&words).icon(Icon::Down).quiet())
            .clicked()
        {
            ui.data_mut(|data| data.insert_temp(id, true));
        }
    }
}

/// What was not tried or will not be; `version` tells one list from another.
pub fn not_tried(ui: &mut Ui, not_tried: &NotTried, version: u64) {
    if not_tried.reasons.is_empty() && not_tried.other_backends.is_none() {
        return;
    }
    Card::new("Not tried").show(ui, |ui| {
        let shown = more(ui, "not tried", version, not_tried.reasons.len());
        for (reason, settings) in &not_tried.reasons[..shown] {
            ui.vertical(|ui| {
                ui.spacing_mut().item_spacing.y = 1.0;
                strong(ui, reason);
                caption(ui, settings);
            });
        }
        all(ui, "not tried", version, not_tried.reasons.len());
        if let Some((counted, which)) = &not_tried.other_backends {
            caption(ui, counted).on_hover_text(which);
        }
    });
}

/// Machine, build and model of the session.
pub fn place(ui: &mut Ui, view: &SessionView) {
    if super::is_narrow(ui) {
        for at in 0..view.place.len() {
            place_card(ui, view, at, 0.0);
        }
        return;
    }
    columns(ui, "place", &[1.0, 1.0, 1.0], |at, ui, height| {
        place_card(ui, view, at, height);
    });
}

fn place_card(ui: &mut Ui, view: &SessionView, at: usize, height: f32) {
    let (title, rows) = &view.place[at];
    Card::new(title).min_height(height).show(ui, |ui| {
        let columns = [
            Column::left("", Width::Fixed(92.0)),
            Column::left("", Width::Share(1.0)),
        ];
        let known: Vec<_> = rows.iter().filter(|(_, value)| !value.is_empty()).collect();
        Table::new(title, &columns)
            .headless()
            .wrap()
            .show(ui, known.len(), |row, cells| {
                let (name, value) = known[row];
                cells.muted(*name);
                if name.starts_with("SHA") {
                    // A digest is for telling apart, not for reading.
                    let short: String = value.chars().take(12).collect();
                    cells.add(|ui| drop(code(ui, clean(&short)).on_hover_text(clean(value))));
                } else {
                    cells.text(clean(value));
                }
            });
        if at == 0 {
            ui.add_space(space::S);
            muted(ui, format!("Fingerprint {}", view.fingerprint.short()));
        }
    });
}
