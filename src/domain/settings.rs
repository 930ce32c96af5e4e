//! What the owner chose in the desktop app, and the bounds of each choice. The command line reads of it only how
//! long readings are kept.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::domain::text::{clean, excerpt};
use crate::domain::types::Bytes;

/// Device memory left free unless told otherwise: for the desktop, the driver and what grows during a run.
pub const VRAM_RESERVE: Bytes = Bytes::mib(512);
/// Recent models kept: as many as a menu shows without scrolling.
pub const RECENT_MODELS: usize = 10;

/// Below, text is too small to read; above, a page no longer fits a laptop's screen.
const ZOOM: RangeInclusive<f64> = 0.5..=3.0;
/// From nothing to half of the largest card.
const RESERVE: RangeInclusive<Bytes> = Bytes(0)..=Bytes::gib(64);
/// From a minute, in which nothing is confirmed yet, to a week, milliseconds being of no use here.
const TIME_LIMIT_SECS: RangeInclusive<u32> = 60..=604_800;
/// Milliseconds: faster than most sensors change, and slower than a run lasts.
const TELEMETRY_MS: RangeInclusive<u32> = 100..=10_000;
/// Days: from for ever, 0, to ten years, after which nobody asks what a fan did.
const TELEMETRY_DAYS: RangeInclusive<u32> = 0..=3_650;
/// Levels of a value at most: what is saved must be readable again, and the reader stops at 80 levels however they are
/// written.
const MAX_DEPTH: usize = 16;
const TELEMETRY_DAYS_KEY: &str = "telemetry_days";
/// Points: the smallest window that shows a page whole, and more than any screen has.
const WIDTH: RangeInclusive<u32> = 800..=16_384;
/// Likewise.
const HEIGHT: RangeInclusive<u32> = 500..=16_384;

/// Colours of the app.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Theme {
    /// As the system has them.
    #[default]
    System,
    /// Dark.
    Dark,
    /// Light.
    Light,
}

/// How sizes of memory are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryUnits {
    /// KiB, MiB, GiB: as llama.cpp's log and the drivers count.
    #[default]
    Binary,
    /// kB, MB, GB: as cards and disks are sold.
    Decimal,
}

impl MemoryUnits {
    /// A size in these units, with three digits or so.
    pub fn text(self, bytes: Bytes) -> String {
        const KB: f64 = 1e3;
        if self == Self::Binary {
            return bytes.to_string();
        }
        let n = bytes.0 as f64;
        match n {
            n if n < KB => format!("{n} B"),
            n if n < KB * KB => format!("{:.1} kB", n / KB),
            n if n < KB * KB * KB => format!("{:.1} MB", n / KB / KB),
            n => format!("{:.2} GB", n / KB / KB / KB),
        }
    }
}

/// The owner's choices. What the file leaves out is the default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppSettings {
    /// Colours; the system's.
    pub theme: Theme,
    /// Size of everything against the system's own scale; 1.
    pub zoom: f64,
    /// Nothing on the screen moves by itself; off.
    pub reduce_motion: bool,
    /// Units of memory; binary.
    pub memory_units: MemoryUnits,
    /// Device memory a winner must leave free, bytes; 512 MiB.
    #[serde(rename = "vram_reserve_bytes")]
    pub vram_reserve: Bytes,
    /// Seconds of measuring after which a new search starts no further candidate; no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit_secs: Option<u32>,
    /// Milliseconds between two readings of the sensors; 250: a chart moves, and reading costs next to nothing.
    pub telemetry_interval_ms: u32,
    /// Readings taken while a session is measured are stored with it; on: they explain a sample that stands out.
    pub store_telemetry: bool,
    /// Days for which stored readings are kept, 0 for ever; 30: longer than anyone wonders about a sample. What was made
    /// of them for each run, its energy included, is evidence and is always kept.
    pub telemetry_days: u32,
    /// Folders searched for models; none.
    pub model_folders: Vec<PathBuf>,
    /// Models used last, the newest first; at most ten.
    pub recent_models: Vec<PathBuf>,
    /// Name of the llama.cpp build to begin with; the best known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Width and height of the window when it was closed, points; 1280 × 800.
    pub window_size: [u32; 2],
    /// A run is shown with what its process printed; off: it is long.
    pub show_raw_output: bool,
    /// What only a later Flux knows: kept as it is.
    #[serde(flatten)]
    pub unknown: Table,
}

