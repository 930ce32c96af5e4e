//! The charts of a report, from the runs themselves.

use crate::chart::{Align, Table};
use crate::chart::{
    Cell, CellState, IntervalRow, Intervals, Kind, Ranking, RankingRow, Role, Run, SampleRow,
    Samples, Strip,
};
use crate::domain::search::ConfirmationRun;
use crate::domain::text::{
    Metric, capitalised, change, clean, decimals_for, effect, quantity, rate_decimals,
    settings_phrase, settings_words, spread, test_line,
};
use crate::domain::types::{Comparison, RunOutcome, Settings, Side, Stage};
use crate::engine::report::ConfirmationDocument;
use crate::ports::StoredRun;

use super::page::{figure, section, table, text};
use super::story::Story;

/// Charts are laid out for this width, points; the page scales them down where it is narrower.
const WIDTH: f32 = 778.0;

/// Every confirmation, the one the verdict is of first.
pub(super) fn confirmations(story: &Story) -> String {
    let judged = story.confirmations.iter().rev();
    let mut html: String = judged.map(|c| confirmation(story, c)).collect();
    html.push_str(&open(story));
    html
}

fn confirmation(story: &Story, confirmation: &ConfirmationDocument) -> String {
    let mut metrics = confirmation.judged();
    metrics.sort_by_key(|metric| metric.label != confirmation.primary);
    let candidate = settings_words(&confirmation.settings);
    let title = format!(
        "{candidate} against {}",
        baseline_words(&confirmation.baseline)
    );
    let primary = confirmation.metrics.get(&confirmation.primary);
    let role = primary.map_or(Role::Inconclusive, |c| Role::of(c.verdict));
    let mut html = intervals(&metrics);
    html.push_str(&judgements(&metrics));
    html.push_str(&strip(story, confirmation, role));
    for metric in &metrics {
        html.push_str(&samples(story, confirmation, metric));
    }
    if html.is_empty() {
        html = format!(
            "<p>{}</p>\n",
            text(&capitalised(&clean(&confirmation.reason)))
        );
    }
    section(
        &title,
        "Shaded is ±1 %, within which nothing is claimed",
        &html,
    )
}

fn baseline_words(settings: &Settings) -> String {
    if settings.is_stock() {
        "stock".to_owned()
    } else {
        settings_words(settings)
    }
}

/// `tg128` → `Generation tg128`.
fn metric_words(label: &str) -> String {
    let kind = match label {
        l if l.starts_with("pp") && l.contains("tg") => "Prompt and generation ",
        l if l.starts_with("pp") => "Prompt ",
        l if l.starts_with("tg") => "Generation ",
        _ => return capitalised(label),
    };
    format!("{kind}{label}")
}

fn intervals(metrics: &[Metric]) -> String {
    let row = |metric: &Metric| {
        let Comparison {
            change_pct,
            ci95_pct,
            verdict,
            ..
        } = metric.comparison;
        let change = match ci95_pct {
            Some([lo, hi]) => change(change_pct, decimals_for((hi - lo) / 2.0)),
            None if change_pct.is_finite() => format!("about {}", change(change_pct, 0)),
            None => "unknown".to_owned(),
        };
        IntervalRow {
            label: clean(&metric_words(&metric.label)),
            change,
            change_pct,
            ci: ci95_pct,
            role: Role::of(verdict),
        }
    };
    let rows: Vec<IntervalRow> = metrics.iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    figure(&Intervals { rows }.scene(WIDTH))
}

/// Every metric in words and numbers, as `flux show` has them.
fn judgements(metrics: &[Metric]) -> String {
    let mut rows = Table::new(&[
        ("Metric", Align::Left),
        ("Baseline", Align::Right),
        ("Candidate", Align::Right),
        ("Change", Align::Left),
        ("Verdict", Align::Left),
    ]);
    for Metric {
        label,
        comparison,
        plain,
    } in metrics
    {
        let [a, b] = arms(label, comparison);
        let verdict = capitalised(&comparison.verdict.to_string());
        let test = test_line(comparison).map_or_else(String::new, |line| format!(" · {line}"));
        rows.row([
            label.clone(),
            a,
            b,
            format!("{}{test}", effect(comparison)),
            format!("{verdict}: {}", comparison.reason),
        ]);
        if let Some(plain) = plain {
            let change = format!("Plain Welch: {}", effect(plain));
            let verdict = capitalised(&plain.verdict.to_string());
            rows.row([String::new(), String::new(), String::new(), change, verdict]);
        }
    }
    table(&rows)
}

