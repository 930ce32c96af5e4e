//! `flux plan`: where each tensor should live, predicted.

use crate::cli::args::Plan;
use crate::cli::error::CliResult;
use crate::cli::output::Output;
use crate::cli::render::placement;
use crate::engine::plan::{self, PlanRequest};

use super::open::Place;

/// Prints the plan.
///
/// # Errors
/// As [`plan::predicted`].
pub fn run(args: Plan, place: &Place, output: &Output) -> CliResult {
    let ports = place.look_as(&args.machine, output)?;
    let document = plan::predicted(&request(args), &ports)?;
    for notice in &document.notices {
        output.notice(notice);
    }
    output.print_either(&document, || placement::plan(&document, output.style))
}

fn request(args: Plan) -> PlanRequest {
    PlanRequest {
        runtime: args.runtime,
        devices: args.device,
        context: args.context,
        vram_limit: args.vram_limit,
        ram_limit: args.ram_limit,
        allow_kv_quant: args.allow_kv_quant,
        goal: args.goal.into(),
        request_shape: args.request,
        learn_from: args.learn_from,
        predict: args.predict,
        ..PlanRequest::new(args.model)
    }
}