impl Default for AppSettings {
    fn default() -> Self {
        Self {
            theme: Theme::System,
            zoom: 1.0,
            reduce_motion: false,
            memory_units: MemoryUnits::Binary,
            vram_reserve: VRAM_RESERVE,
            time_limit_secs: None,
            telemetry_interval_ms: 250,
            store_telemetry: true,
            telemetry_days: 30,
            model_folders: Vec::new(),
            recent_models: Vec::new(),
            runtime: None,
            window_size: [1280, 800],
            show_raw_output: false,
            unknown: Table::new(),
        }
    }
}

impl AppSettings {
    /// In place of settings that cannot be read. How long readings are to be kept is not known then: for ever, rather than
    /// that any is erased.
    pub fn instead() -> Self {
        Self {
            telemetry_days: 0,
            ..Self::default()
        }
    }

    /// The settings of a file, and a sentence for each that was unreadable or out of its bounds: then the default, or
    /// the nearest bound, takes its place; readings are kept for ever where their days are unreadable.
    ///
    /// # Errors
    /// The text is no TOML at all.
    pub fn parse(text: &str) -> Result<(Self, Vec<String>), toml::de::Error> {
        let file: Table = text.parse()?;
        let (mut readable, mut said) = (Table::new(), Vec::new());
        for (key, value) in file {
            let alone = Table::from_iter([(key.clone(), value.clone())]);
            if depth(&value) > MAX_DEPTH {
                let key = excerpt(&clean(&key));
                said.push(format!("{key} is nested too deep: it is left out"));
            } else if alone.try_into::<Self>().is_ok() {
                readable.insert(key, value);
            } else {
                let instead = if key == TELEMETRY_DAYS_KEY {
                    readable.insert(key.clone(), Self::instead().telemetry_days.into());
                    "readings are kept for ever"
                } else {
                    "the default is used"
                };
                let key = clean(&key);
                said.push(format!("{key} has no such value: {instead}"));
            }
        }
        let mut settings: Self = readable.try_into()?;
        said.extend(settings.bring_into_bounds());
        Ok((settings, said))
    }

    /// Brings every number into its bounds; a sentence for each that was not.
    pub fn bring_into_bounds(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        // Neither end is nearer to what is no number.
        if self.zoom.is_nan() {
            self.zoom = 1.0;
        }
        bound("zoom", &mut self.zoom, &ZOOM, &mut said);
        bound(
            "vram_reserve_bytes",
            &mut self.vram_reserve,
            &RESERVE,
            &mut said,
        );
        if let Some(limit) = &mut self.time_limit_secs {
            bound("time_limit_secs", limit, &TIME_LIMIT_SECS, &mut said);
        }
        let interval = &mut self.telemetry_interval_ms;
        bound("telemetry_interval_ms", interval, &TELEMETRY_MS, &mut said);
        let days = &mut self.telemetry_days;
        bound(TELEMETRY_DAYS_KEY, days, &TELEMETRY_DAYS, &mut said);
        let [width, height] = &mut self.window_size;
        bound("window_size", width, &WIDTH, &mut said);
        bound("window_size", height, &HEIGHT, &mut said);
        self.recent_models.truncate(RECENT_MODELS);
        said
    }

    /// A size of memory in the units chosen.
    pub fn memory(&self, bytes: Bytes) -> String {
        self.memory_units.text(bytes)
    }

    /// Puts a model before all others used last.
    pub fn remember_model(&mut self, model: PathBuf) {
        self.recent_models.retain(|known| *known != model);
        self.recent_models.insert(0, model);
        self.recent_models.truncate(RECENT_MODELS);
    }
}

fn depth(value: &Value) -> usize {
    let inside = match value {
        Value::Table(table) => table.values().map(depth).max(),
        Value::Array(items) => items.iter().map(depth).max(),
        _ => return 0,
    };
    1 + inside.unwrap_or(0)
}

fn bound<T: PartialOrd + Copy + std::fmt::Display>(
    name: &str,
    value: &mut T,
    bounds: &RangeInclusive<T>,
    said: &mut Vec<String>,
) {
    let (low, high) = (*bounds.start(), *bounds.end());
    let nearest = match *value {
        v if v < low => low,
        v if v > high => high,
        _ => return,
    };
    said.push(format!(
        "{name} is {value}, which is not from {low} to {high}: {nearest} is used"
    ));
    *value = nearest;
}
