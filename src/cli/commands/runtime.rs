//! `flux runtime`: the llama.cpp builds known here.

use std::collections::BTreeMap;

use serde_json::json;

use crate::cli::args::RuntimeAction;
use crate::cli::error::{CliError, CliResult};
use crate::cli::job::Jobs;
use crate::cli::output::Output;
use crate::cli::render::runtimes;
use crate::domain::types::{Backend, Runtime};
use crate::engine::message::Command;
use crate::engine::quick::backend_for;
use crate::ports::NewRuntime;

use super::open::Place;

/// Lists, adds, installs or removes.
///
/// # Errors
/// As the runtime catalogue; a failed or cancelled installation.
pub fn run(action: RuntimeAction, place: &Place, output: &Output) -> CliResult {
    let ports = place.look(output)?;
    match action {
        RuntimeAction::List => {
            let list = ports.runtimes.list();
            let document = json!({ "schema": 1, "runtimes": list });
            output.print_either(&document, || runtimes::list(&list, output.style))
        }
        RuntimeAction::Add { dir, name, env } => {
            let env = variables(env)?;
            let added = ports.runtimes.add(&NewRuntime { dir, name, env })?;
            done("Added", &added, output)
        }
        RuntimeAction::Remove { name } => done("Removed", &ports.runtimes.remove(&name)?, output),
        RuntimeAction::Install { backend } => {
            let backend =
                backend.map_or_else(|| backend_for(&ports.probe.machine()), Backend::from);
            let mut jobs = Jobs::start(ports);
            done("Installed", &install(&mut jobs, backend, output)?, output)
        }
    }
}

/// Installs a build with progress.
///
/// # Errors
/// As the job.
pub fn install(jobs: &mut Jobs, backend: Backend, output: &Output) -> CliResult<Runtime> {
    output.step(&format!("installing llama.cpp for {}", backend.name()));
    let result = jobs.run(Command::Install(backend), output)?;
    Ok(serde_json::from_value(result)?)
}

fn variables(given: Vec<(String, String)>) -> CliResult<BTreeMap<String, String>> {
    let mut env = BTreeMap::new();
    for (name, value) in given {
        if env.contains_key(&name) {
            return Err(CliError::usage(format!("--env sets {name} twice")));
        }
        env.insert(name, value);
    }
    Ok(env)
}

fn done(what: &str, runtime: &Runtime, output: &Output) -> CliResult {
    let document = json!({ "schema": 1, "runtime": runtime });
    output.print_either(&document, || {
        let dir = crate::domain::text::clean(&runtime.dir.display().to_string());
        format!("{what} {}: {dir}\n", runtimes::one(runtime))
    })
}
