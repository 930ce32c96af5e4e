//! `flux run`: the stored profile applied to llama-server, and why each setting is there (paper section 2.3).

mod access;
mod imported;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::fingerprint;
use crate::domain::search::{Confirmation, Tool};
use crate::domain::text::{effect, three_digits};
use crate::domain::types::{
    Fingerprint, Goal, Launch, LlamaConfig, ModelInfo, Profile, RunOutcome, Runtime, Settings,
};
use crate::domain::windows_path;
use crate::ports::{Introduction, Notice, NoticeLevel, Session, SessionKind, StoredRun};

use super::message::JobError;
use super::plan::bench::PlanConfig;
use super::settings::{self, AgainstStock, against_stock, describe};
use super::target::Target;
use super::{Ports, chosen, lab, tune};

/// The setting that chooses a queue family, as the search space calls it.
const GRAPHICS_QUEUE: &str = "graphics-queue";

/// What `flux run` is asked to do.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Model file.
    pub model: PathBuf,
    /// Runtime name or folder; `None` takes the one the profile was measured with, else the best known.
    pub runtime: Option<String>,
    /// Only a profile of this goal; `None` takes the newest.
    pub goal: Option<Goal>,
    /// Apply a profile measured on another fingerprint.
    pub stale_ok: bool,
    /// Arguments handed on to llama-server as they are.
    pub extra: Vec<String>,
    /// Who may use the server.
    pub access: Access,
}

/// Who may use a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// Address to listen on, as llama-server takes it; `None` is this machine alone.
    pub host: Option<String>,
    /// File with the keys that may use it.
    pub api_key_file: Option<PathBuf>,
    /// A key comes by the environment.
    pub key_in_env: bool,
}

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Dimension.
    pub setting: String,
    /// Value.
    pub value: String,
    /// What it does, in one line.
    pub describe: String,
    /// The screening run that introduced it.
    pub run_id: i64,
    /// Its place in the session, from 1: the number progress and `flux show` give it.
    pub run_number: u32,
    /// What that run measured, in words.
    pub run_metric_text: String,
    /// What the confirmation found, in words.
    pub confirmation_text: String,
    /// What the kernel lab found of what this setting chooses, in words, where it has been asked on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lab_text: Option<String>,
}

/// What would be started, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// Argument list, program first.
    pub argv: Vec<String>,
    /// Environment on top of one without `GGML_*` and `LLAMA_*`.
    pub env: BTreeMap<String, String>,
    /// The profile applied; `None` is stock.
    pub profile: Option<Profile>,
    /// Evidence, setting by setting.
    pub explanation: Vec<Explanation>,
    /// What stock would do otherwise.
    pub stock: Vec<AgainstStock>,
    /// Things worth saying.
    pub notices: Vec<Notice>,
}

/// Finds the profile for a model on this machine and writes out the server's command.
///
/// # Errors
/// No model, no runtime with llama-server, an unreadable store, or only a stale profile without `stale_ok`; added
/// arguments that hold a secret or would let other machines in.
pub fn prepare(request: &RunRequest, ports: &Ports) -> Result<RunPlan, JobError> {
    let reach = access::arguments(request)?;
    let mut choice = choose(request, ports)?;
    choice.notices.extend(access::reachable(request));
    choice.notices.extend(access::also_read(&choice.configs));
    if choice.profile.is_some() {
        let told = access::contradicted(request, &choice.launch);
        choice.notices.extend(told);
    }
    let explanation = match &choice.profile {
        Some(p) => explain(p, ports)?,
        None => Vec::new(),
    };
    let Choice {
        runtime,
        model,
        launch,
        ..
    } = &choice;
    let profile = choice.profile.as_ref();
    let own = [&reach, &launch.args, &request.extra];
    Ok(RunPlan {
        stock: profile.map_or_else(Vec::new, |p| {
            against_stock(&p.settings, &ports.space.current())
        }),
        argv: server_argv(runtime, model, own)?,
        env: choice.runtime.environment(&choice.launch.env),
        profile: choice.profile,
        explanation,
        notices: choice.notices,
    })
}

/// What is started: a profile or stock, on a build.
pub(super) struct Choice {
    pub runtime: Runtime,
    pub model: ModelInfo,
    pub launch: Launch,
    pub profile: Option<Profile>,
    pub notices: Vec<Notice>,
    /// Settings files of llama.cpp's own.
    configs: Vec<LlamaConfig>,
}

