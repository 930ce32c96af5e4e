//! `flux models`, `flux model synth`: model files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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
use crate::ports::SynthRequest;

use super::open::Place;

/// Model folders of llama.cpp, Hugging Face and LM Studio, below the home folder.
const USUAL: &[&str] = &[
    "models",
    ".cache/llama.cpp",
    "Library/Caches/llama.cpp",
    "AppData/Local/llama.cpp",
    ".cache/huggingface/hub",
    ".lmstudio/models",
    ".cache/lm-studio/models",
];

/// Lists models.
///
/// # Errors
/// A folder or file the user named cannot be read.
pub fn list(args: &Models, place: &Place, output: &Output) -> CliResult {
    let ports = place.look(output)?;
    let listings = if args.dirs.is_empty() {
        usual(&ports, output)
    } else {
        named(&args.dirs, &ports)?
    };
    let document = json!({ "schema": 1, "models": listings });
    output.print_either(&document, || models::list(&listings, output.style))
}

fn named(paths: &[PathBuf], ports: &Ports) -> CliResult<Vec<ModelListing>> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_file() {
            found.push(ModelListing {
                path: path.clone(),
                model: Some(ports.models.inspect(path)?),
                problem: None,
            });
        } else {
            found.extend(ports.models.list(path)?);
        }
    }
    Ok(once_each(found))
}

/// The usual folders that exist; one that cannot be read is a note, because nobody named it.
fn usual(ports: &Ports, output: &Output) -> Vec<ModelListing> {
    let home = directories::BaseDirs::new().map(|dirs| dirs.home_dir().to_owned());
    let below_home = home
        .iter()
        .flat_map(|home| USUAL.iter().map(move |dir| home.join(dir)));
    let mut dirs: Vec<PathBuf> = below_home.collect();
    dirs.push(models_dir(&ports.data_dir));
    dirs.push(PathBuf::from("."));
    let mut found = Vec::new();
    for dir in dirs.iter().filter(|dir| dir.is_dir()) {
        match ports.models.list(dir) {
            Ok(listings) => found.extend(listings),
            Err(error) => output.step(&format!("note: {}", clean(&error.headline))),
        }
    }
    once_each(found)
}

/// One listing per file, however many ways lead to it.
fn once_each(listings: Vec<ModelListing>) -> Vec<ModelListing> {
    let mut seen = BTreeSet::new();
    listings
        .into_iter()
        .filter(|listing| {
            seen.insert(
                listing
                    .path
                    .canonicalize()
                    .unwrap_or_else(|_| listing.path.clone()),
            )
        })
        .collect()
}

/// Where Flux keeps models it makes.
pub fn models_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("models")
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
    let mut jobs = Jobs::start(ports)?;
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
