//! `flux tune`: search and confirm.

use std::path::Path;

use serde_json::Value;

use crate::cli::args::{Tune, Workload};
use crate::cli::error::{CliError, CliResult};
use crate::cli::job::Jobs;
use crate::cli::output::{Output, print, print_json};
use crate::cli::render::{plan, tune};
use crate::engine::Ports;
use crate::engine::message::{Command, TuneRequest};
use crate::engine::prepare;
use crate::engine::resume::resumable;

use super::open::Place;

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
        return output.print_either(&document, || plan::dry_run(&document, output.style));
    }
    let mut jobs = Jobs::start(ports)?;
    let model = request.model.clone();
    let document = jobs.run(Command::Tune(request), output)?;
    print_result(document, &model, output)
}

/// Prints a result document of `tune`.
///
/// # Errors
/// stdout cannot be written.
pub fn print_result(document: Value, model: &Path, output: &Output) -> CliResult {
    if output.json {
        return print_json(&document);
    }
    let model = model.display().to_string();
    let context = tune::Context {
        model: &model,
        style: output.style,
    };
    print(&tune::result(&serde_json::from_value(document)?, context))
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
        resume,
    })
}
