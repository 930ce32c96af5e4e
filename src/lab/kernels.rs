//! Kernels against memory: every kernel at every size, checked, then timed.

use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::domain::lab::{Format, Kernel as Id, KernelResult, LabEvent, Layout, Outcome};
use crate::domain::types::Bytes;
use crate::ports::{CancelToken, LabRequest};
use crate::vulkan::{Bound, Gpu, GpuError, Kernel, Kind, Queue, Shader};

use super::buffers::Buffers;
use super::data::{COLUMNS, Tile, vector, weighted_sum};
use super::{FREE_SHARE, fault, shaders};

/// Steps of progress: one per kernel.
pub(super) const STEPS: u64 = 3 + (Format::ALL.len() * Layout::ALL.len()) as u64;

/// The smallest size, in the caches of any card.
const SMALLEST: u64 = 1 << 20;
/// From one size to the next.
const LADDER: u64 = 4;
/// The same in a quick lab.
const QUICK_LADDER: u64 = 32;
/// Repetitions that count.
const REPETITIONS: u32 = 7;
/// The same in a quick lab.
const QUICK_REPETITIONS: u32 = 3;
/// A repetition dispatches as often as fits into this: clocks of microseconds and the start of a submission must not count.
const REPETITION: f64 = 5e-3;
/// Longest submission, seconds. A desktop's watchdog resets a card that is silent for two seconds (Windows' default), and
/// its picture stutters long before.
const BUDGET: f64 = 50e-3;
/// Most dispatches of one repetition.
const MAX_DISPATCHES: f64 = 512.0;
/// A card that slept needs about this long to raise its clocks.
const WARM_UP: Duration = Duration::from_millis(300);
/// Invocations of a streaming kernel's work group, as its shader says.
const GROUP: u64 = 256;
/// 16-byte vectors that one invocation of a streaming kernel takes.
const VECTORS: u64 = 4;
/// Not a number, so that a row nobody wrote is found out.
const NOTHING: u32 = 0x7fc0_0000;
/// What the writing kernel writes.
const WORD: u32 = 0x9e37_79b9;

/// Measures every kernel in the lab's share of the device's memory.
pub(super) fn measure(
    gpu: &Gpu,
    queue: &mut Queue,
    request: &LabRequest,
    steps: u64,
    cancel: &CancelToken,
    tell: &mut dyn FnMut(LabEvent),
) -> Result<(), GpuError> {
    let mut bench = Bench::new(gpu, queue, request, cancel)?;
    let size = bench.buffers.size;
    if size < request.largest.0 {
        tell(LabEvent::Notice(format!(
            "the largest size is {}: half of the free memory, or what the driver gives in one piece",
            Bytes(size)
        )));
    }
    bench.load(Format::F32)?;
    bench.warm_up()?;
    let mut loaded = Format::F32;
    for (done, kernel) in (0..).zip(Id::all()) {
        if cancel.is_cancelled() {
            return Ok(());
        }
        tell(LabEvent::Step {
            done,
            total: steps,
            doing: kernel.to_string(),
        });
        if let Id::MatVec { format, .. } = kernel
            && format != loaded
        {
            bench.load(format)?;
            loaded = format;
        }
        bench.kernel(kernel, tell)?;
    }
    Ok(())
}

/// Sizes of the ladder that fit into `largest`, and that itself.
fn sizes(largest: u64, quick: bool) -> Vec<u64> {
    let factor = if quick { QUICK_LADDER } else { LADDER };
    let mut sizes: Vec<u64> =
        std::iter::successors(Some(SMALLEST), |size| size.checked_mul(factor))
            .take_while(|size| *size < largest)
            .collect();
    sizes.push(largest);
    sizes
}

struct Bench<'a> {
    gpu: &'a Gpu,
    queue: &'a mut Queue,
    buffers: Buffers,
    sizes: Vec<u64>,
    rng: Rng,
    x: Vec<f32>,
    /// What the source is filled with.
    tile: Tile,
    repetitions: u32,
    cancel: &'a CancelToken,
}

/// One kernel at one size, ready to run.
struct Case<'a> {
    bound: Bound<'a>,
    immediates: Vec<u32>,
    groups: u32,
    /// Bytes that one dispatch moves.
    moved: u64,
}

