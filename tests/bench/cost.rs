//! What Flux itself costs, against the bounds of the design (section 12) and against the bare start of a process:
//! `cargo bench --bench cost --features test-support`. It prints and asserts nothing: a loaded machine is no bug.
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark stops at the first surprise"
)]
#![allow(clippy::print_stdout, reason = "it prints a table")]

#[path = "../support/bench_runs.rs"]
mod bench_runs;
#[path = "../support/fake_runtime.rs"]
mod fake_runtime;
#[path = "../support/flux_cli.rs"]
mod flux_cli;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flux_cli::{Bed, FLASH_WINS, document};

/// Most a scan may take.
const SCAN_BOUND_MS: f64 = 300.0;
/// Most a comparison may take.
const COMPARE_BOUND_MS: f64 = 30.0;
/// Most of a session's wall time that may be Flux's own.
const OWN_BOUND_PCT: f64 = 1.0;
/// Most memory of a tune, 10^6 bytes.
const PEAK_BOUND_MB: f64 = 60.0;
/// One repetition of the simulated llama-bench: about 300 of them make a session of a minute.
const REPETITION: &str = "sleep_ms_per_rep = 200\n";
/// How often the peak of a running tune is read; the kernel keeps it, so only the last reading counts.
const LOOK: Duration = Duration::from_millis(50);

fn main() {
    // `cargo test --benches` and friends list a target's tests; there are none.
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    let bed = Bed::new(&(REPETITION.to_owned() + FLASH_WINS));
    let profile = if cfg!(debug_assertions) {
        "unoptimised"
    } else {
        "optimised"
    };
    println!("Flux, {profile} build");
    println!(
        "{:<34} {:>10} {:>10} {:>8} {:>8}",
        "", "measured", "bound", "ratio", "starts"
    );

    let program = bed
        .fake
        .dir()
        .join(format!("llama-bench{}", std::env::consts::EXE_SUFFIX));
    let (start, _) = times(50, || {
        let mut command = Command::new(&program);
        command.arg("--version");
        command
    });
    println!(
        "{:<34} {:>7.1} ms",
        "start of a bare process, median", start
    );

    commands(&bed, start);
    session(&bed);
}

/// Commands that must feel instant.
fn commands(bed: &Bed, start: f64) {
    let mut add = bed.flux(&["runtime", "add"]);
    quiet(add.arg(bed.fake.dir()));
    quiet(&mut bed.flux(&["scan"]));
    let (median, slowest) = times(20, || bed.flux(&["scan"]));
    line(
        "scan, median of 20",
        median,
        "ms",
        SCAN_BOUND_MS,
        Some(start),
    );
    line(
        "scan, slowest of 20",
        slowest,
        "ms",
        SCAN_BOUND_MS,
        Some(start),
    );

    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/h200");
    let (median, slowest) = times(50, || {
        let mut command = bed.flux(&["compare"]);
        command.args(["ab-cuda-fa0.A.jsonl", "ab-cuda-fa0.B.jsonl"].map(|f| fixtures.join(f)));
        command
    });
    line(
        "compare, median of 50",
        median,
        "ms",
        COMPARE_BOUND_MS,
        Some(start),
    );
    line(
        "compare, slowest of 50",
        slowest,
        "ms",
        COMPARE_BOUND_MS,
        Some(start),
    );
}

/// A tune of about a minute.
fn session(bed: &Bed) {
    let result = bed.fake.scratch().join("result.json");
    let begun = Instant::now();
    let mut tune = bed
        .tune(&["--only", "flash-attn", "--processes", "8"])
        .stdout(fs::File::create(&result).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut peak = None;
    while tune.try_wait().unwrap().is_none() {
        peak = peak_mb(tune.id()).or(peak);
        std::thread::sleep(LOOK);
    }
    let wall = begun.elapsed().as_secs_f64();
    let shown: serde_json::Value = serde_json::from_slice(&fs::read(&result).unwrap()).unwrap();
    let overhead = |key: &str| shown["overhead"][key].as_f64().unwrap();
    println!(
        "{:<34} {:>8.1} s ({:.1} s in llama-bench, {} processes)",
        "tune, whole command",
        wall,
        overhead("run_secs"),
        bed.fake.processes()
    );
    line(
        "tune, own time as it reports",
        overhead("flux_pct"),
        "%",
        OWN_BOUND_PCT,
        None,
    );
    // From outside: the start of Flux and the look at the runtime are in it too.
    let outside = 100.0 * (wall - overhead("run_secs")) / wall;
    line(
        "tune, own time seen from outside",
        outside,
        "%",
        OWN_BOUND_PCT,
        None,
    );
    match peak {
        Some(peak) => line("tune, peak memory", peak, "MB", PEAK_BOUND_MB, None),
        None => println!("tune, peak memory: this system does not tell"),
    }
    // The same document again, from the store.
    quiet(&mut bed.flux(&["show", "1", "--json"]));
    assert_eq!(
        document(&mut bed.flux(&["history", "--json"]))["sessions"][0]["id"],
        1
    );
}

/// `VmHWM`, 10^6 bytes.
fn peak_mb(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}

fn quiet(command: &mut Command) {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.unwrap().success());
}

/// Median and slowest of `n` commands, milliseconds.
fn times(n: usize, command: impl Fn() -> Command) -> (f64, f64) {
    let mut ms: Vec<f64> = (0..n)
        .map(|_| {
            let begun = Instant::now();
            quiet(&mut command());
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    ms.sort_by(f64::total_cmp);
    (ms[n / 2], ms[n - 1])
}

/// A row: the measurement, its bound, their ratio, and how many bare process starts it is.
fn line(what: &str, measured: f64, unit: &str, bound: f64, start: Option<f64>) {
    let starts = start.map_or_else(String::new, |s| format!("{:.1}", measured / s));
    println!(
        "{what:<34} {measured:>7.2} {unit:<2} {bound:>7.0} {unit:<2} {:>8.2} {starts:>8}",
        measured / bound
    );
}
