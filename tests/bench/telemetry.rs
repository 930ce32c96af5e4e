//! What one reading of each source of sensors costs, replayed from captured trees and live: `cargo bench --bench telemetry`.
//! With `-- --paced SECONDS` it reads as the sampler does, every 250 ms, live: each source, its boundary every second, and
//! each question to NVIDIA's library on its own.
//! It prints and asserts no time: a loaded machine is no bug.
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark stops at the first surprise"
)]
#![allow(clippy::print_stdout, reason = "it prints a table")]

#[path = "../support/captured.rs"]
mod captured;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use flux::domain::telemetry::HOST;
use flux::domain::types::Timestamp;
use flux::ports::{Clock, Telemetry as _, TelemetrySource};
use flux::probe::SystemRoot;
use flux::telemetry::Sensors;
use flux::telemetry::nvml::{Answers as _, Library, Question};

use captured::{OF_KERNEL, fixture};

/// Most one reading may take, milliseconds, of 99 in 100.
const BOUND_MS: f64 = 1.0;
/// Readings of each source: the 99th percentile then rests on a hundred.
const READINGS: usize = 10_000;
/// Between the sampler's readings.
const INTERVAL: Duration = Duration::from_millis(250);

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
    let mut args = std::env::args().skip_while(|a| a != "--paced").skip(1);
    if let Some(secs) = args.next() {
        paced(Duration::from_secs(secs.parse().unwrap()));
        return;
    }
    println!(
        "{:<16} {:<8} {:>8} {:>10} {:>10} {:>8}",
        "machine", "source", "readings", "p50", "p99", "bound"
    );
    let clock: Arc<dyn Clock> = Arc::new(SystemClock(Instant::now()));
    for name in OF_KERNEL {
        let sensors = Sensors::new(SystemRoot::at(fixture(name)), Arc::clone(&clock));
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

/// Costs under a name, milliseconds.
#[derive(Default)]
struct Costs(BTreeMap<String, Vec<f64>>);

impl Costs {
    fn time<T>(&mut self, name: &str, read: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let told = std::hint::black_box(read());
        let cost = start.elapsed().as_secs_f64() * 1e3;
        self.0.entry(name.to_owned()).or_default().push(cost);
        told
    }

    fn print(&mut self) {
        for (name, costs) in &mut self.0 {
            costs.sort_by(f64::total_cmp);
            let n = costs.len();
            let (p50, p99, most) = (costs[n / 2], costs[n * 99 / 100], costs[n - 1]);
            println!("{name:<28} {n:>6} {p50:>9.4} {p99:>9.4} {most:>9.4} ms");
        }
    }
}

/// The sampler's own pace: readings far apart cost more than readings in a row.
fn paced(lasting: Duration) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock(Instant::now()));
    let mut sources = Sensors::new(SystemRoot::default(), clock).sources();
    let mut costs = Costs::default();
    let library = costs.time("start of the library", || Library::open().ok());
    let (begun, mut last) = (Instant::now(), Vec::new());
    for tick in 1_u32.. {
        last.clear();
        for source in &mut sources {
            let name = source.name().to_owned();
            last.extend(costs.time(&name, || source.sample()));
            if tick.is_multiple_of(4) {
                last.extend(costs.time(&format!("{name} boundary"), || source.at_boundary()));
            }
        }
        let gpus = library
            .iter()
            .flat_map(|l| (0..l.gpus().len()).map(move |gpu| (l, gpu)));
        for (library, gpu) in gpus {
            for question in Question::ALL {
                if question != Question::Energy || tick % 4 == 2 {
                    let name = format!("  {question:?} {gpu}");
                    let _ = costs.time(&name, || library.ask(gpu, question));
                }
            }
            costs.time(&format!("  users {gpu}"), || library.users(gpu));
        }
        if begun.elapsed() >= lasting {
            break;
        }
        thread::sleep((INTERVAL * tick).saturating_sub(begun.elapsed()));
    }
    println!(
        "{:<28} {:>6} {:>9} {:>9} {:>9}",
        "read", "n", "p50", "p99", "most"
    );
    costs.print();
    for (series, value) in last {
        println!("{} {} {value}", series.source, series.metric.title());
    }
    for absent in sources.iter().flat_map(|source| source.absent()) {
        println!(
            "{} {}: {}",
            absent.series.source,
            absent.series.metric.title(),
            absent.reason
        );
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