impl<'a> Bench<'a> {
    /// Takes its memory and makes the vector.
    fn new(
        gpu: &'a Gpu,
        queue: &'a mut Queue,
        request: &LabRequest,
        cancel: &'a CancelToken,
    ) -> Result<Self, GpuError> {
        let most = gpu.physical.free(Kind::Device) / FREE_SHARE;
        let mut buffers = Buffers::new(gpu, request.largest.0, most)?;
        let mut rng = Rng::with_seed(request.seed);
        let x = vector(&mut rng);
        let bytes: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
        buffers.set_x(queue, &bytes)?;
        Ok(Self {
            gpu,
            queue,
            sizes: sizes(buffers.size, request.quick),
            buffers,
            tile: Tile::new(Format::F32, &x, &mut rng),
            rng,
            x,
            repetitions: if request.quick {
                QUICK_REPETITIONS
            } else {
                REPETITIONS
            },
            cancel,
        })
    }

    /// Fills the memory with a new matrix.
    fn load(&mut self, format: Format) -> Result<(), GpuError> {
        self.tile = Tile::new(format, &self.x, &mut self.rng);
        self.buffers.fill_source(self.queue, &self.tile.weights)?;
        if self.tile.scales.is_empty() {
            return Ok(());
        }
        self.buffers.fill_target(self.queue, &self.tile.scales)
    }

    fn warm_up(&mut self) -> Result<(), GpuError> {
        let size = self.sizes[0];
        let begun = Instant::now();
        while begun.elapsed() < WARM_UP && !self.cancel.is_cancelled() {
            let (from, to) = (&self.buffers.source, &self.buffers.target);
            // A target that holds scales is filled again with them: this runs before any is loaded.
            self.queue.submit(|r| r.copy((from, 0), (to, 0), size))?;
        }
        Ok(())
    }

    /// One kernel at every size. What goes wrong with it alone is its result; a device that is gone ends the lab.
    fn kernel(&mut self, id: Id, tell: &mut dyn FnMut(LabEvent)) -> Result<(), GpuError> {
        let sizes = self.sizes.clone();
        let mut result = |size: u64, outcome: Outcome| {
            tell(LabEvent::Kernel(KernelResult {
                kernel: id,
                size: Bytes(size),
                outcome,
            }));
        };
        let kernel = match missing(id, self.gpu) {
            Some(feature) => Err(GpuError::Missing(feature)),
            None => compile(self.gpu, id),
        };
        let kernel = match kernel {
            Ok(kernel) => kernel,
            Err(error) => {
                let outcome = failure(error)?;
                for size in sizes {
                    result(size, outcome.clone());
                }
                return Ok(());
            }
        };
        // Seconds per byte at the size before.
        let mut pace = None;
        for size in sizes {
            if self.cancel.is_cancelled() {
                break;
            }
            let outcome = match too_slow(pace, size) {
                Some(reason) => Outcome::Skipped { reason },
                None => match self.at(id, &kernel, size) {
                    Ok((outcome, secs)) => {
                        pace = Some(secs / size as f64);
                        outcome
                    }
                    Err(error) => failure(error).inspect_err(|lost| {
                        result(size, Outcome::Failed(fault(lost)));
                    })?,
                },
            };
            result(size, outcome);
        }
        Ok(())
    }

    /// Runs once, checks, then times; also the seconds of one dispatch.
    fn at(&mut self, id: Id, kernel: &Kernel, size: u64) -> Result<(Outcome, f64), GpuError> {
        let Self {
            gpu,
            queue,
            buffers,
            tile,
            repetitions,
            cancel,
            ..
        } = self;
        queue.submit(|r| r.fill(&buffers.y, NOTHING))?;
        let case = case(gpu, buffers, id, kernel, size)?;
        let first = run(queue, &case, 1)?;
        if let Err(detail) = check(gpu, queue, buffers, tile, id, size)? {
            return Ok((Outcome::Wrong { detail }, first));
        }
        let once = run(queue, &case, 1)?;
        let dispatches = (REPETITION / once).clamp(1.0, MAX_DISPATCHES).floor();
        let mut samples = Vec::new();
        while samples.len() < *repetitions as usize && !cancel.is_cancelled() {
            let secs = run(queue, &case, dispatches as u32)?;
            samples.push(case.moved as f64 * dispatches / secs);
        }
        let outcome = Outcome::Measured {
            samples,
            dispatches: dispatches as u32,
            moved: case.moved,
        };
        Ok((outcome, once))
    }
}

