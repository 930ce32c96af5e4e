//! `flux quickstart`: everything once, each step said: scan, a llama.cpp, a model, the tuning, the result.

use std::path::{Path, PathBuf};

use crate::cli::args::{MachineArg, Quickstart};
use crate::cli::error::{CliError, CliResult};
use crate::cli::job::Jobs;
use crate::cli::output::{Output, say};
use crate::cli::render::{runtimes, scan as render};
use crate::domain::text::{clean, span};
use crate::domain::types::{Backend, Runtime};
use crate::engine::message::Command;
use crate::engine::models::models_dir;
use crate::engine::quick;
use crate::engine::scan::{Scan, scan};

use super::open::Place;
use super::{models, runtime, tune};

/// Runs every step.
///
/// # Errors
/// As the steps.
pub fn run(args: Quickstart, place: &Place, output: &Output) -> CliResult {
    let ports = place.measure(&MachineArg { machine: None }, output)?;
    if let Some(model) = &args.model {
        // A wrong path is said before minutes of installing.
        ports.models.inspect(model)?;
    }
    let mut jobs = Jobs::start(ports);

    output.step("1 of 4: this machine");
    let found = scan(jobs.ports());
    for notice in &found.notices {
        output.notice(notice);
    }
    output.step(&render::summary(&found));

    output.step("2 of 4: llama.cpp");
    let build = match found.runtimes.first() {
        Some(known) => known.clone(),
        None => install(&mut jobs, &found, output)?,
    };
    output.step(&format!("  {}", runtimes::one(&build)));

    output.step("3 of 4: a model");
    let model = match args.model {
        Some(model) => model,
        None => make_model(&mut jobs, &found, output)?,
    };
    output.step(&format!("  {}", clean(&model.display().to_string())));

    output.step(&format!(
        "4 of 4: tuning, no new candidate after {}",
        span(args.time_limit)
    ));
    let request = quick::search(model.clone(), &build, args.time_limit);
    let said = tune::Said {
        model,
        runtime: None,
        data_dir: place.data_dir().map(Path::to_owned),
    };
    let document = jobs.run(Command::Tune(request), output)?;
    tune::print_result(document, &said, output)
}

/// The GPU's backend; where it cannot be had, the CPU's, because a first result is better than none.
fn install(jobs: &mut Jobs, found: &Scan, output: &Output) -> CliResult<Runtime> {
    let wanted = quick::backend_for(&found.machine);
    match runtime::install(jobs, wanted, output) {
        Err(CliError::Failed(failure)) if wanted != Backend::Cpu => {
            let why = clean(&failure.headline);
            say(&format!(
                "warning: no {} build, so the CPU is measured: {why}",
                wanted.name()
            ));
            runtime::install(jobs, Backend::Cpu, output)
        }
        result => result,
    }
}

/// A random-weight model in the data folder; one made before is taken again.
fn make_model(jobs: &mut Jobs, found: &Scan, output: &Output) -> CliResult<PathBuf> {
    let request = quick::model_to_make(found, &jobs.ports().data_dir);
    if jobs.ports().models.inspect(&request.output).is_ok() {
        return Ok(request.output);
    }
    crate::cli::file::make_dir(&models_dir(&jobs.ports().data_dir))?;
    Ok(models::synthesise(jobs, request, output)?.path)
}
