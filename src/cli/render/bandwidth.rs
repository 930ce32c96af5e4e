//! What memories deliver, as text.

use std::fmt::Write as _;

use crate::cli::output::Style;
use crate::domain::placement::bandwidth::BandwidthProfile;
use crate::domain::text::{bandwidth_words, clean, moment, path_words, streaming_words};

use super::table::{Align, Table};

/// A profile with its spread.
pub fn profile(of: &BandwidthProfile, style: Style) -> String {
    let title = format!("Bandwidth, measured {}", moment(of.measured_at));
    let mut table = Table::new(&[
        ("Path", Align::Left),
        ("Device", Align::Left),
        ("Threads", Align::Right),
        ("Median", Align::Right),
        ("Slowest", Align::Right),
        ("Fastest", Align::Right),
        ("n", Align::Right),
    ]);
    for path in &of.paths {
        let (slowest, fastest) = path.range();
        table.row([
            path_words(path.path).to_owned(),
            path.device.as_deref().map_or_else(String::new, clean),
            if path.device.is_none() {
                path.threads.to_string()
            } else {
                String::new()
            },
            bandwidth_words(path.median()),
            bandwidth_words(slowest),
            bandwidth_words(fastest),
            path.samples.len().to_string(),
        ]);
    }
    let mut text = format!("{}\n{}", style.heading(&title), table.render(2, style));
    if let Some(streaming) = &of.streaming {
        let _ = writeln!(text, "  {}", streaming_words(streaming));
    }
    for notice in &of.notices {
        let _ = writeln!(text, "  note: {}", clean(notice));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::placement::bandwidth::{Bandwidth, Path};
    use crate::domain::types::Timestamp;

    #[test]
    fn every_path_shows_its_spread() {
        let path = |path, device: Option<&str>, samples: &[f64]| Bandwidth {
            path,
            device: device.map(str::to_owned),
            samples: samples.to_vec(),
            bytes: 1,
            threads: 12,
        };
        let of = BandwidthProfile {
            measured_at: Timestamp(0),
            paths: vec![
                path(Path::RamRead, None, &[19.1e9, 19.0e9, 18.2e9]),
                path(Path::DeviceCopy, Some("RX\u{1b}580"), &[169.4e9]),
            ],
            streaming: None,
            notices: vec!["the page cache may have helped".to_owned()],
        };
        assert_eq!(
            profile(&of, Style::PLAIN),
            "Bandwidth, measured 1970-01-01 00:00 UTC
  Path                           Device       Threads     Median    Slowest    Fastest  n
  RAM, read                                        12  19.0 GB/s  18.2 GB/s  19.1 GB/s  3
  Device memory, read + written  RX\\u{1b}580            169 GB/s   169 GB/s   169 GB/s  1
  note: the page cache may have helped
"
        );
    }
}
