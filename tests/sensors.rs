//! Sensors of captured machines: what one and two readings give, and the cases of the telemetry (C23–C28).
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/captured.rs"]
mod captured;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flux::domain::telemetry::{HOST, Metric, SeriesId};
use flux::engine::{doctor, scan};
use flux::ports::{Telemetry as _, TelemetrySource};
use flux::probe::SystemRoot;
use flux::telemetry::Sensors;
use flux::wiring;
use tempfile::TempDir;

use captured::{OF_KERNEL, TestClock, fixture};

/// Between the two readings of a captured machine.
const LATER: Duration = Duration::from_millis(2_010);
const CARD: &str = "0000:01:00.0";
const ARC: &str = "0000:03:00.0";

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// A captured machine that can change.
struct Replay {
    dir: TempDir,
    clock: Arc<TestClock>,
    sources: Vec<Box<dyn TelemetrySource>>,
}

impl Replay {
    fn of(name: &str, prepare: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy(&fixture(name), dir.path());
        prepare(dir.path());
        let clock = Arc::new(TestClock::default());
        let mut sources = Sensors::new(SystemRoot::at(dir.path()), clock.clone()).sources();
        sources.retain(|source| source.name() != HOST);
        Self {
            dir,
            clock,
            sources,
        }
    }

    fn new(name: &str) -> Self {
        Self::of(name, |_| ())
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        self.sources.iter_mut().flat_map(|s| s.sample()).collect()
    }

    fn value(&mut self, source: &str, metric: Metric) -> Option<f64> {
        let found = self.sample();
        let ours =
            |(series, _): &&(SeriesId, f64)| series.source == source && series.metric == metric;
        found.iter().find(ours).map(|(_, value)| *value)
    }

    fn reason(&self, source: &str, metric: Metric) -> Option<String> {
        let mut all = self.sources.iter().flat_map(|s| s.absent());
        let ours = |a: &flux::domain::telemetry::AbsentSensor| {
            a.series.source == source && a.series.metric == metric
        };
        all.find(ours).map(|a| a.reason)
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.dir.path().join("sys").join(file), text).unwrap();
    }
}

fn card(file: &str) -> String {
    format!("bus/pci/devices/0000-01-00.0/{file}")
}

fn arc(file: &str) -> String {
    format!("bus/pci/devices/0000-03-00.0/{file}")
}

/// A file that opens and cannot be read, as one whose driver refuses.
fn refuse(root: &Path, file: &str) {
    let path = root.join("sys").join(file);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
}

fn shown(readings: &[(SeriesId, f64)]) -> String {
    let mut text = String::new();
    for (series, value) in readings {
        let (metric, unit) = (series.metric.title(), series.metric.unit());
        writeln!(text, "  {} {metric}: {value:.3} {unit}", series.source).unwrap();
    }
    text
}

#[test]
fn every_captured_machine_reads_as_recorded() {
    for name in OF_KERNEL.into_iter().chain(["rtx4090", "none"]) {
        let mut replay = Replay::new(name);
        let mut text = format!("first\n{}", shown(&replay.sample()));
        let later = fixture(name).join("later");
        if later.exists() {
            copy(&later, replay.dir.path());
        }
        replay.clock.advance(LATER);
        write!(text, "second\n{}absent\n", shown(&replay.sample())).unwrap();
        for absent in replay.sources.iter().flat_map(|s| s.absent()) {
            let (source, metric) = (&absent.series.source, absent.series.metric.title());
            writeln!(text, "  {source} {metric}: {}", absent.reason).unwrap();
        }
        insta::assert_snapshot!(name, text);
    }
}

/// 87000000 µW are 87 W; an average is preferred; neither, or a constant 0, is nothing.
#[test]
fn c23_power_is_an_average_or_an_input_and_never_zero() {
    let hwmon = |root: &Path, file: &str| root.join("sys").join(card("hwmon/hwmon2")).join(file);
    let mut input = Replay::new("rx580");
    assert_eq!(input.value(CARD, Metric::Power), Some(87.0));
    assert_eq!(input.reason(CARD, Metric::Power), None);
    let mut both = Replay::of("rx580", |root| {
        fs::write(hwmon(root, "power1_average"), "91000000\n").unwrap();
    });
    assert_eq!(both.value(CARD, Metric::Power), Some(91.0));
    let mut neither = Replay::of("rx580", |root| {
        fs::remove_file(hwmon(root, "power1_input")).unwrap();
    });
    assert_eq!(neither.value(CARD, Metric::Power), None);
    assert_eq!(
        neither.reason(CARD, Metric::Power).as_deref(),
        Some("not offered by this device or its driver")
    );
    // One that is listed and refuses gives way to the other.
    let mut refused = Replay::of("rx580", |root| {
        fs::create_dir(hwmon(root, "power1_average")).unwrap();
    });
    assert_eq!(refused.value(CARD, Metric::Power), Some(87.0));
    let mut zero = Replay::of("rx580", |root| {
        fs::write(hwmon(root, "power1_input"), "0\n").unwrap();
    });
    for _ in 0..8 {
        assert_eq!(zero.value(CARD, Metric::Power), None);
    }
    assert_eq!(
        zero.reason(CARD, Metric::Power).as_deref(),
        Some("always 0 W, even at work")
    );
}

