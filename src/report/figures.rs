//! The figures of a session as charts, from the runs themselves: the report and the app draw the same.

use std::fmt::Write as _;

use crate::chart::{
    Align, Cell, CellState, IntervalRow, Intervals, Kind, Ranked, Ranking, RankingRow, Role, Run,
    SampleRow, Samples, Strip, Table,
};
use crate::domain::stats::{Ordered, drift_pct};
use crate::domain::text::{
    Metric, arm_values, capitalised, change, clean, decimals_for, effect, quantity,
    settings_phrase, settings_words, span, spread, test_line,
};
use crate::domain::types::{Comparison, RunOutcome, Settings, Side, Stage, Verdict};
use crate::engine::report::ConfirmationDocument;
use crate::ports::StoredRun;

use super::story::Story;

/// A confirmation in figures.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfirmationFigures {
    /// Candidate against baseline, in words.
    pub title: String,
    /// The baseline in words, as inside a sentence.
    pub baseline: String,
    /// Every metric's change, the goal's first; `None` where none was judged.
    pub intervals: Option<Intervals>,
    /// Hedges' g of the goal's metric.
    pub hedges_g: Option<f64>,
    /// Every metric in words and numbers.
    pub judgements: Table,
    /// Its runs in order; `None` without one.
    pub strip: Option<StripFigure>,
    /// Every run, metric by metric.
    pub samples: Vec<SamplesFigure>,
    /// The verdict on the goal's metric.
    pub verdict: Option<Verdict>,
    /// The judgement in one sentence.
    pub reason: String,
}

/// Runs in the order they ran.
#[derive(Debug, Clone, PartialEq)]
pub struct StripFigure {
    /// What is shown, how the machine drifted, how long it took.
    pub caption: String,
    /// The chart.
    pub strip: Strip,
}

/// Every run of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplesFigure {
    /// The metric's label.
    pub label: String,
    /// What is shown, and the smallest effect that could be seen.
    pub caption: String,
    /// The chart.
    pub samples: Samples,
}

/// All that was measured outside of a confirmation.
#[derive(Debug, Clone, PartialEq)]
pub struct ScreeningFigure {
    /// What is shown.
    pub caption: String,
    /// The chart.
    pub ranking: Ranking,
}

/// The figures of a confirmation.
pub fn confirmation(story: &Story, confirmation: &ConfirmationDocument) -> ConfirmationFigures {
    let mut metrics = confirmation.judged();
    metrics.sort_by_key(|metric| metric.label != confirmation.primary);
    let primary = confirmation.metrics.get(&confirmation.primary);
    let role = primary.map_or(Role::Inconclusive, |c| Role::of(c.verdict));
    let row = |metric: &Metric| {
        let words = metric_words(&metric.label);
        interval_row(
            &words,
            &metric.comparison,
            Role::of(metric.comparison.verdict),
        )
    };
    let rows: Vec<IntervalRow> = metrics.iter().map(row).collect();
    let baseline = settings_phrase(&confirmation.baseline);
    ConfirmationFigures {
        title: format!(
            "{} against {baseline}",
            settings_words(&confirmation.settings)
        ),
        intervals: (!rows.is_empty()).then_some(Intervals { rows }),
        hedges_g: primary.and_then(|c| c.hedges_g),
        judgements: judgements(&metrics),
        strip: strip(story, confirmation, role),
        samples: metrics
            .iter()
            .filter_map(|metric| samples(story, confirmation, metric))
            .collect(),
        verdict: confirmation.verdict,
        reason: capitalised(&clean(&confirmation.reason)),
        baseline,
    }
}

/// What a metric is of: `Generation`, `Prompt`, `Request`.
pub fn metric_title(label: &str) -> String {
    match label {
        l if l.starts_with("pp") && l.contains("tg") => "Prompt and generation".to_owned(),
        l if l.starts_with("pp") => "Prompt".to_owned(),
        l if l.starts_with("tg") => "Generation".to_owned(),
        _ => capitalised(&clean(label)),
    }
}

