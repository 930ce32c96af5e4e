//! NVIDIA's GPUs, as the driver's management library (NVML) tells of them on Linux, WSL and Windows.
//!
//! Power is the momentary value where the driver tells one, else `nvidia-smi`'s, which Ampere and later average over a
//! second. Hopper measures for 25 of every 100 ms only (Yang et al., SC24): energy is taken from the counter.

mod card;
mod library;
mod question;
mod recorded;

use std::sync::Arc;
use std::time::Duration;

use crate::domain::doctor::{Facts, GpuUser, Link};
use crate::domain::machine::VENDOR_NVIDIA;
use crate::domain::telemetry::{AbsentSensor, Metric, SeriesId};
use crate::domain::types::{Bytes, PciAddress};
use crate::ports::{Clock, TelemetrySource};
use crate::system_root::SystemRoot;

use super::files::Files;
use super::gpu::{ASLEEP, Gpu};
use card::Card;

pub use library::{Library, Missing};
pub use question::{Question, Refusal};
pub use recorded::Recorded;

/// Its name in messages.
const NAME: &str = "nvml";
/// A GPU that may sleep is let go after so long without work: an open library keeps it awake (case C27).
const IDLE: Duration = Duration::from_secs(10);
/// One that was let go sleeps by then, or somebody else uses it.
const FALLS_ASLEEP: Duration = Duration::from_secs(3);

/// A program on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its process.
    pub pid: u32,
    /// Its file's name; empty where another user's is not told.
    pub program: String,
    /// Memory it holds there, bytes.
    pub bytes: u64,
}

/// Whoever answers for NVIDIA's GPUs: the library, or a record of it.
pub trait Answers: Send {
    /// The GPUs, in the order of their numbers.
    fn gpus(&self) -> Vec<PciAddress>;

    /// One number of a GPU.
    ///
    /// # Errors
    /// It is not told, for now or for good.
    fn ask(&self, gpu: usize, question: Question) -> Result<u64, Refusal>;

    /// Programs that hold memory of a GPU, as far as this user may see.
    fn users(&self, _gpu: usize) -> Vec<User> {
        Vec::new()
    }
}

/// Starts whoever answers.
pub type Opener = Box<dyn FnMut() -> Result<Box<dyn Answers>, Missing> + Send>;

/// Starts the driver's library.
pub fn live() -> Opener {
    Box::new(|| Ok(Box::new(Library::open()?)))
}

/// Starts a record of it; without one there is no library.
pub fn replay(recorded: Option<Recorded>) -> Opener {
    Box::new(move || {
        let answers = recorded.clone().ok_or(Missing::NoLibrary)?;
        Ok(Box::new(answers))
    })
}

/// Whether somebody answers.
enum State {
    /// Not yet, or not any more so that a GPU may sleep: since when.
    Closed(Option<Duration>),
    Open(Box<dyn Answers>),
    Missing(Missing),
}

/// All of NVIDIA's GPUs here.
pub struct NvmlSource {
    opener: Opener,
    state: State,
    cards: Vec<Card>,
    /// What the kernel tells of them: where they are, and whether they sleep.
    kernel: Vec<Gpu>,
    /// The driver lets one of them sleep when it is not used.
    may_sleep: bool,
    /// When one of them was at work last.
    busy: Duration,
    clock: Arc<dyn Clock>,
}

impl NvmlSource {
    /// [`NvmlSource::open`] below a root.
    pub fn below(root: &SystemRoot, clock: &Arc<dyn Clock>, opener: Opener) -> Option<Self> {
        Self::open(&Files::of(root), clock, opener)
    }

    /// Those that the kernel or the library knows; `None` without any. Where the kernel knows one, the library is started
    /// with the first reading.
    pub(super) fn open(files: &Files, clock: &Arc<dyn Clock>, opener: Opener) -> Option<Self> {
        let kernel = Gpu::find(files, VENDOR_NVIDIA, &[]);
        let auto = |gpu: &Gpu| files.text(&gpu.file("power/control")).as_deref() == Some("auto");
        let card = |gpu: &Gpu| Card::new(gpu.address());
        let mut source = Self {
            opener,
            state: State::Closed(None),
            cards: kernel.iter().map(card).collect(),
            may_sleep: kernel.iter().any(auto),
            kernel,
            busy: clock.elapsed(),
            clock: Arc::clone(clock),
        };
        // Windows and WSL list no PCI devices there: the library alone knows.
        if source.kernel.is_empty() {
            source.start();
        }
        (!source.cards.is_empty()).then_some(source)
    }

