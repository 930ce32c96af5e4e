//! Children that print without end, watched by the real binary: neither its memory nor its disk grows with what they print,
//! and no child waits for a reader. `FLUX_FLOOD_MIB=2048 cargo nextest run --release --features test-support --test
//! long_logs --no-capture` does the same with 2 GiB from each pipe and prints what was measured.
#![cfg(target_os = "linux")]
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
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use flux::ports::Store as _;
use flux_cli::{Bed, FLASH_WINS};

/// Printed into each pipe, MiB, unless the environment says otherwise: a hundred times what may be kept.
const FLOOD_MIB: u64 = 100;
/// Most memory of Flux, KiB: a tune of quiet children takes a quarter of it.
const PEAK_KIB: u64 = 64 * 1024;
/// Most kept of a pipe, bytes: 64 KiB from its start, 192 KiB from its end, and a line between.
const KEPT: usize = 257 * 1024;

fn mib() -> u64 {
    std::env::var("FLUX_FLOOD_MIB").map_or(FLOOD_MIB, |n| n.parse().unwrap())
}

/// In the fourth of all processes, after the warm-ups; quick ones, between which flash attention is worth 30 %.
fn floods() -> String {
    let mib = mib();
    format!(
        "pp = 20000\ntg = 2000\n{FLASH_WINS}[[behaviour]]\ndo = {{ flood-mib = {mib} }}\nprocess = 4\n\
         [[behaviour]]\ndo = {{ flood-stdout-mib = {mib} }}\nprocess = 4\n"
    )
}

/// Peak memory, KiB; `None` once the process has ended.
fn peak_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// Runs it to its end and looks at its memory at every line of its progress. Its document, and its peak.
fn watched(bed: &Bed, mut command: Command) -> (Value, u64) {
    let result = bed.fake.scratch().join("result.json");
    let begun = Instant::now();
    command.stdout(File::create(&result).unwrap());
    let mut flux = command.stderr(Stdio::piped()).spawn().unwrap();
    let (mut peak, mut said) = (0, String::new());
    for line in BufReader::new(flux.stderr.take().unwrap()).lines() {
        peak = peak_kib(flux.id()).unwrap_or(peak);
        said += &(line.unwrap() + "\n");
    }
    assert!(flux.wait().unwrap().success(), "{said}");
    println!(
        "{} MiB into each pipe: peak {peak} KiB, {:.1} s",
        mib(),
        begun.elapsed().as_secs_f64()
    );
    assert!((1..PEAK_KIB).contains(&peak), "{peak} KiB\n{said}");
    let document = serde_json::from_str(&fs::read_to_string(result).unwrap()).unwrap();
    (document, peak)
}

/// Runs of the one session, and that each kept little.
fn kept(bed: &Bed) -> usize {
    let runs = bed.store().runs(1).unwrap();
    for raw in runs.iter().map(|r| &r.run.raw) {
        assert!(raw.stdout.len() < KEPT && raw.stderr.len() < KEPT);
    }
    let cut = |text: &str| text.contains(" bytes cut …]");
    assert!(runs.iter().any(|r| cut(&r.run.raw.stdout)));
    assert!(runs.iter().any(|r| cut(&r.run.raw.stderr)));
    let size = fs::metadata(bed.data.join("flux.db")).unwrap().len();
    assert!(size < 8_000_000, "{size} bytes");
    runs.len()
}

#[test]
fn a_bench_that_floods_both_pipes_is_measured_in_little_memory() {
    let bed = Bed::new(&floods());
    let mut ab = bed.flux(&["ab", "stock", "flash-attn=on", "--json", "--runtime"]);
    ab.arg(bed.fake.dir()).arg("-m").arg(&bed.model);
    ab.args(["--processes", "3", "--reps", "3"]);
    let (document, _) = watched(&bed, ab);
    assert_eq!(document["verdict"], "improved", "{document}");
    // Two warm-ups and six runs.
    assert_eq!(kept(&bed), 8);
}

#[test]
fn a_server_that_floods_both_pipes_is_asked_in_little_memory() {
    let bed = Bed::new(&floods());
    let mut check = bed.flux(&["serve-check", "--settings", "flash-attn=on", "--json"]);
    check.arg("--runtime").arg(bed.fake.dir());
    check.arg("-m").arg(&bed.model).args(["--processes", "3"]);
    watched(&bed, check);
    assert!(kept(&bed) >= 6);
}
