//! One file per command family. Each opens what it needs, asks the engine or a port, and prints.

mod ab;
mod compare;
mod data;
mod desktop;
mod doctor;
mod history;
mod import;
mod lab;
mod models;
mod monitor;
mod open;
mod plan;
mod quickstart;
mod report;
mod run;
mod runtime;
mod scan;
mod serve_check;
mod tune;

use super::args::{Action, Cli};
use super::error::{CliError, CliResult};
use super::output::{Output, print_json};
use crate::wiring;

/// Does what the arguments say.
///
/// # Errors
/// As the command.
pub fn run(cli: Cli, output: &Output) -> CliResult {
    let place = open::Place::new(cli.global.data_dir);
    let Some(action) = cli.command else {
        if output.json {
            return Err(CliError::usage(
                "--json goes with a command: the desktop app prints nothing",
            )
            .hint("`flux help` lists the commands"));
        }
        return desktop::run(&place);
    };
    match action {
        Action::Compare(args) => compare::run(&args, output),
        Action::Scan(args) => scan::run(&args, &place, output),
        Action::Runtime(action) => runtime::run(action, &place, output),
        Action::Models(args) => models::list(&args, &place, output),
        Action::Model(action) => models::make(action, &place, output),
        Action::Tune(args) => tune::run(args, &place, output),
        Action::Plan(args) => plan::run(args, &place, output),
        Action::Ab(args) => ab::run(args, &place, output),
        Action::Run(args) => run::run(args, &place, output),
        Action::ServeCheck(args) => serve_check::run(args, &place, output),
        Action::History(args) => history::list(&args, &place, output),
        Action::Show(args) => history::show(&args, &place, output),
        Action::Export(args) => history::export(&args, &place, output),
        Action::Import(args) => import::run(&args, &place, output),
        Action::Report(args) => report::run(&args, &place, output),
        Action::Monitor(args) => monitor::run(&args, &place, output),
        Action::Data(args) => data::run(&args, &place, output),
        Action::Doctor(args) => doctor::run(&args, &place, output),
        Action::VulkanReport => print_json(&wiring::vulkan_report()),
        Action::VulkanBandwidth { request } => print_json(&wiring::vulkan_bandwidth(&request)?),
        #[cfg(unix)]
        Action::ChildGuard { mark } => {
            wiring::stand_guard(&mark);
            Ok(())
        }
        Action::Lab(args) => lab::run(args, &place, output),
        Action::VulkanLab { request } => lab::apart(&request),
        Action::Quickstart(args) => quickstart::run(args, &place, output),
    }
}
