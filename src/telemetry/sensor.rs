//! One sensor: the files that may tell it, how their text becomes a value, and whether it can be believed.

use std::path::PathBuf;

use crate::domain::telemetry::{Metric, Trust, says_nothing};

use super::files::{Files, SensorFile, why};

/// Makes a value in the metric's unit of a file's text.
pub(super) type Parse = fn(&str) -> Option<f64>;

/// A reading that stands on its own: where it fails, no other does (cases C24, C27).
pub(super) struct Sensor {
    pub metric: Metric,
    ways: Vec<(SensorFile, Parse)>,
    /// The way that told something first: a change of way in the middle of a run would change what is told.
    chosen: Option<usize>,
    trust: Trust,
    lost: Option<String>,
}

impl Sensor {
    /// Opens those of the files that are there, the preferred first.
    pub fn look(files: &Files, metric: Metric, candidates: &[(PathBuf, Parse)]) -> Self {
        let mut ways = Vec::new();
        let mut lost = None;
        for (path, parse) in candidates {
            match files.open(path) {
                Ok(file) => ways.push((file, *parse)),
                // The preferred file's reason, unless it is just not there.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => lost = lost.or_else(|| Some(why(&error))),
            }
        }
        if ways.is_empty() && lost.is_none() {
            lost = Some(why(&std::io::ErrorKind::NotFound.into()));
        }
        Self {
            metric,
            ways,
            chosen: None,
            trust: Trust::default(),
            lost,
        }
    }

    /// Its value now; `load_pct` is what the GPU does meanwhile.
    pub fn read(&mut self, load_pct: Option<f64>) -> Option<f64> {
        let from = self.chosen.unwrap_or(0);
        let to = self.chosen.map_or(self.ways.len(), |chosen| chosen + 1);
        for way in from..to {
            let (file, parse) = &mut self.ways[way];
            match file.read(|text| parse(text).ok_or_else(|| no_value(text))) {
                Ok(Ok(value)) => {
                    self.chosen = Some(way);
                    self.lost = None;
                    return self.trust.judge(self.metric, value, load_pct);
                }
                Ok(Err(reason)) => self.lost = Some(reason),
                Err(error) => self.lost = Some(why(&error)),
            }
        }
        None
    }

    /// Why it told nothing when it was read last.
    pub fn reason(&self) -> Option<&str> {
        self.lost.as_deref().or_else(|| self.trust.doubt())
    }
}

fn no_value(text: &str) -> String {
    let line: String = text
        .chars()
        .take_while(|c| !c.is_control())
        .take(24)
        .collect();
    format!("tells no value: \"{line}\"")
}

/// A plain number.
pub(super) fn plain(text: &str) -> Option<f64> {
    let number: i64 = text.parse().ok()?;
    let nothing = u64::try_from(number).is_ok_and(says_nothing);
    (!nothing).then_some(number as f64)
}

/// Thousandths: of °C.
pub(super) fn milli(text: &str) -> Option<f64> {
    plain(text).map(|n| n / 1e3)
}

/// Millionths: of W, or MHz in Hz.
pub(super) fn micro(text: &str) -> Option<f64> {
    plain(text).map(|n| n / 1e6)
}

/// A fan's drive of 255, in percent.
pub(super) fn of_255(text: &str) -> Option<f64> {
    plain(text).map(|n| n / 255.0 * 100.0)
}

/// The clock in use among the steps of `pp_dpm_*`, MHz: `1: 1340Mhz *`.
pub(super) fn starred(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.trim_end().ends_with('*'))?;
    let clock = line.split_once(':')?.1.trim_start();
    let digits = clock.find(|c: char| !c.is_ascii_digit())?;
    clock[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_values_in_their_unit() {
        assert_eq!(micro("87000000"), Some(87.0));
        assert_eq!(milli("-5000"), Some(-5.0));
        assert_eq!(of_255("51"), Some(20.0));
        assert_eq!(
            starred("0: 500Mhz \n1: 2605Mhz *\n2: 2700Mhz \n"),
            Some(2605.0)
        );
        assert_eq!(starred("S: 19Mhz *\n0: 500Mhz\n1: 2700Mhz\n"), Some(19.0));
        assert_eq!(starred("0: 300Mhz\n"), None);
        assert_eq!(plain("65535"), None);
        assert_eq!(plain(""), None);
        assert_eq!(plain("N/A"), None);
    }
}
