//! Readings as they come: a table, a line, CSV, JSON.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::cli::error::CliResult;
use crate::cli::output::Style;
use crate::domain::telemetry::{AbsentSensor, HOST, Metric, SeriesId, Summary};
use crate::domain::text::{clean, count, csv_cell, metric_words, reading_words, seen_json, span};
use crate::domain::types::Timestamp;
use crate::engine::telemetry::Tick;

use super::table::{Align, Table};

/// Ticks whose cost is remembered: ten minutes at the usual pace.
const COSTS: usize = 2_400;
/// A sensor silent for so many ticks tells nothing of now.
const FRESH_TICKS: u64 = 4;
/// What sampling itself is called among the sources.
const FLUX: &str = "flux";

/// What people call the owner of readings; who is not known is called by its address.
pub struct Names(pub BTreeMap<String, String>);

impl Names {
    fn of<'a>(&'a self, source: &'a str) -> &'a str {
        match source {
            HOST => "Processor and memory",
            other => self.0.get(other).map_or(other, String::as_str),
        }
    }
}

/// A series so far.
struct Seen {
    numbers: Summary,
    count: f64,
    /// Number of the tick it was read at last.
    at: u64,
}

/// All readings so far.
pub struct View {
    names: Names,
    interval_ms: u64,
    ticks: u64,
    seen: BTreeMap<SeriesId, Seen>,
    costs_ms: VecDeque<f64>,
    absent: Arc<[AbsentSensor]>,
}

impl View {
    /// None yet, of readings every `interval_ms`.
    pub fn new(names: Names, interval_ms: u64) -> Self {
        Self {
            names,
            interval_ms,
            ticks: 0,
            seen: BTreeMap::new(),
            costs_ms: VecDeque::new(),
            absent: Arc::default(),
        }
    }

    /// Takes a tick in; where the absent sensors are others than before, those that have become so, in words.
    pub fn take(&mut self, tick: &Tick) -> Option<Vec<String>> {
        self.ticks += 1;
        if self.costs_ms.len() == COSTS {
            self.costs_ms.pop_front();
        }
        self.costs_ms.push_back(tick.cost.as_secs_f64() * 1e3);
        for reading in &tick.readings {
            let value = reading.value;
            let seen = self.seen.entry(reading.series.clone()).or_insert(Seen {
                numbers: Summary {
                    min: value,
                    mean: value,
                    max: value,
                    last: value,
                },
                count: 0.0,
                at: 0,
            });
            seen.count += 1.0;
            seen.at = self.ticks;
            let numbers = &mut seen.numbers;
            numbers.min = numbers.min.min(value);
            numbers.max = numbers.max.max(value);
            numbers.mean += (value - numbers.mean) / seen.count;
            numbers.last = value;
        }
        if self.ticks > 1 && self.absent == tick.absent {
            return None;
        }
        let before = std::mem::replace(&mut self.absent, Arc::clone(&tick.absent));
        let new = tick.absent.iter().filter(|a| !before.contains(a));
        Some(new.map(|a| self.absent_words(a)).collect())
    }

    fn absent_words(&self, absent: &AbsentSensor) -> String {
        let source = clean(self.names.of(&absent.series.source));
        let what = metric_words(absent.series.metric);
        format!("{source}: no {what}: {}", clean(&absent.reason))
    }

    /// Sampling itself: `sampling costs p50 0.04 ms, p99 0.09 ms a tick, 12 ticks`.
    pub fn cost_words(&self) -> String {
        let [p50, p99] = self.cost_ms();
        format!(
            "sampling costs p50 {p50:.2} ms, p99 {p99:.2} ms a tick, {}",
            count(self.ticks, "tick")
        )
    }

    /// Median and 99th percentile (nearest rank), milliseconds.
    fn cost_ms(&self) -> [f64; 2] {
        let mut costs: Vec<f64> = self.costs_ms.iter().copied().collect();
        costs.sort_by(f64::total_cmp);
        let rank = |share: f64| (share * costs.len() as f64).ceil() as usize;
        [0.50, 0.99].map(|p| costs.get(rank(p).max(1) - 1).copied().unwrap_or(0.0))
    }