#[test]
fn c24_one_value_that_cannot_be_read_loses_no_other() {
    let mut whole = Replay::new("navi21");
    let all = whole.sample();
    let address = "0000:0b:00.0";
    let mut one_less = Replay::of("navi21", |root| {
        refuse(
            root,
            "bus/pci/devices/0000-0b-00.0/hwmon/hwmon5/power1_average",
        );
    });
    let rest: Vec<_> = all
        .into_iter()
        .filter(|(series, _)| series.metric != Metric::Power)
        .collect();
    assert_eq!(rest.len(), 11);
    assert_eq!(one_less.sample(), rest);
    assert!(one_less.reason(address, Metric::Power).is_some());
    assert_eq!(one_less.reason(address, Metric::CoreClock), None);
}

/// An Arc B70: 414 J in 2.01 s are 206 W, whatever number its monitor has and whichever counter is filled.
#[test]
fn c26_power_of_an_arc_is_energy_over_time() {
    let hwmon = |n: u32| arc(&format!("hwmon/hwmon{n}"));
    let watts = |replay: &mut Replay, counter: &str, monitor: u32| {
        let counter = format!("{}/{counter}", hwmon(monitor));
        assert_eq!(
            replay.value(ARC, Metric::Power),
            None,
            "the first has none before it"
        );
        replay.write(&counter, "16532114929\n");
        replay.clock.advance(LATER);
        replay.value(ARC, Metric::Power)
    };
    let near = |watts: Option<f64>| (watts.unwrap() - 414.0 / 2.01).abs() < 1e-6;
    assert!(near(watts(
        &mut Replay::new("arc-b580"),
        "energy1_input",
        4
    )));
    let mut moved = Replay::of("arc-b580", |root| {
        let at = |n| root.join("sys").join(hwmon(n));
        fs::rename(at(4), at(5)).unwrap();
        // Another device's monitor in its old place.
        fs::create_dir(at(4)).unwrap();
        fs::write(at(4).join("name"), "nvme\n").unwrap();
    });
    assert!(near(watts(&mut moved, "energy1_input", 5)));
    let mut package_only = Replay::of("arc-b580", |root| {
        let dir = root.join("sys").join(hwmon(4));
        fs::write(dir.join("energy1_input"), "0\n").unwrap();
        fs::write(dir.join("energy2_input"), "16118114929\n").unwrap();
    });
    assert!(near(watts(&mut package_only, "energy2_input", 4)));
    // A reset, and a step of more than twice the limit of 190 W: 1 kJ in 2.01 s.
    let mut replay = Replay::new("arc-b580");
    replay.sample();
    for (counter, joules) in [
        ("5000000\n", 0.0),
        ("1005000000\n", 0.0),
        ("1105000000\n", 100.0),
    ] {
        replay.write(&format!("{}/energy1_input", hwmon(4)), counter);
        replay.clock.advance(LATER);
        let found = replay.sample();
        let of = |metric| {
            found
                .iter()
                .find(|(s, _)| s.metric == metric)
                .map(|(_, v)| *v)
        };
        assert_eq!(of(Metric::Power).is_some(), joules > 0.0, "{counter}");
        assert_eq!(of(Metric::Energy), Some(joules));
    }
}

#[test]
fn c27_a_sleeping_gpu_is_left_alone_and_read_when_it_wakes() {
    let mut replay = Replay::of("laptop-hybrid", |root| {
        // Whoever reads it finds no number.
        fs::write(
            root.join("sys").join(arc("hwmon/hwmon7/power1_average")),
            "woken\n",
        )
        .unwrap();
    });
    assert_eq!(replay.value(ARC, Metric::Power), None);
    let asleep = replay.reason(ARC, Metric::Power).unwrap();
    assert!(asleep.starts_with("asleep"), "{asleep}");
    assert_eq!(
        replay.value("0000:00:02.0", Metric::CoreClock),
        Some(1300.0)
    );
    replay.write(&arc("power/runtime_status"), "active\n");
    replay.write(&arc("hwmon/hwmon7/power1_average"), "31000000\n");
    assert_eq!(replay.value(ARC, Metric::Power), Some(31.0));
    assert_eq!(replay.reason(ARC, Metric::Power), None);
    // A driver without the file never sleeps.
    let mut without = Replay::of("laptop-hybrid", |root| {
        fs::remove_file(root.join("sys").join(arc("power/runtime_status"))).unwrap();
    });
    assert_eq!(without.value(ARC, Metric::Power), Some(4.0));
    // What is refused or gone is one metric's matter.
    let mut refused = Replay::of("rx580", |root| {
        refuse(root, &card("gpu_busy_percent"));
        fs::remove_file(root.join("sys").join(card("mem_busy_percent"))).unwrap();
    });
    assert_eq!(refused.value(CARD, Metric::Power), Some(87.0));
    assert_eq!(refused.value(CARD, Metric::GpuLoad), None);
    assert!(refused.reason(CARD, Metric::MemoryLoad).is_some());
}

