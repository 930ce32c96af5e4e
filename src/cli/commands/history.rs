//! `flux history`, `show`, `export`: what the store holds.

use serde_json::json;

use crate::cli::args::{Export, History, Show};
use crate::cli::error::{CliError, CliResult, in_folder};
use crate::cli::output::{Output, print_file, print_json};
use crate::cli::render::{history, session};
use crate::domain::text::clean;
use crate::engine::evidence::{Evidence, evidence};
use crate::ports::{Notice, NoticeLevel};
use crate::report;
use crate::report::{Format, Paths, document};

use super::open::Place;

/// Lists sessions.
///
/// # Errors
/// The database cannot be read.
pub fn list(args: &History, place: &Place, output: &Output) -> CliResult {
    let store = place.look_back(output)?.store;
    // Asked first: a session that ends meanwhile has its end.
    let is_measured = store.is_measured();
    let sessions = store.sessions(args.limit)?;
    let document = json!({ "schema": 1, "measuring": is_measured, "sessions": sessions });
    output.print_either(&document, || {
        history::list(&sessions, is_measured, output.style)
    })
}

/// Shows a session.
///
/// # Errors
/// There is none of that number; the database cannot be read.
pub fn show(args: &Show, place: &Place, output: &Output) -> CliResult {
    let ports = place.look_back(output)?;
    let is_measured = ports.store.is_measured();
    let evidence = evidence(args.id, &ports)?;
    output.print_either(&evidence, || {
        let text = session::show(&evidence, is_measured, output.verbose, output.style);
        in_folder(&text, place.data_dir())
    })
}

/// A script that names a file which is gone starts nothing.
fn tell_missing(format: Format, evidence: &Evidence, output: &Output) {
    let Format::Start(_) = format else {
        return;
    };
    let begun = &evidence.session.begun;
    let server = begun.runtime.server.iter();
    for path in server.chain(&begun.model.parts).filter(|p| !p.exists()) {
        output.notice(&Notice {
            level: NoticeLevel::Warning,
            code: "file-gone".to_owned(),
            text: format!(
                "there is no such file any more: {}",
                clean(&path.display().to_string())
            ),
        });
    }
}

/// Exports a session.
///
/// # Errors
/// As `show`; the file exists or cannot be written.
pub fn export(args: &Export, place: &Place, output: &Output) -> CliResult {
    if args.port.is_some() && !matches!(args.format.into(), Format::Start(_)) {
        return Err(CliError::usage(
            "--port goes with a format that starts a server",
        ));
    }
    let is_json = matches!(args.format.into(), Format::Json | Format::Profile);
    if output.json && args.output.is_none() && !is_json {
        return Err(
            CliError::usage("--json and this format both want standard output")
                .hint("give the format a file: -o FILE"),
        );
    }
    let evidence = evidence(args.id, &place.look_back(output)?)?;
    let paths = if args.redact {
        Paths::shortened()
    } else {
        Paths::Full
    };
    let text = document(&evidence, args.format.into(), args.port, &paths)?;
    tell_missing(args.format.into(), &evidence, output);
    let Some(path) = &args.output else {
        return print_file(&text);
    };
    report::write(path, text.as_bytes(), args.force)?;
    output.step(&format!("written: {}", clean(&path.display().to_string())));
    if output.json {
        print_json(&json!({ "schema": 1, "written": path }))?;
    }
    Ok(())
}
