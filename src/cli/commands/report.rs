//! `flux report`: a session as one HTML file.

use std::path::PathBuf;

use crate::cli::args::Report;
use crate::cli::error::CliResult;
use crate::cli::file;
use crate::cli::output::{Output, print};
use crate::domain::text::clean;
use crate::engine::evidence::evidence;
use crate::report;

use super::open::Place;

/// Writes the report.
///
/// # Errors
/// There is no session of that number; the database cannot be read; the file exists or cannot be written.
pub fn run(args: &Report, place: &Place, output: &Output) -> CliResult {
    let evidence = evidence(args.id, &place.look(output)?)?;
    let paths = if args.full_paths {
        report::Paths::Full
    } else {
        let dirs = directories::UserDirs::new();
        let home = dirs.map(|dirs| dirs.home_dir().display().to_string());
        report::Paths::Shortened { home }
    };
    let html = report::html(&evidence, &paths)?;
    let path = args.output.clone();
    let path = path.unwrap_or_else(|| PathBuf::from(format!("flux-session-{}.html", args.id)));
    if path.as_os_str() == "-" {
        return print(&html);
    }
    file::write(&path, html.as_bytes(), args.force)?;
    output.step(&format!("written: {}", clean(&path.display().to_string())));
    Ok(())
}
