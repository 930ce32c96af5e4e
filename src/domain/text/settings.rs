//! Settings in words, by the titles of the search space.

use crate::domain::placement::words as placement;
use crate::domain::search::SearchSpace;
use crate::domain::types::{Bytes, PlannedRun, Settings, Stage};

use super::{capitalised, clean, count};

/// Settings in words: `graphics-queue=on` → `Graphics queue on`; stock is `Stock`.
pub fn settings_words(settings: &Settings) -> String {
    capitalised_unless_a_name(&settings_phrase(settings))
}

/// The same inside a sentence: `graphics queue on, KV cache type q8_0`; stock is `stock`.
pub fn settings_phrase(settings: &Settings) -> String {
    if settings.is_stock() {
        return "stock".to_owned();
    }
    let words = settings.0.iter().map(|(dimension, value)| {
        let margin = placement::fitting(value).filter(|_| dimension == placement::SETTING);
        margin.map_or_else(
            || {
                let title = setting_title(dimension);
                let value = setting_value(dimension, value);
                format!("{} {value}", uncapitalised(&title))
            },
            fitting_phrase,
        )
    });
    words.collect::<Vec<_>>().join(", ")
}

/// llama.cpp's own fitting, with what it leaves free of each device.
fn fitting_phrase(margin: Option<&str>) -> String {
    let free = margin.map_or_else(String::new, |mib| {
        format!(" ({} MiB left free)", clean(mib))
    });
    format!("llama.cpp's own fitting{free}")
}

/// What a run measured, in words: its settings, and how many clients asked at once where that is what is measured.
pub fn arm_words(planned: &PlannedRun) -> String {
    let settings = settings_words(&planned.settings);
    match planned.stage {
        Stage::Clients => format!("{settings}, {}", count(planned.clients.into(), "client")),
        _ => settings,
    }
}

/// What a run is for, with its settings in words: `ubatch=256: pp512 2 of 3` → `Micro-batch 256: pp512 2 of 3`.
pub fn purpose_words(purpose: &str) -> String {
    let in_words = |word: &str| {
        let (setting, rest) = match word.split_once(':') {
            Some((setting, _)) => (setting, ":"),
            None => (word, ""),
        };
        match setting.split_once('=') {
            Some((dimension, value)) if SearchSpace::shipped().title(dimension).is_some() => {
                let settings = Settings::stock().with(dimension, value);
                format!("{}{rest}", settings_phrase(&settings))
            }
            _ => clean(word),
        }
    };
    let words: Vec<String> = purpose.split(' ').map(in_words).collect();
    capitalised_unless_a_name(&words.join(" "))
}

/// What people call a dimension: its title, or its id in words where the search space knows it no more.
pub fn setting_title(dimension: &str) -> String {
    let title = SearchSpace::shipped().title(dimension);
    title.map_or_else(
        || capitalised(&clean(&dimension.replace(['-', '_'], " "))),
        str::to_owned,
    )
}

/// A value as people read it: bytes as a size.
pub fn setting_value(dimension: &str, value: &str) -> String {
    let in_bytes = SearchSpace::shipped().is_in_bytes(dimension);
    match value.parse() {
        Ok(bytes) if in_bytes => Bytes(bytes).to_string(),
        _ => clean(value),
    }
}

/// `Graphics queue` → `graphics queue`; abbreviations and names (`KV cache`, `Metal`) stay.
fn uncapitalised(title: &str) -> String {
    const NAMES: &[&str] = &["Metal"];
    let first_word = title.split(' ').next().unwrap_or_default();
    let second = title.chars().nth(1);
    if NAMES.contains(&first_word) || !second.is_some_and(char::is_lowercase) {
        return title.to_owned();
    }
    let mut chars = title.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(chars).collect()
    })
}

/// Capitalised, but `cuBLAS` keeps its own spelling.
fn capitalised_unless_a_name(phrase: &str) -> String {
    let first_word = phrase.split(' ').next().unwrap_or_default();
    // llama.cpp's
    if first_word.contains('.') || first_word.chars().any(char::is_uppercase) {
        phrase.to_owned()
    } else {
        capitalised(phrase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purpose_says_settings_by_their_titles_and_leaves_the_rest() {
        for (purpose, words) in [
            ("ubatch=256: pp512 2 of 3", "Micro-batch 256: pp512 2 of 3"),
            ("graphics-queue=on again", "Graphics queue on again"),
            (
                "ubatch=256 + cpu-fusion=off",
                "Micro-batch 256 + CPU fusion off",
            ),
            ("baseline 2 of 4", "Baseline 2 of 4"),
            ("unknown=1\u{1b}", "Unknown=1\\u{1b}"),
        ] {
            assert_eq!(purpose_words(purpose), words);
        }
    }

    #[test]
    fn settings_are_read_by_their_titles() {
        let words = |dimension: &str, value: &str| {
            settings_words(&Settings::stock().with(dimension, value))
        };
        assert_eq!(words("graphics-queue", "on"), "Graphics queue on");
        assert_eq!(words("placement", "ngl=9 ub=512"), "Placement ngl=9 ub=512");
        assert_eq!(words("placement", "fit"), "llama.cpp's own fitting");
        let (block, mib) = ("suballocation-block", 256 << 20);
        assert_eq!(
            words(block, &mib.to_string()),
            "Suballocation block 256.0 MiB"
        );
        assert_eq!(words(block, "all"), "Suballocation block all");
        assert_eq!(
            words("placement", "fit=1024\u{1b}"),
            "llama.cpp's own fitting (1024\\u{1b} MiB left free)"
        );
        assert_eq!(words("ubatch", "1024"), "Micro-batch 1024");
        assert_eq!(words("cuda-graph-opt", "on"), "CUDA graph optimisation on");
        assert_eq!(words("cublas-compute", "f16"), "cuBLAS compute type f16");
        assert_eq!(settings_words(&Settings::stock()), "Stock");
        let both = Settings::stock()
            .with("kv-cache", "q8_0")
            .with("flash-attn", "on");
        assert_eq!(
            settings_words(&both),
            "Flash attention on, KV cache type q8_0"
        );
        let both = Settings::stock()
            .with("metal-fusion", "off")
            .with("threads", "8")
            .with("ubatch", "256");
        assert_eq!(
            settings_phrase(&both),
            "Metal fusion off, CPU threads 8, micro-batch 256"
        );
    }

    #[test]
    fn a_setting_of_another_version_is_read_by_its_id() {
        let old = Settings::stock().with("old-thing\u{1b}", "a\nb");
        assert_eq!(settings_words(&old), "Old thing\\u{1b} a\\u{a}b");
    }
}
