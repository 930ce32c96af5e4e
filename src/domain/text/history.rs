//! The history in words: when something was, what changed since.

use jiff::tz::TimeZone;

use crate::domain::types::{FieldChange, Timestamp};

/// A moment as people say it, in their own time: `Today 14:12`, `Yesterday 09:30`, `12 Nov`, `12 Nov 2025`.
pub fn when(at: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let local = |t: Timestamp| {
        let instant = jiff::Timestamp::from_millisecond(t.0).ok()?;
        Some(instant.to_zoned_datetime(zone.clone()))
    };
    let (Some(at), Some(now)) = (local(at), local(now)) else {
        return "unknown time".to_owned();
    };
    let today = now.date();
    let date = at.date();
    let format = if date == today {
        "Today %H:%M"
    } else if today.yesterday().is_ok_and(|yesterday| date == yesterday) {
        "Yesterday %H:%M"
    } else if date.year() == today.year() {
        "%-d %b"
    } else {
        "%-d %b %Y"
    };
    at.strftime(format).to_string()
}

/// A number with its thousands apart: `1,912`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// One reading that changed: `driver release 22.20 → 22.40`.
pub fn field_change(change: &FieldChange) -> String {
    let field = field_words(&change.field);
    let value = |value: &Option<String>| value.as_deref().map(super::clean);
    match (value(&change.old), value(&change.new)) {
        (Some(old), Some(new)) if old.len() + new.len() > 48 => format!("{field} is another"),
        (Some(old), Some(new)) => format!("{field} {old} → {new}"),
        (None, Some(new)) => format!("{field} {new} is new"),
        (Some(old), None) => format!("{field} {old} is gone"),
        (None, None) => field,
    }
}

/// What changed, in one short phrase: the most telling reading, and how many others.
pub fn changes_words(changes: &[FieldChange]) -> String {
    /// Telling readings, the most telling first.
    const TELLING: &[&str] = &[
        "driver release",
        "driver version",
        "Runtime build",
        "PCI id",
        "Runtime digest",
        "Kernel",
    ];
    let rank = |change: &&FieldChange| {
        let told = TELLING
            .iter()
            .position(|field| change.field.ends_with(field));
        told.unwrap_or(TELLING.len())
    };
    let Some(first) = changes.iter().min_by_key(rank) else {
        return "its fingerprint is not stored any more".to_owned();
    };
    let phrase = field_change(first);
    match changes.len() - 1 {
        0 => phrase,
        n => format!("{phrase} and {n} more"),
    }
}

/// `GPU 1 driver release` → `driver release`; the first card is the one people mean.
fn field_words(field: &str) -> String {
    let field = field.strip_prefix("GPU 1 ").unwrap_or(field);
    match field {
        "driver release" | "driver version" => "driver".to_owned(),
        "Runtime build" => "llama.cpp build".to_owned(),
        "Runtime digest" => "llama.cpp".to_owned(),
        "Kernel" => "kernel".to_owned(),
        other => super::clean(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds of 2026-11-12 14:12 UTC.
    const NOON: i64 = 1_794_492_720_000;
    const HOUR: i64 = 3_600_000;

    #[test]
    fn moments_are_said_as_people_say_them_where_they_live() {
        let now = Timestamp(NOON);
        let utc = |ms| when(Timestamp(ms), now, &TimeZone::UTC);
        assert_eq!(utc(NOON), "Today 14:12");
        assert_eq!(utc(NOON - 15 * HOUR), "Yesterday 23:12");
        assert_eq!(utc(NOON - 24 * HOUR * 12), "31 Oct");
        assert_eq!(utc(NOON - 24 * HOUR * 365), "12 Nov 2025");
        // Eleven hours east it is already the 13th.
        let east = TimeZone::fixed(jiff::tz::offset(11));
        assert_eq!(
            when(Timestamp(NOON - 2 * HOUR), now, &east),
            "Yesterday 23:12"
        );
        assert_eq!(when(now, now, &east), "Today 01:12");
        assert_eq!(when(Timestamp(i64::MAX), now, &east), "unknown time");
    }

    #[test]
    fn thousands_stand_apart() {
        let shown = [0, 999, 1_912, 1_000_000].map(grouped);
        assert_eq!(shown, ["0", "999", "1,912", "1,000,000"]);
    }

    #[test]
    fn the_most_telling_change_is_said() {
        let change = |field: &str, old: &str, new: &str| FieldChange {
            field: field.to_owned(),
            old: Some(old.to_owned()),
            new: Some(new.to_owned()),
        };
        let kernel = change("Kernel", "6.8", "6.9");
        let driver = change("GPU 1 driver release", "22.20", "22.40");
        assert_eq!(
            changes_words(std::slice::from_ref(&kernel)),
            "kernel 6.8 → 6.9"
        );
        assert_eq!(
            changes_words(&[kernel, driver]),
            "driver 22.20 → 22.40 and 1 more"
        );
        let digest = change("Runtime digest", &"a".repeat(64), &"b".repeat(64));
        assert_eq!(changes_words(&[digest]), "llama.cpp is another");
        assert_eq!(changes_words(&[]), "its fingerprint is not stored any more");
        let gone = FieldChange {
            field: "GPU 2 PCI id".to_owned(),
            old: Some("1002:6fdf".to_owned()),
            new: None,
        };
        assert_eq!(field_change(&gone), "GPU 2 PCI id 1002:6fdf is gone");
    }
}
