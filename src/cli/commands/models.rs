//! `flux models`, `flux model synth`: model files.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::args::{ModelAction, Models};
use crate::cli::error::{CliError, CliResult};
use crate::cli::job::Jobs;
use crate::cli::output::Output;
use crate::cli::render::models;
use crate::domain::text::clean;
use crate::domain::types::{ModelInfo, ModelListing};
use crate::engine::Ports;
use crate::engine::message::Command;
use crate::engine::models::{named, usual};
use crate::ports::SynthRequest;

use super::open::Place;

/// Lists models.
///
/// # Errors
/// A folder or file the user named cannot be read.
pub fn list(args: &Models, place: &Place, output: &Output) -> CliResult {
    let ports = place.look(output)?;
    let listings = if args.dirs.is_empty() {
        let found = usual(&[PathBuf::from(".")], &ports);
        for notice in &found.notices {
            output.notice(notice);
        }
        found.models
    } else {
        named(&args.dirs, &ports)?
    };
    let document = json!({ "schema": 1, "models": listings });
    output.print_either(&document, || models::list(&listings, output.style))
}

/// Makes a model file.
///
/// # Errors
/// An unknown shape, a file that exists, no space, a cancel.
pub fn make(action: ModelAction, place: &Place, output: &Output) -> CliResult {
    let ModelAction::Synth {
        shape,
        output: file,
        sparse,
        seed,
    } = action;
    let ports = place.look(output)?;
    known_shape(&shape, &ports)?;
    let mut jobs = Jobs::start(ports);
    let request = SynthRequest {
        shape,
        output: file,
        sparse,
        seed,
    };
    let model = synthesise(&mut jobs, request, output)?;
    let document = json!({ "schema": 1, "model": model });
    output.print_either(&document, || {
        let listing = ModelListing {
            path: model.path.clone(),
            model: Some(model.clone()),
            problem: None,
        };
        models::list(&[listing], output.style)
    })
}

fn known_shape(shape: &str, ports: &Ports) -> CliResult {
    let shapes = ports.models.shapes();
    if shapes.iter().any(|known| known == shape) {
        return Ok(());
    }
    Err(CliError::usage(format!("no such shape: {shape}"))
        .hint(format!("the shapes are {}", shapes.join(", "))))
}

/// Writes a synthetic model with progress.
///
/// # Errors
/// As the job.
pub fn synthesise(jobs: &mut Jobs, request: SynthRequest, output: &Output) -> CliResult<ModelInfo> {
    output.step(&format!(
        "writing {} with random weights: {}",
        request.shape,
        clean(&request.output.display().to_string())
    ));
    let result = jobs.run(Command::Synth(request), output)?;
    Ok(serde_json::from_value(result)?)
}
