//! `flux lab`: what the card can do by itself.

use std::io::Write as _;

use crate::cli::args;
use crate::cli::error::CliResult;
use crate::cli::job::Jobs;
use crate::cli::output::Output;
use crate::cli::render::lab::full;
use crate::domain::types::Bytes;
use crate::engine::lab::{LabAsked, LabDocument};
use crate::engine::message::Command;
use crate::wiring;

use super::open::Place;

/// Measures, stores, prints.
///
/// # Errors
/// No Vulkan, no such card; another Flux measures; cancelled.
pub fn run(args: args::Lab, place: &Place, output: &Output) -> CliResult {
    let ports = place.measure(&args::MachineArg { machine: None }, output)?;
    let usual = LabAsked::default();
    let asked = LabAsked {
        device: args.device,
        quick: args.quick,
        largest: args.largest_mib.map_or(usual.largest, Bytes::mib),
    };
    let mut jobs = Jobs::start(ports);
    let document: LabDocument = serde_json::from_value(jobs.run(Command::Lab(asked), output)?)?;
    output.print_either(&document, || full(&document, output.style))
}

/// Measures in this process, one event a line: for another Flux.
///
/// # Errors
/// The request is none; as `run`.
pub fn apart(request: &str) -> CliResult {
    wiring::vulkan_lab(request, &mut |event| {
        if let Ok(line) = serde_json::to_string(&event) {
            // A reader that is gone ends this process.
            let mut stdout = std::io::stdout().lock();
            let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
        }
    })?;
    Ok(())
}