/// A driver takes every reading for use: an idle GPU that could sleep is left alone, unless somebody measures.
#[test]
fn c27_an_idle_gpu_that_nobody_measures_is_let_fall_asleep() {
    let mut replay = Replay::of("laptop-hybrid", |root| {
        let write = |file: &str, text: &str| {
            fs::write(root.join("sys").join(arc(file)), text).unwrap();
        };
        write("power/control", "auto\n");
        write("power/runtime_status", "active\n");
    });
    let seconds = |replay: &mut Replay, seconds: u32| -> u32 {
        let read = |replay: &mut Replay| {
            replay.clock.advance(Duration::from_secs(1));
            u32::from(replay.value(ARC, Metric::Power).is_some())
        };
        (0..seconds).map(|_| read(replay)).sum()
    };
    assert_eq!(seconds(&mut replay, 60), 60, "somebody measures");
    for source in &mut replay.sources {
        source.measuring(false);
    }
    assert_eq!(seconds(&mut replay, 10), 10);
    assert_eq!(seconds(&mut replay, 5), 0);
    let reason = replay.reason(ARC, Metric::Power).unwrap();
    assert!(reason.starts_with("left alone"), "{reason}");
    for source in &mut replay.sources {
        source.measuring(true);
    }
    assert_eq!(seconds(&mut replay, 5), 5);
}

#[test]
fn c28_a_value_that_cannot_be_is_dropped_with_its_reason() {
    let mut replay = Replay::new("rx580");
    replay.write(&card("hwmon/hwmon2/fan1_input"), "65535\n");
    replay.write(&card("hwmon/hwmon2/temp1_input"), "511000\n");
    assert_eq!(replay.value(CARD, Metric::FanSpeed), None);
    assert_eq!(
        replay.reason(CARD, Metric::FanSpeed).as_deref(),
        Some("tells no value: \"65535\"")
    );
    assert_eq!(
        replay.reason(CARD, Metric::Temperature).as_deref(),
        Some("tells 511 °C, which cannot be")
    );
    assert_eq!(replay.value(CARD, Metric::Power), Some(87.0));
}

#[test]
fn what_is_written_down_reads_the_same_elsewhere() {
    for name in OF_KERNEL.into_iter().chain(["laptop-rtx-a1000", "none"]) {
        let mut replay = Replay::new(name);
        let copied = tempfile::tempdir().unwrap();
        Sensors::new(SystemRoot::at(replay.dir.path()), replay.clock.clone())
            .capture(copied.path())
            .unwrap();
        let mut sources =
            Sensors::new(SystemRoot::at(copied.path()), replay.clock.clone()).sources();
        sources.retain(|source| source.name() != HOST);
        let again: Vec<_> = sources.iter_mut().flat_map(|s| s.sample()).collect();
        assert_eq!(again, replay.sample(), "{name}");
    }
}

/// `amdgpu` tells it in a table of its firmware, `xe` and `i915` in a file that holds 1 while any limit does.
#[test]
fn clocks_held_down_are_told_by_every_driver_that_can() {
    let navi = "0000:0b:00.0";
    let table = "bus/pci/devices/0000-0b-00.0/gpu_metrics";
    let mut replay = Replay::new("navi21");
    assert_eq!(replay.value(navi, Metric::Throttled), Some(0.0));
    copy(&fixture("navi21/later"), replay.dir.path());
    assert_eq!(replay.value(navi, Metric::Throttled), Some(1.0));
    // An Instinct's table of the next version has no such status; nothing else is lost by it.
    let mut bytes = fs::read(fixture("navi21/sys").join(table)).unwrap();
    bytes[3] = 4;
    fs::write(replay.dir.path().join("sys").join(table), bytes).unwrap();
    assert_eq!(replay.value(navi, Metric::Throttled), None);
    assert_eq!(
        replay.reason(navi, Metric::Throttled).as_deref(),
        Some("format v1.4 of `gpu_metrics` tells no throttling that can be read")
    );
    assert_eq!(replay.value(navi, Metric::Power), Some(151.0));
    let mut integrated = Replay::new("laptop-hybrid");
    let i915 = "0000:00:02.0";
    assert_eq!(integrated.value(i915, Metric::Throttled), Some(0.0));
    integrated.write(
        "bus/pci/devices/0000-00-02.0/drm/card1/gt/gt0/throttle_reason_status",
        "1\n",
    );
    assert_eq!(integrated.value(i915, Metric::Throttled), Some(1.0));
    for metric in [Metric::GpuLoad, Metric::VramUsed] {
        let reason = integrated.reason(i915, metric).unwrap();
        assert!(reason.contains("of single programs"), "{reason}");
    }
}

