//! From a confirmed winner to a stored profile: at the end of a search, or later from its stored runs (paper section 2.3).

use crate::domain::search::{Driver, Step, Tool, TuneOutcome, Tuner};
use crate::domain::server::output::OutputCheck;
use crate::domain::types::{Profile, Settings, Verdict};
use crate::engine::Ports;
use crate::engine::message::JobError;
use crate::engine::output::check;
use crate::engine::prepare::TuneConfig;
use crate::engine::report::{self, TuneDocument};
use crate::engine::workplace::Workplace;
use crate::ports::{CancelToken, NewProfile, Session, SessionKind, SessionState, StoredVerdict};

use super::{config_of, no_session, same_space};

/// Stores the winner of a search that ended `improved`; the profile there is already, where it was stored before.
///
/// # Errors
/// There is no such session, it has no winner, or the store cannot be read or written; cancelled during an output check
/// that was never made.
pub fn save_profile(
    session: i64,
    ports: &Ports,
    cancel: &CancelToken,
) -> Result<Profile, JobError> {
    let found = ports
        .store
        .session(session)?
        .ok_or_else(|| no_session(session))?;
    let (config, outcome, run_ids) = replayed(&found, ports)?;
    let place = Workplace {
        machine: found.begun.machine.clone(),
        fingerprint: found.begun.fingerprint.clone(),
        runtime: found.begun.runtime.clone(),
        model: found.begun.model.clone(),
        target: config.target.clone(),
        space: ports.space.current(),
    };
    same_space(session, "saved", &config, &place.space)?;
    let winner = outcome.winner.as_ref().ok_or_else(|| no_winner(session))?;
    let output = output(&found, winner, &place, ports, cancel)?;
    if !output.passes() {
        tell_document(found, ports, |document| {
            document.saveable = false;
            document.output = Some(output.clone());
        })?;
        return Err(JobError::new("output-differs", output.sentence())
            .hint("stock stays; `flux tune` searches again"));
    }
    let profile = save(&place, &config, session, &outcome, &run_ids, ports)?
        .ok_or_else(|| no_winner(session))?;
    tell_document(found, ports, |document| {
        if document.profile.is_none() {
            let saved = report::profile_document(&profile, &outcome, &run_ids, &place.space);
            document.profile = Some(saved);
            document.saveable = false;
            document.output = Some(output);
        }
    })?;
    Ok(profile)
}

/// The check that the search made; one of before there was a check is made now, with nothing measured beside it.
fn output(
    session: &Session,
    winner: &Settings,
    place: &Workplace,
    ports: &Ports,
    cancel: &CancelToken,
) -> Result<OutputCheck, JobError> {
    let stored = session.end.as_ref().and_then(|end| {
        let document = serde_json::from_value::<TuneDocument>(end.result.clone());
        document.ok()?.output
    });
    if let Some(output) = stored {
        return Ok(output);
    }
    let _measuring = ports.store.begin_measuring()?;
    let made = check(place, winner, ports, cancel, &mut |_, _, _| {})?;
    made.ok_or_else(|| {
        JobError::new(
            "cancelled",
            "the output check was cancelled: nothing was saved",
        )
    })
}

/// What a search that is over came to, from its stored runs.
fn replayed(
    session: &Session,
    ports: &Ports,
) -> Result<(TuneConfig, TuneOutcome, Vec<i64>), JobError> {
    let end = session.end.as_ref();
    let won = session.begun.kind == SessionKind::Tune
        && end
            .is_some_and(|e| e.state == SessionState::Done && e.verdict == Some(Verdict::Improved));
    if !won {
        return Err(no_winner(session.id));
    }
    let config = config_of(session)?;
    if !config.start_confirmed {
        return Err(unconfirmed(session.id, &config.plan.start));
    }
    let stored = ports.store.runs(session.id)?;
    let runs = stored.iter().map(|s| (&s.planned, &s.run));
    let driver: Tuner = Driver::resume(config.plan.clone(), runs)
        .map_err(|e| JobError::new("resume", e.to_string()))?;
    match driver.next() {
        Step::Done(outcome) => Ok((config, *outcome, stored.iter().map(|s| s.id).collect())),
        Step::Run(_) => Err(no_winner(session.id)),
    }
}

fn no_winner(session: i64) -> JobError {
    JobError::new(
        "no-winner",
        format!("session {session} confirmed no settings as faster: there is nothing to save"),
    )
}

fn unconfirmed(session: i64, start: &Settings) -> JobError {
    let headline = format!(
        "session {session} searched on {start}, which was not confirmed against stock: nothing was saved"
    );
    JobError::new("unconfirmed-placement", headline)
        .hint("confirm the placement with `flux plan --bench`, then tune again")
}

/// The stored result says from now on what became of the winner.
fn tell_document(
    session: Session,
    ports: &Ports,
    change: impl FnOnce(&mut TuneDocument),
) -> Result<(), JobError> {
    let Some(mut end) = session.end else {
        return Ok(());
    };
    let Ok(mut document) = serde_json::from_value::<TuneDocument>(end.result.clone()) else {
        return Ok(());
    };
    change(&mut document);
    end.result = serde_json::to_value(&document)
        .map_err(|e| JobError::new("result", format!("the result could not be written: {e}")))?;
    Ok(ports.store.end_session(session.id, &end)?)
}

/// Stores the winner, if there is one; a session that was killed after it had stored its profile does not store it
/// twice.
pub(super) fn save(
    place: &Workplace,
    config: &TuneConfig,
    session: i64,
    outcome: &TuneOutcome,
    run_ids: &[i64],
    ports: &Ports,
) -> Result<Option<Profile>, JobError> {
    let Some(settings) = outcome.winner.clone() else {
        return Ok(None);
    };
    let stored = ports.store.profiles()?;
    if let Some(stored) = stored.into_iter().find(|p| p.session == session) {
        return Ok(Some(stored));
    }
    let mut profile = Profile {
        id: 0,
        session,
        fingerprint: place.fingerprint.hash.clone(),
        runtime_digest: place.runtime.digest.clone(),
        model_digest: place.model.digest.clone(),
        goal: config.request.goal,
        bench: place.launch(&settings, Tool::Bench, ports)?,
        server: place.launch(&settings, Tool::Server, ports)?,
        settings: settings.clone(),
        created_at: ports.clock.now(),
        simulated: place.machine.simulated,
    };
    let introduced_by = outcome
        .introduced_by
        .iter()
        .filter_map(|(d, seq)| Some((d.clone(), *run_ids.get(*seq as usize)?)))
        .collect();
    let confirmed = |v: &StoredVerdict| v.settings == settings && v.verdict == Verdict::Improved;
    let verdict = ports
        .store
        .verdicts(session)?
        .into_iter()
        .rev()
        .find(confirmed);
    let verdict_id = verdict.map(|v| v.id).ok_or_else(|| {
        JobError::new(
            "no-verdict",
            "the winner's confirmation is not in the store: nothing was saved",
        )
    })?;
    profile.id = ports.store.save_profile(&NewProfile {
        profile: profile.clone(),
        introduced_by,
        verdict_id,
    })?;
    Ok(Some(profile))
}
