//! `flux ab`: any two arms, settings or builds, confirmed against each other (paper section 3).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::domain::search::{Ab, AbOutcome, AbPlan, SearchSpace, plan};
use crate::domain::types::{Runtime, Settings};
use crate::ports::{SessionKind, SessionState};

use super::Ports;
use super::job::{Ended, JobContext};
use super::measure::{Bench, notice_of, stage_infos};
use super::message::{AbRequest, JobError};
use super::prepare::Workplace;
use super::report::{self, Overhead};
use super::tune::{begin, end, end_without_result};

/// One arm as it was named: settings on a build.
#[derive(Debug, Clone)]
struct Arm {
    settings: Settings,
    runtime: Option<Runtime>,
}

/// What is stored of a comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct AbConfig {
    request: AbRequest,
    plan: AbPlan,
}

/// The two arms on the build and device they run on.
struct Pair {
    a: Arm,
    b: Arm,
    place: Workplace,
    /// Build of arm B, where it is another one than arm A's.
    other: Option<Runtime>,
    plan: AbPlan,
}

/// Confirms arm B against arm A.
///
/// # Errors
/// An arm that is neither settings nor a known build, no store, an arm that does not run; cancelled.
pub fn perform(
    request: &AbRequest,
    ports: &Ports,
    context: &mut JobContext,
) -> Result<serde_json::Value, Ended> {
    let begun = ports.clock.elapsed();
    let _measuring = ports.store.begin_measuring()?;
    let pair = pair(request, ports)?;
    let config = AbConfig {
        request: request.clone(),
        plan: pair.plan.clone(),
    };
    let config = super::install::to_json(&config)?;
    let session = begin(&pair.place, SessionKind::Ab, request.goal, config, ports)?;
    let result = compare(&pair, request, session, begun, ports, context);
    end_without_result(&result, session, ports)?;
    result
}

fn pair(request: &AbRequest, ports: &Ports) -> Result<Pair, JobError> {
    let (a, b) = (arm(&request.a, ports)?, arm(&request.b, ports)?);
    let named = a.runtime.as_ref().map(|r| r.dir.display().to_string());
    let runtime = named.as_deref().or(request.runtime.as_deref());
    let place = Workplace::read(&request.model, runtime, request.device.as_deref(), ports)?;
    let other = match (&b.runtime, &a.runtime) {
        // Arm B without a build of its own runs on the build named for all arms, not on arm A's.
        (None, Some(_)) => {
            Some(Workplace::read(&request.model, request.runtime.as_deref(), None, ports)?.runtime)
        }
        (own, _) => own.clone(),
    };
    let plan = planned(request, &a, &b)?;
    Ok(Pair {
        a,
        b,
        place,
        other,
        plan,
    })
}

fn compare(
    pair: &Pair,
    request: &AbRequest,
    session: i64,
    begun: Duration,
    ports: &Ports,
    context: &mut JobContext,
) -> Result<serde_json::Value, Ended> {
    let Pair {
        a, b, place, plan, ..
    } = pair;
    let mut bench = Bench::new(ports, place, plan.objective.tests(), session);
    bench.other = pair.other.as_ref();
    let mut driver: Ab = bench.resume(plan.clone())?;
    context.started("ab", Some(session), stage_infos(&driver));
    let outcome: AbOutcome = bench.drive(&mut driver, context)?;
    if let Some(failure) = &outcome.failure {
        return Err(JobError::new("arm-failed", outcome.reason)
            .hint(failure.class.advice())
            .into());
    }
    let overhead = Overhead::new(ports.clock.elapsed().saturating_sub(begun), bench.run_secs);
    let document = json!({
        "schema": 1,
        "session": session,
        "fingerprint": place.fingerprint.hash,
        "model": { "name": place.model.name, "path": place.model.path },
        "goal": request.goal,
        "primary": plan.objective.primary(),
        "a": { "arm": request.a, "settings": a.settings, "runtime": place.runtime.name },
        "b": {
            "arm": request.b,
            "settings": b.settings,
            "runtime": bench.other.map_or(&place.runtime.name, |r| &r.name),
        },
        "confirmation": outcome.confirmation.as_ref().map(report::confirmation_document),
        "verdict": outcome.verdict,
        "reason": outcome.reason,
        "notices": outcome.notices.iter().map(notice_of).collect::<Vec<_>>(),
        "overhead": overhead,
    });
    end(
        ports,
        session,
        SessionState::Done,
        outcome.verdict,
        document.clone(),
    )?;
    Ok(document)
}

/// Settings where the text is `stock` or has a `=`, else a build's name or folder.
fn arm(text: &str, ports: &Ports) -> Result<Arm, JobError> {
    if text == "stock" || text.contains('=') {
        let settings = SearchSpace::default()
            .parse_settings(text)
            .map_err(|e| JobError::new("settings", e.to_string()))?;
        return Ok(Arm {
            settings,
            runtime: None,
        });
    }
    let runtime = ports.runtimes.resolve(text).map_err(|e| {
        JobError::from(e).hint("an arm is `stock`, settings like `flash-attn=on ubatch=1024`, or a build's name or folder")
    })?;
    Ok(Arm {
        settings: Settings::stock(),
        runtime: Some(runtime),
    })
}

fn planned(request: &AbRequest, a: &Arm, b: &Arm) -> Result<AbPlan, JobError> {
    let sets_batch = |arm: &Arm| arm.settings.0.keys().any(|d| d == "ubatch");
    let mut plan = AbPlan::new(
        request.goal,
        a.settings.clone(),
        b.settings.clone(),
        request.prompt_tokens.unwrap_or(plan::PROMPT),
        request.generated_tokens.unwrap_or(plan::GENERATED),
        request.depth,
        sets_batch(a) || sets_batch(b),
    )
    .map_err(|e| JobError::new("plan", e.to_string()))?;
    plan.repetitions = request.repetitions;
    plan.processes = request.processes;
    Ok(plan)
}
