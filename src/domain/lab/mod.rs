//! What a card can do by itself (paper sections 4.2 and 4.3): the bandwidth its memory gives to kernels of different
//! layouts, and what a dispatch and a submission cost on each of its queue families.

mod queues;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::types::{Bytes, Timestamp};

pub use queues::{Clock, Costs, DispatchSample, Estimate, Finding, QueueFindings};

/// Format of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// Blocks of 32 four-bit weights with one 16-bit scale, 18 bytes each: ggml's `Q4_0`, scales and nibbles apart.
    Q4,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Q4];

    /// Bytes of `columns` weights, a multiple of 32.
    pub const fn row_bytes(self, columns: u64) -> u64 {
        match self {
            Self::F32 => 4 * columns,
            Self::F16 => 2 * columns,
            Self::Q4 => columns / 32 * 18,
        }
    }

    /// Its usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q4 => "q4_0",
        }
    }
}

/// Which invocation of a kernel takes which part of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// One invocation per row, the smallest loads: the naive way.
    ThreadPerRow,
    /// One invocation per row, loads of 16 bytes.
    ThreadPerRowVector,
    /// A work group per row, the smallest loads.
    GroupPerRow,
    /// A work group per row, loads of 16 bytes.
    GroupPerRowVector,
    /// A work group per row, its sub-groups sum up first.
    GroupOfSubgroups,
    /// A sub-group per row.
    SubgroupPerRow,
    /// A work group for four rows.
    FourRows,
    /// A sub-group for four rows.
    SubgroupFourRows,
}

impl Layout {
    /// All of them, the naive one first.
    pub const ALL: [Self; 8] = [
        Self::ThreadPerRow,
        Self::ThreadPerRowVector,
        Self::GroupPerRow,
        Self::GroupPerRowVector,
        Self::GroupOfSubgroups,
        Self::SubgroupPerRow,
        Self::FourRows,
        Self::SubgroupFourRows,
    ];

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::ThreadPerRow => "thread per row",
            Self::ThreadPerRowVector => "thread per row, 16-byte loads",
            Self::GroupPerRow => "work group per row",
            Self::GroupPerRowVector => "work group per row, 16-byte loads",
            Self::GroupOfSubgroups => "work group of sub-groups per row",
            Self::SubgroupPerRow => "sub-group per row",
            Self::FourRows => "work group for four rows",
            Self::SubgroupFourRows => "sub-group for four rows",
        }
    }

    /// It sums over sub-groups.
    pub const fn needs_subgroups(self) -> bool {
        matches!(
            self,
            Self::GroupOfSubgroups | Self::SubgroupPerRow | Self::SubgroupFourRows
        )
    }

    /// It loads 16 bytes at once.
    pub const fn is_vector(self) -> bool {
        !matches!(self, Self::ThreadPerRow | Self::GroupPerRow)
    }
}

/// A kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "kebab-case")]
pub enum Kernel {
    /// Streaming copy; each byte is read and written, both count.
    Copy,
    /// Reading, summed up.
    Read,
    /// Writing a constant.
    Write,
    /// A matrix times a vector; matrix, vector and result count once each.
    MatVec {
        /// Format of the matrix.
        format: Format,
        /// Layout.
        layout: Layout,
    },
}

impl Kernel {
    /// Every kernel, in the order they are measured.
    pub fn all() -> Vec<Self> {
        let products = Format::ALL
            .into_iter()
            .flat_map(|format| Layout::ALL.map(|layout| Self::MatVec { format, layout }));
        [Self::Copy, Self::Read, Self::Write]
            .into_iter()
            .chain(products)
            .collect()
    }

    /// It reads only, as decoding does.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::MatVec { .. })
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy => f.write_str("copy"),
            Self::Read => f.write_str("read"),
            Self::Write => f.write_str("write"),
            Self::MatVec { format, layout } => {
                write!(f, "matrix-vector {}, {}", format.name(), layout.words())
            }
        }
    }
}

/// How a card or its driver failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The driver gave the device up.
    DeviceLost,
    /// The memory does not hold what was asked for.
    OutOfMemory,
    /// It did not come to an end.
    Timeout,
    /// The driver crashed.
    Crash,
    /// Anything else.
    Other,
}

/// A failure, as a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Kind.
    pub kind: FaultKind,
    /// In words, with the call that failed.
    pub detail: String,
}

/// What came of a kernel at a size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// Right, and measured.
    Measured {
        /// Bytes per second of every repetition, in order; none is dropped.
        samples: Vec<f64>,
        /// Dispatches in one repetition.
        dispatches: u32,
        /// Bytes moved by one dispatch.
        moved: u64,
    },
    /// Its result is not the processor's: its speed says nothing.
    Wrong {
        /// Where and by how much.
        detail: String,
    },
    /// The card cannot run it.
    Missing {
        /// What it lacks.
        feature: String,
    },
    /// Not run.
    Skipped {
        /// Why.
        reason: String,
    },
    /// It failed.
    Failed(Fault),
}

/// A kernel at a size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelResult {
    /// Kernel.
    #[serde(flatten)]
    pub kernel: Kernel,
    /// Bytes it works on, of the matrix or of one of the two buffers of a copy; a matrix has a whole number of rows and
    /// may be some rows smaller.
    pub size: Bytes,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl KernelResult {
    /// Bandwidth with its spread.
    pub fn rate(&self) -> Option<Rate> {
        Rate::of(self.samples())
    }

    /// Bytes per second of every repetition behind it.
    pub fn samples(&self) -> &[f64] {
        match &self.outcome {
            Outcome::Measured { samples, .. } => samples,
            _ => &[],
        }
    }
}

