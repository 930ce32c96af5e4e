//! What the sensors said around one run: energy of every repetition, means while repetitions were timed, and what makes
//! the run doubtful (design section 6).

use std::collections::BTreeMap;

use crate::domain::types::{Energy, RunTelemetry, Spread, TestEnergy, TestSamples, TestSpec};

use super::energy::{Point, Window, counted, integrated};
use super::{HOST, Metric, SeriesId};

/// Seconds before a process in which the machine should be idle. Runs follow each other: our own process before is out of
/// its readings only where a pause of more than [`LAG_SECS`] was made, as before a job's first run.
pub const BEFORE_SECS: f64 = 2.0;
/// Loads are told as means over up to so many seconds: until then our own process before is still in them.
pub const LAG_SECS: f64 = 1.0;
/// A counter steps every 20 to 100 ms: shorter times are taken from power, seconds.
const SHORTEST_COUNTED_SECS: f64 = 0.5;
/// Throttled for more of the timed time than this is told, share.
const MUCH_THROTTLED: f64 = 0.05;
/// Busier than this before a process began is other people's work, percent of the device.
pub const BUSY_DEVICE_PCT: f64 = 10.0;
/// Likewise of all the processor's cores, before a process began or while it ran: more than one of eight.
const BUSY_HOST_PCT: f64 = 15.0;

/// Readings of every series, each in the order of its times.
pub type Readings = BTreeMap<SeriesId, Vec<Point>>;

/// A repetition that began, in monotonic seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Begun {
    /// Its test.
    pub test: TestSpec,
    /// From 0.
    pub repetition: usize,
    /// When.
    pub at: f64,
}

/// How a run lay in time, and on what it ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Course<'a> {
    /// When our own process before it had ended, monotonic seconds; `None` for the first.
    pub ended_before: Option<f64>,
    /// When its process began, monotonic seconds.
    pub started: f64,
    /// Its repetitions.
    pub begun: &'a [Begun],
    /// Source of the device's readings; `None` is the processor.
    pub device: Option<&'a str>,
    /// Seconds between readings.
    pub interval_secs: f64,
    /// What kept the processor busy beside Flux and its process while that ran, percent of all cores; `None` where the
    /// system does not tell whose time was whose. Of a GPU no driver tells it.
    pub other_load_pct: Option<f64>,
}

/// Attaches to each test the energy of its repetitions, and says what the sensors told around the run.
pub fn around(readings: &Readings, course: &Course<'_>, tests: &mut [TestSamples]) -> RunTelemetry {
    let mut timed = Vec::new();
    for test in tests {
        let windows = windows(course, test);
        test.energy = windows.as_ref().and_then(|w| energy(readings, course, w));
        timed.extend(windows.into_iter().flatten());
    }
    let own = course
        .ended_before
        .map_or(f64::NEG_INFINITY, |end| end + LAG_SECS);
    let before = [Window {
        from: own.max(course.started - BEFORE_SECS),
        to: course.started,
    }];
    let mut telemetry = RunTelemetry {
        device: course.device.map(str::to_owned),
        timed: spreads(readings, &timed),
        before: spreads(readings, &before),
        doubts: Vec::new(),
    };
    telemetry.doubts = doubts(&telemetry, course.other_load_pct);
    telemetry
}

/// When each repetition of a test was timed; `None` unless the beginning of all is known.
fn windows(course: &Course<'_>, test: &TestSamples) -> Option<Vec<Window>> {
    let window = |(repetition, ns): (usize, &u64)| {
        let mut begun = course.begun.iter();
        let found = begun.find(|b| b.test == test.test && b.repetition == repetition)?;
        Some(Window {
            from: found.at,
            to: found.at + *ns as f64 / 1e9,
        })
    };
    test.samples_ns.iter().enumerate().map(window).collect()
}

fn energy(readings: &Readings, course: &Course<'_>, windows: &[Window]) -> Option<TestEnergy> {
    let of = |source: &str, counter: Metric, power: Metric| -> Vec<Energy> {
        let points = |metric| {
            let series = SeriesId {
                source: source.to_owned(),
                metric,
            };
            readings.get(&series).map_or(&[][..], Vec::as_slice)
        };
        let one = |window: &Window| {
            let long = window.secs() >= SHORTEST_COUNTED_SECS;
            long.then(|| counted(points(counter), *window))
                .flatten()
                .or_else(|| integrated(points(power), *window, course.interval_secs))
        };
        let all: Option<Vec<Energy>> = windows.iter().map(one).collect();
        all.unwrap_or_default()
    };
    let package = of(HOST, Metric::CpuEnergy, Metric::CpuPower);
    let device = match course.device {
        Some(source) => of(source, Metric::Energy, Metric::Power),
        None => package.clone(),
    };
    let package = if course.device.is_some() {
        package
    } else {
        Vec::new()
    };
    (!device.is_empty()).then_some(TestEnergy { device, package })
}

