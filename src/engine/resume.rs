//! Which session a search can go on with.

use std::path::{Path, PathBuf};

use crate::domain::fingerprint;
use crate::domain::types::Runtime;
use crate::ports::{Session, SessionFilter, SessionKind, SessionLine, SessionState};

use super::Ports;
use super::message::{JobError, USAGE};
use super::serve_check::ARM_FAILED;
use super::tune::{NOT_RESUMABLE, NOTHING_RUNS, no_session};
use super::workplace::Workplace;

/// Sessions looked through for one to go on with.
const RESUME_DEPTH: u32 = 1000;

/// The session of this kind to go on with: the one named, else the newest that may still get a result, of this model
/// where one is given.
///
/// # Errors
/// There is none, it is of another kind or model, or the store cannot be read.
pub fn resumable(
    kind: SessionKind,
    named: Option<i64>,
    model: Option<PathBuf>,
    ports: &Ports,
) -> Result<(PathBuf, i64), JobError> {
    if let Some(id) = named {
        let session = ports.store.session(id)?.ok_or_else(|| no_session(id))?;
        if session.begun.kind != kind {
            return Err(JobError::new(
                NOT_RESUMABLE,
                format!("session {id} is no `flux {}` session", kind.word()),
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
        if line.kind != kind || line.state == Some(SessionState::Done) {
            continue;
        }
        let Some(session) = ports.store.session(line.id)? else {
            continue;
        };
        let can_resume = is_unfinished(&session);
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
    match resumable(SessionKind::Tune, None, None, ports) {
        Ok((model, session)) if session == line.id => Ok(Some((line, model))),
        Ok(_) => Ok(None),
        Err(error) if error.code == NOT_RESUMABLE => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a search without a result may still get one: it was killed or cancelled, or failed for want of a disk, not of
/// a baseline. One that is running now says yes too.
pub fn can_resume(session: &Session) -> bool {
    session.begun.kind == SessionKind::Tune && is_unfinished(session)
}

fn is_unfinished(session: &Session) -> bool {
    let over = |code: &serde_json::Value| code == NOTHING_RUNS || code == ARM_FAILED;
    session
        .end
        .as_ref()
        .is_none_or(|end| end.state != SessionState::Done && !over(&end.result["code"]))
}

/// What was measured goes on only with the model, machine and build it was begun with.
///
/// # Errors
/// Which of them is another now.
pub(super) fn same_place(session: &Session, place: &Workplace) -> Result<(), JobError> {
    let id = session.id;
    if place.model.digest != session.begun.model.digest {
        let path = place.model.path.display();
        let headline = format!("session {id} measured another model than {path}");
        return Err(JobError::new("model-changed", headline).hint("start a new session"));
    }
    let changes = fingerprint::diff(&session.begun.fingerprint, &place.fingerprint);
    if changes.is_empty() {
        return Ok(());
    }
    let fields: Vec<&str> = changes.iter().map(|c| c.field.as_str()).collect();
    let fields = fields.join(", ");
    let headline = format!("session {id} cannot be resumed: {fields} changed since");
    Err(JobError::new("fingerprint-changed", headline)
        .hint("start a new session: what was measured stays in the history"))
}

/// What names the build that a session was measured with.
pub(super) fn build_of(session: &Session, ports: &Ports) -> String {
    naming(&session.begun.runtime, ports)
}

/// What names exactly this build to [`crate::ports::Runtimes::resolve`]: the name it is known by. Its folder alone may hold it with
/// other variables too, which is another build; it stands for one that is not known.
pub(super) fn naming(build: &Runtime, ports: &Ports) -> String {
    let known = ports.runtimes.list();
    let is_same = known.iter().find(|r| r.digest == build.digest);
    let was_there = || {
        known
            .iter()
            .find(|r| r.dir == build.dir && r.env == build.env)
    };
    let known = is_same.or_else(was_there);
    known.map_or_else(|| build.dir.display().to_string(), |r| r.name.clone())
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}