/// `tg128` → `Generation tg128`.
fn metric_words(label: &str) -> String {
    let title = metric_title(label);
    let label = clean(label);
    if title.eq_ignore_ascii_case(&label) {
        title
    } else {
        format!("{title} {label}")
    }
}

/// A comparison as the interval chart shows it.
pub fn interval_row(label: &str, comparison: &Comparison, role: Role) -> IntervalRow {
    let change_pct = comparison.change_pct;
    IntervalRow {
        label: label.to_owned(),
        change: match comparison.ci95_pct {
            Some([lo, hi]) => change(change_pct, decimals_for((hi - lo) / 2.0)),
            None if change_pct.is_finite() => format!("about {}", change(change_pct, 0)),
            None => "unknown".to_owned(),
        },
        change_pct,
        ci: comparison.ci95_pct,
        role,
    }
}

/// Every metric in words and numbers, as `flux show` has them.
fn judgements(metrics: &[Metric]) -> Table {
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
    rows
}

fn arms(label: &str, comparison: &Comparison) -> [String; 2] {
    let ([a, b], unit) = arm_values(label, comparison);
    let cell = |value, arm| format!("{value} {unit}, {}", spread(arm));
    [
        cell(a, &comparison.baseline),
        cell(b, &comparison.candidate),
    ]
}

fn strip(story: &Story, confirmation: &ConfirmationDocument, role: Role) -> Option<StripFigure> {
    let label = &confirmation.primary;
    let runs: Vec<(Side, &StoredRun)> = confirmation
        .runs
        .iter()
        .filter_map(|run| Some((run.side, story.run(run.seq)?)))
        .collect();
    strip_of(story, label, &runs, role)
}

/// The runs of a confirmation that is not judged yet.
pub fn not_judged(story: &Story) -> Option<StripFigure> {
    let runs: Vec<(Side, &StoredRun)> = story
        .open_confirmation()
        .into_iter()
        .filter_map(|run| Some((run.planned.side?, run)))
        .collect();
    strip_of(story, &story.primary(), &runs, Role::Accent)
}

fn strip_of(
    story: &Story,
    label: &str,
    runs: &[(Side, &StoredRun)],
    candidate: Role,
) -> Option<StripFigure> {
    if runs.is_empty() {
        return None;
    }
    let unit = quantity(label, 1.0).1.to_owned();
    let cell = |(side, run): &(Side, &StoredRun)| cell(*side, story.value(run, label));
    let mut caption = format!(
        "{}, in {unit} · A baseline, B candidate, a fresh process each",
        clean(label)
    );
    if let Some(drift) = drift(story, label, runs) {
        let _ = write!(caption, " · drift {}", change(drift, 1));
    }
    let secs = runs.iter().map(|(_, run)| run.run.wall_secs).sum();
    let _ = write!(caption, " · {} of runs", span(secs));
    Some(StripFigure {
        caption,
        strip: Strip {
            cells: runs.iter().map(cell).collect(),
            candidate,
            unit,
        },
    })
}

fn drift(story: &Story, label: &str, runs: &[(Side, &StoredRun)]) -> Option<f64> {
    let arm = |wanted: Side| -> Vec<Ordered> {
        let placed = (1_u32..).zip(runs).filter(|(_, (side, _))| *side == wanted);
        placed
            .filter_map(|(place, (_, run))| {
                Some(Ordered {
                    position: f64::from(place),
                    value: story.rate(run, label)?,
                })
            })
            .collect()
    };
    drift_pct(&arm(Side::A), &arm(Side::B))
}

/// A run that ended, with its mean where it has one.
pub const fn cell(side: Side, value: Option<f64>) -> Cell {
    let state = match value {
        Some(_) => CellState::Done,
        None => CellState::Failed,
    };
    Cell { side, value, state }
}

