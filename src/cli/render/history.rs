//! Sessions as a table, newest first.

use crate::cli::output::Style;
use crate::domain::text::{clean, moment};
use crate::domain::types::Verdict;
use crate::ports::{SessionKind, SessionLine, SessionState};

use super::table::{Align, Table};

/// The table, or that there is nothing yet.
pub fn list(sessions: &[SessionLine], is_measured: bool, style: Style) -> String {
    if sessions.is_empty() {
        return "No sessions yet. `flux tune -m FILE` makes the first.\n".to_owned();
    }
    let mut table = Table::new(&[
        ("Session", Align::Right),
        ("Began", Align::Left),
        ("Kind", Align::Left),
        ("Model", Align::Left),
        ("Runtime", Align::Left),
        ("Goal", Align::Left),
        ("Runs", Align::Right),
        ("State", Align::Left),
        ("Verdict", Align::Left),
    ]);
    for session in sessions {
        table.row([
            session.id.to_string(),
            moment(session.started_at),
            kind(session.kind, session.simulated),
            clean(&session.model),
            clean(&session.runtime),
            match session.kind {
                SessionKind::Lab => String::new(),
                _ => session.goal.to_string(),
            },
            session.runs.to_string(),
            state(session.state, is_measured).to_owned(),
            session
                .verdict
                .map_or_else(String::new, |v: Verdict| v.to_string()),
        ]);
    }
    table.render(0, style)
}

/// `tune`, `ab`, with a word for a simulated machine.
pub fn kind(kind: SessionKind, simulated: bool) -> String {
    let name = kind.word();
    if simulated {
        format!("{name} (simulated)")
    } else {
        name.to_owned()
    }
}

/// How it ended, or that it did not; `is_measured` where a Flux measures in this data folder now.
pub const fn state(state: Option<SessionState>, is_measured: bool) -> &'static str {
    match state {
        Some(SessionState::Done) => "done",
        Some(SessionState::Cancelled) => "cancelled",
        Some(SessionState::Failed) => "failed",
        None if is_measured => "running or killed",
        None => "killed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::types::{Goal, Timestamp};

    #[test]
    fn a_session_is_one_line() {
        let line = SessionLine {
            id: 7,
            kind: SessionKind::Tune,
            started_at: Timestamp(0),
            model: "Gemma\n3".to_owned(),
            runtime: "b11149".to_owned(),
            goal: Goal::Generation,
            fingerprint: "f".repeat(64),
            runs: 34,
            state: Some(SessionState::Done),
            verdict: Some(Verdict::Improved),
            simulated: false,
            primary: Some("tg128".to_owned()),
            change_pct: Some(68.3),
            ci95_pct: Some([67.9, 68.8]),
            settings: None,
            profile: None,
        };
        assert_eq!(
            list(&[line], false, Style::PLAIN),
            "Session  Began                 Kind  Model        Runtime  Goal        Runs  State  Verdict\n\
             \x20     7  1970-01-01 00:00 UTC  tune  Gemma\\u{a}3  b11149   generation    34  done   improved\n"
        );
    }
}
