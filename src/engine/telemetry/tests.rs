//! The sampler on a clock and sensors of the test's own.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::telemetry::{Metric, SeriesId};

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A clock that stands still until it is moved.
#[derive(Default)]
struct ByHand(AtomicU64);

impl ByHand {
    fn pass(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ByHand {
    fn now(&self) -> Timestamp {
        Timestamp(1_000_000 + self.0.load(Ordering::SeqCst).cast_signed())
    }

    fn elapsed(&self) -> Duration {
        MS(self.0.load(Ordering::SeqCst))
    }
}

/// Counts up; every reading takes 2 ms of the clock. One of its two sensors says no number.
struct Counter(Arc<ByHand>, f64);

impl TelemetrySource for Counter {
    fn name(&self) -> &'static str {
        "counter"
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        self.0.pass(2);
        self.1 += 1.0;
        vec![
            (series(Metric::Power), self.1),
            (series(Metric::HotSpot), f64::NAN),
        ]
    }
}

fn series(metric: Metric) -> SeriesId {
    SeriesId {
        source: "0000:01:00.0".to_owned(),
        metric,
    }
}

type Batch = (i64, Vec<f64>);

struct Bench {
    clock: Arc<ByHand>,
    /// Every batch: its session and its values.
    batches: Arc<Mutex<Vec<Batch>>>,
    watch: Watch,
    work: Work,
    ticks: Receiver<Tick>,
}

fn bench() -> Bench {
    let batches = Arc::new(Mutex::new(Vec::new()));
    let stored = batches.clone();
    let append: Append = Box::new(move |session, batch| {
        let values = batch.iter().map(|r| r.value).collect();
        stored.lock().unwrap().push((session, values));
        Ok(())
    });
    let clock = Arc::new(ByHand::default());
    let watch = Watch::default();
    let (sender, ticks) = bounded(TICKS_WAITING);
    let work = Work {
        sources: vec![Box::new(Counter(clock.clone(), 0.0))],
        schedule: Schedule::new(DEFAULT_INTERVAL, Duration::ZERO),
        clock: clock.clone(),
        ticks: sender,
        keeper: Some(Keeper::new(append, watch.clone())),
        watch: watch.clone(),
        absent: Arc::default(),
    };
    Bench {
        clock,
        batches,
        watch,
        work,
        ticks,
    }
}

impl Bench {
    /// Waits as the thread would, then ticks.
    fn next(&mut self) {
        let wait = self.work.schedule.wait(self.clock.elapsed());
        self.clock.pass(u64::try_from(wait.as_millis()).unwrap());
        self.work.tick();
    }

    fn batches(&self) -> Vec<Batch> {
        self.batches.lock().unwrap().clone()
    }
}

#[test]
fn ticks_come_on_a_grid_with_what_they_cost() {
    let mut bench = bench();
    for _ in 0..3 {
        bench.next();
    }
    let ticks: Vec<Tick> = bench.ticks.try_iter().collect();
    let at: Vec<i64> = ticks.iter().map(|t| t.at.0 - 1_000_000).collect();
    // The 2 ms a reading takes do not add up.
    assert_eq!(at, [0, 250, 500]);
    assert!(ticks.iter().all(|t| t.cost == MS(2)));
    let value = Reading {
        series: series(Metric::Power),
        at: Timestamp(1_000_250),
        value: 2.0,
    };
    assert_eq!(ticks[1].readings, [value], "what is no number is unknown");
}

#[test]
fn a_stall_is_followed_by_one_tick_and_the_grid_goes_on() {
    let mut schedule = Schedule::new(MS(250), MS(10));
    assert_eq!(schedule.wait(MS(10)), Duration::ZERO);
    schedule.made(MS(12));
    assert_eq!(schedule.wait(MS(12)), MS(248));
    // Asleep from 260 ms to an hour later.
    let late = MS(3_600_000);
    assert_eq!(schedule.wait(late), Duration::ZERO);
    schedule.made(late);
    // 10 + 250 k after 3,600,000: k = 14,400.
    assert_eq!(schedule.wait(late), MS(10));
    // A clock that stands still at the due moment is not asked twice for it.
    let mut still = Schedule::new(MS(250), MS(0));
    still.made(MS(0));
    assert_eq!(still.wait(MS(0)), MS(250));
    for (asked, given) in [(0, 100), (99, 100), (101, 101), (60_000, 10_000)] {
        assert_eq!(Schedule::new(MS(asked), MS(0)).interval, MS(given));
    }
}

#[test]
fn a_slow_reader_loses_ticks_and_holds_nothing_up() {
    let mut bench = bench();
    for _ in 0..TICKS_WAITING + 10 {
        bench.next();
    }
    let values: Vec<f64> = bench
        .ticks
        .try_iter()
        .map(|t| t.readings[0].value)
        .collect();
    assert_eq!(values.len(), TICKS_WAITING);
    assert_eq!((values[0], values[TICKS_WAITING - 1]), (1.0, 64.0));
    bench.next();
    let next = bench.ticks.recv().unwrap().readings.remove(0);
    assert_eq!((next.series, next.value), (series(Metric::Power), 75.0));
}

#[test]
fn readings_of_a_session_are_stored_in_batches_and_at_its_end() {
    let mut bench = bench();
    bench.next();
    bench.watch.begin(1);
    for _ in 0..8 {
        bench.next();
    }
    assert_eq!(bench.batches(), [], "1.75 s of them wait");
    bench.next();
    // Reading 1 was of no session.
    let first = (1, (2..=10).map(f64::from).collect());
    assert_eq!(bench.batches(), std::slice::from_ref(&first));
    bench.next();
    bench.watch.begin(2);
    bench.next();
    bench.watch.end();
    bench.next();
    let mut expected = vec![first, (1, vec![11.0]), (2, vec![12.0])];
    assert_eq!(bench.batches(), expected);
    // Stopped while a session is measured.
    bench.watch.begin(3);
    bench.next();
    let (stop, stopped) = bounded(0);
    drop(stop);
    bench.work.run(&stopped);
    expected.push((3, vec![14.0]));
    assert_eq!(bench.batches(), expected);
}

/// Hits a bug when it is asked a second time.
struct Buggy(u32);

impl TelemetrySource for Buggy {
    fn name(&self) -> &'static str {
        "buggy"
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        self.0 += 1;
        if self.0 > 1 {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        vec![(series(Metric::Temperature), 40.0)]
    }
}

#[test]
fn a_sensor_that_panics_is_read_no_more_and_the_others_are() {
    let mut bench = bench();
    bench.work.sources.insert(0, Box::new(Buggy(0)));
    for _ in 0..3 {
        bench.next();
    }
    let values = |tick: Tick| tick.readings.iter().map(|r| r.value).collect::<Vec<_>>();
    let told: Vec<_> = bench.ticks.try_iter().map(values).collect();
    assert_eq!(told, [vec![40.0, 1.0], vec![2.0], vec![3.0]]);
}