/// Two packages draw 30 W and 12 W; without one of them there is no sum.
#[test]
fn packages_of_the_processor_are_added_or_nothing_is_told() {
    let zone = |n: u32, file: &str| format!("class/powercap/intel-rapl-{n}/{file}");
    let two = |root: &Path| {
        let to = root.join("sys").join(zone(1, ""));
        copy(&root.join("sys").join(zone(0, "")), &to);
        fs::write(to.join("name"), "package-1\n").unwrap();
    };
    let count = |replay: &Replay, [first, second]: [u64; 2]| {
        replay.write(&zone(0, "energy_uj"), &first.to_string());
        replay.write(&zone(1, "energy_uj"), &second.to_string());
    };
    let mut replay = Replay::of("laptop-hybrid", two);
    count(&replay, [1_000_000, 5_000_000]);
    assert_eq!(replay.value(HOST, Metric::CpuPower), None);
    count(&replay, [31_000_000, 17_000_000]);
    replay.clock.advance(Duration::from_secs(1));
    let found = replay.sample();
    let told: Vec<(Metric, f64)> = found
        .into_iter()
        .filter(|(series, _)| series.source == HOST)
        .map(|(series, value)| (series.metric, value))
        .collect();
    assert_eq!(told, [(Metric::CpuPower, 42.0), (Metric::CpuEnergy, 42.0)]);
    let mut one = Replay::of("laptop-hybrid", |root| {
        two(root);
        refuse(root, &zone(1, "energy_uj"));
    });
    assert_eq!(one.value(HOST, Metric::CpuEnergy), None);
    assert!(one.reason(HOST, Metric::CpuPower).is_some());
}

#[test]
fn drivers_tell_where_they_step_in() {
    let critical = |name: &str| -> Vec<(Metric, f64)> {
        let sources = Replay::new(name).sources;
        let all = sources.iter().flat_map(|s| s.critical());
        all.map(|(series, celsius)| (series.metric, celsius))
            .collect()
    };
    assert_eq!(critical("rx580"), [(Metric::Temperature, 94.0)]);
    assert_eq!(
        critical("navi21"),
        [
            (Metric::Temperature, 100.0),
            (Metric::HotSpot, 110.0),
            (Metric::MemoryTemperature, 100.0)
        ]
    );
}

/// An exported machine acts as it: doctor reads its sensors, and exporting it again writes the same files.
#[test]
fn an_exported_machine_brings_its_sensors_along() {
    let machine = tempfile::tempdir().unwrap();
    copy(&fixture("rx580"), machine.path());
    let json = fixture("../machines/rx580-2048sp/machine.json");
    fs::copy(json, machine.path().join("machine.json")).unwrap();
    let data = tempfile::tempdir().unwrap();
    let opened = wiring::open(&wiring::Options {
        data_dir: Some(data.path().to_owned()),
        machine: Some(machine.path().to_owned()),
        access: wiring::Access::Look,
        flux: None,
    })
    .unwrap();
    let found = doctor::findings(None, &opened.ports).unwrap();
    let told = |code: &str| -> Vec<&str> {
        let ours = found.iter().filter(|f| f.code == code);
        ours.map(|f| f.title.as_str()).collect()
    };
    let name = "AMD Radeon RX 580 2048SP";
    assert_eq!(
        told("gpu-load"),
        [format!("{name} is busy with something else: load 99 %")]
    );
    assert_eq!(
        told("sensor-absent")[0],
        format!(
            "{name} does not tell hot spot, memory temperature, throttling: not offered by this device or its driver"
        )
    );
    assert!(told("gpu-hot").is_empty(), "61 of 94 °C");
    let again = tempfile::tempdir().unwrap();
    scan::export(&scan::scan(&opened.ports), again.path(), &opened.ports).unwrap();
    let power = "hwmon/hwmon2/power1_input";
    let copied = fs::read_to_string(again.path().join("sys").join(card(power))).unwrap();
    assert_eq!(copied, "87000000\n");
}