/// Every series over some windows; counters say nothing as a spread.
fn spreads(readings: &Readings, windows: &[Window]) -> Vec<(SeriesId, Spread)> {
    let inside = |t: f64| windows.iter().any(|w| (w.from..=w.to).contains(&t));
    let mut found = Vec::new();
    for (series, points) in readings.iter().filter(|(s, _)| !s.metric.is_counter()) {
        let values: Vec<f64> = points
            .iter()
            .filter(|(t, _)| inside(*t))
            .map(|(_, value)| *value)
            .collect();
        found.extend(Spread::of(&values).map(|spread| (series.clone(), spread)));
    }
    found
}

/// Share of the timed time in which the run's GPU held its clocks down, where that was more than a moment.
fn throttled(telemetry: &RunTelemetry) -> Option<f64> {
    let flag = SeriesId {
        source: telemetry.device.clone()?,
        metric: Metric::Throttled,
    };
    let share = telemetry.timed(&flag)?.mean;
    (share > MUCH_THROTTLED).then_some(share)
}

/// What may be why runs of one arm differ: `the GPU held its clocks down in 5 of 24 runs: that may be why`. `None` where
/// it did in none.
pub fn held_down<'t>(runs: impl Iterator<Item = &'t RunTelemetry>) -> Option<String> {
    let (mut held, mut all) = (0, 0);
    for run in runs {
        all += 1;
        held += u32::from(throttled(run).is_some());
    }
    let words = format!("the GPU held its clocks down in {held} of {all} runs: that may be why");
    (held > 0).then_some(words)
}

