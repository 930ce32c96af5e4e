//! One tile: a sensor's value, its least, mean and greatest over the time shown, and its line.

use std::collections::HashMap;

use eframe::egui::{Align, Label, Layout, RichText, Ui, vec2};

use crate::chart::{Lines, Role, Scene, Shade};
use crate::domain::machine::Gpu;
use crate::domain::settings::{AppSettings, MemoryUnits};
use crate::domain::telemetry::{HOST, Metric, SeriesId, Summary};
use crate::domain::text::{clean, reading_words};
use crate::domain::types::{Bytes, Timestamp};
use crate::engine::scan::Scan;
use crate::ui::charts;
use crate::ui::theme::{self, size, space, tokens};
use crate::ui::widgets::{Card, caption, caption_width, muted};

use super::view::{Readings, View};

/// Height of the line, points.
const HEIGHT: f32 = 92.0;
/// Points that one column of a line takes.
const COLUMN: f32 = 2.0;
/// A line moves in steps of this share of the time shown: smaller ones cannot be seen.
const STEPS: i64 = 1200;

/// What a tile draws, kept until its readings or its width change.
#[derive(Debug)]
struct Kept {
    key: Key,
    scene: Scene,
    summary: Option<Summary>,
    /// Of a load: its mean while no run was measured, percent.
    between_runs: Option<f64>,
}

#[derive(Debug, PartialEq, Eq)]
struct Key {
    session: i64,
    span_ms: i64,
    step: i64,
    width: u32,
    units: MemoryUnits,
}

/// The tiles as they were drawn last.
#[derive(Debug, Default)]
pub struct Tiles(HashMap<SeriesId, Kept>);

/// What people look for first; the rest follows by source.
const FIRST: [Metric; 6] = [
    Metric::Power,
    Metric::CoreClock,
    Metric::Temperature,
    Metric::VramUsed,
    Metric::GpuLoad,
    Metric::CpuLoad,
];

/// The series that get a tile: a counter that only rises and a flag say nothing as a line.
pub fn shown(readings: Readings<'_>) -> Vec<&SeriesId> {
    let mut all = readings.series();
    all.retain(|s| !s.metric.is_counter() && s.metric != Metric::Throttled);
    all
}

/// Puts what people look for first in front.
pub fn first_things_first(series: &mut [&SeriesId]) {
    let place = |s: &&SeriesId| FIRST.iter().position(|m| *m == s.metric);
    series.sort_by_key(|s| place(s).unwrap_or(FIRST.len()));
}

impl Tiles {
    /// Draws the tile of a series.
    pub fn show(
        &mut self,
        ui: &mut Ui,
        series: &SeriesId,
        view: &View,
        settings: &AppSettings,
        scan: Option<&Scan>,
    ) {
        Card::bare().show(ui, |ui| {
            let scale = Scale::of(series.metric, settings.memory_units);
            let most = most(series, scan);
            let kept = self.kept(series, view, &scale, most, ui.available_width());
            head(
                ui,
                series.metric,
                &value_words(series, kept.summary, view, &scale),
            );
            let beside = beside(series, view, settings, most, kept.between_runs);
            second_line(ui, kept.summary, &scale, &beside);
            ui.add_space(space::XS);
            charts::show(ui, &kept.scene);
        });
    }

    fn kept(
        &mut self,
        series: &SeriesId,
        view: &View,
        scale: &Scale,
        most: Option<f64>,
        width: f32,
    ) -> &Kept {
        let span_ms = (view.to.0 - view.from.0).max(1);
        let key = Key {
            session: view.session,
            span_ms,
            step: view.to.0 / (span_ms / STEPS).max(1),
            width: width as u32,
            units: scale.units,
        };
        let make = |key: Key| Kept {
            scene: lines(series, view, scale, most, width).scene(width),
            summary: view.readings.summary(series, view.from, view.to),
            between_runs: view.between_runs(series),
            key,
        };
        match self.0.entry(series.clone()) {
            std::collections::hash_map::Entry::Occupied(known) if known.get().key == key => {
                known.into_mut()
            }
            std::collections::hash_map::Entry::Occupied(known) => {
                let kept = known.into_mut();
                *kept = make(key);
                kept
            }
            std::collections::hash_map::Entry::Vacant(free) => free.insert(make(key)),
        }
    }
}

/// How a metric's values are written.
struct Scale {
    factor: f64,
    unit: &'static str,
    units: MemoryUnits,
}

