//! NVIDIA's GPUs, as the driver's management library (NVML) tells of them on Linux, WSL and Windows.
//!
//! Power is the momentary value where the driver tells one, else `nvidia-smi`'s, which Ampere and later average over a
//! second. Hopper measures for 25 of every 100 ms only (Yang et al., SC24): energy is taken from the counter.

mod card;
mod library;
mod question;
mod recorded;

use std::sync::Arc;

use crate::domain::doctor::{Facts, GpuUser, Link, MemoryBus};
use crate::domain::machine::VENDOR_NVIDIA;
use crate::domain::telemetry::{AbsentSensor, Metric, SeriesId};
use crate::domain::types::{Bytes, PciAddress};
use crate::ports::{Clock, TelemetrySource};
use crate::system_root::SystemRoot;

use super::files::Files;
use super::gpu::Gpu;
use card::Card;

pub use library::{Library, Missing};
pub use question::{Question, Refusal};
pub use recorded::Recorded;

/// Its name in messages.
const NAME: &str = "nvml";

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
    /// Not now.
    Closed,
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
}

impl NvmlSource {
    /// `open` below a root.
    pub fn below(root: &SystemRoot, clock: &Arc<dyn Clock>, opener: Opener) -> Option<Self> {
        Self::open(&Files::of(root), clock, opener)
    }

    /// Those that the kernel or the library knows; `None` without any. Where the kernel knows one, the library is started
    /// with the first reading.
    pub(super) fn open(files: &Files, clock: &Arc<dyn Clock>, opener: Opener) -> Option<Self> {
        let kernel = Gpu::find(files, clock, VENDOR_NVIDIA, &[]);
        let mut source = Self {
            opener,
            state: State::Closed,
            cards: kernel.iter().map(|gpu| Card::new(gpu.address())).collect(),
            kernel,
        };
        // Windows and WSL list no PCI devices there: the library alone knows.
        if source.kernel.is_empty() {
            source.start();
        }
        (!source.cards.is_empty()).then_some(source)
    }

    fn start(&mut self) {
        self.state = match (self.opener)() {
            Err(missing) => State::Missing(missing),
            Ok(answers) => {
                for address in answers.gpus() {
                    let address = address.to_string();
                    if self.cards.iter().all(|card| card.address() != address) {
                        self.cards.push(Card::new(&address));
                    }
                }
                State::Open(answers)
            }
        };
    }

    /// Starts the library, or ends it while a GPU sleeps or is to fall asleep: an open one wakes all, and keeps them awake
    /// (case C27).
    fn look(&mut self) {
        let is_quiet = |any, gpu: &mut Gpu| gpu.is_quiet() || any;
        let quiet = self.kernel.iter_mut().fold(false, is_quiet);
        match self.state {
            State::Open(_) if quiet => self.state = State::Closed,
            State::Closed if !quiet => self.start(),
            _ => {}
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
        if matches!(self.state, State::Open(_)) {
            for gpu in &mut self.kernel {
                let load = |(series, _): &&(SeriesId, f64)| {
                    series.metric == Metric::GpuLoad && series.source == gpu.address()
                };
                let load = found.iter().find(load).map(|(_, load)| *load);
                gpu.was_read(load);
            }
        }
        found
    }

    fn at_boundary(&mut self) -> Vec<(SeriesId, f64)> {
        // Something runs, or is about to: nothing is woken for the sensors' sake.
        if matches!(self.state, State::Closed) {
            self.start();
        }
        self.each(Card::energy).into_iter().flatten().collect()
    }

    fn measuring(&mut self, measuring: bool) {
        for gpu in &mut self.kernel {
            gpu.measuring(measuring);
        }
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
            let memory = number(Question::MostMemoryClock).zip(number(Question::MemoryBus));
            let memory = memory.map(|(mhz, bits)| MemoryBus { pci, mhz, bits });
            facts.memories.extend(memory);
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
        let missing = match &self.state {
            State::Missing(missing) => Some(missing.to_string()),
            State::Closed | State::Open(_) => None,
        };
        let mut found = Vec::new();
        for card in &self.cards {
            let gpu = self
                .kernel
                .iter()
                .find(|gpu| gpu.address() == card.address());
            let quiet = gpu.and_then(Gpu::quiet);
            found.extend(card.absent(missing.as_deref().or(quiet)));
        }
        found
    }
}
