//! Readings of sensors: rows, then blocks; whatever they are, they read back as they were.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use flux::domain::telemetry::{Metric, Reading, SeriesId, Windowed};
use flux::domain::types::Timestamp;
use flux::ports::{SessionState, Store};
use flux::store::SqliteStore;
use proptest::prelude::*;
use rusqlite::Connection;

use crate::processes::{child, child_dir};
use crate::readings::{STEP_MS, Sensors};
use crate::sample::*;

/// Milliseconds a block is of, and its parts: the format of the database.
const STRETCH_MS: i64 = 128_000;
const PART_MS: i64 = 4_000;
/// A begin in the middle of a stretch.
const BEGIN: i64 = 1_764_374_400_123;
const ALL: (Timestamp, Timestamp) = (Timestamp(i64::MIN), Timestamp(i64::MAX));

fn count(dir: &Path, table: &str) -> i64 {
    let shell = Connection::open(dir.join("flux.db")).unwrap();
    let sql = format!("SELECT count(*) FROM {table}");
    shell.query_row(&sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn readings_come_back_by_time_and_unknown_ones_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    let session = store.begin_session(&new_session()).unwrap();
    let reading = |at, metric, value| Reading {
        series: SeriesId {
            source: "0000:01:00.0".to_owned(),
            metric,
        },
        at: Timestamp(at),
        value,
    };
    let (late, early) = (
        reading(30, Metric::Power, 0.1 + 0.2),
        reading(10, Metric::VramUsed, 8_321_499_136.0),
    );
    let batch = [late.clone(), early.clone()];
    store.append_telemetry(session, &batch).unwrap();
    let shell = Connection::open(dir.path().join("flux.db")).unwrap();
    shell
        .execute_batch("INSERT INTO telemetry (session, at, source, key, value) VALUES (1, 20, 'x', 'aura_lx', 1.0)")
        .unwrap();
    let read = |from, to| {
        store
            .telemetry(session, Timestamp(from), Timestamp(to))
            .unwrap()
    };
    assert_eq!(read(i64::MIN, i64::MAX), [early.clone(), late.clone()]);
    assert_eq!(read(10, 29), [early]);
    assert_eq!(read(30, 30), [late]);
    // Half a batch is none.
    let bad = [
        reading(1, Metric::Power, 1.0),
        reading(2, Metric::Power, f64::NAN),
    ];
    assert!(store.append_telemetry(session, &bad).is_err());
    assert_eq!(read(0, 5), []);
}

/// Readings as sensors give them, in batches of two seconds.
fn store_minutes(store: &SqliteStore, session: i64, sensors: &mut Sensors, n: i64) -> Vec<Reading> {
    let mut all = Vec::new();
    for _ in 0..n * 30 {
        let batch = sensors.take(2_000);
        store.append_telemetry(session, &batch).unwrap();
        all.extend(batch);
    }
    all
}

#[test]
fn readings_are_packed_behind_the_newest_and_read_back_to_the_last_bit() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    let session = store.begin_session(&new_session()).unwrap();
    let other = store.begin_session(&new_session()).unwrap();
    let mut sensors = Sensors::new(BEGIN);
    let read = || store.telemetry(session, ALL.0, ALL.1).unwrap();
    let mut all = store_minutes(&store, session, &mut sensors, 1);
    store.append_telemetry(other, &all[..15]).unwrap();
    all.extend(store_minutes(&store, session, &mut sensors, 9));
    assert_eq!(read(), all);
    // Fifteen series over the four or five stretches that ten minutes touch, less the last.
    let blocks = count(dir.path(), "telemetry_blocks");
    assert!((60..=75).contains(&blocks), "{blocks}");
    let open = all
        .iter()
        .filter(|r| r.at.0 / STRETCH_MS == all.last().unwrap().at.0 / STRETCH_MS);
    assert_eq!(count(dir.path(), "telemetry"), open.count() as i64 + 15);
    let inner = (all[700].at, all[7_000].at);
    let expected: Vec<Reading> = all
        .iter()
        .filter(|r| (inner.0..=inner.1).contains(&r.at))
        .cloned()
        .collect();
    assert_eq!(
        store.telemetry(session, inner.0, inner.1).unwrap(),
        expected
    );
    let span = Some((all[0].at, all.last().unwrap().at));
    assert_eq!(store.telemetry_span(session).unwrap(), span);
    store
        .end_session(session, &end(1, SessionState::Done, None))
        .unwrap();
    assert_eq!(
        count(dir.path(), "telemetry"),
        15,
        "those of the other session"
    );
    assert_eq!(
        (read(), store.telemetry_span(session).unwrap()),
        (all, span)
    );
    assert_eq!(store.telemetry(other, ALL.0, ALL.1).unwrap().len(), 15);
}

