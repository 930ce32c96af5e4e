//! `flux plan`: where each tensor should live, predicted or measured.

use crate::cli::args::Plan;
use crate::cli::error::{CliError, CliResult};
use crate::cli::job::Jobs;
use crate::cli::output::Output;
use crate::cli::render::placement;
use crate::engine::message::Command;
use crate::engine::plan::{self, PlanRequest};

use super::open::Place;

/// Prints the plan, after measuring it where that was asked.
///
/// # Errors
/// As [`plan::predicted`] and the job.
pub fn run(args: Plan, place: &Place, output: &Output) -> CliResult {
    let document = if args.bench {
        if args.machine.machine.is_some() {
            return Err(CliError::usage(
                "--bench measures this machine: it cannot measure the one of --machine",
            ));
        }
        let ports = place.measure(&args.machine, output)?;
        let mut jobs = Jobs::start(ports);
        let request = Box::new(request(args));
        serde_json::from_value(jobs.run(Command::Plan(request), output)?)?
    } else {
        let ports = place.look_as(&args.machine, output)?;
        plan::predicted(&request(args), &ports)?
    };
    for notice in &document.notices {
        output.notice(notice);
    }
    output.print_either(&document, || placement::plan(&document, output.style))
}

fn request(args: Plan) -> PlanRequest {
    PlanRequest {
        runtime: args.runtime,
        devices: args.device,
        rpc: args.rpc,
        context: args.context,
        vram_limit: args.vram_limit,
        ram_limit: args.ram_limit,
        allow_kv_quant: args.allow_kv_quant,
        goal: args.goal.into(),
        request_shape: args.request,
        learn_from: args.learn_from,
        predict: args.predict,
        processes: args.processes,
        prompt_tokens: args.prompt_tokens,
        generated_tokens: args.gen_tokens,
        ..PlanRequest::new(args.model)
    }
}
