//! `flux ab`: any two arms, interleaved.

use std::path::Path;

use crate::cli::args::{Ab, MachineArg};
use crate::cli::error::CliResult;
use crate::cli::job::Jobs;
use crate::cli::output::{Output, print, print_json};
use crate::cli::render::tune;
use crate::engine::message::{AbRequest, Command};

use super::open::Place;
use super::tune::Said;

/// Confirms arm B against arm A.
///
/// # Errors
/// As the job.
pub fn run(args: Ab, place: &Place, output: &Output) -> CliResult {
    let ports = place.measure(&MachineArg { machine: None }, output)?;
    let mut jobs = Jobs::start(ports);
    let workload = args.workload;
    let request = AbRequest {
        model: args.model,
        a: args.a,
        b: args.b,
        runtime: workload.runtime,
        device: workload.device,
        goal: workload.goal.into(),
        repetitions: workload.reps,
        processes: workload.processes,
        prompt_tokens: workload.prompt_tokens,
        generated_tokens: workload.gen_tokens,
        depth: workload.depth,
    };
    let said = Said {
        model: request.model.clone(),
        runtime: request.runtime.clone(),
        data_dir: place.data_dir().map(Path::to_owned),
    };
    let document = jobs.run(Command::Ab(request), output)?;
    if output.json {
        return print_json(&document);
    }
    let document = serde_json::from_value(document)?;
    print(&said.in_context(output, |context| tune::ab_result(&document, context)))
}
