//! `flux run`: llama-server with the stored profile.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::cli::args::Run;
use crate::cli::error::{CliError, CliResult};
use crate::cli::output::Output;
use crate::cli::render::explain;
use crate::domain::environment::is_switch;
use crate::domain::server_args::key_file;
use crate::domain::text::{Shell, clean};
use crate::engine::run::{Access, RunPlan, RunRequest, prepare};
use crate::ports::{Notice, NoticeLevel};

use super::open::Place;

/// The one variable of llama-server's that is no setting: a secret has to come by the environment.
const API_KEY: &str = "LLAMA_API_KEY";

/// Prints the command, explains it, or becomes it.
///
/// # Errors
/// No usable profile; arguments that would open the server or give a secret away; the server cannot be started.
pub fn run(args: Run, place: &Place, output: &Output) -> CliResult {
    let ports = place.look(output)?;
    let shell = args.shell.map_or(Shell::native(), Into::into);
    let given = key_file(&args.server_args).map(Path::new);
    for file in args.api_key_file.as_deref().into_iter().chain(given) {
        check_keys(file, output)?;
    }
    let request = RunRequest {
        model: args.model,
        runtime: args.runtime,
        goal: args.goal.map(Into::into),
        stale_ok: args.stale_ok,
        extra: args.server_args,
        access: Access {
            host: args.host,
            api_key_file: args.api_key_file,
            key_in_env: std::env::var_os(API_KEY).is_some_and(|key| !key.is_empty()),
        },
    };
    let mut plan = prepare(&request, &ports)?;
    drop(ports);
    if output.json && !args.print && !args.explain {
        // The server's own words would stand beside the one document.
        plan.notices.push(Notice {
            level: NoticeLevel::Warning,
            code: "not-started".to_owned(),
            text:
                "--json prints the command and starts nothing: without it llama-server is started"
                    .to_owned(),
        });
    }
    for notice in &plan.notices {
        output.notice(notice);
    }
    let command = shell.command(&plan.env, &plan.argv);
    if args.explain || args.print || output.json {
        let command = if output.json {
            String::new()
        } else {
            command.map_err(CliError::failed)?
        };
        if let (Some(line), false) = (explain::against_stock(&plan), args.explain) {
            output.step(&line);
        }
        return output.print_either(&document(&plan), || {
            if args.explain {
                explain::explanation(&plan, &command, output.style)
            } else {
                command
            }
        });
    }
    if std::io::stderr().is_terminal() {
        output.step(&command.unwrap_or_default());
        if let Some(line) = explain::against_stock(&plan) {
            output.step(&line);
        }
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
        "stock": plan.stock,
        "notices": plan.notices,
    })
}

/// llama-server reads a file without keys as "no key asked for".
fn check_keys(file: &Path, output: &Output) -> CliResult {
    let shown = clean(&file.display().to_string());
    let text = std::fs::read_to_string(file)
        .map_err(|e| CliError::failed(format!("the API keys cannot be read: {shown}")).cause(e))?;
    if !text.lines().any(|l| !l.is_empty() && !l.starts_with('#')) {
        return Err(CliError::failed(format!(
            "no API key is in the file, and the server would ask for none: {shown}"
        ))
        .hint("write one key a line; a line that begins with # is a comment"));
    }
    if read_by_others(file) {
        output.notice(&Notice {
            level: NoticeLevel::Warning,
            code: "key-file-readable".to_owned(),
            text: format!("other users of this machine can read the API keys (chmod 600): {shown}"),
        });
    }
    Ok(())
}

#[cfg(unix)]
fn read_by_others(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;

    /// Read permission of group and others.
    const OTHERS: u32 = 0o044;
    file.metadata()
        .is_ok_and(|m| m.permissions().mode() & OTHERS != 0)
}

#[cfg(not(unix))]
fn read_by_others(_file: &Path) -> bool {
    false
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
        if is_switch(&shown) && shown != API_KEY {
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