fn samples(
    story: &Story,
    confirmation: &ConfirmationDocument,
    metric: &Metric,
) -> Option<SamplesFigure> {
    let runs = confirmation.runs.iter().filter_map(|run| {
        let value = story.value(story.run(run.seq)?, &metric.label)?;
        Some((run.side, run.seq, value))
    });
    let unit = quantity(&metric.label, 1.0).1.to_owned();
    let seen = confirmation
        .size
        .and_then(|size| size.smallest_effect_pct)
        .filter(|_| metric.label == confirmation.primary)
        .map_or_else(String::new, |pct| {
            format!(" · smallest effect this plan could see {pct:.1} %")
        });
    let rows = arm_rows(
        &settings_words(&confirmation.baseline),
        Role::of(metric.comparison.verdict),
        runs,
    );
    (!rows.iter().all(|row| row.runs.is_empty())).then(|| SamplesFigure {
        label: metric.label.clone(),
        caption: format!("{unit} · none dropped for being slow{seen}"),
        samples: Samples { rows, unit },
    })
}

/// Both arms' runs, of each its side, place in the session from 0, and value.
pub fn arm_rows(
    baseline: &str,
    candidate: Role,
    runs: impl Iterator<Item = (Side, u32, f64)>,
) -> Vec<SampleRow> {
    let row = |label: &str, role| SampleRow {
        label: label.to_owned(),
        runs: Vec::new(),
        role,
    };
    let mut rows = vec![row(baseline, Role::Stock), row("Candidate", candidate)];
    for (side, seq, value) in runs {
        rows[side as usize].runs.push(Run {
            number: seq + 1,
            value,
        });
    }
    rows
}

/// Unit of a metric where a bar is longer where it is better: the request goal's is shown as seconds elsewhere.
pub fn rate_unit(label: &str) -> &'static str {
    match quantity(label, 1.0).1 {
        "t/s" => "t/s",
        _ => "requests/s",
    }
}

/// All that was measured outside of a confirmation, ranked.
pub fn screening(story: &Story) -> Option<ScreeningFigure> {
    // What a number of clients got is no ranking of settings.
    if story
        .evidence
        .runs
        .iter()
        .any(|run| run.planned.clients > 1)
    {
        return None;
    }
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
        return None;
    }
    let rows: Vec<RankingRow> = groups
        .iter()
        .map(|(settings, runs)| ranked(story, &label, settings, runs))
        .collect();
    let stock = groups
        .iter()
        .position(|(settings, _)| **settings == baseline);
    let unit = rate_unit(&label);
    let ranking = Ranking {
        baseline: stock.and_then(|at| rows[at].mean),
        baseline_label: if baseline.is_stock() {
            "stock"
        } else {
            "baseline"
        }
        .to_owned(),
        of: Ranked::SETTINGS,
        rows,
        unit: unit.to_owned(),
    };
    let onto = best(story).filter(|best| groups.iter().any(|(s, _)| is_more(s, best)));
    let onto = onto.map_or_else(String::new, |best| {
        format!(" · + is on top of {}", settings_phrase(best))
    });
    let caption = format!("{label}, {unit} · higher is better · every dot is one sample{onto}");
    Some(ScreeningFigure { caption, ranking })
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
    let stock = settings.is_stock().then(|| "Stock defaults".to_owned());
    let name = stock.or_else(|| added(story, settings));
    let beyond = if is_baseline {
        Settings::stock()
    } else {
        story.baseline()
    };
    RankingRow {
        label: name.unwrap_or_else(|| settings_words(&settings.beyond(&beyond))),
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
pub(super) fn is_more(settings: &Settings, base: &Settings) -> bool {
    let has = |(dimension, value): (&String, &String)| settings.0.get(dimension) == Some(value);
    !base.is_stock() && settings != base && base.0.iter().all(has)
}

/// What was added to the best: most candidates are it and one thing more, which alone is worth a label.
pub(super) fn added(story: &Story, settings: &Settings) -> Option<String> {
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
