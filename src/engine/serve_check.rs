//! `flux serve-check`: the profile against stock through live llama-servers (design section 7, paper section 4.1), or what
//! several clients get from one.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::search::{
    AbOutcome, AbPlan, ClientsOutcome, ClientsPlan, Driver, Method, Objective,
};
use crate::domain::types::{Goal, Profile, RequestShape, Settings};
use crate::ports::{Measuring, Notice, Session, SessionKind, SessionState};

use super::Ports;
use super::announce::{notice_of, stage_infos};
use super::job::{Ended, JobContext};
use super::measure::Bench;
use super::message::{JobError, USAGE};
use super::report::{self, AbDocument, ArmDocument, LiveDocument, ModelDocument, Overhead};
use super::resume::{build_of, same_place};
use super::run::{self, Access, RunRequest};
use super::tune::{NOT_RESUMABLE, begin, close, no_session};
use super::workplace::Workplace;

/// Tokens of a prompt unless asked otherwise: those of the paper's requests (section 4.1).
pub const PROMPT: u32 = 1496;
/// Tokens of an answer unless asked otherwise: llama-bench's own.
pub const GENERATED: u32 = 128;

/// Code of the error of a session in which an arm does not run: going on would end the same way.
pub const ARM_FAILED: &str = "arm-failed";

/// What `flux serve-check` is asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServeCheckRequest {
    /// Model file.
    pub model: PathBuf,
    /// Runtime name or folder; `None` takes the profile's, else the best known.
    pub runtime: Option<String>,
    /// Device; `None` takes the profile's.
    pub device: Option<String>,
    /// Goal whose metric is the primary one; `None` takes the profile's.
    pub goal: Option<Goal>,
    /// Settings instead of a stored profile's.
    pub settings: Option<String>,
    /// Take a profile that was measured on another fingerprint.
    pub stale_ok: bool,
    /// Tokens of each prompt.
    pub prompt_tokens: u32,
    /// Tokens of each answer.
    pub generated_tokens: u32,
    /// Requests to each server, instead of the planned number.
    pub repetitions: Option<u32>,
    /// Servers per arm, instead of the planned number.
    pub processes: Option<u32>,
    /// Numbers of clients to measure instead of comparing two arms.
    pub clients: Vec<u32>,
    /// Kinds of speculation to compare with none instead of comparing with stock.
    #[serde(default)]
    pub speculate: Vec<String>,
    /// A draft model to speculate with, likewise.
    #[serde(default)]
    pub draft: Option<PathBuf>,
    /// The session to go on with; all else is what it was begun with.
    #[serde(default)]
    pub resume: Option<i64>,
}

impl ServeCheckRequest {
    /// The stored profile of a model against stock, as the paper asked.
    pub fn new(model: PathBuf) -> Self {
        Self {
            model,
            runtime: None,
            device: None,
            goal: None,
            settings: None,
            stale_ok: false,
            prompt_tokens: PROMPT,
            generated_tokens: GENERATED,
            repetitions: None,
            processes: None,
            clients: Vec::new(),
            speculate: Vec::new(),
            draft: None,
            resume: None,
        }
    }

    /// It compares kinds of speculation.
    pub const fn speculates(&self) -> bool {
        !self.speculate.is_empty() || self.draft.is_some()
    }

    pub(super) const fn shape(&self) -> RequestShape {
        RequestShape {
            prompt_tokens: self.prompt_tokens,
            generated_tokens: self.generated_tokens,
        }
    }
}

/// What is stored of a check.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ServeCheckConfig<P> {
    request: ServeCheckRequest,
    plan: P,
    /// The profile that was checked.
    profile: Option<i64>,
    /// Digest of what the settings mean.
    space: String,
}

/// What is checked, and where.
pub(super) struct Checked {
    pub place: Workplace,
    pub settings: Settings,
    profile: Option<Profile>,
    pub goal: Goal,
    pub notices: Vec<Notice>,
}

impl Checked {
    fn name(&self) -> String {
        match &self.profile {
            // An imported one has no number of this store.
            Some(Profile { id: 0, .. }) => "the imported profile".to_owned(),
            Some(profile) => format!("profile {}", profile.id),
            None => self.settings.to_string(),
        }
    }
}

