//! NVIDIA's GPUs by the answers of their management library: recorded ones, and what goes wrong with it (cases C24, C25,
//! C27, C28).
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/captured.rs"]
mod captured;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flux::domain::doctor::Facts;
use flux::domain::telemetry::{Metric, SeriesId};
use flux::domain::types::PciAddress;
use flux::ports::{Clock, TelemetrySource};
use flux::probe::SystemRoot;
use flux::telemetry::NvmlSource;
use flux::telemetry::nvml::{Answers, Missing, Opener, Question, Recorded, Refusal, User};

use captured::{TestClock, fixture};

const CARD: &str = "0000:01:00.0";
const H200: &str = "0000:00:06.0";

/// A library whose answers change, which counts how often it was started and what it was asked.
#[derive(Default)]
struct Library {
    recorded: Mutex<Recorded>,
    users: Mutex<Vec<User>>,
    asked: Mutex<BTreeMap<Question, usize>>,
    open: AtomicUsize,
    started: AtomicUsize,
}

/// One start of it.
struct Started(Arc<Library>);

impl Drop for Started {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Answers for Started {
    fn gpus(&self) -> Vec<PciAddress> {
        self.0.recorded.lock().unwrap().gpus()
    }

    fn ask(&self, gpu: usize, question: Question) -> Result<u64, Refusal> {
        *self.0.asked.lock().unwrap().entry(question).or_default() += 1;
        self.0.recorded.lock().unwrap().ask(gpu, question)
    }

    fn users(&self, _: usize) -> Vec<User> {
        self.0.users.lock().unwrap().clone()
    }
}

impl Library {
    fn of(name: &str) -> Arc<Self> {
        Arc::new(Self {
            recorded: Mutex::new(Recorded::load(&fixture(name)).unwrap()),
            ..Self::default()
        })
    }

    fn opener(self: &Arc<Self>) -> Opener {
        let library = Arc::clone(self);
        Box::new(move || {
            library.started.fetch_add(1, Ordering::SeqCst);
            library.open.fetch_add(1, Ordering::SeqCst);
            Ok(Box::new(Started(Arc::clone(&library))))
        })
    }

    fn set(&self, question: Question, answer: Result<u64, Refusal>) {
        self.recorded
            .lock()
            .unwrap()
            .set(CARD, question, Some(answer));
    }

    fn asked(&self, question: Question) -> usize {
        self.asked
            .lock()
            .unwrap()
            .get(&question)
            .copied()
            .unwrap_or(0)
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst) > 0
    }