    /// The table, no wider and no higher than told.
    pub fn table(&self, style: Style, width: usize, height: usize) -> Vec<String> {
        let every = span(self.interval_ms as f64 / 1e3);
        let [p50, p99] = self.cost_ms();
        let ticks = count(self.ticks, "tick");
        let mut text = format!(
            "Every {every} · sampling costs {p50:.2} ms, p99 {p99:.2} ms · {ticks} · Ctrl-C ends\n"
        );
        let columns = ["", "now", "least", "mean", "most"];
        let mut source = None;
        let mut table = Table::new(&[("", Align::Left); 0]);
        for (series, seen) in &self.seen {
            if source != Some(&series.source) {
                text.push_str(&table.render(2, style));
                let _ = writeln!(text, "{}", style.heading(&self.title(&series.source)));
                source = Some(&series.source);
                table = Table::new(&columns.map(|title| match title {
                    "" => (title, Align::Left),
                    _ => (title, Align::Right),
                }));
            }
            table.row(self.cells(series.metric, seen));
        }
        text.push_str(&table.render(2, style));
        if !self.absent.is_empty() {
            let _ = writeln!(text, "{}", style.heading("Not readable"));
        }
        for absent in self.absent.iter() {
            text.push_str(&wrapped(&self.absent_words(absent), width));
        }
        let mut lines: Vec<String> = text.lines().map(|line| cut(line, width)).collect();
        if lines.len() > height {
            let more = lines.len() - height + 1;
            lines.truncate(height.saturating_sub(1));
            lines.push(format!("… {more} more lines: make the window higher"));
        }
        lines
    }

    fn title(&self, source: &str) -> String {
        match clean(self.names.of(source)) {
            name if source == HOST || name == source => name,
            name => format!("{name} ({source})"),
        }
    }

    fn cells(&self, metric: Metric, seen: &Seen) -> [String; 5] {
        let words = |value| reading_words(metric, value);
        let now = if self.ticks - seen.at < FRESH_TICKS {
            words(seen.numbers.last)
        } else {
            "no reading".to_owned()
        };
        // A counter's values say nothing but where it stands.
        let spread = if metric.is_counter() {
            Default::default()
        } else if metric == Metric::Throttled {
            let share = format!("{:.0} %", 100.0 * seen.numbers.mean);
            [String::new(), share, String::new()]
        } else {
            [seen.numbers.min, seen.numbers.mean, seen.numbers.max].map(words)
        };
        let [least, mean, most] = spread;
        [metric.title().to_owned(), now, least, mean, most]
    }

    /// One line: `10:40:12.250Z  RX 580: power 87 W, core clock 1284 MHz · host: CPU load 18 %`.
    pub fn line(&self, tick: &Tick) -> String {
        let mut parts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut readings: Vec<_> = tick.readings.iter().collect();
        readings.sort_by(|a, b| a.series.cmp(&b.series));
        for reading in readings {
            let metric = reading.series.metric;
            let words = format!(
                "{} {}",
                metric.title(),
                reading_words(metric, reading.value)
            );
            parts.entry(&reading.series.source).or_default().push(words);
        }
        let parts: Vec<String> = parts
            .into_iter()
            .map(|(source, words)| {
                format!("{}: {}", clean(self.names.of(source)), words.join(", "))
            })
            .collect();
        let cost = tick.cost.as_secs_f64() * 1e3;
        format!(
            "{}  {} · sampling {cost:.2} ms\n",
            time(tick.at, "%H:%M:%S%.3fZ"),
            parts.join(" · ")
        )
    }
}

