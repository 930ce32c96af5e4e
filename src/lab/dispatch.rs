//! The queue-family experiment (paper section 4.2): small dispatches, in few submissions or in many, on each family that
//! computes, interleaved A-B-B-A so that drift falls on all alike.

use crate::domain::lab::{DispatchSample, LabEvent};
use crate::ports::CancelToken;
use crate::vulkan::{Buffer, Family, Gpu, GpuError, Kernel, Kind, Queue, Shader};

use super::shaders;

/// Steps of progress.
pub(super) const STEPS: u64 = 1;

/// Submissions, and dispatches in each: few and large against many and small, and a middle, so that a cost per submission
/// is told from one per dispatch. All take milliseconds at most.
const SERIES: [(u32, u32); 5] = [(1, 1), (64, 1), (1, 64), (8, 8), (8, 1)];
/// Rounds, each with every series on every family; rounds are what the intervals come from.
const ROUNDS: u32 = 16;
/// The same in a quick lab.
const QUICK_ROUNDS: u32 = 8;
/// Counters of one dispatch, as the shader says.
const COUNTERS: u64 = 64;
/// Slots: every dispatch of the longest series has its own, so that none waits for another.
const SLOTS: u64 = 64;

/// One family at work.
struct Bench {
    family: Family,
    queue: Queue,
    counters: Buffer,
    down: Buffer,
}

/// Times every series on every family.
pub(super) fn measure(
    gpu: &Gpu,
    quick: bool,
    steps: u64,
    cancel: &CancelToken,
    tell: &mut dyn FnMut(LabEvent),
) -> Result<(), GpuError> {
    tell(LabEvent::Step {
        done: steps - STEPS,
        total: steps,
        doing: "dispatches on each queue family".to_owned(),
    });
    let shader = Shader {
        wgsl: shaders::DISPATCH,
        buffers: 1,
        immediates: 1,
    };
    let kernel = Kernel::new(gpu, &shader)?;
    let mut benches = Vec::new();
    for family in &gpu.physical.families {
        let mut bench = Bench::new(gpu, *family)?;
        bench.check(&kernel, tell)?;
        benches.push(bench);
    }
    let rounds = if quick { QUICK_ROUNDS } else { ROUNDS };
    for round in 0..rounds {
        // A-B-B-A B-A-A-B, for any number of families.
        let turned = matches!(round % 4, 1 | 2);
        for at in 0..benches.len() {
            let at = if turned { benches.len() - 1 - at } else { at };
            if cancel.is_cancelled() {
                return Ok(());
            }
            let samples = benches[at].round(&kernel, round)?;
            tell(LabEvent::Dispatches(samples));
        }
    }
    Ok(())
}

impl Bench {
    fn new(gpu: &Gpu, family: Family) -> Result<Self, GpuError> {
        let size = 4 * COUNTERS * SLOTS;
        Ok(Self {
            family,
            queue: Queue::new(gpu, &family)?,
            counters: Buffer::new(gpu, Kind::Device, size)?,
            down: Buffer::new(gpu, Kind::Download, size)?,
        })
    }

    /// Every series, with barriers and without.
    fn round(&mut self, kernel: &Kernel, round: u32) -> Result<Vec<DispatchSample>, GpuError> {
        let mut samples = Vec::new();
        for barriers in [true, false] {
            for (submissions, dispatches) in SERIES {
                samples.push(self.series(kernel, round, barriers, submissions, dispatches)?);
            }
        }
        Ok(samples)
    }

    fn series(
        &mut self,
        kernel: &Kernel,
        round: u32,
        barriers: bool,
        submissions: u32,
        dispatches: u32,
    ) -> Result<DispatchSample, GpuError> {
        let Self {
            family,
            queue,
            counters,
            ..
        } = self;
        let bound = kernel.bind(&[(counters, 4 * COUNTERS * SLOTS)])?;
        let timing = queue.submit_each(submissions, |r, submission| {
            for dispatch in 0..dispatches {
                // With a barrier after each, all may count in the same place.
                let slot = if barriers {
                    0
                } else {
                    submission * dispatches + dispatch
                };
                r.dispatch(&bound, &[slot], 1);
                if barriers {
                    r.barrier();
                }
            }
        })?;
        Ok(DispatchSample {
            family: family.index,
            round,
            barriers,
            submissions,
            dispatches,
            host_secs: timing.host_secs,
            device_secs: timing.device_secs,
        })
    }

    /// Runs every series once, which warms up, and counts: with barriers all 64 counters of slot 0 have seen every dispatch,
    /// without, every slot has seen its own.
    fn check(&mut self, kernel: &Kernel, tell: &mut dyn FnMut(LabEvent)) -> Result<(), GpuError> {
        let size = 4 * COUNTERS * SLOTS;
        self.queue.submit(|r| r.fill(&self.counters, 0))?;
        self.round(kernel, 0)?;
        self.queue
            .submit(|r| r.copy((&self.counters, 0), (&self.down, 0), size))?;
        let found = self.down.read(size as usize)?;
        let wrong = found
            .as_chunks::<4>()
            .0
            .iter()
            .zip((0..SLOTS as u32).flat_map(|slot| [slot; COUNTERS as usize]))
            .find(|(bytes, slot)| u32::from_le_bytes(**bytes) != counted(*slot));
        if let Some((bytes, slot)) = wrong {
            tell(LabEvent::Notice(format!(
                "dispatches on {} do not add up: a counter of slot {slot} is {}, not {}",
                super::family(&self.family).words(),
                u32::from_le_bytes(*bytes),
                counted(slot)
            )));
        }
        Ok(())
    }
}

/// Dispatches of one round that count in a slot.
fn counted(slot: u32) -> u32 {
    let totals = SERIES.map(|(submissions, dispatches)| submissions * dispatches);
    let own = totals.iter().filter(|total| slot < **total).count() as u32;
    if slot == 0 {
        totals.iter().sum::<u32>() + own
    } else {
        own
    }
}
