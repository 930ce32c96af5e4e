//! `flux doctor`: what would spoil a measurement now. Always ends with status 0: finding something is no failure.

use serde_json::json;

use crate::cli::args::Doctor;
use crate::cli::error::CliResult;
use crate::cli::output::Output;
use crate::cli::render::doctor;
use crate::engine::doctor::findings;

use super::open::Place;

/// Looks and advises.
///
/// # Errors
/// A model asked about cannot be read.
pub fn run(args: &Doctor, place: &Place, output: &Output) -> CliResult {
    let ports = place.look_as(&args.machine, output)?;
    let found = findings(args.model.as_deref(), &ports)?;
    let document = json!({ "schema": 1, "findings": found });
    output.print_either(&document, || doctor::findings(&found, output.style))
}
