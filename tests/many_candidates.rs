//! A search of 300 candidates with the real command line: every one is tried and kept, and neither the memory nor the time
//! of a candidate grows with their number (printed; `cargo nextest run --release --features test-support --test
//! many_candidates --no-capture`).
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]
#![allow(clippy::print_stdout, reason = "what was measured is printed")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use flux::ports::{RunHead, Store as _};
use serde_json::Value;

use flux_cli::Bed;

const CANDIDATES: usize = 300;
/// The one that is worth 30 %.
const WINNER: usize = 251;

/// One dimension of 300 values, which the simulated llama-bench knows and reports.
fn space() -> String {
    let offers: Vec<String> = (1..=CANDIDATES)
        .map(|n| format!("\"{}\"", 2048 + n))
        .collect();
    format!(
        "[[dimension]]\nid = \"batch\"\ntitle = \"Batch\"\nsummary = \"Tokens at once\"\naffects = \"both\"\n\
         flag = \"--batch-size\"\n[dimension.number]\nmin = 1\nmax = 16384\nstock = 2048\noffer = [{}]\n\
         bench = [\"--batch-size\", \"{{}}\"]\nserver = [\"--batch-size\", \"{{}}\"]\nexpect = {{ n_batch = \"{{}}\" }}\n",
        offers.join(", ")
    )
}

/// Memory of the process at this moment, KiB; 0 where the system does not tell.
fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap_or(0)
}

/// Milliseconds from the start of a run to that of the next, in the mean.
fn pace(runs: &[RunHead]) -> f64 {
    let (first, last) = (&runs[0], &runs[runs.len() - 1]);
    (last.started_at.0 - first.started_at.0) as f64 / (runs.len() - 1) as f64
}

#[test]
fn three_hundred_candidates_are_tried_and_kept() {
    let winner = format!(
        "pp = 20000\ntg = 2000\nprocess_sd = 0.004\nrepetition_sd = 0.01\n\
        [[effect]]\nwhen = [\"n_batch={}\"]\npp = 1.1\ntg = 1.3\n",
        2048 + WINNER
    );
    let bed = Bed::new(&winner);
    fs::create_dir_all(&bed.data).unwrap();
    fs::write(bed.data.join("search-space.toml"), space()).unwrap();
    let planned = bed.tune(&["--dry-run"]).output().unwrap();
    let planned: Value = serde_json::from_slice(&planned.stdout).unwrap();
    assert_eq!(planned["candidates"].as_array().unwrap().len(), CANDIDATES);
    // No more than a search may use, and it says so before it begins.
    assert_eq!(planned["processes"], 80);
    assert_eq!(planned["notices"][0]["code"], "process-budget");
    let result = bed.fake.scratch().join("result.json");
    let mut tune = bed.tune(&["--reps", "3", "--processes", "4", "--max-processes", "400"]);
    tune.stdout(File::create(&result).unwrap());
    let mut flux = tune.stderr(Stdio::piped()).spawn().unwrap();
    let (mut memory, mut said) = (Vec::new(), String::new());
    for line in BufReader::new(flux.stderr.take().unwrap()).lines() {
        memory.push(resident_kib(flux.id()));
        said += &(line.unwrap() + "\n");
    }
    assert!(flux.wait().unwrap().success(), "{said}");
    let document: Value = serde_json::from_str(&fs::read_to_string(&result).unwrap()).unwrap();
    assert_eq!(document["verdict"], "improved", "{said}{document}");
    assert_eq!(
        document["profile"]["settings"]["batch"],
        (2048 + WINNER).to_string()
    );
    let tried = document["candidates"].as_array().unwrap();
    assert_eq!(tried.len(), CANDIDATES);

    let store = bed.store();
    let runs = store.run_heads(1).unwrap();
    let screened: Vec<RunHead> = runs
        .iter()
        .filter(|r| r.planned.settings.0.contains_key("batch"))
        .take(CANDIDATES)
        .cloned()
        .collect();
    assert_eq!(screened.len(), CANDIDATES);
    let (early, late) = (pace(&screened[..100]), pace(&screened[200..]));
    let third = memory.len() / 3;
    let (begun, ended) = (memory[third], memory[memory.len() - third]);
    println!(
        "{} processes; a candidate took {early:.0} ms among the first hundred, {late:.0} ms among the last; \
         {begun} KiB after a third, {ended} KiB after two",
        runs.len()
    );
    assert!(
        ended < begun + 4 * 1024,
        "a hundred candidates took {begun} to {ended} KiB"
    );

    all_are_shown(&bed);
}

/// What people read of it: a line for each, and a report that holds them all.
fn all_are_shown(bed: &Bed) {
    let shown = bed.flux(&["show", "1"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let report = bed.flux(&["report", "1", "-o", "-"]).output().unwrap();
    let report = String::from_utf8(report.stdout).unwrap();
    for n in 1..=CANDIDATES {
        let value = (2048 + n).to_string();
        assert!(shown.contains(&value) && report.contains(&value), "{value}");
    }
    println!("report: {} KB", report.len() / 1000);
    if let Some(file) = std::env::var_os("FLUX_KEEP_REPORT") {
        fs::write(file, report).unwrap();
    }
}
