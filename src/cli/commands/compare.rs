//! `flux compare`: a verdict on two llama-bench outputs. Opens no database and starts nothing.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::cli::args::Compare;
use crate::cli::error::{CliError, CliResult};
use crate::cli::output::{Output, print, print_json, say};
use crate::cli::render::comparison;
use crate::domain::bench_record::{Parsed, parse};
use crate::domain::compare::{Report, compare};
use crate::domain::text::{Metric, clean};

/// Compares the files.
///
/// # Errors
/// A file cannot be read or holds no llama-bench record; no test is in both.
pub fn run(args: &Compare, output: &Output) -> CliResult {
    let report = compare(&read(&args.base)?, &read(&args.cand)?);
    if report.metrics.is_empty() {
        let mut error = CliError::failed("no test is in both files")
            .hint("compare files of the same llama-bench tests (-p, -n, -d)");
        for notice in &report.notices {
            error = error.cause(notice);
        }
        return Err(error);
    }
    if output.json {
        return print_json(&document(&report)?);
    }
    for notice in &report.notices {
        say(&format!("note: {}", clean(notice)));
    }
    let metrics: Vec<_> = report
        .metrics
        .iter()
        .map(|metric| Metric {
            label: metric.test.to_string(),
            comparison: metric.comparison.clone(),
            plain: None,
        })
        .collect();
    print(&comparison::metrics(&metrics, output.style))
}

fn read(path: &Path) -> CliResult<Parsed> {
    let shown = path.display();
    let bytes =
        fs::read(path).map_err(|e| CliError::failed(format!("cannot read {shown}")).cause(e))?;
    let parsed = parse(&bytes);
    if parsed.records.is_empty() {
        let mut error = CliError::failed(format!("no llama-bench record in {shown}"))
            .hint("expected the output of `llama-bench -o json` or `-o jsonl`");
        if let Some(problem) = parsed.problems.first() {
            error = error.cause(&problem.message);
        }
        return Err(error);
    }
    Ok(parsed)
}

/// The contract of design section 2, and the notices.
fn document(report: &Report) -> CliResult<Value> {
    let mut metrics = Map::new();
    for metric in &report.metrics {
        metrics.insert(
            metric.test.to_string(),
            serde_json::to_value(&metric.comparison)?,
        );
    }
    Ok(json!({ "schema": 1, "metrics": metrics, "notices": report.notices }))
}
