//! `flux run`: llama-server with the stored profile.

use std::io::IsTerminal as _;
use std::process::Command;

use serde_json::json;

use crate::cli::args::Run;
use crate::cli::error::{CliError, CliResult};
use crate::cli::output::Output;
use crate::cli::render::explain;
use crate::domain::environment::is_switch;
use crate::engine::run::{RunPlan, RunRequest, prepare};

use super::open::Place;

/// Prints the command, explains it, or becomes it.
///
/// # Errors
/// No usable profile; the server cannot be started.
pub fn run(args: Run, place: &Place, output: &Output) -> CliResult {
    let ports = place.look(output)?;
    let request = RunRequest {
        model: args.model,
        runtime: args.runtime,
        goal: args.goal.map(Into::into),
        stale_ok: args.stale_ok,
        extra: args.server_args,
    };
    let plan = prepare(&request, &ports)?;
    drop(ports);
    for notice in &plan.notices {
        output.notice(notice);
    }
    if args.explain || args.print || output.json {
        return output.print_either(&document(&plan), || {
            if args.explain {
                explain::explanation(&plan, output.style)
            } else {
                explain::command(&plan)
            }
        });
    }
    if std::io::stderr().is_terminal() {
        output.step(&explain::command(&plan));
    }
    start(&plan, output)
}

fn document(plan: &RunPlan) -> serde_json::Value {
    json!({
        "schema": 1,
        "argv": plan.argv,
        "env": plan.env,
        "profile": plan.profile,
        "explanation": plan.explanation,
        "notices": plan.notices,
    })
}

fn start(plan: &RunPlan, output: &Output) -> CliResult {
    let Some((program, arguments)) = plan.argv.split_first() else {
        return Err(CliError::failed("this llama.cpp build has no llama-server")
            .hint("choose another build with --runtime"));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        if is_switch(&shown) {
            output.step(&format!("note: {shown} is set here and not passed on"));
            command.env_remove(&name);
        }
    }
    command.envs(&plan.env);
    become_or_wait(command, program)
}

/// On Unix Flux becomes the server: signals, the terminal and the exit status are the server's own.
#[cfg(unix)]
fn become_or_wait(mut command: Command, program: &str) -> CliResult {
    use std::os::unix::process::CommandExt as _;

    let error = command.exec();
    Err(CliError::failed(format!("cannot start {program}")).cause(error))
}

#[cfg(not(unix))]
fn become_or_wait(mut command: Command, program: &str) -> CliResult {
    // Ctrl-C reaches the server through the shared console; it stops, and Flux with it.
    let status = command
        .status()
        .map_err(|e| CliError::failed(format!("cannot start {program}")).cause(e))?;
    if status.success() {
        Ok(())
    } else {
        Err(CliError::failed(format!(
            "llama-server ended with {status}"
        )))
    }
}
