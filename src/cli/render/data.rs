//! What the data folder holds, and what compacting erases, as text.

use std::path::Path;

use crate::domain::text::{clean, count, grouped, grouped_count, moment};
use crate::domain::types::Bytes;
use crate::ports::{Erasable, Holdings};

/// What is kept where.
pub fn holdings(held: &Holdings, telemetry_days: u32, folder: &Path) -> String {
    let since = held
        .since
        .map_or_else(String::new, |at| format!(", since {}", moment(at)));
    let deleted = match held.deleted {
        0 => String::new(),
        n => format!(" and {} deleted", grouped(n)),
    };
    let kept = match telemetry_days {
        0 => "for ever".to_owned(),
        n => format!("for {}", count(u64::from(n), "day")),
    };
    format!(
        "Data folder: {}\n  database  {}, {} of it free for new entries\n  sessions  {}{deleted}{since}\n  \
         samples   {}\n  readings  {} of sensors, kept {kept}\n",
        clean(&folder.display().to_string()),
        held.bytes,
        held.reusable,
        grouped(held.sessions),
        grouped(held.samples),
        grouped(held.readings),
    )
}

/// What compacting would erase, and what it never does.
pub fn erasable(found: &Erasable, days: u32) -> String {
    let older = count(u64::from(days), "day");
    if found.is_nothing() {
        return format!(
            "Nothing to erase is older than {older}; compacting gives free room back\n"
        );
    }
    format!(
        "To be erased for good, all older than {older}:\n{}{KEPT}",
        lines(found)
    )
}

/// What was erased.
pub fn compacted(erased: &Erasable, before: Bytes, now: Bytes) -> String {
    let what = if erased.is_nothing() {
        "Nothing was erased\n".to_owned()
    } else {
        format!("Erased:\n{}", lines(erased))
    };
    format!("{what}The database is {now}, it was {before}\n")
}

const KEPT: &str = "Kept: every sample, record, verdict, profile and notice of the sessions that are not deleted\n";

fn lines(found: &Erasable) -> String {
    let readings = (found.readings > 0).then(|| {
        let readings = grouped_count(found.readings, "reading");
        format!("  {readings} of sensors; what was made of them for each run stays\n")
    });
    let outputs = (found.outputs > 0).then(|| {
        let (runs, bytes) = (grouped_count(found.outputs, "run"), found.output_bytes);
        format!("  what the processes of {runs} printed, {bytes}\n")
    });
    let sessions = (found.sessions > 0).then(|| {
        let sessions = count(found.sessions, "deleted session");
        format!(
            "  {sessions} with {}\n",
            grouped_count(found.samples, "sample")
        )
    });
    [readings, outputs, sessions]
        .into_iter()
        .flatten()
        .collect()
}