/// The choice `prepare` writes out.
pub(super) fn choose(request: &RunRequest, ports: &Ports) -> Result<Choice, JobError> {
    let model = ports.models.inspect(&request.model)?;
    let profiles = ports.store.profiles()?.into_iter();
    let (candidates, of_other_goals): (Vec<Profile>, Vec<Profile>) = profiles
        .filter(|p| p.model_digest == model.digest)
        .partition(|p| request.goal.is_none_or(|goal| goal == p.goal));
    let mut imports = ports.store.imports(Some(&model.digest))?;
    imports.retain(|i| request.goal.is_none_or(|goal| goal == i.profile.goal));
    let own = candidates.iter().map(|p| p.runtime_digest.as_str());
    let others = imports.iter().map(|i| i.profile.build.digest.as_str());
    let runtime = choose_runtime(request, ports, own.chain(others))?;
    let mut machine = ports.probe.machine();
    machine.runtimes = vec![runtime.clone()];
    let current = fingerprint::fingerprint(&machine, Some(&runtime));
    let mut notices = Vec::new();
    let fresh = |p: &Profile| p.fingerprint == current.hash && p.simulated == machine.simulated;
    let own = candidates.iter().find(|p| fresh(p));
    let profile = if let Some(profile) = own {
        Some(profile.clone())
    } else {
        let newest = candidates.iter().find(|p| !p.simulated);
        let here = imported::Here {
            model: &model,
            runtime: &runtime,
            fingerprint: &current,
            simulated: machine.simulated,
        };
        match imported::applied(&imports, newest, here, request, ports)? {
            Some((profile, notice)) => {
                notices.push(notice);
                Some(profile)
            }
            None => stale(request, ports, newest, &current, &mut notices)?,
        }
    };
    let launch = if let Some(p) = &profile {
        notices.extend(limit_of(p, ports)?);
        notices.extend(other_goals(p, &candidates, fresh));
        p.server.clone()
    } else {
        let others = of_other_goals.iter();
        let goals = goals(others.filter(|p| p.simulated == machine.simulated));
        let missing = no_profile(request.goal, &goals);
        without_profile(&current, &model, &runtime, ports, missing, &mut notices)?
    };
    Ok(Choice {
        runtime,
        model,
        launch,
        profile,
        notices,
        configs: machine.llama_configs,
    })
}

/// Which goals have a profile of their own, where the newest was taken.
fn other_goals(
    taken: &Profile,
    candidates: &[Profile],
    is_fresh: impl Fn(&Profile) -> bool,
) -> Option<Notice> {
    let others = candidates
        .iter()
        .filter(|p| p.goal != taken.goal && is_fresh(p));
    let goals = goals(others);
    (!goals.is_empty()).then(|| {
        info(
            "other-goals",
            &format!(
                "profile {} is the newest, for the {} goal; {goals} has one too",
                taken.id, taken.goal,
            ),
        )
    })
}

/// The goals of profiles as they are asked for: `--goal energy or --goal prompt`.
fn goals<'p>(profiles: impl Iterator<Item = &'p Profile>) -> String {
    let goals: BTreeSet<String> = profiles.map(|p| format!("--goal {}", p.goal)).collect();
    let goals: Vec<String> = goals.into_iter().collect();
    goals.join(" or ")
}

/// That stock is started for want of a profile, and which other goals have one.
fn no_profile(asked: Option<Goal>, others: &str) -> Notice {
    let text = match asked.filter(|_| !others.is_empty()) {
        Some(goal) => format!(
            "no profile for the {goal} goal, but {others} has one: stock settings (measure with `flux tune --goal {goal}`)"
        ),
        None => {
            "no profile for this model on this machine: stock settings (measure with `flux tune`)"
                .to_owned()
        }
    };
    info("no-profile", &text)
}

/// What to say of a profile whose placement was chosen under a limit: without it another might be faster.
fn limit_of(profile: &Profile, ports: &Ports) -> Result<Option<Notice>, JobError> {
    let session = ports.store.session(profile.session)?;
    let config = session.and_then(|s| PlanConfig::of(&s.begun));
    let limit = config.and_then(|c| c.request.vram_limit);
    Ok(limit.map(|limit| {
        let id = profile.id;
        info(
            "limited-profile",
            &format!("profile {id} keeps within the {limit} of device memory its plan was given"),
        )
    }))
}

