//! `flux tune`: search and confirm.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cli::args::{Tune, Workload};
use crate::cli::error::{CliError, CliResult};
use crate::cli::job::Jobs;
use crate::cli::output::{Output, print, print_json};
use crate::cli::render::{plan, tune};
use crate::engine::Ports;
use crate::engine::message::{Command, TuneRequest};
use crate::engine::prepare;
use crate::engine::tune::NOTHING_RUNS;
use crate::ports::{SessionKind, SessionState};

use super::open::Place;

/// Sessions looked through for one to go on with.
const RESUME_DEPTH: u32 = 1000;

/// Tunes, or says what would be tried.
///
/// # Errors
/// As the job; nothing to resume.
pub fn run(args: Tune, place: &Place, output: &Output) -> CliResult {
    let dry = args.dry_run;
    let ports = if dry {
        place.look_as(&args.machine, output)?
    } else {
        place.measure(&args.machine, output)?
    };
    let request = request(args, &ports)?;
    if dry {
        let document = prepare::dry_run(&request, &ports)?;
        return show(&document, output, |document| {
            plan::dry_run(document, output.style)
        });
    }
    let mut jobs = Jobs::start(ports)?;
    let model = request.model.clone();
    let document = jobs.run(Command::Tune(request), output)?;
    print_result(&document, &model, output)
}

/// Prints a result document of `tune` or `ab`.
///
/// # Errors
/// stdout cannot be written.
pub fn print_result(document: &Value, model: &Path, output: &Output) -> CliResult {
    let model = model.display().to_string();
    let context = tune::Context {
        model: &model,
        style: output.style,
    };
    show(document, output, |document| tune::result(document, context))
}

fn show(
    document: &Value,
    output: &Output,
    text: impl FnOnce(&Value) -> Result<String, serde_json::Error>,
) -> CliResult {
    if output.json {
        print_json(document)
    } else {
        print(&text(document)?)
    }
}

fn request(args: Tune, ports: &Ports) -> CliResult<TuneRequest> {
    let (model, resume) = match args.resume {
        None => (args.model, None),
        Some(session) => {
            let (model, session) = resumable(session, args.model, ports)?;
            (Some(model), Some(session))
        }
    };
    let model = model.ok_or_else(|| CliError::usage("a model is needed: -m FILE"))?;
    let Workload {
        runtime,
        device,
        goal,
        reps,
        processes,
        prompt_tokens,
        gen_tokens,
        depth,
    } = args.workload;
    Ok(TuneRequest {
        model,
        runtime,
        device,
        goal: goal.into(),
        request_shape: args.request,
        allow_kv_quant: args.allow_kv_quant,
        repetitions: reps,
        processes,
        time_limit_secs: args.time_limit,
        only: args.only,
        prompt_tokens,
        generated_tokens: gen_tokens,
        depth,
        memory_reserve: None,
        resume,
    })
}

/// The session to go on with: the one named, else the newest `tune` without a result (of this model, where one is
/// given) that may still get one: it was killed or cancelled, or failed for want of a disk, not of a baseline.
fn resumable(
    named: Option<i64>,
    model: Option<PathBuf>,
    ports: &Ports,
) -> CliResult<(PathBuf, i64)> {
    if let Some(id) = named {
        let session = ports.store.session(id)?.ok_or_else(|| no_session(id))?;
        if session.begun.kind != SessionKind::Tune {
            return Err(CliError::failed(format!(
                "session {id} is no `flux tune` session"
            )));
        }
        let measured = session.begun.model.path;
        if model
            .as_ref()
            .is_some_and(|given| !same_file(given, &measured))
        {
            return Err(CliError::usage(format!(
                "session {id} measures another model: {}",
                measured.display()
            ))
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
        let is_hopeless = session
            .end
            .is_some_and(|e| e.result["code"] == NOTHING_RUNS);
        let path = session.begun.model.path;
        match &model {
            _ if is_hopeless => {}
            Some(wanted) if !same_file(wanted, &path) => {}
            _ => return Ok((model.unwrap_or(path), line.id)),
        }
    }
    Err(CliError::failed("no unfinished session to go on with")
        .hint("`flux history` lists every session"))
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

/// There is no session of that number.
pub fn no_session(id: i64) -> CliError {
    CliError::failed(format!("no session {id} here")).hint("`flux history` lists every session")
}
