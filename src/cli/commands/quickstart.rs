//! `flux quickstart`: everything once, each step said: scan, a llama.cpp, a model, the tuning, the result.

use std::path::PathBuf;

use crate::cli::args::{MachineArg, Quickstart};
use crate::cli::error::{CliError, CliResult};
use crate::cli::job::Jobs;
use crate::cli::output::{Output, say};
use crate::cli::render::{runtimes, scan as render};
use crate::cli::text::{clean, span};
use crate::domain::machine::default_gpu;
use crate::domain::types::{Backend, Bytes, Goal, RequestShape, Runtime};
use crate::engine::message::{Command, TuneRequest};
use crate::ports::SynthRequest;

use super::open::Place;
use super::{models, runtime, scan, tune};

/// Shapes to synthesise, the largest first: name, memory it wants, and cores it wants without a GPU, so that a
/// repetition stays in the range of seconds.
const SHAPES: &[(&str, Bytes, u32)] = &[
    ("qwen3-4b", Bytes::gib(6), 32),
    ("qwen3-0.6b", Bytes::gib(2), 4),
    ("tiny", Bytes(0), 0),
];

/// Seed of a model quickstart makes: the same file everywhere.
const SEED: u64 = 0;

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
    let mut jobs = Jobs::start(ports)?;

    output.step("1 of 4: this machine");
    let found = scan::scan(jobs.ports(), output);
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
    let request = request(&model, &build, args.time_limit);
    let document = jobs.run(Command::Tune(request), output)?;
    tune::print_result(&document, &model, output)
}

/// The GPU's backend; where it cannot be had, the CPU's, because a first result is better than none.
fn install(jobs: &mut Jobs, found: &render::Scan, output: &Output) -> CliResult<Runtime> {
    let wanted = runtime::backend_for(&found.machine);
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
fn make_model(jobs: &mut Jobs, found: &render::Scan, output: &Output) -> CliResult<PathBuf> {
    let shape = shape_for(found);
    let dir = models::models_dir(&jobs.ports().data_dir);
    let file = dir.join(format!("{shape}.gguf"));
    if jobs.ports().models.inspect(&file).is_ok() {
        return Ok(file);
    }
    crate::cli::file::make_dir(&dir)?;
    let request = SynthRequest {
        shape: shape.to_owned(),
        output: file,
        sparse: false,
        seed: SEED,
    };
    Ok(models::synthesise(jobs, request, output)?.path)
}

fn shape_for(found: &render::Scan) -> &'static str {
    let host = &found.machine.host;
    let gpu = default_gpu(&found.gpus).and_then(|gpu| gpu.memory.as_ref());
    let memory = gpu.map_or(host.ram_available, |memory| {
        memory.budget.unwrap_or(memory.vram)
    });
    pick_shape(
        memory,
        gpu.is_some(),
        host.physical_cores.unwrap_or(host.logical_cores),
    )
}

/// The largest shape that fits and is measured in reasonable time.
fn pick_shape(memory: Bytes, on_gpu: bool, cores: u32) -> &'static str {
    SHAPES
        .iter()
        .find(|(_, wants, wants_cores)| memory >= *wants && (on_gpu || cores >= *wants_cores))
        .map_or("tiny", |(name, _, _)| name)
}

fn request(model: &std::path::Path, build: &Runtime, time_limit_secs: f64) -> TuneRequest {
    TuneRequest {
        model: model.to_owned(),
        runtime: Some(build.name.clone()),
        device: None,
        goal: Goal::Generation,
        request_shape: RequestShape::default(),
        allow_kv_quant: false,
        repetitions: None,
        processes: None,
        time_limit_secs: Some(time_limit_secs),
        only: Vec::new(),
        prompt_tokens: None,
        generated_tokens: None,
        depth: 0,
        memory_reserve: None,
        resume: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_suits_the_machine() {
        assert_eq!(pick_shape(Bytes::gib(8), true, 2), "qwen3-4b");
        assert_eq!(pick_shape(Bytes::gib(4), true, 2), "qwen3-0.6b");
        assert_eq!(pick_shape(Bytes::gib(64), false, 8), "qwen3-0.6b");
        assert_eq!(pick_shape(Bytes::gib(64), false, 2), "tiny");
        assert_eq!(pick_shape(Bytes::gib(1), true, 16), "tiny");
    }
}
