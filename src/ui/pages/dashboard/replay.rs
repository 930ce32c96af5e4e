//! What the sensors said while a stored session was measured.

use crate::domain::telemetry::Windowed;
use crate::domain::text::{clean, moment, span};
use crate::domain::types::Timestamp;
use crate::engine::Ports;
use crate::engine::message::JobError;
use crate::ports::RunHead;

use super::live::Span;

/// Sessions offered: those of the last weeks.
const OFFERED: u32 = 20;
/// Columns read of a session: as many as the widest tile draws.
const COLUMNS: usize = 600;

/// A session's readings.
#[derive(Debug)]
pub struct Recorded {
    /// Session.
    pub session: i64,
    /// Which session, in words.
    pub words: String,
    /// Its readings, by series.
    pub series: Vec<Windowed>,
    /// Its runs.
    pub spans: Vec<Span>,
    /// Its begin.
    pub from: Timestamp,
    /// Its end.
    pub to: Timestamp,
}

/// Reads a session back from the store.
///
/// # Errors
/// There is no such session, it has no readings, or the store cannot be read.
pub fn recorded(session: i64, ports: &Ports) -> Result<Recorded, JobError> {
    let store = &ports.store;
    let none = || JobError::new("no-readings", format!("session {session} has no readings"));
    let begun = store.session(session)?.ok_or_else(none)?.begun;
    let (first, last) = store.telemetry_span(session)?.ok_or_else(none)?;
    let heads = store.run_heads(session)?;
    let spans: Vec<Span> = heads.iter().map(span_of).collect();
    let from = spans.iter().map(|s| s.from).fold(first, Timestamp::min);
    let to = spans.iter().map(|s| s.to).fold(last, Timestamp::max);
    let length = (to.0 - from.0) as f64 / 1000.0;
    Ok(Recorded {
        session,
        words: format!(
            "Session {session} · {} · {} · {}",
            clean(&begun.model.name),
            moment(begun.started_at),
            span(length)
        ),
        series: store.telemetry_window(session, from, to, COLUMNS)?,
        spans,
        from,
        to,
    })
}

/// The newest sessions that have readings, with what they are called.
///
/// # Errors
/// The store cannot be read.
pub fn recent(ports: &Ports) -> Result<Vec<(i64, String)>, JobError> {
    let mut found = Vec::new();
    for line in ports.store.sessions(OFFERED)? {
        if ports.store.telemetry_span(line.id)?.is_some() {
            let model = clean(&line.model);
            found.push((line.id, format!("Session {} · {model}", line.id)));
        }
    }
    Ok(found)
}

fn span_of(head: &RunHead) -> Span {
    let ended = Timestamp(head.started_at.0 + (head.wall_secs * 1000.0) as i64);
    Span::of_run(ended, head.wall_secs, head.seq + 1, &head.planned)
}
