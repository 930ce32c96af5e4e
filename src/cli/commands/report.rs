//! `flux report`: a session as one HTML file, or its charts as one image.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::args::Report;
use crate::cli::error::{CliError, CliResult};
use crate::cli::output::{Output, print_file, print_json};
use crate::domain::text::clean;
use crate::engine::evidence::evidence;
use crate::report::{self, Format};

use super::open::Place;

/// Writes the report.
///
/// # Errors
/// There is no session of that number; the database cannot be read; the file exists or cannot be written.
pub fn run(args: &Report, place: &Place, output: &Output) -> CliResult {
    let is_stdout = args.output.as_deref() == Some(Path::new("-"));
    if is_stdout && output.json {
        return Err(
            CliError::usage("--json and -o - both want standard output").hint("give -o a file")
        );
    }
    let evidence = evidence(args.id, &place.look(output)?)?;
    let paths = if args.full_paths {
        report::Paths::Full
    } else {
        report::Paths::shortened()
    };
    let format = if args.chart {
        Format::Chart
    } else {
        Format::Html
    };
    let content = report::document(&evidence, format, None, &paths)?;
    let path = args.output.clone();
    let path = path.unwrap_or_else(|| PathBuf::from(format.file_name(args.id)));
    if is_stdout {
        return print_file(&content);
    }
    report::write(&path, content.as_bytes(), args.force)?;
    output.step(&format!("written: {}", clean(&path.display().to_string())));
    if output.json {
        print_json(&json!({ "schema": 1, "written": path }))?;
    }
    Ok(())
}