/// A paragraph in lines that fit, the first of them indented by two and the others by four.
fn wrapped(words: &str, width: usize) -> String {
    let mut text = String::new();
    let mut line = " ".to_owned();
    for word in words.split(' ') {
        // A line may fill all columns but the last: see `cut`.
        if line.chars().count() + 1 + word.chars().count() >= width && line.trim() != "" {
            text.push_str(&line);
            text.push('\n');
            "   ".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    text + &line + "\n"
}

/// The start of a line that fits.
fn cut(line: &str, width: usize) -> String {
    // Escapes take no room, and stand in headings alone, which are short.
    if line.contains('\u{1b}') || line.chars().count() < width {
        return line.to_owned();
    }
    let kept: String = line.chars().take(width.saturating_sub(2)).collect();
    format!("{kept}…")
}

fn time(at: Timestamp, format: &str) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(
        |_| "unknown time".to_owned(),
        |t| t.strftime(format).to_string(),
    )
}

/// The columns of [`csv_lines`].
pub fn csv_head() -> String {
    "time,source,metric,value\n".to_owned()
}

/// A line a reading, its metric named as in the store, and one for what sampling cost.
pub fn csv_lines(tick: &Tick) -> String {
    let mut text = String::new();
    let at = time(tick.at, "%Y-%m-%dT%H:%M:%S%.3fZ");
    for reading in &tick.readings {
        let series = &reading.series;
        let _ = writeln!(
            text,
            "{at},{},{},{}",
            csv_cell(&series.source),
            key(series.metric),
            reading.value
        );
    }
    let cost = tick.cost.as_secs_f64() * 1e3;
    let _ = writeln!(text, "{at},{FLUX},sampling_cost_ms,{cost}");
    text
}

/// A tick as one JSON document on one line; with the sensors that are absent where they have changed.
///
/// # Errors
/// None that a tick can cause.
pub fn json_line(tick: &Tick, with_absent: bool) -> CliResult<String> {
    let reading = |r: &crate::domain::telemetry::Reading| json!({ "source": r.series.source, "metric": key(r.series.metric), "value": r.value });
    let mut document = json!({
        "schema": 1,
        "at": tick.at,
        "sampling_cost_ms": tick.cost.as_secs_f64() * 1e3,
        "readings": tick.readings.iter().map(reading).collect::<Vec<_>>(),
    });
    if with_absent {
        let absent = |a: &AbsentSensor| json!({ "source": a.series.source, "metric": key(a.series.metric), "reason": a.reason });
        document["absent"] = tick.absent.iter().map(absent).collect();
    }
    Ok(seen_json(&serde_json::to_string(&document)?) + "\n")
}

/// A metric's name in the store, which ends with its unit.
fn key(metric: Metric) -> String {
    match serde_json::to_value(metric) {
        Ok(Value::String(key)) => key,
        _ => metric.title().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::telemetry::Reading;

    const GPUS: [&str; 2] = ["0000:01:00.0", "0000:02:00.0"];

    fn series(source: &str, metric: Metric) -> SeriesId {
        SeriesId {
            source: source.to_owned(),
            metric,
        }
    }

    fn tick(at: i64, power: f64, cost_us: u64) -> Tick {
        let at = Timestamp(at);
        let reading = |(source, metric, value)| Reading {
            series: series(source, metric),
            at,
            value,
        };
        Tick {
            at,
            readings: [
                (HOST, Metric::CpuLoad, 18.0),
                (GPUS[0], Metric::Power, power),
                (GPUS[0], Metric::Energy, 12_345.5),
                (
                    GPUS[0],
                    Metric::Throttled,
                    f64::from(u8::from(power > 100.0)),
                ),
                (GPUS[1], Metric::Power, 9.5),
            ]
            .map(reading)
            .into(),
            cost: Duration::from_micros(cost_us),
            absent: [AbsentSensor {
                series: series(GPUS[0], Metric::FanSpeed),
                reason: "not supported by this GPU".to_owned(),
            }]
            .into(),
        }
    }

    fn view() -> View {
        let names = [(GPUS[0].to_owned(), "RX 580".to_owned())];
        View::new(Names(names.into()), 250)
    }

    #[test]
    fn the_table_has_every_gpu_the_host_the_cost_and_what_is_absent() {
        let mut view = view();
        let said = view.take(&tick(0, 81.0, 40));
        assert_eq!(said.unwrap(), ["RX 580: no fan: not supported by this GPU"]);
        view.take(&tick(250, 121.0, 90));
        let lines = view.table(Style::PLAIN, 200, 40).join("\n");
        let expected = "\
Every 250 ms · sampling costs 0.04 ms, p99 0.09 ms · 2 ticks · Ctrl-C ends
RX 580 (0000:01:00.0)
                  now  least   mean   most
  Power         121 W   81 W  101 W  121 W
  Energy      12346 J
  Throttling      yes          50 %
0000:02:00.0
           now  least   mean   most
  Power  9.5 W  9.5 W  9.5 W  9.5 W
Processor and memory
             now  least  mean  most
  CPU load  18 %   18 %  18 %  18 %
Not readable
  RX 580: no fan: not supported by this GPU";
        assert_eq!(lines, expected);
        let short = view.table(Style::PLAIN, 20, 4);
        assert_eq!(short.len(), 4);
        assert!(
            short.iter().take(3).all(|l| l.chars().count() < 20),
            "{short:?}"
        );
        assert_eq!(short[3], "… 13 more lines: make the window higher");
    }

    /// A GPU that wakes has fewer absent sensors than before: readers of the documents are to hear of it.
    #[test]
    fn absent_sensors_are_told_whenever_they_are_others() {
        let mut view = view();
        let mut now = tick(0, 81.0, 40);
        assert!(view.take(&now).is_some());
        assert_eq!(view.take(&now), None);
        now.absent = [].into();
        assert_eq!(view.take(&now), Some(Vec::new()));
        assert_eq!(view.take(&now), None);
    }

    /// 80 columns show all of the head and of every reason.
    #[test]
    fn nothing_is_cut_in_the_usual_terminal() {
        let mut view = view();
        let mut now = tick(0, 81.0, 40);
        now.absent = [AbsentSensor {
            series: series(HOST, Metric::CpuPower),
            reason: "no permission: `sudo chmod a+r /sys/class/powercap/intel-rapl:0/energy_uj` \
                allows it until the next start"
                .to_owned(),
        }]
        .into();
        for _ in 0..9_999 {
            view.take(&now);
        }
        let lines = view.table(Style::PLAIN, 80, 40);
        assert!(
            lines
                .iter()
                .all(|l| l.chars().count() < 80 && !l.contains('…'))
        );
        assert_eq!(
            lines[lines.len() - 2..],
            [
                "  Processor and memory: no CPU power: no permission: `sudo chmod a+r",
                "    /sys/class/powercap/intel-rapl:0/energy_uj` allows it until the next start",
            ]
        );
    }

    #[test]
    fn a_sensor_that_falls_silent_has_no_value() {
        let mut view = view();
        view.take(&tick(0, 81.0, 40));
        let mut silent = tick(250, 0.0, 40);
        silent.readings.clear();
        for _ in 0..FRESH_TICKS {
            view.take(&silent);
        }
        let lines = view.table(Style::PLAIN, 200, 40).join("\n");
        assert!(lines.contains("CPU load  no reading   18 %"), "{lines}");
    }

    #[test]
    fn a_tick_is_a_line_and_a_document_and_its_readings_lines_of_csv() {
        let mut view = view();
        // 2026-11-12 14:12:00.250 UTC.
        let tick = tick(1_794_492_720_250, 81.0, 40);
        view.take(&tick);
        assert_eq!(
            view.line(&tick),
            "14:12:00.250Z  RX 580: Power 81 W, Energy 12346 J, Throttling no · 0000:02:00.0: Power 9.5 W · \
             Processor and memory: CPU load 18 % · sampling 0.04 ms\n"
        );
        let csv = csv_head() + &csv_lines(&tick);
        assert!(
            csv.starts_with(
                "time,source,metric,value\n2026-11-12T14:12:00.250Z,host,cpu_load_pct,18\n\
             2026-11-12T14:12:00.250Z,0000:01:00.0,power_w,81\n"
            ),
            "{csv}"
        );
        assert!(
            csv.ends_with("2026-11-12T14:12:00.250Z,flux,sampling_cost_ms,0.04\n"),
            "{csv}"
        );
        let line = json_line(&tick, true).unwrap();
        let document: Value = serde_json::from_str(line.trim_end()).unwrap();
        assert_eq!(document["schema"], 1);
        assert_eq!(document["at"], 1_794_492_720_250_i64);
        assert_eq!(document["readings"][1]["metric"], "power_w");
        assert_eq!(document["absent"][0]["reason"], "not supported by this GPU");
        assert!(!json_line(&tick, false).unwrap().contains("absent"));
    }
}
