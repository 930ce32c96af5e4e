//! Words for people, the same in every reader: harmless names, numbers with their honest digits, spans of time,
//! settings, comparisons and results in sentences.

mod bandwidth;
mod clients;
mod comparison;
mod csv;
mod history;
mod lab;
mod result;
mod settings;
mod shell;
mod speculation;
mod telemetry;

use std::fmt::Write as _;

use serde::Serialize;

use crate::domain::types::{Host, Timestamp};

pub use bandwidth::{bandwidth_words, path_words, streaming_words};
pub use clients::{CLIENTS_TITLES, clients_cells};
#[cfg(test)]
pub(crate) use comparison::graphics_queue;
pub use comparison::{
    Metric, arm_values, both_arms, effect, metrics_of, pair, primary_first, quantity, spread,
    test_line, time_saved, verdict_of,
};
pub use csv::csv_cell;
pub use history::{changes_words, field_change, grouped, when};
pub use lab::outcome_words;
pub use result::{
    NOT_DECIDED, confirmed_words, judged, nothing_beat, refusal_words, verdict_sentence,
    verdict_title,
};
pub use settings::{
    arm_words, purpose_words, setting_title, setting_value, settings_phrase, settings_words,
};
pub use shell::{Shell, native_command, shell_command};
pub(crate) use shell::{crt_quoted, powershell_quoted, quoted};
pub use speculation::{SPECULATION_TITLES, acceptance, speculation_cells};
pub use telemetry::{energy_line, metric_words, reading_words, sensor_lines};

