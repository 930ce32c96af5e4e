//! The confirmation as it runs: the strip fills run by run, the interval narrows. Nothing is judged before its end.

use eframe::egui::Ui;

use crate::chart::{Cell, CellState, Intervals, Role, Samples, Strip};
use crate::domain::text::{clean, count, quantity, settings_phrase, settings_words};
use crate::domain::types::{Settings, Side};
use crate::report::figures::{arm_rows, cell, interval_row, metric_title};
use crate::ui::charts;
use crate::ui::state::{JobView, LiveConfirmation, StoredLine};
use crate::ui::widgets::{Card, caption, muted};

/// The cards.
pub fn cards(ui: &mut Ui, job: &JobView) {
    let Some(live) = &job.confirmation else {
        return;
    };
    let label = job.primary.clone().unwrap_or_default();
    let unit = quantity(&label, 1.0).1;
    let role = live
        .judged
        .as_ref()
        .and_then(|judged| judged.verdict)
        .map_or(Role::Accent, Role::of);
    interval(ui, live, &label, role);
    let plan = format!(
        "{} + {} runs of {}, fixed before the first",
        live.processes,
        live.processes,
        count(u64::from(live.repetitions), "repetition")
    );
    Card::new("Confirmation, in the order it runs")
        .caption(plan)
        .show(ui, |ui| {
            charts::kept(ui, "strip", job.version(), |width| {
                // Its warm-up is not one of the runs.
                let counts = job.is_running() && job.stage.as_deref() == Some("confirmation");
                strip(live, counts, role, &label).scene(width)
            });
            caption(
                ui,
                format!(
                    "A {} · B {} · a fresh process each",
                    settings_phrase(&baseline(live)),
                    settings_words(&live.settings.beyond(&baseline(live)))
                ),
            );
        });
    if live.runs.is_empty() {
        return;
    }
    Card::new("Every run")
        .caption(format!("{unit} · none dropped for being slow"))
        .show(ui, |ui| {
            charts::kept(ui, "runs", job.version(), |width| {
                samples(live, role, &label).scene(width)
            });
        });
}

fn interval(ui: &mut Ui, live: &LiveConfirmation, label: &str, role: Role) {
    let smallest = live.smallest_effect_pct.map_or_else(
        || "band ±1 %: below it nothing is kept".to_owned(),
        |pct| format!("band ±1 %: below it nothing is kept · smallest effect this plan can see: {pct:.1} %"),
    );
    Card::new("Change against the baseline so far")
        .caption(smallest)
        .show(ui, |ui| {
            let Some(so_far) = live.so_far() else {
                muted(ui, "The interval appears when both arms have runs");
                return;
            };
            let intervals = Intervals {
                rows: vec![interval_row(&metric_title(label), &so_far, role)],
            };
            charts::with_table(ui, "interval", |width| intervals.scene(width));
            match &live.judged {
                Some(judged) => caption(ui, clean(&judged.reason)),
                None => caption(
                    ui,
                    "Watching does not end it sooner: the verdict comes after the last run",
                ),
            };
        });
}

/// The mean of a run in the unit people read.
fn value(run: &StoredLine, label: &str) -> Option<f64> {
    Some(quantity(label, run.score()?).0)
}

/// What arm A runs: stock until its first run tells otherwise.
fn baseline(live: &LiveConfirmation) -> Settings {
    let mut of_arm_a = live.runs.iter().filter(|r| r.planned.side == Some(Side::A));
    of_arm_a
        .next()
        .map_or_else(Settings::stock, |r| r.planned.settings.clone())
}

fn strip(live: &LiveConfirmation, running: bool, role: Role, label: &str) -> Strip {
    let cells = live.order().into_iter().enumerate().map(|(place, side)| {
        let run = live.runs.get(place);
        let value = run.and_then(|run| value(run, label));
        let state = match run {
            Some(_) => return cell(side, value),
            None if place == live.runs.len() && running && live.judged.is_none() => {
                CellState::Running
            }
            None => CellState::Planned,
        };
        Cell { side, value, state }
    });
    Strip {
        cells: cells.collect(),
        candidate: role,
        unit: quantity(label, 1.0).1.to_owned(),
    }
}

fn samples(live: &LiveConfirmation, role: Role, label: &str) -> Samples {
    let runs = live.runs.iter().filter_map(|run| {
        let side = run.planned.side?;
        Some((side, run.seq, value(run, label)?))
    });
    Samples {
        rows: arm_rows(&settings_words(&baseline(live)), role, runs),
        unit: quantity(label, 1.0).1.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::domain::types::{PlannedRun, Stage};

    fn live() -> LiveConfirmation {
        let run = StoredLine {
            id: 1,
            seq: 0,
            planned: PlannedRun {
                stage: Stage::Confirmation,
                side: Some(Side::A),
                settings: Settings::stock(),
                repetitions: 1,
                early_stop: None,
                log_buffers: false,
                clients: 1,
                purpose: String::new(),
            },
            metrics: BTreeMap::new(),
            scores: vec![0.25],
            energy: Vec::new(),
            failure: None,
            wall_secs: 4.0,
        };
        LiveConfirmation {
            settings: Settings::stock(),
            processes: 1,
            repetitions: 1,
            smallest_effect_pct: None,
            runs: Arc::new(vec![run]),
            judged: None,
        }
    }

    #[test]
    fn a_request_is_shown_as_seconds_and_a_rate_as_it_is() {
        let request = strip(&live(), true, Role::Accent, "request");
        assert_eq!(
            (request.cells[0].value, request.unit.as_str()),
            (Some(4.0), "s/request")
        );
        let samples = samples(&live(), Role::Accent, "request");
        assert_eq!(
            (samples.rows[0].runs[0].value, samples.unit.as_str()),
            (4.0, "s/request")
        );
        let rate = strip(&live(), true, Role::Accent, "tg128");
        assert_eq!(
            (rate.cells[0].value, rate.unit.as_str()),
            (Some(0.25), "t/s")
        );
    }
}