/// Checks a profile or settings through live servers.
///
/// # Errors
/// No profile and no settings, no llama-server, an arm that does not run, no store; cancelled.
pub fn perform(
    request: &ServeCheckRequest,
    ports: &Ports,
    context: &mut JobContext,
) -> Result<serde_json::Value, Ended> {
    let begun = request.resume.map(|id| resumed(id, ports)).transpose()?;
    let request = begun.as_ref().map_or(request, |begun| &begun.request);
    let checked = checked(request, ports)?;
    if let Some(begun) = &begun {
        begun.goes_on_with(&checked)?;
    }
    if request.speculates() {
        return super::speculate::perform(request, &checked, ports, context);
    }
    let usage = |e: crate::domain::search::PlanError| JobError::new(USAGE, e.to_string());
    let world = (ports, context);
    if request.clients.is_empty() {
        let (a, b) = (Settings::stock(), checked.settings.clone());
        let mut plan = AbPlan::live(checked.goal, a, b, request.shape()).map_err(usage)?;
        plan.repetitions = request.repetitions;
        plan.processes = request.processes;
        let (session, _measuring) = opened(request, &checked, &plan, begun.as_ref(), ports)?;
        let method = (&plan, &plan.objective);
        measured(request, &checked, method, session, world, compared)
    } else {
        let clients = request.clients.clone();
        let (repetitions, processes) = (request.repetitions, request.processes);
        let settings = checked.settings.clone();
        let shape = request.shape();
        let plan =
            ClientsPlan::new(settings, shape, clients, repetitions, processes).map_err(usage)?;
        let (session, _measuring) = opened(request, &checked, &plan, begun.as_ref(), ports)?;
        let method = (&plan, &plan.objective);
        measured(request, &checked, method, session, world, together)
    }
}

/// A check that goes on.
struct Begun {
    session: Session,
    request: ServeCheckRequest,
    config: ServeCheckConfig<serde_json::Value>,
}

/// Reads a session that has no result yet.
///
/// # Errors
/// There is none of this number, of another kind, or done; of speculation, whose comparisons are each their own.
fn resumed(id: i64, ports: &Ports) -> Result<Begun, JobError> {
    let session = ports.store.session(id)?.ok_or_else(|| no_session(id))?;
    let refused = |why: &str| {
        JobError::new(NOT_RESUMABLE, format!("session {id} {why}"))
            .hint("start a new one without --resume")
    };
    let done = session.end.as_ref().map(|e| e.state) == Some(SessionState::Done);
    if session.begun.kind != SessionKind::ServeCheck || done {
        return Err(refused("has nothing to resume"));
    }
    let config: ServeCheckConfig<serde_json::Value> =
        serde_json::from_value(session.begun.config.clone())
            .map_err(|e| refused(&format!("has an unreadable plan: {e}")))?;
    let mut request = config.request.clone();
    if request.speculates() {
        return Err(refused(
            "compares kinds of speculation, and such a session does not go on",
        ));
    }
    request.runtime = Some(build_of(&session, ports));
    Ok(Begun {
        session,
        request,
        config,
    })
}

impl Begun {
    /// Model, machine, build and profile must be those it was begun with.
    fn goes_on_with(&self, checked: &Checked) -> Result<(), JobError> {
        same_place(&self.session, &checked.place)?;
        if checked.profile.as_ref().map(|p| p.id) == self.config.profile {
            return Ok(());
        }
        let id = self.session.id;
        let headline = format!("session {id} checks a profile that another has taken the place of");
        Err(JobError::new(NOT_RESUMABLE, headline).hint("start a new session"))
    }
}

/// The session to measure in: a new one, or the one that goes on, whose plan must be this.
fn opened<P: Serialize>(
    request: &ServeCheckRequest,
    checked: &Checked,
    plan: &P,
    begun: Option<&Begun>,
    ports: &Ports,
) -> Result<(i64, Measuring), Ended> {
    let Some(Begun {
        session, config, ..
    }) = begun
    else {
        return self::session(request, checked, plan, ports);
    };
    let now = super::install::to_json(&self::config(request, checked, plan)?)?;
    let then = super::install::to_json(config)?;
    if now["plan"] != then["plan"] || now["space"] != then["space"] {
        let headline = format!(
            "session {} cannot be resumed: what its settings or its plan mean changed since",
            session.id
        );
        return Err(JobError::new("space-changed", headline)
            .hint("start a new session")
            .into());
    }
    let measuring = ports.store.begin_measuring()?;
    // Another Flux may have gone on with it meanwhile.
    resumed(session.id, ports)?;
    Ok((session.id, measuring))
}

