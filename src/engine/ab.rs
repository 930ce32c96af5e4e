//! `flux ab`: any two arms, settings or builds, confirmed against each other (paper section 3).

use serde::{Deserialize, Serialize};

use crate::domain::search::{Ab, AbOutcome, AbPlan, plan};
use crate::domain::types::{Runtime, Settings};
use crate::ports::SessionKind;

use super::Ports;
use super::announce::{notice_of, stage_infos};
use super::job::{Ended, JobContext};
use super::measure::Bench;
use super::message::{AbRequest, JobError, USAGE};
use super::report::{self, AbDocument, ArmDocument, ModelDocument, Overhead};
use super::resume::naming;
use super::serve_check::ARM_FAILED;
use super::tune::{begin, close};
use super::workplace::{Workplace, can_measure};

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
    /// Digest of what the arms' settings mean.
    space: String,
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
    let (a, b) = (arm(&request.a, ports)?, arm(&request.b, ports)?);
    let place = workplace(request, a.runtime.as_ref(), ports)?;
    let other = other_runtime(request, &a, &b, ports)?;
    let plan = planned(request, &a, &b)?;
    let settings = plan.a.0.iter().chain(&plan.b.0);
    let space = place.space.digest(settings.map(|(d, v)| (&**d, &**v)));
    let config = super::install::to_json(&AbConfig {
        request: request.clone(),
        plan: plan.clone(),
        space: space.map_err(|e| JobError::new(USAGE, e.to_string()))?,
    })?;
    let (session, _measuring) = begin(&place, SessionKind::Ab, request.goal, config, ports)?;
    let mut bench = Bench::new(ports, &place, &plan.objective, session);
    bench.other = other.as_ref();
    let compared = compare(&mut bench, &plan, context);
    let overhead = Overhead::new(ports.clock.elapsed().saturating_sub(begun), bench.run_secs);
    let ended = compared.and_then(|outcome| {
        let document = document(request, &bench, &plan, &outcome, overhead);
        Ok((super::install::to_json(&document)?, outcome.verdict))
    });
    close(ports, session, ended)
}

fn compare(
    bench: &mut Bench<'_>,
    plan: &AbPlan,
    context: &mut JobContext,
) -> Result<AbOutcome, Ended> {
    let mut driver: Ab = bench.resume(plan.clone())?;
    context.started(
        "ab",
        Some(bench.session),
        stage_infos(&driver),
        Some(plan.objective.primary()),
    );
    bench.tell_conditions(context)?;
    let outcome = bench.drive(&mut driver, context)?;
    if let Some(failure) = &outcome.failure {
        return Err(JobError::new(ARM_FAILED, outcome.reason.clone())
            .hint(failure.class.advice())
            .into());
    }
    bench.tell_reason(outcome.verdict, context)?;
    Ok(outcome)
}

fn document(
    request: &AbRequest,
    bench: &Bench<'_>,
    plan: &AbPlan,
    outcome: &AbOutcome,
    overhead: Overhead,
) -> AbDocument {
    let place = bench.place;
    let arm = |named: &str, settings: &Settings, runtime: &Runtime| ArmDocument {
        arm: named.to_owned(),
        settings: settings.clone(),
        runtime: runtime.name.clone(),
    };
    AbDocument {
        schema: report::SCHEMA,
        session: Some(bench.session),
        fingerprint: place.fingerprint.hash.clone(),
        model: ModelDocument {
            name: place.model.name.clone(),
            path: place.model.path.clone(),
            digest: None,
        },
        goal: Some(request.goal),
        primary: plan.objective.primary(),
        a: arm(&request.a, &plan.a, &place.runtime),
        b: arm(&request.b, &plan.b, bench.other.unwrap_or(&place.runtime)),
        confirmation: outcome
            .confirmation
            .as_ref()
            .map(report::confirmation_document),
        verdict: outcome.verdict,
        reason: outcome.reason.clone(),
        chosen: None,
        live: None,
        notices: outcome.notices.iter().map(notice_of).collect(),
        overhead: Some(overhead),
    }
}

fn workplace(
    request: &AbRequest,
    runtime: Option<&Runtime>,
    ports: &Ports,
) -> Result<Workplace, JobError> {
    let named = runtime.map(|r| naming(r, ports));
    let runtime = named.as_deref().or(request.runtime.as_deref());
    let device = request.device.as_deref();
    Workplace::read(&request.model, runtime, device, None, ports)
}

/// Arm B's build where it is not arm A's: its own, else the one named for all arms.
fn other_runtime(
    request: &AbRequest,
    a: &Arm,
    b: &Arm,
    ports: &Ports,
) -> Result<Option<Runtime>, JobError> {
    match (&a.runtime, &b.runtime) {
        (_, Some(runtime)) => {
            can_measure(runtime, &ports.models.inspect(&request.model)?)?;
            Ok(Some(runtime.clone()))
        }
        (Some(_), None) => Ok(Some(workplace(request, None, ports)?.runtime)),
        (None, None) => Ok(None),
    }
}

/// Settings where the text is `stock` or has a `=`, else a build's name or folder.
fn arm(text: &str, ports: &Ports) -> Result<Arm, JobError> {
    if text == "stock" || text.contains('=') {
        let settings = ports
            .space
            .current()
            .parse_settings(text)
            .map_err(|e| JobError::new(USAGE, e.to_string()))?;
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
    .map_err(|e| JobError::new(USAGE, e.to_string()))?;
    plan.repetitions = request.repetitions;
    plan.processes = request.processes;
    Ok(plan)
}