/// Doubts that differ in their numbers alone are of one kind, and told once.
pub fn kind_of(doubt: &str) -> String {
    doubt.chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn doubts(telemetry: &RunTelemetry, other_load_pct: Option<f64>) -> Vec<String> {
    let of = |source: &str, metric| SeriesId {
        source: source.to_owned(),
        metric,
    };
    let mut doubts = Vec::new();
    if let Some(device) = &telemetry.device {
        if let Some(share) = throttled(telemetry) {
            doubts.push(format!(
                "the GPU held its clocks down for {:.0} % of the time",
                100.0 * share
            ));
        }
        let busy = telemetry.before(&of(device, Metric::GpuLoad));
        if let Some(load) = busy.map(|s| s.mean).filter(|l| *l > BUSY_DEVICE_PCT) {
            doubts.push(format!(
                "something else kept the GPU {load:.0} % busy before it began"
            ));
        }
    }
    let before = telemetry.before(&of(HOST, Metric::CpuLoad));
    let told = [
        (other_load_pct, "while it ran"),
        (before.map(|s| s.mean), "before it began"),
    ];
    let busy = |(load, when): (Option<f64>, _)| Some((load.filter(|l| *l > BUSY_HOST_PCT)?, when));
    // Once: what went on during the run is nearer to what was measured.
    if let Some((load, when)) = told.into_iter().find_map(busy) {
        doubts.push(format!(
            "something else kept the processor {load:.0} % busy {when}"
        ));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "0000:01:00.0";
    const TG: TestSpec = TestSpec::generation(128);

    fn series(source: &str, metric: Metric) -> SeriesId {
        SeriesId {
            source: source.to_owned(),
            metric,
        }
    }

    /// 0 to 30 s, every quarter of a second.
    fn every_quarter(value: impl Fn(f64) -> f64) -> Vec<Point> {
        (0..=120)
            .map(|i| (f64::from(i) / 4.0, value(f64::from(i) / 4.0)))
            .collect()
    }

    /// Two repetitions of 4 s, from 10 s and from 15 s.
    fn samples() -> TestSamples {
        TestSamples {
            test: TG,
            samples_ns: vec![4_000_000_000, 4_000_000_000],
            record: serde_json::Value::Null,
            energy: None,
        }
    }

    const BEGUN: [Begun; 2] = [
        Begun {
            test: TG,
            repetition: 0,
            at: 10.0,
        },
        Begun {
            test: TG,
            repetition: 1,
            at: 15.0,
        },
    ];

    fn course(device: Option<&str>) -> Course<'_> {
        Course {
            ended_before: None,
            started: 8.0,
            begun: &BEGUN,
            device,
            interval_secs: 0.25,
            other_load_pct: None,
        }
    }

    /// Idle 10 W; 100 W in the first repetition and 110 W in the second.
    fn power(t: f64) -> f64 {
        match t {
            _ if (9.5..=14.5).contains(&t) => 100.0,
            _ if (14.75..=19.5).contains(&t) => 110.0,
            _ => 10.0,
        }
    }

    #[test]
    fn energy_is_of_exactly_the_timed_seconds_and_idle_stands_apart() {
        let readings = Readings::from([
            (series(GPU, Metric::Power), every_quarter(power)),
            (series(HOST, Metric::CpuPower), every_quarter(|_| 25.0)),
        ]);
        let mut tests = [samples()];
        let told = around(&readings, &course(Some(GPU)), &mut tests);
        let energy = tests[0].energy.clone().unwrap();
        assert_eq!(energy.joules(false), [400.0, 440.0]);
        assert_eq!(energy.joules(true), [500.0, 540.0]);
        assert!(!energy.is_estimated());
        let timed = told.timed(&series(GPU, Metric::Power)).unwrap();
        assert_eq!((timed.min, timed.mean, timed.max), (100.0, 105.0, 110.0));
        let idle = told.before(&series(GPU, Metric::Power)).unwrap();
        assert_eq!((idle.min, idle.max), (10.0, 10.0));
        assert_eq!(told.doubts, Vec::<String>::new());
    }

    #[test]
    fn a_counter_is_preferred_to_power() {
        let readings = Readings::from([
            (series(GPU, Metric::Power), every_quarter(power)),
            (
                series(GPU, Metric::Energy),
                vec![(9.0, 0.0), (14.0, 700.0), (19.0, 1400.0)],
            ),
        ]);
        let mut tests = [samples()];
        around(&readings, &course(Some(GPU)), &mut tests);
        // 140 W throughout by the counter.
        assert_eq!(
            tests[0].energy.clone().unwrap().joules(false),
            [560.0, 560.0]
        );
    }

    #[test]
    fn on_the_processor_the_package_is_the_device() {
        let readings = Readings::from([(series(HOST, Metric::CpuPower), every_quarter(|_| 25.0))]);
        let mut tests = [samples()];
        around(&readings, &course(None), &mut tests);
        let energy = tests[0].energy.clone().unwrap();
        assert_eq!(energy.joules(false), [100.0, 100.0]);
        assert!(energy.package.is_empty());
    }

    #[test]
    fn what_is_not_known_of_every_repetition_is_not_told() {
        let mut tests = [samples()];
        around(&Readings::new(), &course(Some(GPU)), &mut tests);
        assert_eq!(tests[0].energy, None);
        let readings = Readings::from([(series(GPU, Metric::Power), every_quarter(power))]);
        let mut course = course(Some(GPU));
        course.begun = &BEGUN[..1];
        around(&readings, &course, &mut tests);
        assert_eq!(tests[0].energy, None, "when the second began is not known");
    }

    #[test]
    fn throttling_and_other_work_are_told() {
        let readings = Readings::from([
            (
                series(GPU, Metric::Throttled),
                every_quarter(|t| f64::from(u8::from(t > 17.0))),
            ),
            (series(GPU, Metric::GpuLoad), every_quarter(|_| 38.0)),
            (series(HOST, Metric::CpuLoad), every_quarter(|_| 60.0)),
        ]);
        let told = around(&readings, &course(Some(GPU)), &mut [samples()]);
        // 8 of 34 readings.
        assert_eq!(
            told.doubts,
            [
                "the GPU held its clocks down for 24 % of the time",
                "something else kept the GPU 38 % busy before it began",
                "something else kept the processor 60 % busy before it began",
            ]
        );
        // Our own process ended half a second before: nobody else is blamed.
        let mut after = course(Some(GPU));
        after.ended_before = Some(7.5);
        let own = around(&readings, &after, &mut [samples()]);
        assert_eq!(own.doubts.len(), 1, "{:?}", own.doubts);
        // What the system says of the run itself needs no pause before it.
        after.other_load_pct = Some(31.0);
        let during = around(&readings, &after, &mut [samples()]);
        assert_eq!(
            during.doubts[1..],
            ["something else kept the processor 31 % busy while it ran"]
        );
        after.other_load_pct = Some(BUSY_HOST_PCT);
        let quiet = around(&readings, &after, &mut [samples()]);
        assert_eq!(quiet.doubts, own.doubts);
        let cool = around(&Readings::new(), &course(Some(GPU)), &mut [samples()]);
        assert_eq!(
            held_down([&told, &cool, &told].into_iter()).as_deref(),
            Some("the GPU held its clocks down in 2 of 3 runs: that may be why")
        );
        assert_eq!(held_down([&cool].into_iter()), None);
        assert_eq!(
            kind_of(&told.doubts[0]),
            kind_of("the GPU held its clocks down for 9 % of the time")
        );
        assert_ne!(kind_of(&told.doubts[1]), kind_of(&told.doubts[2]));
    }
}