    /// On a machine whose kernel knows no GPU, as Windows.
    fn source(self: &Arc<Self>) -> NvmlSource {
        let root = SystemRoot::at(fixture("none"));
        NvmlSource::below(&root, &clock(), self.opener()).unwrap()
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(TestClock::default())
}

fn value(found: &[(SeriesId, f64)], metric: Metric) -> Option<f64> {
    let ours = |(series, _): &&(SeriesId, f64)| series.metric == metric;
    found.iter().find(ours).map(|(_, value)| *value)
}

fn reason(source: &NvmlSource, metric: Metric) -> Option<String> {
    let mut absent = source.absent().into_iter();
    absent.find(|a| a.series.metric == metric).map(|a| a.reason)
}

#[test]
fn every_recorded_gpu_reads_as_its_library_answered() {
    for name in ["rtx4090", "laptop-rtx-a1000", "h200"] {
        let mut source = Library::of(name).source();
        let mut text = String::new();
        let mut show = |title: &str, found: &[(SeriesId, f64)]| {
            writeln!(text, "{title}").unwrap();
            for (series, value) in found {
                let (metric, unit) = (series.metric.title(), series.metric.unit());
                writeln!(text, "  {} {metric}: {value:.3} {unit}", series.source).unwrap();
            }
        };
        show("sample", &source.sample());
        show("boundary", &source.at_boundary());
        show("critical", &source.critical());
        writeln!(text, "absent").unwrap();
        for absent in source.absent() {
            let (gpu, metric) = (absent.series.source, absent.series.metric.title());
            writeln!(text, "  {gpu} {metric}: {}", absent.reason).unwrap();
        }
        insta::assert_snapshot!(name, text);
    }
}

/// `nvidia-smi -q` of the H200 at the same moment: 122.97 W, 1980 and 3201 MHz, 35 and 34 °C, generation 5 by 16 lanes,
/// idle the only reason of its clocks.
#[test]
fn the_h200_reads_as_nvidia_smi_showed_it() {
    let found = Library::of("h200").source().sample();
    assert!(found.iter().all(|(series, _)| series.source == H200));
    for (metric, shown) in [
        (Metric::Power, 122.97),
        (Metric::CoreClock, 1980.0),
        (Metric::MemoryClock, 3201.0),
        (Metric::Temperature, 35.0),
        (Metric::MemoryTemperature, 34.0),
        (Metric::Throttled, 0.0),
        (Metric::LinkGeneration, 5.0),
        (Metric::LinkLanes, 16.0),
    ] {
        assert_eq!(value(&found, metric), Some(shown), "{metric:?}");
    }
    assert_eq!(value(&found, Metric::FanLoad), None, "it has no fan");
}

/// RTX A1000, driver 580.159.03: power is refused while temperature (83), load and memory are told.
#[test]
fn c24_power_that_is_refused_is_absent_remembered_and_loses_no_other() {
    let library = Library::of("laptop-rtx-a1000");
    let mut source = library.source();
    let found = source.sample();
    assert_eq!(value(&found, Metric::Power), None, "and not 0 W");
    assert_eq!(value(&found, Metric::Temperature), Some(83.0));
    assert_eq!(value(&found, Metric::GpuLoad), Some(97.0));
    assert_eq!(value(&found, Metric::VramUsed), Some(3_221_225_472.0));
    assert_eq!(value(&found, Metric::Throttled), Some(1.0), "by heat");
    assert!(source.at_boundary().is_empty());
    for metric in [Metric::Power, Metric::Energy] {
        let told = reason(&source, metric);
        assert_eq!(told.as_deref(), Some("not supported by this GPU"));
    }
    for _ in 0..10 {
        source.sample();
        source.at_boundary();
    }
    for question in [
        Question::PowerInstant,
        Question::PowerAverage,
        Question::Energy,
    ] {
        assert_eq!(
            library.asked(question),
            1,
            "{question:?} once and never again"
        );
    }
}

#[test]
fn c24_a_refusal_of_the_moment_is_asked_again() {
    let library = Library::of("rtx4090");
    let mut source = library.source();
    library.set(
        Question::PowerInstant,
        Err(Refusal::Other("no data".to_owned())),
    );
    assert_eq!(value(&source.sample(), Metric::Power), None);
    assert_eq!(
        reason(&source, Metric::Power).as_deref(),
        Some("cannot be read: no data")
    );
    library.set(Question::PowerInstant, Ok(90_500));
    assert_eq!(value(&source.sample(), Metric::Power), Some(90.5));
    assert_eq!(reason(&source, Metric::Power), None);
}

fn failing(missing: Missing) -> Opener {
    Box::new(move || Err(missing.clone()))
}

#[test]
fn c25_no_library_is_no_sensor_and_a_mismatch_says_reboot() {
    let none = SystemRoot::at(fixture("none"));
    assert!(NvmlSource::below(&none, &clock(), failing(Missing::NoLibrary)).is_none());
    assert!(NvmlSource::below(&none, &clock(), failing(Missing::Mismatch)).is_none());
    // A GPU that the kernel knows.
    let laptop = SystemRoot::at(fixture("laptop-rtx-a1000"));
    let mut source = NvmlSource::below(&laptop, &clock(), failing(Missing::Mismatch)).unwrap();
    assert!(source.sample().is_empty() && source.at_boundary().is_empty());
    let absent = source.absent();
    assert!(absent.iter().any(|a| a.series.metric == Metric::Power));
    for sensor in absent {
        assert_eq!(sensor.series.source, CARD);
        assert_eq!(
            sensor.reason,
            "driver and library are of different versions: reboot after the driver update"
        );
    }
}

/// The momentary value is preferred over the average of a second, and which one was taken stays so.
#[test]
fn c28_power_is_the_momentary_value_and_energy_is_the_counter() {
    let library = Library::of("rtx4090");
    let mut source = library.source();
    let found = source.sample();
    assert_eq!(value(&found, Metric::Power), Some(286.4));
    assert_eq!(
        value(&found, Metric::Energy),
        None,
        "it is slow: not every tick"
    );
    assert_eq!(library.asked(Question::Energy), 0);
    assert_eq!(library.asked(Question::PowerAverage), 0);
    // 5123456.789 J at first; 1.5 kJ later.
    assert_eq!(value(&source.at_boundary(), Metric::Energy), Some(0.0));
    library.set(Question::Energy, Ok(5_124_956_789));
    assert_eq!(value(&source.at_boundary(), Metric::Energy), Some(1_500.0));
    // The driver was loaded anew.
    library.set(Question::Energy, Ok(2_000));
    assert_eq!(value(&source.at_boundary(), Metric::Energy), Some(1_500.0));
    // An older driver knows the average alone.
    let older = Library::of("rtx4090");
    older.set(Question::PowerInstant, Err(Refusal::TooOld));
    let mut source = older.source();
    for _ in 0..3 {
        assert_eq!(value(&source.sample(), Metric::Power), Some(284.912));
    }
    assert_eq!(older.asked(Question::PowerInstant), 1);
    assert_eq!(reason(&source, Metric::Power), None);
}

#[test]
fn c28_0_w_at_work_and_numbers_that_stand_for_none_are_dropped() {
    let library = Library::of("rtx4090");
    let mut source = library.source();
    library.set(Question::PowerInstant, Ok(0));
    library.set(Question::Temperature, Ok(u64::from(u32::MAX)));
    for _ in 0..8 {
        let found = source.sample();
        assert_eq!(value(&found, Metric::Power), None);
        assert_eq!(value(&found, Metric::Temperature), None);
    }
    assert_eq!(
        reason(&source, Metric::Power).as_deref(),
        Some("always 0 W, even at work")
    );
}

/// A laptop's GPU: its files in a folder that can change, its library counted.
struct Laptop {
    dir: tempfile::TempDir,
    clock: Arc<TestClock>,
    library: Arc<Library>,
    source: NvmlSource,
}

impl Laptop {
    fn new(status: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let device = dir
            .path()
            .join("sys/bus/pci/devices")
            .join(CARD.replace(':', "-"));
        fs::create_dir_all(device.join("power")).unwrap();
        for file in ["vendor", "class", "power/control"] {
            let from = fixture("laptop-rtx-a1000/sys/bus/pci/devices/0000-01-00.0").join(file);
            fs::copy(from, device.join(file)).unwrap();
        }
        fs::write(device.join("power/runtime_status"), status).unwrap();
        let library = Library::of("laptop-rtx-a1000");
        let clock = Arc::new(TestClock::default());
        let as_clock: Arc<dyn Clock> = clock.clone();
        let source =
            NvmlSource::below(&SystemRoot::at(dir.path()), &as_clock, library.opener()).unwrap();
        Self {
            dir,
            clock,
            library,
            source,
        }
    }

