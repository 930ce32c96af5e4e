//! The ranking as it grows: bars sorted, every repetition a dot, stock as a dashed line.

use std::collections::BTreeMap;

use eframe::egui::Ui;

use crate::chart::{Kind, Ranked, Ranking, RankingRow as Row};
use crate::domain::text::{clean, settings_words};
use crate::domain::types::{Settings, Stage};
use crate::report::figures::{metric_title, rate_unit};
use crate::ui::charts;
use crate::ui::state::{JobView, StoredLine};
use crate::ui::widgets::{Card, muted};

/// The card.
pub fn card(ui: &mut Ui, job: &JobView, height: f32) {
    let label = job.primary.clone().unwrap_or_default();
    let unit = rate_unit(&label);
    let caption = format!(
        "{} · higher is better · every dot is one repetition",
        clean(&label)
    );
    let title = format!("{}, {unit}", metric_title(&label));
    Card::new(&title)
        .caption(caption)
        .min_height(height)
        .show(ui, |ui| {
            if !job.runs.iter().any(counted) {
                muted(ui, "The first bar appears when stock has been measured");
                return;
            }
            charts::kept(ui, "screening", job.version(), |width| {
                ranking(job, unit).scene(width)
            });
        });
}

/// It is a run that the ranking shows.
fn counted(run: &StoredLine) -> bool {
    matches!(
        run.planned.stage,
        Stage::Baseline | Stage::Screening | Stage::Pairs | Stage::DropOne
    )
}

/// Runs of screening, by settings.
fn ranking(job: &JobView, unit: &str) -> Ranking {
    let mut by_settings: BTreeMap<&Settings, Vec<&StoredLine>> = BTreeMap::new();
    for run in job.runs.iter().filter(|run| counted(run)) {
        by_settings
            .entry(&run.planned.settings)
            .or_default()
            .push(run);
    }
    let baseline = by_settings
        .values()
        .flatten()
        .find(|run| run.planned.stage == Stage::Baseline && !run.scores.is_empty())
        .map(|run| run.planned.settings.clone());
    let mut rows: Vec<Row> = by_settings
        .iter()
        .map(|(settings, runs)| row(settings, runs, baseline.as_ref()))
        .collect();
    let best = rows
        .iter()
        .filter_map(|row| row.mean)
        .fold(f64::NEG_INFINITY, f64::max);
    for row in &mut rows {
        if row.kind == Kind::Ordinary && row.mean == Some(best) {
            row.kind = Kind::Best;
            row.emphasised = true;
        }
    }
    let level = rows
        .iter()
        .find(|row| row.kind == Kind::Stock)
        .and_then(|row| row.mean);
    Ranking {
        rows,
        baseline: level,
        baseline_label: if baseline.is_none_or(|b| b.is_stock()) {
            "stock"
        } else {
            "baseline"
        }
        .to_owned(),
        of: Ranked::SETTINGS,
        unit: unit.to_owned(),
    }
}

fn row(settings: &Settings, runs: &[&StoredLine], baseline: Option<&Settings>) -> Row {
    let is_baseline = Some(settings) == baseline;
    let values: Vec<f64> = runs
        .iter()
        .flat_map(|run| run.scores.iter().copied())
        .collect();
    let mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let failure = runs.iter().rev().find_map(|run| run.failure.as_ref());
    let kind = match failure {
        Some(why) if mean.is_none() && why.starts_with("stopped early") => {
            Kind::StoppedEarly(clean(why))
        }
        Some(why) if mean.is_none() => Kind::Failed(clean(why)),
        _ if is_baseline => Kind::Stock,
        _ => Kind::Ordinary,
    };
    Row {
        label: if settings.is_stock() {
            "Stock defaults".to_owned()
        } else if is_baseline {
            settings_words(settings)
        } else {
            settings_words(&baseline.map_or_else(|| settings.clone(), |b| settings.beyond(b)))
        },
        emphasised: is_baseline,
        values,
        mean,
        ci: None,
        kind,
    }
}
