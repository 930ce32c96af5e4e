//! Which session a search can go on with.

use std::path::{Path, PathBuf};

use crate::ports::{Session, SessionFilter, SessionKind, SessionLine, SessionState};

use super::Ports;
use super::message::{JobError, USAGE};
use super::tune::{NOT_RESUMABLE, NOTHING_RUNS, no_session};

/// Sessions looked through for one to go on with.
const RESUME_DEPTH: u32 = 1000;

/// The session to go on with: the one named, else the newest that [`can_resume`], of this model where one is given.
///
/// # Errors
/// There is none, it is of another kind or model, or the store cannot be read.
pub fn resumable(
    named: Option<i64>,
    model: Option<PathBuf>,
    ports: &Ports,
) -> Result<(PathBuf, i64), JobError> {
    if let Some(id) = named {
        let session = ports.store.session(id)?.ok_or_else(|| no_session(id))?;
        if session.begun.kind != SessionKind::Tune {
            return Err(JobError::new(
                NOT_RESUMABLE,
                format!("session {id} is no `flux tune` session"),
            ));
        }
        let measured = session.begun.model.path;
        if model
            .as_ref()
            .is_some_and(|given| !same_file(given, &measured))
        {
            return Err(JobError::new(
                USAGE,
                format!(
                    "session {id} measures another model: {}",
                    measured.display()
                ),
            )
            .hint("leave -m out to go on with it"));
        }
        return Ok((measured, id));
    }
    for line in ports.store.sessions(RESUME_DEPTH)? {
        if line.kind != SessionKind::Tune || line.state == Some(SessionState::Done) {
            continue;
        }
        let Some(session) = ports.store.session(line.id)? else {
            continue;
        };
        let can_resume = can_resume(&session);
        let path = session.begun.model.path;
        match &model {
            _ if !can_resume => {}
            Some(wanted) if !same_file(wanted, &path) => {}
            _ => return Ok((model.unwrap_or(path), line.id)),
        }
    }
    Err(
        JobError::new(NOT_RESUMABLE, "no unfinished session to go on with")
            .hint("`flux history` lists every session"),
    )
}

/// The newest search, where it was broken off and can be gone on with: a line of the history and the model measured.
///
/// # Errors
/// The store cannot be read.
pub fn broken_off(ports: &Ports) -> Result<Option<(SessionLine, PathBuf)>, JobError> {
    let newest = SessionFilter {
        kind: Some(SessionKind::Tune),
        limit: 1,
        ..SessionFilter::default()
    };
    let lines = ports.store.find_sessions(&newest)?.lines;
    let Some(line) = lines.into_iter().next().filter(|line| !line.simulated) else {
        return Ok(None);
    };
    match resumable(None, None, ports) {
        Ok((model, session)) if session == line.id => Ok(Some((line, model))),
        Ok(_) => Ok(None),
        Err(error) if error.code == NOT_RESUMABLE => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a search without a result may still get one: it was killed or cancelled, or failed for want of a disk, not of
/// a baseline. One that is running now says yes too.
pub fn can_resume(session: &Session) -> bool {
    let open = session
        .end
        .as_ref()
        .is_none_or(|end| end.state != SessionState::Done && end.result["code"] != NOTHING_RUNS);
    session.begun.kind == SessionKind::Tune && open
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}
