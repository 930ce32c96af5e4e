//! The main job: screen, confirm, persist (paper sections 2.3 and 3). Begins or resumes a session and ends it honestly.

use std::time::Duration;

use crate::domain::search::{SearchSpace, SettingsError, Tuner};
use crate::domain::server::output::OutputCheck;
use crate::domain::text::count;
use crate::domain::types::Verdict;
use crate::ports::{Measuring, NewSession, Session, SessionEnd, SessionKind, SessionState};

use super::Ports;
use super::announce::stage_infos;
use super::job::{Ended, JobContext};
use super::measure::Bench;
use super::message::{JobError, TuneRequest};
use super::prepare::{self, TuneConfig};
use super::report::{self, Overhead};
use super::resume::{build_of, same_place};
use super::workplace::Workplace;

mod save;

use save::save;
pub use save::save_profile;

/// Code of the error of a session whose baseline does not run: resuming it would end the same way.
pub const NOTHING_RUNS: &str = "nothing-runs";
/// Code of the error where there is nothing to go on with.
pub const NOT_RESUMABLE: &str = "not-resumable";

/// There is no session of that number.
pub(super) fn no_session(id: i64) -> JobError {
    JobError::new("no-session", format!("no session {id} here"))
        .hint("`flux history` lists every session")
}

/// Searches, confirms, and stores a profile if there is a winner.
///
/// # Errors
/// What cannot be prepared, measured for lack of a store, or resumed; cancelled.
pub fn perform(
    request: &TuneRequest,
    ports: &Ports,
    context: &mut JobContext,
) -> Result<serde_json::Value, Ended> {
    let begun = ports.clock.elapsed();
    let (place, config, (session, _measuring)) = match request.resume {
        Some(id) => resumed(id, request.save, ports)?,
        None => begun_anew(request, ports)?,
    };
    let searched = search(&place, &config, session, begun, ports, context);
    close(ports, session, searched).map_err(|ended| with_kept(ended, session, ports))
}

/// A failure says what is kept of its session and how to go on, where it can be gone on with.
fn with_kept(ended: Ended, session: i64, ports: &Ports) -> Ended {
    let Ended::Failed(mut error) = ended else {
        return ended;
    };
    // A store that cannot be read keeps nothing that could be promised.
    if error.code != NOTHING_RUNS
        && let Ok(runs) = ports.store.run_heads(session)
    {
        let runs = count(runs.len() as u64, "run");
        let kept =
            format!("{runs} kept in session {session}, go on with `flux tune --resume {session}`");
        error.hint = Some(match error.hint {
            Some(hint) => format!("{hint}; {kept}"),
            None => kept,
        });
    }
    Ended::Failed(error)
}

fn begun_anew(
    request: &TuneRequest,
    ports: &Ports,
) -> Result<(Workplace, TuneConfig, (i64, Measuring)), Ended> {
    let (place, config) = prepare::tune(request, ports)?;
    if config.plan.offer.dimensions.is_empty() && config.plan.first_candidate.is_none() {
        return Err(nothing_to_try(&config).into());
    }
    let session = begin(
        &place,
        SessionKind::Tune,
        request.goal,
        super::install::to_json(&config)?,
        ports,
    )?;
    Ok((place, config, session))
}

/// Every dimension asked for is refused here: said before anything is measured.
fn nothing_to_try(config: &TuneConfig) -> JobError {
    let mut error = JobError::new(
        "nothing-to-try",
        "no setting can be tried with this build, device and workload",
    );
    let refused = config.plan.offer.refused.iter();
    error.cause = refused
        .map(|r| match &r.value {
            Some(value) => format!("{}={value}: {}", r.dimension, r.reason),
            None => format!("{}: {}", r.dimension, r.reason),
        })
        .collect();
    error.hint("`flux tune --dry-run` without --only shows what can be tried")
}

/// Begins a stored session, with the right to measure: asked for last, so that what is wrong with a request is said whoever
/// else measures.
pub(super) fn begin(
    place: &Workplace,
    kind: SessionKind,
    goal: crate::domain::types::Goal,
    config: serde_json::Value,
    ports: &Ports,
) -> Result<(i64, Measuring), Ended> {
    let measuring = ports.store.begin_measuring()?;
    let session = ports.store.begin_session(&NewSession {
        kind,
        started_at: ports.clock.now(),
        fingerprint: place.fingerprint.clone(),
        machine: place.machine.clone(),
        runtime: place.runtime.clone(),
        model: place.model.clone(),
        goal,
        config,
        simulated: place.machine.simulated,
        flux_version: env!("CARGO_PKG_VERSION").to_owned(),
    })?;
    Ok((session, measuring))
}

