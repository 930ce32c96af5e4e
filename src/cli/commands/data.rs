//! `flux data`, `flux data compact`: what the data folder holds, and making it smaller.

use std::io::{self, IsTerminal as _};

use serde_json::json;

use crate::cli::args::{Compact, Data, DataAction, MachineArg};
use crate::cli::error::{CliError, CliResult, Kept};
use crate::cli::output::{Output, print, print_json, say};
use crate::cli::render::data;
use crate::domain::types::Timestamp;
use crate::engine::Ports;
use crate::ports::Erasable;

use super::open::Place;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// Says what is kept, or makes it smaller.
///
/// # Errors
/// Flux keeps nothing there; the database cannot be read; as `compact`.
pub fn run(args: &Data, place: &Place, output: &Output) -> CliResult {
    if let Some(DataAction::Compact(args)) = &args.action {
        return compact(args, place, output);
    }
    let ports = place.look_back(output)?;
    let holdings = ports.store.holdings()?;
    let (settings, said) = ports.settings.load();
    for notice in &said {
        output.notice(notice);
    }
    let days = settings.telemetry_days;
    let document = json!({
        "schema": 1, "folder": ports.data_dir, "database": holdings, "telemetry_days": days,
    });
    output.print_either(&document, || {
        data::holdings(&holdings, days, &ports.data_dir)
    })
}

/// Erases what only explains and is old enough, once the owner has said so.
///
/// # Errors
/// Nobody can be asked; another Flux measures here; the database cannot be written.
fn compact(args: &Compact, place: &Place, output: &Output) -> CliResult {
    if args.dry_run {
        let ports = place.look_back(output)?;
        let found = ports.store.erasable(before(args, &ports))?;
        let document = json!({ "schema": 1, "would_erase": found });
        return output.print_either(&document, || data::erasable(&found, args.older_than));
    }
    // Refuses a folder in which there is nothing, before one is made.
    drop(place.look_back(output)?);
    let ports = place.measure(&MachineArg { machine: None }, output)?;
    let _alone = ports.store.begin_measuring()?;
    let before = before(args, &ports);
    let found = ports.store.erasable(before)?;
    if !args.yes {
        ask(&found, args.older_than)?;
    }
    let size = ports.store.holdings()?.bytes;
    let erased = ports.store.compact(before)?;
    let now = ports.store.holdings()?.bytes;
    if output.json {
        return print_json(&json!({
            "schema": 1, "erased": erased, "bytes_before": size, "bytes": now,
        }));
    }
    print(&data::compacted(&erased, size, now))
}

fn before(args: &Compact, ports: &Ports) -> Timestamp {
    Timestamp(ports.clock.now().0 - i64::from(args.older_than) * DAY_MS)
}

/// Asks on a terminal.
fn ask(found: &Erasable, days: u32) -> CliResult {
    if !io::stdin().is_terminal() {
        return Err(
            CliError::usage("nothing was erased, because nobody can be asked here")
                .hint("see what would go with --dry-run, then say --yes"),
        );
    }
    say(&data::erasable(found, days));
    say("Erase it for good? Type yes:");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "yes" => Ok(()),
        _ => Err(CliError::Cancelled(Kept::default())),
    }
}
