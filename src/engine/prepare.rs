//! From a request to a search that is ready to begin (paper sections 2.1–2.3): what it tries, from where, at what cost.

use serde::{Deserialize, Serialize};

use crate::domain::search::{
    Capabilities, Method as _, Offer, OfferRules, PlanInput, Refusal, SearchSpace, SettingsError,
    Tool, TunePlan, Tuner, plan,
};
use crate::domain::types::{Backend, Goal, ModelInfo, Profile, Settings};

use crate::ports::{Notice, NoticeLevel};

use super::Ports;
use super::chosen::{Start, start};
use super::message::{JobError, TuneRequest, USAGE};
use super::report::{DryCandidate, DryRun, SCHEMA};
use super::settings::{self, PLACEMENT};
use super::target::Target;
use super::workplace::Workplace;

/// A search ready to begin, or to go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneConfig {
    /// As asked for.
    pub request: TuneRequest,
    /// The device.
    pub target: Target,
    /// What will be tried.
    pub plan: TunePlan,
    /// Digest of what the plan's settings mean; `None` in sessions begun before it was kept.
    #[serde(default)]
    pub space: Option<String>,
    /// What it starts from is stock, or known to be better than stock: a winner may be saved.
    #[serde(default = "yes")]
    pub start_confirmed: bool,
    /// What is worth saying before it begins.
    #[serde(default)]
    pub notices: Vec<Notice>,
}

const fn yes() -> bool {
    true
}

impl TuneConfig {
    /// Digest of what the settings on offer mean in `space`.
    ///
    /// # Errors
    /// One of them is not in it.
    pub fn digest_in(&self, space: &SearchSpace) -> Result<String, SettingsError> {
        let dimensions = self.plan.offer.dimensions.iter();
        space.digest(dimensions.flat_map(|d| d.values.iter().map(|v| (&*d.id, &*v.id))))
    }
}

/// Plans a search.
///
/// # Errors
/// As [`Workplace::read`]; an unknown dimension in `only`; a placement that is none; numbers that make no sense; the energy
/// goal.
pub fn tune(request: &TuneRequest, ports: &Ports) -> Result<(Workplace, TuneConfig), JobError> {
    let mut place = Workplace::read(
        &request.model,
        request.runtime.as_deref(),
        request.device.as_deref(),
        request.memory_reserve,
        ports,
    )?;
    place.must_know_its_driver()?;
    if request.goal == Goal::Energy {
        place.must_tell_energy(ports)?;
    }
    let Start {
        settings: start,
        confirmed,
        notices,
    } = start(&mut place, request, ports)?;
    let prompt_tokens = request.prompt_tokens.unwrap_or(plan::PROMPT);
    let rules = OfferRules {
        only: request.only.clone(),
        allow_kv_quant: request.allow_kv_quant,
        goal: request.goal,
        max_prompt: TunePlan::max_prompt(prompt_tokens),
    };
    let capabilities = on_top_of(&start, &place, ports)?;
    let usage = |e: &dyn std::error::Error| JobError::new(USAGE, e.to_string());
    let offered = place.space.offer(&capabilities, &rules);
    let mut offer = offered.map_err(|e| usage(&e))?;
    if place.tool() == Tool::Server {
        without_bench_only(&mut offer, &place.space);
    }
    let plan = TunePlan::new(
        offer,
        PlanInput {
            goal: request.goal,
            request: request.request_shape,
            prompt_tokens,
            generated_tokens: request.generated_tokens.unwrap_or(plan::GENERATED),
            depth: request.depth,
            repetitions: request.repetitions,
            processes: request.processes,
            max_processes: request.max_processes,
            time_limit_secs: request.time_limit_secs,
            first_candidate: stale_settings(&place, request, &start, ports)?,
            start,
            fallbacks: Vec::new(),
            memory_limits: place.target.memory_limits.clone(),
        },
    )
    .map_err(|e| usage(&e))?;
    let mut config = TuneConfig {
        request: request.clone(),
        target: place.target.clone(),
        plan,
        space: None,
        start_confirmed: confirmed,
        notices,
    };
    let digest = config.digest_in(&place.space);
    config.space = Some(digest.map_err(|e| JobError::new("settings", e.to_string()))?);
    Ok((place, config))
}

/// Takes out what is a setting of llama-bench alone: through the server it would be stock against itself (case C43).
fn without_bench_only(offer: &mut Offer, space: &SearchSpace) {
    let Offer {
        dimensions,
        refused,
    } = offer;
    for dimension in dimensions.iter_mut() {
        let changes = |value: &str| {
            let settings = Settings::stock().with(&dimension.id, value);
            let launch = space.launch(&settings, Tool::Server);
            launch.is_ok_and(|l| !l.args.is_empty() || !l.env.is_empty())
        };
        dimension.values.retain(|value| {
            let changes = changes(&value.id);
            if !changes {
                refused.push(Refusal {
                    dimension: dimension.id.clone(),
                    value: Some(value.id.clone()),
                    reason: "llama-server, which measures here, has no option for it".to_owned(),
                });
            }
            changes
        });
    }
    dimensions.retain(|d| !d.values.is_empty());
}

/// What the device and the build can do beside what a search starts from.
fn on_top_of(start: &Settings, place: &Workplace, ports: &Ports) -> Result<Capabilities, JobError> {
    let mut capabilities = place.capabilities();
    capabilities.partial_offload = keeps_weights_in_ram(start, place, ports)?;
    capabilities
        .bench_defaults
        .extend(settings::defaults(start)?);
    Ok(capabilities)
}