/// A failure as a result, unless the device is gone.
fn failure(error: GpuError) -> Result<Outcome, GpuError> {
    match error {
        GpuError::Lost(_) | GpuError::Timeout(_) => Err(error),
        GpuError::Missing(feature) => Ok(Outcome::Missing {
            feature: feature.to_owned(),
        }),
        other => Ok(Outcome::Failed(fault(&other))),
    }
}

/// Why a dispatch at this size would take too long, judged by the size before.
fn too_slow(pace: Option<f64>, size: u64) -> Option<String> {
    let expected = pace? * size as f64;
    (expected > BUDGET).then(|| {
        format!(
            "a dispatch would take about {:.0} ms, more than the {:.0} ms that leave a desktop in peace",
            expected * 1e3,
            BUDGET * 1e3
        )
    })
}

/// What the card lacks for a kernel.
fn missing(id: Id, gpu: &Gpu) -> Option<&'static str> {
    let features = gpu.physical.features;
    let Id::MatVec { format, layout } = id else {
        return None;
    };
    if layout.needs_subgroups() && !features.subgroup_sums {
        return Some("sums over a sub-group");
    }
    // Vector loads unpack halves from words.
    let types = format == Format::F16 && !layout.is_vector();
    (types && !features.f16).then_some("16-bit floats in arithmetic and storage")
}

fn compile(gpu: &Gpu, id: Id) -> Result<Kernel, GpuError> {
    let (buffers, immediates) = match id {
        Id::Copy | Id::Read => (2, 1),
        Id::Write => (1, 2),
        Id::MatVec { format, .. } => (if format == Format::Q4 { 4 } else { 3 }, 2),
    };
    let shader = Shader {
        wgsl: &shaders::source(id),
        buffers,
        immediates,
    };
    Kernel::new(gpu, &shader)
}

fn case<'a>(
    gpu: &Gpu,
    buffers: &'a Buffers,
    id: Id,
    kernel: &'a Kernel,
    size: u64,
) -> Result<Case<'a>, GpuError> {
    let most = u64::from(gpu.physical.max_groups);
    let vectors = size / 16;
    let streaming = |buffers: &[(&'a crate::vulkan::Buffer, u64)], more: &[u32], times: u64| {
        let groups = vectors.div_ceil(GROUP * VECTORS).min(most);
        let mut immediates = vec![vectors as u32];
        immediates.extend(more);
        Ok(Case {
            bound: kernel.bind(buffers)?,
            immediates,
            groups: groups as u32,
            moved: times * 16 * vectors,
        })
    };
    let Buffers {
        source,
        target,
        x,
        y,
        ..
    } = buffers;
    match id {
        Id::Copy => streaming(&[(source, size), (target, size)], &[], 2),
        Id::Read => {
            let sums = 4 * vectors.div_ceil(GROUP * VECTORS).min(most);
            streaming(&[(source, size), (y, sums)], &[], 1)
        }
        Id::Write => streaming(&[(target, size)], &[WORD], 1),
        Id::MatVec { format, layout } => {
            let rows = rows(format, size);
            let weights = rows * weight_bytes(format);
            let scales = rows * scale_bytes(format);
            let mut bound = vec![(source, weights), (x, 4 * COLUMNS), (y, 4 * rows)];
            if scales > 0 {
                bound.push((target, scales));
            }
            let lanes = gpu.physical.subgroup_size.unwrap_or(1);
            let groups = rows
                .div_ceil(shaders::rows_per_group(layout, lanes))
                .min(most);
            let chunks = COLUMNS / shaders::chunk(format, layout.is_vector());
            Ok(Case {
                bound: kernel.bind(&bound)?,
                immediates: vec![rows as u32, chunks as u32],
                groups: groups as u32,
                moved: weights + scales + 4 * COLUMNS + 4 * rows,
            })
        }
    }
}