/// Stock, unless the last search or benchmark of this model found that stock does not run here (case C15): then what ran
/// instead.
fn without_profile(
    current: &Fingerprint,
    model: &ModelInfo,
    runtime: &Runtime,
    ports: &Ports,
    missing: Notice,
    notices: &mut Vec<Notice>,
) -> Result<Launch, JobError> {
    for line in chosen::ended_here(current, model, ports)? {
        let Some(session) = chosen::of_model(&line, model, ports)? else {
            continue;
        };
        let Some(instead) = instead_of_stock(&session, ports)? else {
            continue;
        };
        let Some((settings, target)) = instead else {
            break;
        };
        let layout = || Ok(ports.models.layout(&model.path)?);
        let space = ports.space.current();
        let own = settings::launch(&settings, &space, Tool::Server, runtime, layout)?;
        let text = format!(
            "no profile, and stock does not run here (session {}): started with {settings}, which does",
            line.id
        );
        notices.push(Notice {
            level: NoticeLevel::Warning,
            code: "stock-fails".to_owned(),
            text,
        });
        return Ok(target.joined(own, Tool::Server));
    }
    notices.push(missing);
    Ok(Launch::default())
}

/// What ran where stock failed, and on which device.
type Instead = Option<(Settings, Target)>;

/// What a session says of stock: `None` nothing, `Some(None)` that it runs.
fn instead_of_stock(session: &Session, ports: &Ports) -> Result<Option<Instead>, JobError> {
    match session.begun.kind {
        SessionKind::Tune => {
            let (Some(end), Ok(config)) = (&session.end, tune::config_of(session)) else {
                return Ok(None);
            };
            // A search on a placement says nothing of stock.
            let baseline = end.result.pointer("/baseline/settings");
            let baseline = baseline.filter(|_| config.plan.start.is_stock()).cloned();
            let settings: Option<Settings> = baseline.and_then(|b| serde_json::from_value(b).ok());
            Ok(settings.map(|s| (!s.is_stock()).then_some((s, config.target))))
        }
        SessionKind::Plan => {
            let Some(chosen) = chosen::read(session, ports)? else {
                return Ok(None);
            };
            let ran = !chosen.stock_runs && !chosen.settings.is_stock();
            Ok(Some(ran.then_some((chosen.settings, chosen.config.target))))
        }
        SessionKind::Ab | SessionKind::Lab | SessionKind::ServeCheck => Ok(None),
    }
}

fn choose_runtime<'a>(
    request: &RunRequest,
    ports: &Ports,
    mut digests: impl Iterator<Item = &'a str>,
) -> Result<Runtime, JobError> {
    if let Some(name) = &request.runtime {
        return Ok(ports.runtimes.resolve(name)?);
    }
    let known = ports.runtimes.list();
    let measured = digests.find_map(|digest| known.iter().find(|r| r.digest == digest));
    measured
        .or_else(|| known.iter().find(|r| r.server.is_some()))
        .cloned()
        .ok_or_else(|| {
            JobError::new(
                "no-runtime",
                "no llama.cpp with llama-server is known on this machine",
            )
            .hint("`flux runtime install`, or `flux runtime add DIR`")
        })
}

/// The newest stale profile, refused unless the user said otherwise; says which fields changed.
fn stale(
    request: &RunRequest,
    ports: &Ports,
    newest: Option<&Profile>,
    current: &Fingerprint,
    notices: &mut Vec<Notice>,
) -> Result<Option<Profile>, JobError> {
    let Some(profile) = newest else {
        return Ok(None);
    };
    let changed = match ports.store.fingerprint(&profile.fingerprint)? {
        Some(old) => fingerprint::diff(&old, current)
            .iter()
            .map(|c| c.field.clone())
            .collect::<Vec<_>>()
            .join(", "),
        None => "its fingerprint is not stored".to_owned(),
    };
    let text = format!(
        "profile {} is stale: changed since it was measured: {changed}",
        profile.id
    );
    notices.push(stale_notice(request, text)?);
    Ok(Some(profile.clone()))
}

