//! What one reading of each source of sensors costs, replayed from captured trees and live: `cargo bench --bench telemetry`.
//! It prints and asserts no time: a loaded machine is no bug.
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark stops at the first surprise"
)]
#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flux::domain::telemetry::HOST;
use flux::domain::types::Timestamp;
use flux::ports::{Clock, Telemetry as _, TelemetrySource};
use flux::probe::SystemRoot;
use flux::telemetry::Sensors;

/// Most one reading may take, milliseconds, of 99 in 100.
const BOUND_MS: f64 = 1.0;
/// Readings of each source: the 99th percentile then rests on a hundred.
const READINGS: usize = 10_000;
const TREES: &str = "tests/fixtures/telemetry";

struct SystemClock(Instant);

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

fn main() {
    // `cargo test --benches` and friends list a target's tests; there are none.
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    println!(
        "{:<16} {:<8} {:>8} {:>10} {:>10} {:>8}",
        "machine", "source", "readings", "p50", "p99", "bound"
    );
    let clock: Arc<dyn Clock> = Arc::new(SystemClock(Instant::now()));
    let trees = Path::new(env!("CARGO_MANIFEST_DIR")).join(TREES);
    for name in [
        "rx580",
        "navi21",
        "apu-phoenix",
        "arc-b580",
        "laptop-hybrid",
    ] {
        let sensors = Sensors::new(SystemRoot::at(trees.join(name)), Arc::clone(&clock));
        let sources = sensors.sources().into_iter();
        for source in sources.filter(|source| source.name() != HOST) {
            measure(name, source);
        }
    }
    let live = Sensors::new(SystemRoot::default(), clock);
    for source in live.sources() {
        measure("this one, live", source);
    }
}

fn measure(machine: &str, mut source: Box<dyn TelemetrySource>) {
    // The first finds out which files answer, the second knows a reading before it.
    source.sample();
    let readings = source.sample().len();
    let mut costs: Vec<f64> = (0..READINGS)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(source.sample());
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    let (p50, p99) = (costs[READINGS / 2], costs[READINGS * 99 / 100]);
    let name = source.name();
    println!(
        "{machine:<16} {name:<8} {readings:>8} {p50:>7.4} ms {p99:>7.4} ms {BOUND_MS:>5.0} ms"
    );
}