/// Are weights split between a GPU and RAM? Stock offloads everything; what llama.cpp fits is not known before it runs.
fn keeps_weights_in_ram(
    start: &Settings,
    place: &Workplace,
    ports: &Ports,
) -> Result<bool, JobError> {
    let placed = start.0.get(PLACEMENT);
    if placed.is_none() || place.target.backend == Backend::Cpu {
        return Ok(false);
    }
    let Some(placement) = settings::placement(start)? else {
        return Ok(true);
    };
    let layout = ports.models.layout(&place.model.path)?;
    let devices = place.runtime.devices.len().max(1);
    Ok(placement.placement.keeps_weights_in_ram(&layout, devices))
}

/// The settings of this model's newest profile, own or imported, that was measured on another fingerprint: the new search
/// tries them first.
fn stale_settings(
    place: &Workplace,
    request: &TuneRequest,
    start: &Settings,
    ports: &Ports,
) -> Result<Option<Settings>, JobError> {
    let of_model = |p: &Profile| {
        p.model_digest == place.model.digest
            && p.goal == request.goal
            && p.simulated == place.machine.simulated
    };
    let newest = ports.store.profiles()?.into_iter().find(of_model);
    let imports = ports.store.imports(Some(&place.model.digest))?;
    let mut imports = imports.into_iter().filter(|_| !place.machine.simulated);
    let import = imports
        .find(|i| i.profile.goal == request.goal)
        .filter(|i| newest.as_ref().is_none_or(|p| p.created_at < i.imported_at));
    let first = match import {
        Some(import) => Some((import.profile.fingerprint.hash, import.profile.settings)),
        None => newest.map(|p| (p.fingerprint, p.settings)),
    };
    Ok(first
        .filter(|(fingerprint, _)| *fingerprint != place.fingerprint.hash)
        // Its placement was for another machine.
        .map(|(_, settings)| settings::of_space(&settings))
        // Another search space may not know them any more.
        .filter(|s| !s.is_stock() && place.space.launch(s, Tool::Bench).is_ok())
        .map(|s| start.and(&s)))
}

/// What `flux tune --dry-run` prints: what would be tried, what not and why, and about how long it would take.
///
/// # Errors
/// As [`tune`].
pub fn dry_run(request: &TuneRequest, ports: &Ports) -> Result<DryRun, JobError> {
    let (place, config) = tune(request, ports)?;
    let space = &place.space;
    let mut candidates = Vec::new();
    for dimension in &config.plan.offer.dimensions {
        for value in &dimension.values {
            let settings = config
                .plan
                .offer
                .compose(&config.plan.start, &dimension.id, &value.id)
                .map_err(|e| JobError::new("settings", e))?;
            let launch = place.own_launch(&settings, Tool::Bench, ports)?;
            candidates.push(DryCandidate {
                settings,
                description: space.describe(&dimension.id).to_owned(),
                launch,
            });
        }
    }
    let driver = Tuner::new(config.plan.clone());
    // Without a candidate nothing is measured.
    let processes = if candidates.is_empty() {
        0
    } else {
        driver.progress().total
    };
    let past = ports.store.sessions(PAST_SESSIONS)?;
    let known = past
        .iter()
        .find(|s| s.fingerprint == place.fingerprint.hash && s.runs > 0);
    let per_process = match known {
        Some(line) => mean_wall_secs(line.id, &place.model, ports)?,
        None => None,
    };
    let mut notices = config.notices;
    notices.extend(too_many(&config.plan, candidates.len()));
    Ok(DryRun {
        schema: SCHEMA,
        fingerprint: place.fingerprint.hash,
        runtime: place.runtime.name,
        model: place.model.name,
        goal: Some(request.goal),
        tests: config
            .plan
            .tests()
            .iter()
            .map(ToString::to_string)
            .collect(),
        start: config.plan.start,
        notices,
        candidates,
        refused: config.plan.offer.refused,
        processes: Some(processes),
        expected_secs: per_process.map(|secs| secs * f64::from(processes)),
    })
}

/// More candidates than the processes of a search can try.
fn too_many(plan: &TunePlan, candidates: usize) -> Option<Notice> {
    let wanted: u32 = plan.stages().iter().map(|(_, runs)| runs).sum();
    (wanted > plan.max_processes).then(|| Notice {
        level: NoticeLevel::Warning,
        code: "process-budget".to_owned(),
        text: format!(
            "a search has {} processes, not enough for {candidates} candidates: the first are tried; `flux tune --only` \
             chooses, `--max-processes {wanted}` allows more",
            plan.max_processes
        ),
    })
}

/// Sessions looked through for one of the same machine, to know how long a process takes.
const PAST_SESSIONS: u32 = 50;

/// Mean seconds of a process of a past session with the same model.
fn mean_wall_secs(session: i64, model: &ModelInfo, ports: &Ports) -> Result<Option<f64>, JobError> {
    let same = ports
        .store
        .session(session)?
        .is_some_and(|s| s.begun.model.digest == model.digest);
    if !same {
        return Ok(None);
    }
    let runs = ports.store.run_heads(session)?;
    let total: f64 = runs.iter().map(|r| r.wall_secs).sum();
    Ok((!runs.is_empty()).then(|| total / runs.len() as f64))
}