/// Whole rows in so many bytes.
fn rows(format: Format, size: u64) -> u64 {
    size / format.row_bytes(COLUMNS)
}

const fn scale_bytes(format: Format) -> u64 {
    match format {
        Format::F32 | Format::F16 => 0,
        Format::Q4 => COLUMNS / 32 * 2,
    }
}

const fn weight_bytes(format: Format) -> u64 {
    format.row_bytes(COLUMNS) - scale_bytes(format)
}

/// Seconds of one dispatch or several, each after the other.
fn run(queue: &mut Queue, case: &Case, dispatches: u32) -> Result<f64, GpuError> {
    let timing = queue.submit(|r| {
        for _ in 0..dispatches {
            r.dispatch(&case.bound, &case.immediates, case.groups);
            r.barrier();
        }
    })?;
    Ok(timing.best())
}

/// Is what the kernel left in memory what the processor expects?
fn check(
    gpu: &Gpu,
    queue: &mut Queue,
    buffers: &Buffers,
    tile: &Tile,
    id: Id,
    size: u64,
) -> Result<Result<(), String>, GpuError> {
    let words = size / 16 * 4;
    let expected = match id {
        Id::MatVec { format, .. } => {
            let y = buffers.result(queue, 4 * rows(format, size))?;
            return Ok(tile.check(&y));
        }
        Id::Copy | Id::Read => weighted_sum(&tile.weights, words),
        Id::Write => weighted_sum(&WORD.to_le_bytes(), words),
    };
    let mut groups = (size / 16).div_ceil(GROUP * VECTORS);
    groups = groups.min(u64::from(gpu.physical.max_groups));
    if id != Id::Read {
        // The reading kernel reads what was written.
        let reader = compile(gpu, Id::Read)?;
        let bound = reader.bind(&[(&buffers.target, size), (&buffers.y, 4 * groups)])?;
        queue.submit(|r| r.dispatch(&bound, &[(size / 16) as u32], groups as u32))?;
    }
    let sums = buffers.result(queue, 4 * groups)?;
    let sum = sums.as_chunks::<4>().0.iter().fold(0u32, |sum, bytes| {
        sum.wrapping_add(u32::from_le_bytes(*bytes))
    });
    Ok(if sum == expected {
        Ok(())
    } else {
        Err(format!(
            "the weighted sum of its words is {sum:#010x}, the processor's {expected:#010x}"
        ))
    })
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::lab::tests::{opened, request};

    /// The memory holds another matrix than the processor's: every kernel that reads it is found out, and not timed.
    #[test]
    fn a_kernel_whose_result_is_not_the_processors_is_wrong() {
        let (vulkan, physical) = opened();
        let gpu = Gpu::open(&vulkan, physical.into(), &[0]).unwrap();
        let mut queue = Queue::new(&gpu, &gpu.physical.families[0]).unwrap();
        let cancel = CancelToken::new();
        let mut bench = Bench::new(&gpu, &mut queue, &request(), &cancel).unwrap();
        bench.load(Format::F32).unwrap();
        bench.tile = Tile::new(Format::F32, &bench.x, &mut Rng::with_seed(7));
        let product = Id::MatVec {
            format: Format::F32,
            layout: Layout::FourRows,
        };
        for (kernel, wrong) in [
            (Id::Copy, Some("the weighted sum of its words is ")),
            (Id::Read, Some("the weighted sum of its words is ")),
            (product, Some("row 0 is ")),
            (Id::Write, None),
        ] {
            let mut found = None;
            bench
                .kernel(kernel, &mut |event| {
                    if let LabEvent::Kernel(result) = event {
                        found = Some(result.outcome);
                    }
                })
                .unwrap();
            match (found.unwrap(), wrong) {
                (Outcome::Wrong { detail }, Some(why)) => {
                    assert!(detail.starts_with(why), "{detail}");
                }
                (Outcome::Measured { .. }, None) => {}
                other => panic!("{kernel}: {other:?}"),
            }
        }
    }
}