/// A stored session's workplace as it is now; refused when the fingerprint is another.
fn resumed(
    id: i64,
    save: bool,
    ports: &Ports,
) -> Result<(Workplace, TuneConfig, (i64, Measuring)), Ended> {
    // Before it is read: another Flux may be going on with it.
    let measuring = ports.store.begin_measuring()?;
    let session = ports.store.session(id)?.ok_or_else(|| no_session(id))?;
    let ended = session.end.as_ref().map(|e| e.state);
    if session.begun.kind != SessionKind::Tune || ended == Some(SessionState::Done) {
        return Err(
            JobError::new(NOT_RESUMABLE, format!("session {id} has nothing to resume"))
                .hint("start a new one without --resume")
                .into(),
        );
    }
    let mut config = config_of(&session)?;
    config.request.save = save;
    let runtime = build_of(&session, ports);
    let device = config.request.device.as_deref();
    let model = &session.begun.model.path;
    let reserve = config.request.memory_reserve;
    let place = Workplace::read(model, Some(&runtime), device, reserve, ports)?;
    same_space(id, "resumed", &config, &place.space)?;
    same_place(&session, &place)?;
    Ok((place, config, (id, measuring)))
}

/// A session is resumed or its winner saved only with settings that mean what they meant when it began.
fn same_space(
    id: i64,
    done: &str,
    config: &TuneConfig,
    space: &SearchSpace,
) -> Result<(), JobError> {
    let changed = match config.digest_in(space) {
        Ok(now) if config.space.as_ref().is_none_or(|then| *then == now) => return Ok(()),
        Ok(_) => "changed what its settings mean since".to_owned(),
        Err(SettingsError::UnknownValue { name, value, .. }) => {
            format!("no longer has {name}={value}")
        }
        Err(SettingsError::UnknownName { name, .. }) => format!("no longer has {name}"),
        Err(other) => format!("no longer has its settings: {other}"),
    };
    Err(JobError::new(
        "space-changed",
        format!("session {id} cannot be {done}: the search space {changed}"),
    )
    .hint("install the search space it began with again, or start a new session"))
}

/// The request and the plan a session was begun with.
pub(super) fn config_of(session: &Session) -> Result<TuneConfig, JobError> {
    serde_json::from_value(session.begun.config.clone()).map_err(|e| {
        let headline = format!("session {} has an unreadable plan: {e}", session.id);
        JobError::new("resume", headline)
    })
}

fn search(
    place: &Workplace,
    config: &TuneConfig,
    session: i64,
    begun: Duration,
    ports: &Ports,
    context: &mut JobContext,
) -> Result<(serde_json::Value, Option<Verdict>), Ended> {
    let mut bench = Bench::new(ports, place, &config.plan.objective, session);
    let mut tuner: Tuner = bench.resume(config.plan.clone())?;
    let earlier_secs = bench.run_secs;
    let primary = config.plan.objective.primary();
    let begun_before = (Some(session), bench.goes_on);
    context.started_or_gone_on("tune", begun_before, stage_infos(&tuner), Some(primary));
    bench.tell_kept(config.plan.clone(), context)?;
    bench.tell(&config.notices, context)?;
    bench.tell_conditions(context)?;
    let outcome = bench.drive(&mut tuner, context)?;
    if let Some(failure) = &outcome.failure {
        return Err(JobError::new(NOTHING_RUNS, outcome.reason)
            .hint(failure.class.advice())
            .into());
    }
    bench.tell_reason(outcome.verdict, context)?;
    let output = match &outcome.winner {
        Some(settings) if config.start_confirmed => Some(bench.check_output(settings, context)?),
        _ => None,
    };
    let passes = output.as_ref().is_none_or(OutputCheck::passes);
    let profile = if config.request.save && config.start_confirmed && passes {
        save(place, config, session, &outcome, &bench.run_ids, ports)?
    } else {
        None
    };
    let overhead = Overhead::new(
        ports.clock.elapsed().saturating_sub(begun),
        bench.run_secs - earlier_secs,
    )
    .after(earlier_secs);
    let mut document =
        report::tune_document(&bench, config, &outcome, profile.as_ref(), &overhead)?;
    document.saveable &= passes;
    document.output = output;
    Ok((super::install::to_json(&document)?, outcome.verdict))
}

/// Ends a stored session as its job ended; the job's result.
pub(super) fn close(
    ports: &Ports,
    session: i64,
    ended: Result<(serde_json::Value, Option<Verdict>), Ended>,
) -> Result<serde_json::Value, Ended> {
    let (state, verdict, result) = match &ended {
        Ok((document, verdict)) => (SessionState::Done, *verdict, document.clone()),
        Err(Ended::Cancelled { .. }) => (SessionState::Cancelled, None, serde_json::Value::Null),
        Err(Ended::Failed(error)) => {
            let error = serde_json::to_value(error).unwrap_or_default();
            (SessionState::Failed, None, error)
        }
    };
    let end = SessionEnd {
        ended_at: ports.clock.now(),
        state,
        verdict,
        result,
    };
    let stored = ports.store.end_session(session, &end);
    // Where the job failed, the store itself may be what failed: the first error is the one to show.
    let (document, _) = ended?;
    stored?;
    Ok(document)
}