#[test]
fn a_clock_that_is_set_back_loses_nothing_and_makes_no_block_a_tick() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    let session = store.begin_session(&new_session()).unwrap();
    let mut all = store_minutes(&store, session, &mut Sensors::new(BEGIN), 3);
    all.extend(store_minutes(
        &store,
        session,
        &mut Sensors::new(BEGIN - 60_000),
        3,
    ));
    all.sort_by_key(|r| r.at);
    let mut back = store.telemetry(session, ALL.0, ALL.1).unwrap();
    for readings in [&mut all, &mut back] {
        readings.sort_by(|a, b| {
            (a.at, &a.series, a.value)
                .partial_cmp(&(b.at, &b.series, b.value))
                .unwrap()
        });
    }
    assert_eq!(back, all);
    let blocks = count(dir.path(), "telemetry_blocks");
    assert!(blocks <= 15 * 6, "{blocks}");
}

/// Rows of format 4 are read as they are, and packed with what their session reads next.
#[test]
fn rows_of_format_4_read_back_and_are_packed_when_their_session_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flux.db");
    v4(&path);
    let mut sensors = Sensors::new(BEGIN);
    let mut all = sensors.take(200_000);
    let shell = Connection::open(&path).unwrap();
    for reading in &all {
        let key = serde_json::to_value(reading.series.metric).unwrap();
        shell
            .execute(
                "INSERT INTO telemetry (session, at, source, key, value) VALUES (1, ?1, ?2, ?3, ?4)",
                (reading.at.0, &reading.series.source, key.as_str(), reading.value),
            )
            .unwrap();
    }
    drop(shell);
    let store = measuring(dir.path());
    let read = || store.telemetry(1, ALL.0, ALL.1).unwrap();
    assert_eq!(read(), all);
    compare(&store, 1, &all, (BEGIN, BEGIN + 200_000), 100);
    assert_eq!(count(dir.path(), "telemetry_blocks"), 0);
    all.extend(store_minutes(&store, 1, &mut sensors, 1));
    assert!(count(dir.path(), "telemetry_blocks") >= 15);
    assert_eq!(read(), all);
}

#[test]
fn old_readings_are_forgotten_and_runs_never() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    let ids = fill(&store);
    let all = store_minutes(&store, ids.session, &mut Sensors::new(BEGIN), 10);
    store.forget_telemetry(all[0].at).unwrap();
    assert_eq!(store.telemetry(ids.session, ALL.0, ALL.1).unwrap(), all);
    let middle = all[all.len() / 2].at;
    store.forget_telemetry(middle).unwrap();
    let kept = store.telemetry(ids.session, ALL.0, ALL.1).unwrap();
    // A block that reaches beyond the moment stays whole.
    assert!(all.ends_with(&kept) && kept[0].at <= middle);
    assert!(kept[0].at.0 > middle.0 - STRETCH_MS);
    let last = Timestamp(all.last().unwrap().at.0 + 1);
    store.forget_telemetry(last).unwrap();
    assert_eq!(store.telemetry(ids.session, ALL.0, ALL.1).unwrap(), []);
    assert_eq!(store.telemetry_span(ids.session).unwrap(), None);
    for table in ["telemetry", "telemetry_blocks", "telemetry_data"] {
        assert_eq!(count(dir.path(), table), 0, "{table}");
    }
    assert_filled(&store, &ids);
}

/// A child's part: stores two seconds of readings at a time, and says so.
fn read_until_killed(dir: &Path) {
    let store = measuring(dir);
    let session = store.begin_session(&new_session()).unwrap();
    let mut sensors = Sensors::new(BEGIN);
    for n in 1..100_000 {
        store
            .append_telemetry(session, &sensors.take(2_000))
            .unwrap();
        #[expect(clippy::print_stdout, reason = "the parent reads it")]
        {
            println!("\nflushed {n}");
        }
    }
}

