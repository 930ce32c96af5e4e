//! What a day of sensor readings weighs and how long looking at any part of it takes, against the bounds of the
//! dashboard: `cargo bench --bench telemetry_store --features test-support`.
//! It prints and asserts no time: a loaded machine is no bug.
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark stops at the first surprise"
)]
#![allow(clippy::print_stdout, reason = "it prints a table")]

#[path = "../support/readings.rs"]
mod readings;

use std::time::Instant;

use flux::domain::types::Timestamp;
use flux::ports::{NewSession, Store};
use flux::store::{Access, SqliteStore};

/// Most a window may take, milliseconds.
const BOUND_MS: f64 = 20.0;
/// Most a day may weigh, bytes.
const BOUND_BYTES: u64 = 60_000_000;
/// What is written at a time: in life it is two seconds, which leaves the same blocks and takes long to wait for.
const BATCH_MS: i64 = 120_000;
const DAY_MS: i64 = 86_400_000;
/// Columns of a dashboard as wide as a screen.
const COLUMNS: usize = 600;
const MINUTE_MS: i64 = 60_000;

fn main() {
    // `cargo test --benches` and friends list a target's tests; there are none.
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    let begun: NewSession =
        serde_json::from_str(include_str!("../fixtures/store/session.json")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), Access::Measure).unwrap();
    let session = store.begin_session(&begun).unwrap();
    let from = begun.started_at.0;
    let mut sensors = readings::Sensors::new(from);
    let (mut count, wrote) = (0, Instant::now());
    for _ in 0..DAY_MS / BATCH_MS {
        let batch = sensors.take(BATCH_MS);
        count += batch.len();
        store.append_telemetry(session, &batch).unwrap();
    }
    let wrote = wrote.elapsed().as_secs_f64();
    drop(store);
    let bytes = dir.path().join("flux.db").metadata().unwrap().len();
    println!(
        "{count} readings of {} series, written in {wrote:.0} s",
        readings::SERIES.len()
    );
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "database {:>31.1} MB  (bound {:.0} MB), {:.1} bytes a reading",
        mb(bytes),
        mb(BOUND_BYTES),
        bytes as f64 / count as f64
    );
    let store = SqliteStore::open(dir.path(), Access::Look).unwrap();
    println!(
        "{:<32} {:>9} {:>9} {:>9}",
        "window", "median", "most", "bound"
    );
    for minutes in [1, 5, 15, 39, 41, 60, 240, 720, 1_270, 1_440] {
        let length = minutes * MINUTE_MS;
        let times = (0..9).map(|i| {
            let at = from + (DAY_MS - length) * i / 8;
            let begun = Instant::now();
            let found = store
                .telemetry_window(session, Timestamp(at), Timestamp(at + length), COLUMNS)
                .unwrap();
            assert_eq!(found.len(), readings::SERIES.len());
            begun.elapsed().as_secs_f64() * 1e3
        });
        let mut ms: Vec<f64> = times.collect();
        ms.sort_by(f64::total_cmp);
        let (median, most) = (ms[4], ms[8]);
        println!("{minutes:>6} min {median:>27.1} ms {most:>6.1} ms {BOUND_MS:>6.0} ms");
    }
}