/// Refused unless the user said otherwise.
fn stale_notice(request: &RunRequest, text: String) -> Result<Notice, JobError> {
    if !request.stale_ok {
        return Err(JobError::new("stale-profile", text)
            .hint("measure again with `flux tune`, or apply it all the same with --stale-ok"));
    }
    Ok(Notice {
        level: NoticeLevel::Warning,
        code: "stale-profile".to_owned(),
        text,
    })
}

fn explain(profile: &Profile, ports: &Ports) -> Result<Vec<Explanation>, JobError> {
    let space = ports.space.current();
    let verdict = ports.store.confirmation_of(profile.id)?;
    let confirmation: Option<Confirmation> =
        verdict.and_then(|v| serde_json::from_value(v.detail).ok());
    let confirmation_text = confirmation
        .as_ref()
        .map_or_else(|| "not stored".to_owned(), in_words);
    let baseline = confirmation.map(|c| c.baseline).unwrap_or_default();
    let start = start_of(&baseline, profile, ports)?;
    let chooses_queue = profile.settings.0.contains_key(GRAPHICS_QUEUE);
    let lab = if chooses_queue {
        lab::queue_verdict(ports)?
    } else {
        None
    };
    let explained = |i: Introduction| Explanation {
        lab_text: lab.clone().filter(|_| i.dimension == GRAPHICS_QUEUE),
        describe: describe(&i.dimension, &space).to_owned(),
        run_id: i.run.id,
        run_number: i.run.seq + 1,
        run_metric_text: measured(&i.run),
        // What both arms had was confirmed where it was chosen.
        confirmation_text: match baseline.0.get(&i.dimension) {
            Some(value) if *value == i.value => start.clone(),
            _ => confirmation_text.clone(),
        },
        setting: i.dimension,
        value: i.value,
    };
    Ok(ports
        .store
        .introductions(profile.id)?
        .into_iter()
        .map(explained)
        .collect())
}

/// What confirmed the baseline that a search started from, in words.
fn start_of(baseline: &Settings, profile: &Profile, ports: &Ports) -> Result<String, JobError> {
    let in_both = "in both arms of its confirmation".to_owned();
    let mut chosen = ports.store.profiles()?.into_iter().filter(|p| {
        p.settings == *baseline
            && p.fingerprint == profile.fingerprint
            && p.model_digest == profile.model_digest
    });
    let Some(earlier) = chosen.next() else {
        return Ok(in_both);
    };
    let verdict = ports.store.confirmation_of(earlier.id)?;
    let stored = verdict.and_then(|v| serde_json::from_value::<Confirmation>(v.detail).ok());
    Ok(stored.map_or(in_both, |c| {
        format!("{} (session {})", in_words(&c), earlier.session)
    }))
}

/// What a run measured: every test's mean rate.
fn measured(run: &StoredRun) -> String {
    let RunOutcome::Valid { tests } = &run.run.outcome else {
        return "no samples".to_owned();
    };
    let rates: Vec<String> = tests
        .iter()
        .map(|t| format!("{} {} t/s", t.test, three_digits(t.mean_rate())))
        .collect();
    format!("{} with {}", rates.join(", "), run.planned.settings)
}

/// A confirmation's primary metric: change, interval, runs.
fn in_words(confirmation: &Confirmation) -> String {
    let Some(metric) = confirmation.metrics.get(&confirmation.primary) else {
        return confirmation.reason.clone();
    };
    format!(
        "{} {} against {}",
        confirmation.primary,
        effect(&metric.confirmed),
        confirmation.baseline
    )
}

/// llama-server's argument list: model, address, the profile's settings, then the user's own, which win where both speak.
fn server_argv(
    runtime: &Runtime,
    model: &ModelInfo,
    arguments: [&Vec<String>; 3],
) -> Result<Vec<String>, JobError> {
    let server = runtime.server.as_ref().ok_or_else(|| {
        JobError::new(
            "no-server",
            format!("runtime {} has no llama-server", runtime.name),
        )
        .hint("choose another with --runtime")
    })?;
    let mut argv = vec![
        server.display().to_string(),
        "--model".to_owned(),
        windows_path::argument(&model.path).display().to_string(),
    ];
    argv.extend(arguments.into_iter().flatten().cloned());
    Ok(argv)
}

fn info(code: &str, text: &str) -> Notice {
    Notice {
        level: NoticeLevel::Info,
        code: code.to_owned(),
        text: text.to_owned(),
    }
}