    fn start(&mut self) {
        self.busy = self.clock.elapsed();
        self.state = match (self.opener)() {
            Err(missing) => State::Missing(missing),
            Ok(answers) => {
                for address in answers.gpus() {
                    if self
                        .cards
                        .iter()
                        .all(|card| card.address() != address.to_string())
                    {
                        self.cards.push(Card::new(&address.to_string()));
                    }
                }
                State::Open(answers)
            }
        };
    }

    /// Starts the library where that wakes no GPU.
    fn look(&mut self) {
        let State::Closed(let_go) = self.state else {
            return;
        };
        // All are looked at: each remembers what it was.
        let sleeps = |asleep, gpu: &mut Gpu| gpu.sleeps() || asleep;
        let asleep = self.kernel.iter_mut().fold(false, sleeps);
        let falls_asleep = let_go.is_some_and(|at| self.clock.elapsed() < at + FALLS_ASLEEP);
        if !asleep && !falls_asleep {
            self.start();
        }
    }

    /// Ends the library where that lets a GPU sleep that nobody uses.
    fn let_go(&mut self, readings: &[(SeriesId, f64)]) {
        let State::Open(answers) = &self.state else {
            return;
        };
        let at_work =
            |(series, load): &(SeriesId, f64)| series.metric == Metric::GpuLoad && *load > 0.0;
        let now = self.clock.elapsed();
        if !self.may_sleep || readings.iter().any(at_work) {
            self.busy = now;
        } else if now >= self.busy + IDLE {
            self.busy = now;
            let used = |gpu| !answers.users(gpu).is_empty();
            if !(0..answers.gpus().len()).any(used) {
                self.state = State::Closed(Some(now));
            }
        }
    }

    /// Asks about every GPU that answers.
    fn each<T>(&mut self, mut ask: impl FnMut(&mut Card, &dyn Answers, usize) -> T) -> Vec<T> {
        let State::Open(answers) = &self.state else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (place, address) in answers.gpus().into_iter().enumerate() {
            let address = address.to_string();
            if let Some(card) = self.cards.iter_mut().find(|card| card.address() == address) {
                found.push(ask(card, answers.as_ref(), place));
            }
        }
        found
    }
}

impl TelemetrySource for NvmlSource {
    fn name(&self) -> &'static str {
        NAME
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        self.look();
        let found = self.each(Card::sample).concat();
        self.let_go(&found);
        found
    }

    fn at_boundary(&mut self) -> Vec<(SeriesId, f64)> {
        // Something runs, or is about to: nothing is woken for the sensors' sake.
        if matches!(self.state, State::Closed(_)) {
            self.start();
        }
        self.each(Card::energy).into_iter().flatten().collect()
    }

    fn critical(&self) -> Vec<(SeriesId, f64)> {
        let State::Open(answers) = &self.state else {
            return Vec::new();
        };
        let of = |(place, address): (usize, PciAddress)| {
            let celsius = answers.ask(place, Question::Slowdown).ok()?;
            let series = SeriesId {
                source: address.to_string(),
                metric: Metric::Temperature,
            };
            Some((series, celsius as f64))
        };
        answers
            .gpus()
            .into_iter()
            .enumerate()
            .filter_map(of)
            .collect()
    }

    fn tell(&self, facts: &mut Facts) {
        let State::Open(answers) = &self.state else {
            return;
        };
        for (place, pci) in answers.gpus().into_iter().enumerate() {
            let number = |question| answers.ask(place, question).ok();
            let widths = number(Question::LinkWidth).zip(number(Question::MostLinkWidth));
            let link = |(lanes, most)| Link { pci, lanes, most };
            facts.links.extend(widths.map(link));
            let own = std::process::id();
            let others = answers
                .users(place)
                .into_iter()
                .filter(|user| user.pid != own);
            facts.gpu_users.extend(others.map(|user| GpuUser {
                pci,
                program: user.program,
                vram: Bytes(user.bytes),
            }));
        }
    }

    fn absent(&self) -> Vec<AbsentSensor> {
        let reason = match &self.state {
            State::Closed(_) => Some(ASLEEP.to_owned()),
            State::Missing(missing) => Some(missing.to_string()),
            State::Open(_) => None,
        };
        let absent = |card: &Card| card.absent(reason.as_deref());
        self.cards.iter().flat_map(absent).collect()
    }
}