#[test]
fn a_killed_sampler_loses_nothing_that_was_flushed() {
    /// Kills, each between or in two flushes, before and after blocks are made.
    const KILLS: usize = 8;
    /// Flushes of one stretch.
    const STRETCH: usize = (STRETCH_MS / 2_000) as usize;
    if let Some(dir) = child_dir() {
        return read_until_killed(&dir);
    }
    let exe = std::env::current_exe().unwrap();
    let test = "telemetry::a_killed_sampler_loses_nothing_that_was_flushed";
    for kill in 0..KILLS {
        let dir = tempfile::tempdir().unwrap();
        let mut sampler = child(&exe, test, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(sampler.stdout.take().unwrap()).lines();
        let mut said = lines
            .map(Result::unwrap)
            .filter(|l| l.starts_with("flushed "));
        let mut heard = said.by_ref().take(1 + kill * STRETCH / 3).count();
        sampler.kill().unwrap();
        sampler.wait().unwrap();
        heard += said.count();
        let store = measuring(dir.path());
        let back = store.telemetry(1, ALL.0, ALL.1).unwrap();
        let expected = Sensors::new(BEGIN).take(2_000 * (heard as i64 + 1));
        let flush = expected.len() / (heard + 1);
        // One more may have been stored than was said; none is half there.
        let stored = back.len() / flush;
        assert!((heard..=heard + 1).contains(&stored), "{stored} of {heard}");
        assert_eq!(back, expected[..stored * flush]);
    }
}

/// Width of `n` columns over `span` milliseconds, rounded up to what blocks keep numbers of.
fn width(span: i64, n: i64) -> i64 {
    let width = (span + n - 1).div_euclid(n).max(1);
    let unit = match width {
        w if w < PART_MS => 1,
        w if w < STRETCH_MS => PART_MS,
        _ => STRETCH_MS,
    };
    (width + unit - 1) / unit * unit
}

/// Asserts that a window is what all readings in it come to.
fn compare(store: &SqliteStore, session: i64, all: &[Reading], (from, to): (i64, i64), n: i64) {
    let found = store
        .telemetry_window(session, Timestamp(from), Timestamp(to), n as usize)
        .unwrap();
    let mut by_series: BTreeMap<&SeriesId, Vec<(i64, f64)>> = BTreeMap::new();
    for reading in all.iter().filter(|r| (from..=to).contains(&r.at.0)) {
        by_series
            .entry(&reading.series)
            .or_default()
            .push((reading.at.0, reading.value));
    }
    let series: Vec<&SeriesId> = found.iter().map(|w| &w.series).collect();
    assert_eq!(series, by_series.keys().copied().collect::<Vec<_>>());
    let width = width(to - from, n);
    for (
        Windowed {
            columns, summary, ..
        },
        points,
    ) in found.iter().zip(by_series.values())
    {
        assert!(columns.len() as i64 <= n + 1, "{} of {n}", columns.len());
        let mut expected: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
        for &(at, value) in points {
            let column = expected
                .entry(at.div_euclid(width) * width + width / 2)
                .or_insert((value, value));
            *column = (column.0.min(value), column.1.max(value));
        }
        let got: Vec<_> = columns.iter().map(|c| (c.t.0, (c.min, c.max))).collect();
        assert_eq!(got, expected.into_iter().collect::<Vec<_>>());
        let values = points.iter().map(|p| p.1);
        assert_eq!(summary.min, values.clone().fold(f64::INFINITY, f64::min));
        assert_eq!(
            summary.max,
            values.clone().fold(f64::NEG_INFINITY, f64::max)
        );
        let mean = values.sum::<f64>() / points.len() as f64;
        assert!(
            (summary.mean - mean).abs() <= 1e-9 * mean.abs(),
            "{} {mean}",
            summary.mean
        );
        let last = points.iter().map(|p| p.0).max().unwrap();
        assert!(points.iter().any(|p| *p == (last, summary.last)));
    }
}

#[test]
fn a_gap_is_seen_at_every_width() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    let session = store.begin_session(&new_session()).unwrap();
    // Two hours of readings, three of none, one of readings.
    let (first, second) = (BEGIN, BEGIN + 5 * 3_600_000);
    for (begin, minutes) in [(first, 120), (second, 60)] {
        let mut sensors = Sensors::new(begin);
        for _ in 0..minutes / 2 {
            store
                .append_telemetry(session, &sensors.take(120_000))
                .unwrap();
        }
    }
    for (from, to) in [
        (second - 30_000, second + 30_000),
        (second - 600_000, second + 600_000),
        (first, second + 600_000),
    ] {
        for n in [10, 300, 600] {
            let from = from - 11_000_000 * i64::from(from != first);
            let window = store
                .telemetry_window(session, Timestamp(from), Timestamp(to), n)
                .unwrap();
            for Windowed { columns, .. } in &window {
                let gaps: Vec<i64> = columns
                    .iter()
                    .skip(1)
                    .filter(|c| !c.joined)
                    .map(|c| c.t.0)
                    .collect();
                let width = width(to - from, n as i64);
                assert_eq!(gaps.len(), 1, "{n} columns of {width} ms");
                assert!((gaps[0] - second).abs() <= width, "{} {second}", gaps[0]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_window_is_what_all_its_readings_come_to(
        minutes in 1..40_i64,
        ended: bool,
        windows in prop::collection::vec((-0.1..1.0_f64, 0.0..1.2_f64, 1..700_i64), 12),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let store = measuring(dir.path());
        let session = store.begin_session(&new_session()).unwrap();
        let mut sensors = Sensors::new(BEGIN);
        let mut all = Vec::new();
        for _ in 0..minutes {
            let batch = sensors.take(60_000);
            store.append_telemetry(session, &batch).unwrap();
            all.extend(batch);
        }
        if ended {
            store.end_session(session, &end(1, SessionState::Done, None)).unwrap();
        }
        let length = (minutes * 60_000) as f64;
        for (begin, share, n) in windows {
            let from = BEGIN + (begin * length) as i64;
            compare(&store, session, &all, (from, from + (share * length) as i64), n);
        }
        // All of it in few columns: parts, then blocks.
        for n in [3, 1] {
            compare(&store, session, &all, (BEGIN - STEP_MS, BEGIN + length as i64 * 4), n);
        }
    }
}