impl Scale {
    fn of(metric: Metric, units: MemoryUnits) -> Self {
        let decimal = units == MemoryUnits::Decimal;
        let (factor, unit) = match (metric.unit(), decimal) {
            ("B", false) => (1.0 / Bytes::gib(1).0 as f64, "GiB"),
            ("B", true) => (1e-9, "GB"),
            ("B/s", false) => (1.0 / Bytes::mib(1).0 as f64, "MiB/s"),
            ("B/s", true) => (1e-6, "MB/s"),
            (unit, _) => (1.0, unit),
        };
        Self {
            factor,
            unit,
            units,
        }
    }

    fn number(&self, value: f64) -> String {
        let value = value * self.factor;
        let decimals = match self.unit {
            "GiB" | "GB" => 2,
            "W" | "MiB/s" | "MB/s" if value < 10.0 => 1,
            _ => 0,
        };
        format!("{value:.decimals$}").replace('-', "−")
    }

    fn words(&self, value: f64) -> String {
        format!("{} {}", self.number(value), self.unit)
    }
}

fn lines(series: &SeriesId, view: &View, scale: &Scale, most: Option<f64>, width: f32) -> Lines {
    let secs = |at: Timestamp| (at.0 - view.to.0) as f64 / 1000.0;
    let mut columns = Vec::new();
    let n = (width / COLUMN) as usize;
    for column in view.readings.columns(series, view.from, view.to, n) {
        let t = secs(column.t).min(0.0);
        if !column.joined && !columns.is_empty() {
            columns.push(crate::chart::Column { t, range: None });
        }
        let range = [column.min, column.max].map(|v| v * scale.factor);
        columns.push(crate::chart::Column {
            t,
            range: Some(range),
        });
    }
    // Where it stands now, exactly: a column only knows its least and greatest.
    let last = view
        .readings
        .last(series)
        .filter(|(at, _)| (view.from..=view.to).contains(at));
    if let (Some((at, value)), Some(column)) = (last, columns.last()) {
        let t = secs(at).max(column.t);
        let range = Some([value * scale.factor; 2]);
        columns.push(crate::chart::Column { t, range });
    }
    let shades = view.spans.iter().map(|span| Shade {
        from: secs(span.from),
        to: secs(span.to),
        hint: span.words.clone(),
    });
    Lines {
        label: series.metric.title().to_owned(),
        unit: scale.unit.to_owned(),
        columns,
        window: [secs(view.from), 0.0],
        range: most.map(|most| [0.0, most * scale.factor]),
        shades: shades.collect(),
        role: role(series.metric),
        height: HEIGHT,
        labels: false,
    }
}

const fn role(metric: Metric) -> Role {
    match metric {
        Metric::Power | Metric::Energy | Metric::CpuPower | Metric::CpuEnergy => Role::Power,
        Metric::CoreClock | Metric::MemoryClock | Metric::Throttled => Role::Clock,
        Metric::Temperature
        | Metric::HotSpot
        | Metric::MemoryTemperature
        | Metric::FanSpeed
        | Metric::FanLoad => Role::Temperature,
        Metric::VramUsed | Metric::SharedUsed | Metric::MemoryLoad => Role::Memory,
        Metric::GpuLoad | Metric::LinkGeneration | Metric::LinkLanes => Role::Load,
        Metric::CpuLoad | Metric::RamUsed | Metric::DiskRead => Role::Host,
    }
}

/// The most a series can be, in its metric's unit, where that is known.
fn most(series: &SeriesId, scan: Option<&Scan>) -> Option<f64> {
    match series.metric {
        m if m.unit() == "%" => Some(100.0),
        Metric::RamUsed => Some(scan?.machine.host.ram_total.0 as f64),
        Metric::VramUsed => {
            let memory = gpu(series, scan?)?.memory.as_ref()?;
            Some(memory.vram.0 as f64)
        }
        _ => None,
    }
}

fn gpu<'s>(series: &SeriesId, scan: &'s Scan) -> Option<&'s Gpu> {
    let mut gpus = scan.gpus.iter();
    gpus.find(|g| pci(g).as_ref() == Some(&series.source))
}

fn value_words(series: &SeriesId, summary: Option<Summary>, view: &View, scale: &Scale) -> String {
    if view.fresh_ms.is_none() {
        return summary.map_or_else(String::new, |s| scale.words(s.mean));
    }
    let now = view.now(series);
    now.map_or_else(|| "no reading".to_owned(), |value| scale.words(value))
}