/// Shows control characters, terminal escapes and direction overrides as `\u{…}` instead of sending them to the terminal.
pub fn clean(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unseen(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A document as JSON in which every character is seen: JSON has escapes of its own for the others.
///
/// # Errors
/// The document has no JSON.
pub fn json(document: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(document).map(|text| seen_json(&text))
}

/// JSON with its own escapes for characters that are not seen; only its strings can have any, but for the lines' ends.
pub fn seen_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' || !is_unseen(c) {
            shown.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

/// As `clean`, line by line: for text that may have several lines, such as a log.
pub fn clean_lines(text: &str) -> String {
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

/// Control characters, and those that reorder or hide what follows them or are not seen at all: bidirectional controls,
/// zero-width marks, separators, fillers, tags (Unicode's "format" and "default ignorable" characters, without those
/// that only choose a glyph).
pub(crate) fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Most decimals ever shown: a measurement of tokens per second carries no more.
const MAX_DECIMALS: i32 = 2;

/// Decimals a number with this uncertainty carries: its last digit is not below the uncertainty's first.
pub fn decimals_for(uncertainty: f64) -> usize {
    if !uncertainty.is_finite() || uncertainty <= 0.0 {
        return if uncertainty == 0.0 {
            MAX_DECIMALS as usize
        } else {
            0
        };
    }
    (-uncertainty.log10().floor()).clamp(0.0, f64::from(MAX_DECIMALS)) as usize
}

/// Decimals of a rate with this coefficient of variation; three significant digits or so where none is known.
pub fn rate_decimals(mean: f64, cv_pct: Option<f64>) -> usize {
    const UNKNOWN_CV_PCT: f64 = 1.0;
    decimals_for(mean.abs() * cv_pct.unwrap_or(UNKNOWN_CV_PCT) / 100.0)
}

/// A rate with three significant digits, or whole: one run carries no more.
pub fn three_digits(rate: f64) -> String {
    let decimals = match rate {
        r if r >= 100.0 => 0,
        r if r >= 10.0 => 1,
        _ => 2,
    };
    format!("{rate:.decimals$}")
}

/// A rate with the digits its spread carries.
pub fn rate(mean: f64, cv_pct: Option<f64>) -> String {
    let decimals = rate_decimals(mean, cv_pct);
    format!("{mean:.decimals$}")
}

/// A mean with half of its interval, `7.7 ± 0.3`: digits the interval carries.
pub fn plus_minus(mean: f64, half_width: f64) -> String {
    let decimals = decimals_for(half_width);
    format!("{mean:.decimals$} ± {half_width:.decimals$}")
}

/// A signed change in percent, `+68.3 %`; the minus is a real one.
pub fn change(value: f64, decimals: usize) -> String {
    format!("{} %", signed(value, decimals))
}

/// A signed number; what rounds to zero has no sign.
pub fn signed(value: f64, decimals: usize) -> String {
    let digits = format!("{:.decimals$}", value.abs());
    if digits.chars().all(|c| matches!(c, '0' | '.')) {
        return digits;
    }
    let sign = if value < 0.0 { '−' } else { '+' };
    format!("{sign}{digits}")
}

/// A relative change with its interval, in the digits the interval carries: `+68.3 % (95 % CI +67.9 to +68.8)`.
pub fn change_with_interval(change_pct: f64, ci95_pct: Option<[f64; 2]>) -> String {
    let decimals = change_decimals(ci95_pct);
    match ci95_pct {
        Some([lo, hi]) => {
            format!(
                "{} (95 % CI {} to {})",
                change(change_pct, decimals),
                signed(lo, decimals),
                signed(hi, decimals)
            )
        }
        None => format!("about {} (no interval)", change(change_pct, decimals)),
    }
}

/// Decimals of a change: those its interval carries, none without one.
fn change_decimals(ci95_pct: Option<[f64; 2]>) -> usize {
    ci95_pct.map_or(0, |[lo, hi]| decimals_for((hi - lo) / 2.0))
}

/// Whether [`change_with_interval`] shows a change as more than nothing.
fn is_shown(change_pct: f64, ci95_pct: Option<[f64; 2]>) -> bool {
    // A sign stands before what does not round to zero.
    signed(change_pct, change_decimals(ci95_pct)).starts_with(['+', '−'])
}

/// A span of time for people: `45 s`, `12 min`, `1 h 05 min`.
pub fn span(secs: f64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 3600;
    // Above this, seconds say nothing any more.
    const SHOW_SECONDS_BELOW: u64 = 90;
    if !secs.is_finite() || secs < 0.0 {
        return "unknown".to_owned();
    }
    if secs < 1.0 {
        return format!("{:.0} ms", secs * 1000.0);
    }
    let whole = secs.round() as u64;
    if whole < SHOW_SECONDS_BELOW {
        return format!("{whole} s");
    }
    let minutes = (secs / MINUTE as f64).round() as u64;
    if minutes * MINUTE < HOUR {
        return format!("{minutes} min");
    }
    format!("{} h {:02} min", minutes / MINUTE, minutes % MINUTE)
}

/// A span that was measured, to the second below an hour: `45 s`, `2 min 58 s`, `1 h 05 min`.
pub fn measured_span(secs: f64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 3600;
    let whole = secs.round() as u64;
    if !secs.is_finite() || !(MINUTE..HOUR).contains(&whole) {
        return span(secs);
    }
    format!("{} min {:02} s", whole / MINUTE, whole % MINUTE)
}

/// A moment, to the minute, in UTC.
pub fn moment(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(
        |_| "unknown time".to_owned(),
        |t| t.strftime("%Y-%m-%d %H:%M UTC").to_string(),
    )
}

/// The same text with its first letter in upper case; `llama.cpp` and its programs keep their names.
pub fn capitalised(text: &str) -> String {
    if text.starts_with("llama") {
        return text.to_owned();
    }
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

/// `1 run`, `2 runs`.
pub fn count(n: u64, one: &str) -> String {
    format!("{n} {}", of_number(n, one))
}

/// The same with the thousands of the number apart: `1,912 readings`.
pub fn grouped_count(n: u64, one: &str) -> String {
    format!("{} {}", grouped(n), of_number(n, one))
}

/// As much of a strange line as is worth quoting.
pub fn excerpt(line: &str) -> String {
    /// Characters; a sentence round it still fits two lines of a terminal.
    const MOST: usize = 120;
    let mut text: String = line.chars().take(MOST).collect();
    if text.len() < line.len() {
        text.push('…');
    }
    text
}

/// A noun of one word or more in the form its number asks for: `process`, `processes`; `entry`, `entries`.
fn of_number(n: u64, one: &str) -> String {
    match one.strip_suffix('y') {
        _ if n == 1 => one.to_owned(),
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ if one.ends_with('s') => format!("{one}es"),
        _ => format!("{one}s"),
    }
}

/// What a processor has: `8 cores, 16 threads`.
pub fn cores_words(host: &Host) -> String {
    let threads = count(host.logical_cores.into(), "thread");
    match host.physical_cores {
        Some(cores) => format!("{}, {threads}", count(cores.into(), "core")),
        None => threads,
    }
}

/// Parameters of a model: `4.02 B`, `268 M`.
pub fn parameters(n: u64) -> String {
    const MILLION: f64 = 1e6;
    const BILLION: f64 = 1e9;
    let n = n as f64;
    if n >= BILLION {
        format!("{:.2} B", n / BILLION)
    } else {
        format!("{:.0} M", n / MILLION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_direction_overrides_are_shown_not_sent() {
        assert_eq!(
            clean("a\u{1b}[31mb\n\r\u{7}"),
            "a\\u{1b}[31mb\\u{a}\\u{d}\\u{7}"
        );
        assert_eq!(
            clean("model\u{202e}fugg.exe\u{9b}2J"),
            "model\\u{202e}fugg.exe\\u{9b}2J"
        );
        assert_eq!(
            clean("a\u{61c}b\u{e0041}\u{ad}\u{3164}"),
            "a\\u{61c}b\\u{e0041}\\u{ad}\\u{3164}"
        );
        assert_eq!(clean("日本 ÄÖ µ ❤\u{fe0f}"), "日本 ÄÖ µ ❤\u{fe0f}");
    }

    #[test]
    fn json_has_every_character_and_shows_it() {
        let name = "a\u{9b}2J\u{202e}\u{7f}\n\u{e0041}模";
        let text = json(&[name]).unwrap();
        assert_eq!(
            text,
            "[\n  \"a\\u009b2J\\u202e\\u007f\\n\\udb40\\udc41模\"\n]"
        );
        let back: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(back, [name]);
    }

    #[test]
    fn no_more_digits_than_the_interval_carries() {
        assert_eq!(
            change_with_interval(68.3412, Some([67.8712, 68.8123])),
            "+68.3 % (95 % CI +67.9 to +68.8)"
        );
        assert_eq!(
            change_with_interval(-16.88, Some([-22.76, -10.91])),
            "−17 % (95 % CI −23 to −11)"
        );
        assert_eq!(
            change_with_interval(0.012, Some([-0.013, 0.037])),
            "+0.01 % (95 % CI −0.01 to +0.04)"
        );
        assert_eq!(
            change_with_interval(12.3, None),
            "about +12 % (no interval)"
        );
    }

    #[test]
    fn what_rounds_to_zero_has_no_sign() {
        assert_eq!(change(-0.004, 2), "0.00 %");
        assert_eq!(change(-0.4, 0), "0 %");
        assert_eq!(signed(-1.25, 1), "−1.2");
    }

    #[test]
    fn a_rate_carries_its_spread() {
        assert_eq!(rate(38.2041, Some(0.3)), "38.2");
        assert_eq!(rate(14123.4, Some(1.0)), "14123");
        assert_eq!(rate(22.8134, None), "22.8");
        assert_eq!(rate(0.5123, Some(0.0)), "0.51");
    }

    #[test]
    fn spans_have_the_unit_a_person_would_use() {
        for (secs, text) in [
            (0.25, "250 ms"),
            (45.4, "45 s"),
            (89.0, "89 s"),
            (720.0, "12 min"),
            (3599.0, "1 h 00 min"),
            (3900.0, "1 h 05 min"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(span(secs), text);
        }
    }

    #[test]
    fn measured_spans_keep_their_seconds_below_an_hour() {
        for (secs, text) in [
            (0.278, "278 ms"),
            (59.4, "59 s"),
            (59.6, "1 min 00 s"),
            (178.2, "2 min 58 s"),
            (3599.7, "1 h 00 min"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(measured_span(secs), text);
        }
    }

    #[test]
    fn moments_and_counts_in_words() {
        assert_eq!(moment(Timestamp(0)), "1970-01-01 00:00 UTC");
        assert_eq!(
            (count(1, "run"), count(2, "run")),
            ("1 run".to_owned(), "2 runs".to_owned())
        );
        assert_eq!(
            (parameters(4_020_000_000), parameters(268_098_176)),
            ("4.02 B".to_owned(), "268 M".to_owned())
        );
    }
}