    fn status(&self, text: &str) {
        let device = self
            .dir
            .path()
            .join("sys/bus/pci/devices")
            .join(CARD.replace(':', "-"));
        fs::write(device.join("power/runtime_status"), text).unwrap();
    }

    /// Readings at four a second for so long; how many had any.
    fn run(&mut self, secs: u64) -> usize {
        let tick = |this: &mut Self| {
            this.clock.advance(Duration::from_millis(250));
            !this.source.sample().is_empty()
        };
        (0..4 * secs).filter(|_| tick(self)).count()
    }
}

#[test]
fn c27_a_sleeping_gpu_is_not_woken_and_read_when_it_wakes() {
    let mut laptop = Laptop::new("suspended\n");
    assert_eq!(laptop.run(60), 0);
    assert_eq!(laptop.library.started.load(Ordering::SeqCst), 0);
    assert!(
        reason(&laptop.source, Metric::Temperature)
            .unwrap()
            .starts_with("asleep")
    );
    laptop.status("active\n");
    assert_eq!(laptop.run(1), 4);
}

#[test]
fn c27_a_gpu_without_work_is_let_go_so_that_it_can_sleep_unless_somebody_measures() {
    let mut laptop = Laptop::new("active\n");
    laptop.source.measuring(false);
    assert_eq!(laptop.run(60), 240, "at work all the time");
    laptop.library.set(Question::GpuLoad, Ok(0));
    laptop.run(11);
    assert!(!laptop.library.is_open());
    assert!(
        reason(&laptop.source, Metric::Power)
            .unwrap()
            .starts_with("left alone")
    );
    laptop.status("suspended\n");
    assert_eq!(laptop.run(60), 0, "it fell asleep, and is not woken");
    laptop.status("active\n");
    assert_eq!(laptop.run(1), 4);
    laptop.source.measuring(true);
    assert_eq!(laptop.run(60), 240);
    assert!(laptop.library.is_open());
}

/// What a GPU is used for by others, and a link narrower than it could be, without this process.
#[test]
fn doctor_hears_of_others_on_the_gpu_and_of_a_narrow_link() {
    let library = Library::of("rtx4090");
    library.set(Question::LinkWidth, Ok(4));
    let user = |pid, program: &str, bytes| User {
        pid,
        program: program.to_owned(),
        bytes,
    };
    *library.users.lock().unwrap() = vec![
        user(std::process::id(), "flux", 1 << 30),
        user(4242, "python3", 3 << 30),
    ];
    let mut facts = Facts::default();
    library.source().tell(&mut facts);
    let users: Vec<_> = facts
        .gpu_users
        .iter()
        .map(|u| (u.program.as_str(), u.vram.0))
        .collect();
    assert_eq!(users, [("python3", 3 << 30)]);
    assert_eq!((facts.links[0].lanes, facts.links[0].most), (4, 16));
}

/// NVIDIA's own figure for the card is 1008 GB/s: GDDR6X at 10501 MHz on 384 bits.
#[test]
fn a_memory_s_clock_and_width_give_its_theoretical_bandwidth() {
    let library = Library::of("rtx4090");
    let mut facts = Facts::default();
    library.source().tell(&mut facts);
    assert_eq!(facts.memories, [], "not asked when it was captured");
    library.set(Question::MostMemoryClock, Ok(10_501));
    library.set(Question::MemoryBus, Ok(384));
    library.source().tell(&mut facts);
    let peak = facts.memories[0].bytes_per_sec();
    assert!((peak / 1e9 - 1008.0).abs() < 0.2, "{peak}");
}

#[test]
fn answers_written_down_read_the_same() {
    for name in ["rtx4090", "h200"] {
        let recorded = Recorded::load(&fixture(name)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        Recorded::of(&recorded).save(dir.path()).unwrap();
        let again = Recorded::load(dir.path()).unwrap();
        for question in Question::ALL {
            assert_eq!(
                again.ask(0, question),
                recorded.ask(0, question),
                "{question:?}"
            );
        }
    }
    assert_eq!(Recorded::load(&fixture("rx580")), None);
}
