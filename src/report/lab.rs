//! The figures of a kernel lab: the Lab page, a session's page and its report draw the same.

use crate::chart::{Align, Curve, Curves, Kind, Ranked, Ranking, RankingRow, Role, Table};
use crate::domain::lab::{
    Clock, Costs, Estimate, Family, Format, Kernel, KernelResult, LabReport, Layout,
};
use crate::domain::text::{bandwidth_words, clean, moment, outcome_words};
use crate::domain::types::Bytes;
use crate::engine::lab::LabDocument;

/// Rates are shown in billions of bytes per second, as everywhere in the field.
const GIGA: f64 = 1e9;
/// Height of the plot, points.
const CURVES_HEIGHT: f32 = 260.0;

/// A kernel lab in figures.
#[derive(Debug, Clone, PartialEq)]
pub struct LabFigures {
    /// The session it is stored as.
    pub session: Option<i64>,
    /// The card, and when it was measured.
    pub under: String,
    /// The result in a sentence or two.
    pub sentence: String,
    /// Facts about the card: name and value.
    pub facts: Vec<(&'static str, String)>,
    /// Bandwidth against size.
    pub curves: Curves,
    /// Layouts of the matrix–vector product, by format.
    pub layouts: Vec<(Format, Ranking)>,
    /// Costs on each queue family by the host's clock, with barriers: per submission, per dispatch; empty where none was
    /// timed.
    pub queues: Vec<(&'static str, Ranking)>,
    /// All costs.
    pub costs: Table,
    /// What the queue families cost, in a sentence.
    pub verdict: Option<String>,
    /// What was noticed.
    pub notices: Vec<String>,
}

impl LabFigures {
    /// Of a document.
    pub fn of(lab: &LabDocument) -> Self {
        let report = &lab.report;
        let card = report.card.as_ref();
        let name = card.map_or("No card", |card| card.name.as_str());
        let costs = lab.queues.as_ref().map_or(&[][..], |q| &q.costs);
        Self {
            session: lab.session,
            under: format!("{}, measured {}", clean(name), moment(report.measured_at)),
            sentence: clean(&lab.sentence()),
            facts: facts(report),
            curves: curves(report),
            layouts: Format::ALL.map(|f| (f, layouts(report, f))).to_vec(),
            queues: queues(costs),
            costs: table(costs),
            verdict: lab.queues.as_ref().map(|q| q.verdict.clone()),
            notices: report.notices.iter().map(|n| clean(n)).collect(),
        }
    }
}

/// A size in bytes, in words.
pub fn size_words(size: u64) -> String {
    Bytes(size).to_string()
}

fn facts(report: &LabReport) -> Vec<(&'static str, String)> {
    let Some(card) = &report.card else {
        return Vec::new();
    };
    let yes = |has| if has { "yes" } else { "no" }.to_owned();
    let families: Vec<String> = card.families.iter().map(|f| f.words()).collect();
    let lanes = card.subgroup_size;
    vec![
        (
            "Theoretical peak",
            card.peak
                .map_or_else(|| "unknown".to_owned(), bandwidth_words),
        ),
        (
            "Memory used",
            format!("at most {} of {} free", card.used, card.free),
        ),
        (
            "Sub-group",
            lanes.map_or_else(|| "unknown".to_owned(), |n| format!("{n} lanes")),
        ),
        ("16-bit floats", yes(card.f16)),
        ("Queue families", families.join(", ")),
    ]
}

/// The streaming kernels, and of each format its best layout at the largest size.
fn curves(report: &LabReport) -> Curves {
    let ranked = report.ranked();
    let best = |format: Format| {
        let is = |k: &&Kernel| matches!(k, Kernel::MatVec { format: f, .. } if *f == format);
        ranked.iter().find(is).copied()
    };
    let series = [
        (Some(Kernel::Copy), Role::Stock, "copy".to_owned()),
        (Some(Kernel::Read), Role::Power, "read".to_owned()),
        (Some(Kernel::Write), Role::Host, "write".to_owned()),
        (
            best(Format::F32),
            Role::Accent,
            "best f32 product".to_owned(),
        ),
        (
            best(Format::F16),
            Role::Memory,
            "best f16 product".to_owned(),
        ),
        (
            best(Format::Q4),
            Role::Temperature,
            "best q4_0 product".to_owned(),
        ),
    ];
    let curves = series.into_iter().filter_map(|(kernel, role, label)| {
        let points: Vec<(u64, f64)> = report
            .of(kernel?)
            .filter_map(|r| Some((r.size.0, r.rate()?.median / GIGA)))
            .collect();
        (!points.is_empty()).then_some(Curve {
            label,
            role,
            points,
        })
    });
    Curves {
        curves: curves.collect(),
        ceiling: peak(report).map(|peak| (peak, "theoretical peak".to_owned())),
        unit: "GB/s".to_owned(),
        height: CURVES_HEIGHT,
    }
}

fn peak(report: &LabReport) -> Option<f64> {
    Some(report.card.as_ref()?.peak? / GIGA)
}

/// Every layout of a format at the largest size it was measured at.
fn layouts(report: &LabReport, format: Format) -> Ranking {
    let mut rows: Vec<RankingRow> = Layout::ALL
        .into_iter()
        .filter_map(|layout| {
            let kernel = Kernel::MatVec { format, layout };
            let results: Vec<&KernelResult> = report.of(kernel).collect();
            let measured = results.iter().rev().find(|r| r.rate().is_some());
            let shown = measured.or(results.last())?;
            Some(layout_row(layout, shown, results.last()?.size))
        })
        .collect();
    let mean = |row: &RankingRow| row.mean.unwrap_or(0.0);
    let best = rows.iter_mut().max_by(|a, b| mean(a).total_cmp(&mean(b)));
    if let Some(best) = best.filter(|row| row.mean.is_some()) {
        best.kind = Kind::Best;
        best.emphasised = true;
    }
    Ranking {
        rows,
        baseline: peak(report),
        baseline_label: "peak".to_owned(),
        unit: "GB/s".to_owned(),
        of: Ranked {
            noun: "layout",
            first: "the fastest",
            value: "Median",
        },
    }
}

fn layout_row(layout: Layout, result: &KernelResult, largest: Bytes) -> RankingRow {
    let kind = match outcome_words(&result.outcome) {
        Some(why) => Kind::Failed(why),
        None => Kind::Ordinary,
    };
    // Slow kernels stop at a smaller size.
    let at = if result.size == largest || result.rate().is_none() {
        String::new()
    } else {
        format!(" (at {})", result.size)
    };
    RankingRow {
        label: format!("{}{at}", layout.words()),
        emphasised: false,
        values: result.samples().iter().map(|s| s / GIGA).collect(),
        mean: result.rate().map(|rate| rate.median / GIGA),
        ci: None,
        kind,
    }
}

/// Costs of the families side by side: the universal one in the stock runtime's colour, compute-only ones in the accent.
fn queues(costs: &[Costs]) -> Vec<(&'static str, Ranking)> {
    let shown: Vec<&Costs> = costs
        .iter()
        .filter(|c| c.barriers && c.clock == Clock::Host)
        .collect();
    if shown.is_empty() {
        return Vec::new();
    }
    let ranking = |of: fn(&Costs) -> Estimate| Ranking {
        rows: shown.iter().map(|c| cost_row(c.family, of(c))).collect(),
        baseline: None,
        baseline_label: String::new(),
        unit: "µs".to_owned(),
        of: Ranked {
            noun: "queue",
            first: "the dearest",
            value: "Mean",
        },
    };
    vec![
        ("One submission more", ranking(|c| c.submission)),
        ("One dispatch more", ranking(|c| c.dispatch)),
    ]
}

fn cost_row(family: Family, cost: Estimate) -> RankingRow {
    let mean = cost.mean_us;
    RankingRow {
        label: family.words(),
        emphasised: false,
        values: Vec::new(),
        mean: Some(mean),
        ci: cost.half_width_us.map(|half| [mean - half, mean + half]),
        kind: if family.graphics {
            Kind::Stock
        } else {
            Kind::Best
        },
    }
}

fn table(costs: &[Costs]) -> Table {
    let mut table = Table::new(&[
        ("Family", Align::Left),
        ("Barriers", Align::Left),
        ("Clock", Align::Left),
        ("Per submission, µs", Align::Right),
        ("Per dispatch, µs", Align::Right),
    ]);
    for costs in costs {
        let clock = match costs.clock {
            Clock::Host => "host",
            Clock::Device => "device",
        };
        table.row([
            costs.family.words(),
            if costs.barriers { "yes" } else { "no" }.to_owned(),
            clock.to_owned(),
            costs.submission.words(),
            costs.dispatch.words(),
        ]);
    }
    table
}