fn arms(label: &str, comparison: &Comparison) -> [String; 2] {
    let arms = [&comparison.baseline, &comparison.candidate];
    let decimals = arms.map(|arm| rate_decimals(quantity(label, arm.mean).0, arm.cv_pct));
    let decimals = decimals[0].min(decimals[1]);
    arms.map(|arm| {
        let (value, unit) = quantity(label, arm.mean);
        format!("{value:.decimals$} {unit}, {}", spread(arm))
    })
}

fn strip(story: &Story, confirmation: &ConfirmationDocument, role: Role) -> String {
    let cell = |run: &ConfirmationRun| {
        let stored = story.run(run.seq);
        let value = stored.and_then(|stored| story.value(stored, &confirmation.primary));
        cell(run.side, value)
    };
    let cells = confirmation.runs.iter().map(cell).collect();
    strip_of(cells, role, &confirmation.primary)
}

const fn cell(side: Side, value: Option<f64>) -> Cell {
    let state = match value {
        Some(_) => CellState::Done,
        None => CellState::Failed,
    };
    Cell { side, value, state }
}

fn strip_of(cells: Vec<Cell>, candidate: Role, label: &str) -> String {
    if cells.is_empty() {
        return String::new();
    }
    let unit = quantity(label, 1.0).1.to_owned();
    let caption = format!(
        "{}, in {unit}; A baseline, B candidate, a fresh process each",
        clean(label)
    );
    let strip = Strip {
        cells,
        candidate,
        unit,
    };
    format!(
        "<h3>Confirmation, in the order it ran</h3>\n<p class=\"caption\">{}</p>\n{}",
        text(&caption),
        figure(&strip.scene(WIDTH))
    )
}

/// The confirmation that is not judged yet.
fn open(story: &Story) -> String {
    let label = story.primary();
    let runs = story.open_confirmation();
    let cells = runs
        .iter()
        .filter_map(|run| Some(cell(run.planned.side?, story.value(run, &label))))
        .collect();
    section("Not judged yet", "", &strip_of(cells, Role::Accent, &label))
}

fn samples(story: &Story, confirmation: &ConfirmationDocument, metric: &Metric) -> String {
    let runs = |wanted: Side| -> Vec<Run> {
        let arm = confirmation.runs.iter().filter(|run| run.side == wanted);
        arm.filter_map(|run| {
            let value = story.value(story.run(run.seq)?, &metric.label)?;
            Some(Run {
                number: run.seq + 1,
                value,
            })
        })
        .collect()
    };
    let row = |label: String, side, role| SampleRow {
        label,
        runs: runs(side),
        role,
    };
    let baseline = capitalised(&baseline_words(&confirmation.baseline));
    let rows = vec![
        row(baseline, Side::A, Role::Stock),
        row(
            "Candidate".to_owned(),
            Side::B,
            Role::of(metric.comparison.verdict),
        ),
    ];
    if rows.iter().all(|row| row.runs.is_empty()) {
        return String::new();
    }
    let unit = quantity(&metric.label, 1.0).1.to_owned();
    let seen = confirmation
        .size
        .and_then(|size| size.smallest_effect_pct)
        .filter(|_| metric.label == confirmation.primary)
        .map_or_else(String::new, |pct| {
            format!(" · smallest effect this plan could see {pct:.1} %")
        });
    let caption = format!("{unit} · every dot is one run, none dropped for being slow{seen}");
    format!(
        "<h3>Every run, {}</h3>\n<p class=\"caption\">{}</p>\n{}",
        text(&metric.label),
        text(&caption),
        figure(&Samples { rows, unit }.scene(WIDTH))
    )
}