/// The settings named, else the stored profile; several clients can be measured without either.
fn checked(request: &ServeCheckRequest, ports: &Ports) -> Result<Checked, JobError> {
    let (mut profile, mut notices) = (None, Vec::new());
    let mut named = None;
    if let Some(text) = &request.settings {
        let parsed = ports.space.current().parse_settings(text);
        named = Some(parsed.map_err(|e| JobError::new(USAGE, e.to_string()))?);
    } else if request.speculates() {
        named = Some(Settings::stock());
    } else {
        let asked = RunRequest {
            model: request.model.clone(),
            runtime: request.runtime.clone(),
            goal: request.goal,
            stale_ok: request.stale_ok,
            extra: Vec::new(),
            access: Access::default(),
        };
        let choice = run::choose(&asked, ports)?;
        notices = choice.notices;
        profile = choice.profile;
    }
    if profile.is_none() && named.is_none() && request.clients.is_empty() {
        return Err(JobError::new(
            "no-profile",
            "this model has no profile on this machine that could be checked against stock",
        )
        .hint("find one with `flux tune`, or name settings with --settings \"flash-attn=on\""));
    }
    let place = workplace(request, profile.as_ref(), ports)?;
    let tokens = u64::from(request.prompt_tokens) + u64::from(request.generated_tokens);
    if let Some(longest) = place
        .model
        .context_length
        .filter(|longest| tokens > *longest)
    {
        let told = format!(
            "prompt and answer are {tokens} tokens together, and the model's context is {longest}"
        );
        return Err(JobError::new(USAGE, told).hint("ask for fewer with --prompt-tokens"));
    }
    if !place.model.tokenizer {
        // llama-server aborts at the first request to such a model (b11149).
        let told = "the model has no tokenizer: llama-server can answer nothing with it";
        return Err(JobError::new("no-tokenizer", told)
            .hint("`flux tune` and `flux ab` measure it with llama-bench"));
    }
    let goal = request.goal.or(profile.as_ref().map(|p| p.goal));
    Ok(Checked {
        settings: named
            .or(profile.as_ref().map(|p| p.settings.clone()))
            .unwrap_or_default(),
        place,
        profile,
        goal: goal.unwrap_or(Goal::Generation),
        notices,
    })
}

/// Where a profile was measured, unless something else is asked for.
fn workplace(
    request: &ServeCheckRequest,
    profile: Option<&Profile>,
    ports: &Ports,
) -> Result<Workplace, JobError> {
    let measured = match profile {
        Some(profile) => ports.store.session(profile.session)?,
        None => None,
    };
    // A search and a plan's benchmark both keep it there.
    let on = measured
        .as_ref()
        .and_then(|s| s.begun.config.pointer("/request/device"));
    let on = on.and_then(|device| device.as_str()).map(str::to_owned);
    let device = request.device.clone().or(on);
    let named = measured.map(|s| build_of(&s, ports));
    let runtime = request.runtime.clone().or(named);
    let (runtime, device) = (runtime.as_deref(), device.as_deref());
    let place = Workplace::read(&request.model, runtime, device, None, ports)?;
    if place.runtime.server.is_none() {
        let headline = format!("runtime {} has no llama-server", place.runtime.name);
        return Err(JobError::new("no-server", headline).hint("choose another with --runtime"));
    }
    Ok(place)
}

pub(super) fn session<P: Serialize>(
    request: &ServeCheckRequest,
    checked: &Checked,
    plan: &P,
    ports: &Ports,
) -> Result<(i64, Measuring), Ended> {
    let config = super::install::to_json(&config(request, checked, plan)?)?;
    let kind = SessionKind::ServeCheck;
    begin(&checked.place, kind, checked.goal, config, ports)
}

fn config<P>(
    request: &ServeCheckRequest,
    checked: &Checked,
    plan: P,
) -> Result<ServeCheckConfig<P>, JobError> {
    let of_space = super::settings::of_space(&checked.settings);
    let settings = of_space.0.iter().map(|(d, v)| (&**d, &**v));
    let space = checked.place.space.digest(settings);
    Ok(ServeCheckConfig {
        request: request.clone(),
        plan,
        profile: checked.profile.as_ref().map(|p| p.id),
        space: space.map_err(|e| JobError::new(USAGE, e.to_string()))?,
    })
}

