//! Everything the store holds about a session: what `flux show` and `flux export` print.

use serde::{Deserialize, Serialize};

use crate::domain::types::{Profile, RawOutput, Run};
use crate::ports::{Notice, Session, SessionKind, StoredRun, StoredVerdict};

use super::Ports;
use super::message::JobError;
use super::plan::ArmResult;
use super::report::SCHEMA;
use super::tune::no_session;

/// A session in full; the document of `flux show --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The session.
    pub session: Session,
    /// Its runs in order.
    pub runs: Vec<StoredRun>,
    /// Its judgements.
    pub verdicts: Vec<StoredVerdict>,
    /// Placements it predicted and then measured, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placements: Vec<ArmResult>,
    /// Its notices.
    pub notices: Vec<Notice>,
    /// Profiles it saved.
    pub profiles: Vec<Profile>,
}

/// Reads a session.
///
/// # Errors
/// There is none of that number; the store cannot be read.
pub fn evidence(id: i64, ports: &Ports) -> Result<Evidence, JobError> {
    let runs = ports.store.runs(id)?;
    with_runs(id, runs, ports)
}

/// The same without what the runs' processes left behind: fast however long their logs are.
///
/// # Errors
/// As [`evidence`].
pub fn without_raw(id: i64, ports: &Ports) -> Result<Evidence, JobError> {
    let heads = ports.store.run_heads(id)?.into_iter();
    let runs = heads.map(|head| StoredRun {
        id: head.id,
        seq: head.seq,
        planned: head.planned,
        run: Run {
            started_at: head.started_at,
            wall_secs: head.wall_secs,
            outcome: head.outcome,
            buffers: head.buffers,
            raw: RawOutput::default(),
            telemetry: head.telemetry,
        },
    });
    with_runs(id, runs.collect(), ports)
}

fn with_runs(id: i64, runs: Vec<StoredRun>, ports: &Ports) -> Result<Evidence, JobError> {
    let store = &ports.store;
    let session = store.session(id)?.ok_or_else(|| no_session(id))?;
    let mut profiles = store.profiles()?;
    profiles.retain(|profile| profile.session == id);
    Ok(Evidence {
        schema: SCHEMA,
        runs,
        verdicts: store.verdicts(id)?,
        placements: placements(&session, ports)?,
        notices: store.notices(id)?,
        profiles,
        session,
    })
}

/// What a benchmark of placements predicted, and measured.
fn placements(session: &Session, ports: &Ports) -> Result<Vec<ArmResult>, JobError> {
    let begun = &session.begun;
    if begun.kind != SessionKind::Plan {
        return Ok(Vec::new());
    }
    let (machine, model) = (&begun.fingerprint.hash, &begun.model.digest);
    let mut stored = ports.store.placements(machine, Some(model))?;
    stored.retain(|placement| placement.session == Some(session.id));
    let of_the_session = stored.into_iter().rev();
    // One that another Flux wrote otherwise is left out.
    Ok(of_the_session
        .filter_map(|placement| serde_json::from_value(placement.document).ok())
        .collect())
}
