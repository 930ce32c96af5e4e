//! `flux serve-check`: the profile against stock through live servers.

use std::path::Path;

use crate::cli::args::{MachineArg, ServeCheck};
use crate::cli::error::{CliError, CliResult};
use crate::cli::job::Jobs;
use crate::cli::output::{Output, print, print_json};
use crate::cli::render::tune;
use crate::engine::message::Command;
use crate::engine::resume::resumable;
use crate::engine::serve_check::ServeCheckRequest;
use crate::ports::SessionKind;

use super::open::Place;
use super::tune::Said;

/// Checks, and prints what came of it.
///
/// # Errors
/// As the job.
pub fn run(args: ServeCheck, place: &Place, output: &Output) -> CliResult {
    let ports = place.measure(&MachineArg { machine: None }, output)?;
    let (model, resume) = match args.resume {
        None => (args.model, None),
        Some(session) => {
            let kind = SessionKind::ServeCheck;
            let (model, session) = resumable(kind, session, args.model, &ports)?;
            (Some(model), Some(session))
        }
    };
    let model = model.ok_or_else(|| CliError::usage("a model is needed: -m FILE"))?;
    let mut jobs = Jobs::start(ports);
    let said = Said {
        model: model.clone(),
        runtime: args.runtime.clone(),
        data_dir: place.data_dir().map(Path::to_owned),
    };
    let request = ServeCheckRequest {
        model,
        runtime: args.runtime,
        device: args.device,
        goal: args.goal.map(Into::into),
        settings: args.settings,
        stale_ok: args.stale_ok,
        prompt_tokens: args.prompt_tokens,
        generated_tokens: args.gen_tokens,
        repetitions: args.reps,
        processes: args.processes,
        clients: args.clients,
        speculate: args.speculate,
        draft: args.draft,
        resume,
    };
    let document = jobs.run(Command::ServeCheck(request), output)?;
    if output.json {
        return print_json(&document);
    }
    let document = serde_json::from_value(document)?;
    print(&said.in_context(output, |context| tune::ab_result(&document, context)))
}
