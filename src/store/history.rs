//! Pages of the history: what passes the filter is found in brief, and only a page's lines are read in full.

use rusqlite::{Connection, Result, params};
use serde::Deserialize;

use crate::domain::types::{Settings, Timestamp};
use crate::ports::{SessionFilter, SessionLine, SessionPage, Standing};

use super::read::all;
use super::rows::{Columns, word};

/// Joins a session's last end, its newest profile, and the judgement shown for it: the profile's, else the last.
macro_rules! last_of_session {
    () => {
        "LEFT JOIN session_ends e ON e.id = (SELECT max(id) FROM session_ends WHERE session = s.id)
         LEFT JOIN profiles p ON p.id = (SELECT max(id) FROM profiles WHERE session = s.id)
         LEFT JOIN verdicts v ON v.id = coalesce(p.verdict, (SELECT max(id) FROM verdicts WHERE session = s.id))
         LEFT JOIN arms a ON a.id = v.arm"
    };
}

/// Sessions that pass all of a filter but its text, newest first, with what the text is looked for in.
pub(super) const IN_BRIEF: &str = concat!(
    "SELECT s.id, t.samples, m.name, r.name, s.goal, a.settings
     FROM sessions s JOIN session_totals t ON t.session = s.id
     JOIN models m ON m.id = s.model JOIN runtimes r ON r.id = s.runtime ",
    last_of_session!(),
    " WHERE s.id NOT IN (SELECT session FROM deleted_sessions)
     AND (?1 IS NULL OR e.verdict = ?1) AND (?2 IS NULL OR s.kind = ?2)
     AND (?3 IS NULL OR coalesce(nullif(e.state, 'resumed'), 'open') = ?3) AND (?4 IS NULL OR s.fingerprint = ?4)
     AND (?5 IS NULL OR s.started_at >= ?5) AND (?6 IS NULL OR s.started_at < ?6)
     ORDER BY s.id DESC"
);

const LINE: &str = concat!(
    "SELECT s.id, s.kind, s.started_at, m.name, r.name, s.goal, s.fingerprint, t.runs, nullif(e.state, 'resumed'), e.verdict, s.simulated,
     v.detail, a.settings, p.id
     FROM sessions s JOIN session_totals t ON t.session = s.id
     JOIN models m ON m.id = s.model JOIN runtimes r ON r.id = s.runtime ",
    last_of_session!(),
    " WHERE s.id = ?1"
);

/// The page of a filter.
pub(super) fn find(connection: &Connection, filter: &SessionFilter) -> Result<SessionPage> {
    let passing = in_brief(connection, filter)?;
    let page = passing
        .iter()
        .skip(filter.offset as usize)
        .take(filter.limit as usize);
    let lines: Result<_> = page.map(|(id, _)| line(connection, *id)).collect();
    Ok(SessionPage {
        lines: lines?,
        total: passing.len() as u64,
        samples: passing.iter().map(|(_, samples)| samples).sum(),
    })
}

/// Ids and numbers of samples of the sessions that pass.
fn in_brief(connection: &Connection, filter: &SessionFilter) -> Result<Vec<(i64, u64)>> {
    let standing = match filter.standing {
        Some(Standing::Ended(state)) => Some(word(&state)?),
        Some(Standing::Open) => Some("open".to_owned()),
        None => None,
    };
    let text = filter.text.to_lowercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    let params = params![
        filter.verdict.as_ref().map(word).transpose()?,
        filter.kind.as_ref().map(word).transpose()?,
        standing,
        filter.fingerprint,
        filter.since.map(|t| t.0),
        filter.until.map(|t| t.0),
    ];
    let found = all(connection, IN_BRIEF, params, |row| {
        let mut c = Columns::of(row);
        let (id, samples): (i64, u64) = (c.get()?, c.count()?);
        if words.is_empty() {
            return Ok(Some((id, samples)));
        }
        let (model, runtime, goal): (String, String, String) = (c.get()?, c.get()?, c.get()?);
        let settings: Option<Settings> = c.json_or_none()?;
        let settings = settings.map_or_else(String::new, |s| s.to_string());
        let about = format!("{model} {runtime} {goal} {settings}").to_lowercase();
        let number = id.to_string();
        let is_there = |w: &&str| about.contains(*w) || w.strip_prefix('#').unwrap_or(w) == number;
        Ok(words.iter().all(is_there).then_some((id, samples)))
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// As much of a stored confirmation as a line shows.
#[derive(Deserialize)]
struct Judgement {
    primary: String,
    metrics: std::collections::BTreeMap<String, Metric>,
}

#[derive(Deserialize)]
struct Metric {
    confirmed: Change,
}

#[derive(Deserialize)]
struct Change {
    change_pct: Option<f64>,
    ci95_pct: Option<[f64; 2]>,
}

fn line(connection: &Connection, id: i64) -> Result<SessionLine> {
    connection.prepare_cached(LINE)?.query_row([id], |row| {
        let mut c = Columns::of(row);
        let mut line = SessionLine {
            id: c.get()?,
            kind: c.word()?,
            started_at: Timestamp(c.get()?),
            model: c.get()?,
            runtime: c.get()?,
            goal: c.word()?,
            fingerprint: c.get()?,
            runs: c.count()?,
            state: c.word_or_none()?,
            verdict: c.word_or_none()?,
            simulated: c.get()?,
            primary: None,
            change_pct: None,
            ci95_pct: None,
            settings: None,
            profile: None,
        };
        let detail: Option<String> = c.get()?;
        line.settings = c.json_or_none()?;
        line.profile = c.get()?;
        // A judgement of another shape is listed without numbers; the session itself shows it whole.
        let judged = detail.and_then(|text| serde_json::from_str::<Judgement>(&text).ok());
        if let Some(judged) = judged {
            if let Some(metric) = judged.metrics.get(&judged.primary) {
                line.change_pct = metric.confirmed.change_pct;
                line.ci95_pct = metric.confirmed.ci95_pct;
            }
            line.primary = Some(judged.primary);
        }
        Ok(line)
    })
}