/// What belongs beside a value, the most important first: what of it is free, whether clocks are held down, what other
/// programs take, what sensors of the same thing say.
fn beside(
    series: &SeriesId,
    view: &View,
    settings: &AppSettings,
    most: Option<f64>,
    between_runs: Option<f64>,
) -> Vec<String> {
    let mut parts = Vec::new();
    if let (Some(most), "B") = (most, series.metric.unit()) {
        let memory = |bytes: f64| settings.memory(Bytes(bytes.max(0.0) as u64));
        let used = view.now(series);
        parts.extend(used.map(|used| format!("{} free", memory(most - used))));
        parts.push(format!("of {}", memory(most)));
    }
    parts.extend(between_runs.map(|pct| format!("between runs {pct:.0} %")));
    match series.metric {
        Metric::Power => parts.push("GPU board".to_owned()),
        Metric::CoreClock => {
            parts.extend(throttling(series, view));
            parts.extend(now("memory", Metric::MemoryClock, series, view));
        }
        Metric::Temperature => {
            parts.extend(now("hot spot", Metric::HotSpot, series, view));
            let fan = now("fan", Metric::FanSpeed, series, view);
            parts.extend(fan.or_else(|| now("fan", Metric::FanLoad, series, view)));
        }
        Metric::VramUsed => {
            let reserve = settings.memory(settings.vram_reserve);
            parts.push(format!("reserve {reserve}"));
        }
        Metric::CpuLoad => parts.extend(now("package", Metric::CpuPower, series, view)),
        _ => {}
    }
    parts
}

/// What another sensor of the same owner says now, or said on average: `hot spot 71 °C`.
fn now(what: &str, metric: Metric, beside: &SeriesId, view: &View) -> Option<String> {
    let series = SeriesId {
        source: beside.source.clone(),
        metric,
    };
    let value = match view.fresh_ms {
        Some(_) => view.now(&series)?,
        None => view.readings.summary(&series, view.from, view.to)?.mean,
    };
    Some(format!("{what} {}", reading_words(metric, value)))
}

/// What people call the owner of a series.
pub fn owner(source: &str, scan: Option<&Scan>) -> String {
    if source == HOST {
        return "Processor and memory".to_owned();
    }
    let gpus = scan.map_or(&[][..], |scan| &scan.gpus);
    let mut here = gpus.iter().filter(|g| pci(g).as_deref() == Some(source));
    here.next()
        .map_or_else(|| source.to_owned(), |g| clean(&g.name))
}

fn pci(gpu: &Gpu) -> Option<String> {
    gpu.pci.map(|pci| pci.to_string())
}

/// The share of the time in which a GPU held its clocks down.
fn throttling(series: &SeriesId, view: &View) -> Option<String> {
    let flag = SeriesId {
        source: series.source.clone(),
        metric: Metric::Throttled,
    };
    let summary = view.readings.summary(&flag, view.from, view.to)?;
    Some(if summary.mean > 0.0 {
        format!("throttled {:.0} %", (summary.mean * 100.0).max(1.0))
    } else {
        "no throttling".to_owned()
    })
}

fn head(ui: &mut Ui, metric: Metric, value: &str) {
    ui.horizontal(|ui| {
        muted(ui, metric.title());
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let color = tokens(ui).text;
            let font = theme::strong(size::HERO);
            ui.add(Label::new(RichText::new(value).font(font).color(color)).truncate());
        });
    });
}

/// As many of the parts as there is room for: a tile with less room says less, and nothing by halves.
fn second_line(ui: &mut Ui, summary: Option<Summary>, scale: &Scale, beside: &[String]) {
    let words = summary.map_or_else(
        || "nothing in this time".to_owned(),
        |s| {
            let [min, mean, max] = [s.min, s.mean, s.max].map(|v| scale.number(v));
            format!("min {min} · mean {mean} · max {max}")
        },
    );
    ui.allocate_ui_with_layout(
        vec2(ui.available_width(), 0.0),
        Layout::left_to_right(Align::Center),
        |ui| {
            caption(ui, words);
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                let fitting = (1..=beside.len()).rev().map(|n| beside[..n].join(" · "));
                let fits = |words: &String| caption_width(ui, words) <= ui.available_width();
                if let Some(words) = { fitting }.find(fits) {
                    caption(ui, words);
                }
            });
        },
    );
}