/// All that was measured outside of a confirmation, ranked.
pub(super) fn screening(story: &Story) -> String {
    let label = story.primary();
    let baseline = story.baseline();
    let mut groups: Vec<(&Settings, Vec<&StoredRun>)> = Vec::new();
    for run in story.evidence.runs.iter().filter(|run| is_screening(run)) {
        let settings = &run.planned.settings;
        match groups.iter_mut().find(|(known, _)| *known == settings) {
            Some((_, runs)) => runs.push(run),
            None => groups.push((settings, vec![run])),
        }
    }
    if groups.is_empty() {
        return String::new();
    }
    let rows: Vec<RankingRow> = groups
        .iter()
        .map(|(settings, runs)| ranked(story, &label, settings, runs))
        .collect();
    let stock = groups
        .iter()
        .position(|(settings, _)| **settings == baseline);
    // The request goal's metric is shown as seconds elsewhere; a bar is longer where it is better.
    let unit = if quantity(&label, 1.0).1 == "t/s" {
        "t/s"
    } else {
        "requests/s"
    };
    let ranking = Ranking {
        baseline: stock.and_then(|at| rows[at].mean),
        baseline_label: if baseline.is_stock() {
            "stock"
        } else {
            "baseline"
        }
        .to_owned(),
        rows,
        unit: unit.to_owned(),
    };
    let onto = best(story).filter(|best| groups.iter().any(|(s, _)| is_more(s, best)));
    let onto = onto.map_or_else(String::new, |best| {
        format!(" · + is on top of {}", settings_phrase(best))
    });
    let caption = format!("{label}, {unit} · higher is better · every dot is one sample{onto}");
    section("Screening", &caption, &figure(&ranking.scene(WIDTH)))
}

fn is_screening(run: &StoredRun) -> bool {
    !matches!(run.planned.stage, Stage::WarmUp | Stage::Confirmation)
}

fn ranked(story: &Story, label: &str, settings: &Settings, runs: &[&StoredRun]) -> RankingRow {
    let means: Vec<f64> = runs
        .iter()
        .filter_map(|run| story.rate(run, label))
        .collect();
    let mean = (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64);
    let values: Vec<f64> = runs
        .iter()
        .flat_map(|run| repetitions(run, label))
        .collect();
    let is_baseline = *settings == story.baseline();
    let is_best = best(story).is_some_and(|best| best == settings);
    RankingRow {
        label: added(story, settings).unwrap_or_else(|| settings_words(settings)),
        emphasised: is_baseline || is_best,
        // The request goal has no repetitions of its own: its runs are the samples.
        values: if values.is_empty() { means } else { values },
        kind: match (mean, runs.last().map(|run| &run.run.outcome)) {
            (None, Some(RunOutcome::Failed { failure, .. })) => {
                Kind::Failed(failure.class.words().to_owned())
            }
            (None, Some(RunOutcome::StoppedEarly { .. })) => {
                Kind::StoppedEarly("stopped early".to_owned())
            }
            (None, Some(RunOutcome::Cancelled)) => Kind::Failed("cancelled".to_owned()),
            _ if is_best => Kind::Best,
            _ if is_baseline => Kind::Stock,
            _ => Kind::Ordinary,
        },
        mean,
        ci: None,
    }
}

/// All of `base` and something else.
fn is_more(settings: &Settings, base: &Settings) -> bool {
    let has = |(dimension, value): (&String, &String)| settings.0.get(dimension) == Some(value);
    !base.is_stock() && settings != base && base.0.iter().all(has)
}

/// What was added to the best: most candidates are it and one thing more, which alone is worth a label.
fn added(story: &Story, settings: &Settings) -> Option<String> {
    let base = best(story).filter(|best| is_more(settings, best))?;
    let mut rest = settings.clone();
    rest.0
        .retain(|dimension, _| !base.0.contains_key(dimension));
    Some(format!("+ {}", settings_phrase(&rest)))
}

fn repetitions(run: &StoredRun, label: &str) -> Vec<f64> {
    let RunOutcome::Valid { tests } = &run.run.outcome else {
        return Vec::new();
    };
    let test = tests.iter().find(|t| t.test.to_string() == label);
    test.map_or_else(Vec::new, crate::domain::types::TestSamples::rates)
}

/// What was saved, else the best of the search.
fn best<'a>(story: &'a Story) -> Option<&'a Settings> {
    let document = story.tuned()?;
    let adopted = || {
        document
            .candidates
            .iter()
            .rfind(|c| c.adopted)
            .map(|c| &c.settings)
    };
    document
        .profile
        .as_ref()
        .map(|p| &p.settings)
        .or_else(adopted)
}