/// Makes the runs of a method and ends the session with its document; `told` says in it what came of them.
fn measured<M: Method + Clone>(
    request: &ServeCheckRequest,
    checked: &Checked,
    (plan, objective): (&M, &Objective),
    session: i64,
    (ports, context): (&Ports, &mut JobContext),
    told: impl FnOnce(M::Outcome, &mut AbDocument) -> Result<(), JobError>,
) -> Result<serde_json::Value, Ended> {
    let begun = ports.clock.elapsed();
    let mut bench = Bench::new(ports, &checked.place, objective, session);
    let mut earlier_secs = 0.0;
    let driven = driven(&mut bench, plan, checked, &mut earlier_secs, context);
    let ended = driven.and_then(|outcome| {
        let took = ports.clock.elapsed().saturating_sub(begun);
        let overhead = Overhead::new(took, bench.run_secs - earlier_secs).after(earlier_secs);
        let mut document = document(request, checked, session, overhead);
        document.primary = objective.primary();
        told(outcome, &mut document)?;
        bench.tell_reason(document.verdict, context)?;
        Ok((super::install::to_json(&document)?, document.verdict))
    });
    close(ports, session, ended)
}

/// Tells what there is to tell, and makes the runs of a method.
fn driven<M: Method + Clone>(
    bench: &mut Bench<'_>,
    plan: &M,
    checked: &Checked,
    earlier_secs: &mut f64,
    context: &mut JobContext,
) -> Result<M::Outcome, Ended> {
    let mut driver: Driver<M> = bench.resume(plan.clone())?;
    *earlier_secs = bench.run_secs;
    let primary = bench.objective.primary();
    context.started_or_gone_on(
        "serve-check",
        (Some(bench.session), bench.goes_on),
        stage_infos(&driver),
        Some(primary),
    );
    bench.tell_kept(plan.clone(), context)?;
    bench.tell(&checked.notices, context)?;
    bench.tell_conditions(context)?;
    bench.drive(&mut driver, context)
}

fn compared(outcome: AbOutcome, document: &mut AbDocument) -> Result<(), JobError> {
    if let Some(failure) = &outcome.failure {
        return Err(JobError::new(ARM_FAILED, outcome.reason).hint(failure.class.advice()));
    }
    let judged = outcome.confirmation.as_ref();
    document.confirmation = judged.map(report::confirmation_document);
    document.verdict = outcome.verdict;
    document.reason = outcome.reason;
    document
        .notices
        .extend(outcome.notices.iter().map(notice_of));
    Ok(())
}

fn together(outcome: ClientsOutcome, document: &mut AbDocument) -> Result<(), JobError> {
    if let Some((failure, reason)) = outcome.failure {
        return Err(JobError::new(ARM_FAILED, reason).hint(failure.class.advice()));
    }
    if let Some(live) = &mut document.live {
        live.clients = outcome.rows;
    }
    document
        .notices
        .extend(outcome.notices.iter().map(notice_of));
    Ok(())
}

pub(super) fn document(
    request: &ServeCheckRequest,
    checked: &Checked,
    session: i64,
    overhead: Overhead,
) -> AbDocument {
    let place = &checked.place;
    let arm = |named: String, settings: &Settings| ArmDocument {
        arm: named,
        settings: settings.clone(),
        runtime: place.runtime.name.clone(),
    };
    AbDocument {
        schema: report::SCHEMA,
        session: Some(session),
        fingerprint: place.fingerprint.hash.clone(),
        model: ModelDocument {
            name: place.model.name.clone(),
            path: place.model.path.clone(),
            digest: Some(place.model.digest.clone()),
        },
        goal: Some(checked.goal),
        a: arm("stock".to_owned(), &Settings::stock()),
        b: arm(checked.name(), &checked.settings),
        live: Some(LiveDocument {
            prompt_tokens: request.prompt_tokens,
            generated_tokens: request.generated_tokens,
            chat_template: place.model.tokenizer,
            profile: checked.profile.as_ref().map(|p| p.id),
            clients: Vec::new(),
            speculation: Vec::new(),
        }),
        notices: checked.notices.clone(),
        overhead: Some(overhead),
        ..AbDocument::default()
    }
}