/// Repetitions in brief, bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Fastest repetition.
    pub best: f64,
    /// Median.
    pub median: f64,
    /// Slowest repetition.
    pub slowest: f64,
}

impl Rate {
    fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (slowest, best) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Self {
            best,
            median,
            slowest,
        })
    }
}

/// A queue family that computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    /// Vulkan's index.
    pub index: u32,
    /// It draws too: the universal family.
    pub graphics: bool,
    /// Valid bits of its timestamps, 0 without.
    pub timestamp_bits: u32,
}

impl Family {
    /// `graphics + compute (family 0)`.
    pub fn words(self) -> String {
        let kind = if self.graphics {
            "graphics + compute"
        } else {
            "compute only"
        };
        format!("{kind} (family {})", self.index)
    }
}

/// The card measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// Vulkan's name, numbered where several have it.
    pub name: String,
    /// It is a software renderer: its memory is RAM.
    pub software: bool,
    /// Lanes of a sub-group.
    pub subgroup_size: Option<u32>,
    /// 16-bit floats in storage and arithmetic.
    pub f16: bool,
    /// Sums over a sub-group.
    pub subgroup_sums: bool,
    /// Memory that was free.
    pub free: Bytes,
    /// Most of it that was used.
    pub used: Bytes,
    /// Theoretical bandwidth, bytes per second, where clock and width of the memory are known.
    pub peak: Option<f64>,
    /// Nanoseconds of one step of its clock.
    pub timestamp_period_ns: f64,
    /// Its queue families that compute; the kernels ran on the first.
    pub families: Vec<Family>,
}

/// One thing that a lab says while it works.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabEvent {
    /// The card was chosen.
    Card(Card),
    /// A step begins.
    Step {
        /// Steps done.
        done: u64,
        /// Steps in all.
        total: u64,
        /// The step, in a few words.
        doing: String,
    },
    /// A kernel was measured at a size.
    Kernel(KernelResult),
    /// Dispatches were timed.
    Dispatches(Vec<DispatchSample>),
    /// Worth saying.
    Notice(String),
    /// The card failed; nothing comes after it.
    Fault(Fault),
}

/// Four times the largest last-level cache of a card today, the 256 MiB of AMD's MI300: what is read here comes from
/// memory.
pub const BEYOND_CACHES: Bytes = Bytes(1 << 30);

/// Everything measured of one card.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LabReport {
    /// When it began.
    pub measured_at: Timestamp,
    /// The card; `None` when none could be opened.
    pub card: Option<Card>,
    /// Every kernel at every size, in order.
    pub kernels: Vec<KernelResult>,
    /// Every timed series of dispatches, in order.
    pub dispatches: Vec<DispatchSample>,
    /// Worth saying.
    pub notices: Vec<String>,
    /// How it ended early.
    pub fault: Option<Fault>,
}

impl LabReport {
    /// Nothing measured yet.
    pub fn begun(measured_at: Timestamp) -> Self {
        Self {
            measured_at,
            ..Self::default()
        }
    }

    /// Takes in what was said.
    pub fn record(&mut self, event: LabEvent) {
        match event {
            LabEvent::Card(card) => self.card = Some(card),
            LabEvent::Step { .. } => {}
            LabEvent::Kernel(result) => self.kernels.push(result),
            LabEvent::Dispatches(samples) => self.dispatches.extend(samples),
            LabEvent::Notice(text) => self.notices.push(text),
            LabEvent::Fault(fault) => self.fault = Some(fault),
        }
    }

    /// The fastest reading kernel at the largest size measured: what decoding can get of the card's memory at best. The
    /// median counts: the best of several is a lucky one.
    pub fn best_read(&self) -> Option<(&KernelResult, Rate)> {
        let of = |r: &'_ KernelResult| r.rate().filter(|_| r.kernel.reads());
        let measured = self.kernels.iter().filter(|r| of(r).is_some());
        let largest = measured.map(|r| r.size).max()?;
        self.kernels
            .iter()
            .filter(|r| r.size == largest)
            .filter_map(|r| Some((r, of(r)?)))
            .max_by(|a, b| a.1.median.total_cmp(&b.1.median))
    }

    /// Results of one kernel, by size.
    pub fn of(&self, kernel: Kernel) -> impl Iterator<Item = &KernelResult> {
        self.kernels.iter().filter(move |r| r.kernel == kernel)
    }

    /// Its kernels, the fastest first, by their median at the largest size each was measured at; those without one last.
    pub fn ranked(&self) -> Vec<Kernel> {
        let median = |kernel| {
            let rates = self.of(kernel).filter_map(KernelResult::rate);
            rates.last().map_or(0.0, |rate| rate.median)
        };
        let mut all = Kernel::all();
        all.retain(|kernel| self.of(*kernel).next().is_some());
        all.sort_by(|a, b| median(*b).total_cmp(&median(*a)));
        all
    }

    /// What its dispatches say of its queue families; `None` before any was timed.
    pub fn queues(&self) -> Option<QueueFindings> {
        let families = &self.card.as_ref()?.families;
        QueueFindings::of(families, &self.dispatches)
    }
}

#[cfg(test)]
mod tests;
