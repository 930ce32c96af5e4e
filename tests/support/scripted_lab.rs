//! A kernel lab that says what a test scripts: the paper's card (section 4.3), or one that fails.
#![allow(dead_code, reason = "not every test file needs all of it")]

use flux::domain::doctor::{Facts, MemoryBus};
use flux::domain::lab::{
    Card, DispatchSample, Family, Fault, FaultKind, Format, Kernel, KernelResult, LabEvent, Layout,
    Outcome,
};
use flux::domain::telemetry::SeriesId;
use flux::domain::types::Bytes;
use flux::engine::lab::LabDocument;
use flux::ports::{
    CancelMode, CancelToken, Lab, LabRequest, PortError, PortResult, Telemetry, TelemetrySource,
};

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Everything is measured.
    Well,
    /// The card fails after the streaming kernels.
    With(FaultKind),
    /// The user cancels after the streaming kernels.
    Cancelled,
    /// It waits for a cancel after the streaming kernels.
    Waiting,
    /// There is no such card.
    Refused,
}

pub struct ScriptedLab(pub Ends);

/// The card's name, on the machine `rx580-2048sp` and here.
pub const NAME: &str = "AMD Radeon RX 580 2048SP";

/// Sizes measured, MiB.
const SIZES: [u64; 4] = [1, 16, 256, 1024];
/// The paper's figures in bold: naive 2.3, best 197.3, copy 169.4 GB/s.
const LAYOUTS: [(Layout, f64); 8] = [
    (Layout::ThreadPerRow, 2.3),
    (Layout::ThreadPerRowVector, 9.1),
    (Layout::GroupPerRow, 121.0),
    (Layout::GroupPerRowVector, 181.0),
    (Layout::GroupOfSubgroups, 186.0),
    (Layout::SubgroupPerRow, 190.0),
    (Layout::FourRows, 194.0),
    (Layout::SubgroupFourRows, 197.3),
];

pub fn card() -> Card {
    let family = |index, graphics| Family {
        index,
        graphics,
        timestamp_bits: 64,
    };
    Card {
        name: NAME.to_owned(),
        software: false,
        subgroup_size: Some(64),
        f16: false,
        subgroup_sums: true,
        free: Bytes::gib(7),
        used: Bytes::mib(3584),
        peak: None,
        timestamp_period_ns: 40.0,
        families: vec![family(0, true), family(1, false)],
    }
}

/// Seven repetitions round a rate at the largest size, less where starting a kernel counts.
fn measured(kernel: Kernel, mib: u64, rate: f64) -> LabEvent {
    let at_size = rate * 1e9 * mib as f64 / (mib as f64 + 3.0);
    let spread = [0.998, 1.0, 1.001, 0.999, 1.002, 1.0, 0.97];
    event(
        kernel,
        mib,
        Outcome::Measured {
            samples: spread.iter().map(|s| s * at_size).collect(),
            dispatches: 8,
            moved: mib << 20,
        },
    )
}

fn event(kernel: Kernel, mib: u64, outcome: Outcome) -> LabEvent {
    LabEvent::Kernel(KernelResult {
        kernel,
        size: Bytes::mib(mib),
        outcome,
    })
}

fn product(format: Format, layout: Layout, rate: f64, mib: u64) -> LabEvent {
    let kernel = Kernel::MatVec { format, layout };
    match format {
        Format::F16 if !layout.is_vector() => event(
            kernel,
            mib,
            Outcome::Missing {
                feature: "16-bit floats in arithmetic and storage".to_owned(),
            },
        ),
        _ if rate < 5.0 && mib > 256 => event(
            kernel,
            mib,
            Outcome::Skipped {
                reason:
                    "a dispatch would take about 467 ms, more than the 50 ms that leave a desktop in peace"
                        .to_owned(),
            },
        ),
        Format::Q4 => measured(kernel, mib, 0.7 * rate),
        Format::F16 => measured(kernel, mib, 0.98 * rate),
        Format::F32 => measured(kernel, mib, rate),
    }
}

/// Rounds of a driver that costs 5 µs per submission on the universal family and 45 on the other.
fn dispatches() -> Vec<DispatchSample> {
    let mut all = Vec::new();
    for round in 0..8 {
        let wobble = if round % 2 == 0 { 0.3 } else { -0.3 };
        for (family, cost) in [(0, 5.0), (1, 45.0)] {
            for barriers in [true, false] {
                for (submissions, dispatches) in [(1, 1), (64, 1), (1, 64), (8, 8), (8, 1)] {
                    let (m, n) = (f64::from(submissions), f64::from(dispatches));
                    let each = if barriers { 6.0 } else { 4.0 };
                    let us = 80.0 + (cost + wobble) * m + (each + wobble / 10.0) * m * n;
                    all.push(DispatchSample {
                        family,
                        round,
                        barriers,
                        submissions,
                        dispatches,
                        host_secs: us * 1e-6,
                        device_secs: Some((us - 60.0) * 1e-6),
                    });
                }
            }
        }
    }
    all
}

/// A real lab as `flux lab --json` printed it, told again.
pub struct RecordedLab(pub LabDocument);

impl RecordedLab {
    /// One under `tests/recorded`.
    pub fn load(name: &str) -> Self {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/recorded")
            .join(name);
        let text = std::fs::read_to_string(file).unwrap();
        Self(serde_json::from_str(&text).unwrap())
    }
}

impl Lab for RecordedLab {
    fn measure(
        &self,
        _: &LabRequest,
        _: &CancelToken,
        tell: &mut dyn FnMut(LabEvent),
    ) -> PortResult<()> {
        let report = self.0.report.clone();
        tell(LabEvent::Card(report.card.unwrap()));
        for kernel in report.kernels {
            tell(LabEvent::Kernel(kernel));
        }
        tell(LabEvent::Dispatches(report.dispatches));
        for notice in report.notices {
            tell(LabEvent::Notice(notice));
        }
        Ok(())
    }
}

/// Sensors whose owner tells the memory of the card: 2 × 3500 MHz × 256 bits are the paper's 224 GB/s.
pub struct ItsMemory;

impl Telemetry for ItsMemory {
    fn sources(&self) -> Vec<Box<dyn TelemetrySource>> {
        vec![Box::new(Self)]
    }
}

impl TelemetrySource for ItsMemory {
    fn name(&self) -> &'static str {
        "its memory"
    }

    fn sample(&mut self) -> Vec<(SeriesId, f64)> {
        Vec::new()
    }

    fn tell(&self, facts: &mut Facts) {
        facts.memories.push(MemoryBus {
            pci: "0000:01:00.0".parse().unwrap(),
            mhz: 3500,
            bits: 256,
        });
    }
}

impl Lab for ScriptedLab {
    fn measure(
        &self,
        _: &LabRequest,
        cancel: &CancelToken,
        tell: &mut dyn FnMut(LabEvent),
    ) -> PortResult<()> {
        if self.0 == Ends::Refused {
            return Err(PortError::new(
                "there is no GPU to measure; Vulkan lists none",
            ));
        }
        tell(LabEvent::Card(card()));
        tell(LabEvent::Step {
            done: 1,
            total: 4,
            doing: "copy".to_owned(),
        });
        for (kernel, rate) in [
            (Kernel::Copy, 169.4),
            (Kernel::Read, 195.0),
            (Kernel::Write, 175.0),
        ] {
            for mib in SIZES {
                tell(measured(kernel, mib, rate));
            }
        }
        match self.0 {
            Ends::With(kind) => {
                tell(LabEvent::Fault(Fault {
                    kind,
                    detail: "vkQueueSubmit: the device was lost".to_owned(),
                }));
                return Ok(());
            }
            Ends::Cancelled => cancel.cancel(CancelMode::AfterSample),
            Ends::Waiting => {
                while !cancel.is_cancelled() {
                    std::thread::yield_now();
                }
            }
            Ends::Well | Ends::Refused => {}
        }
        if cancel.is_cancelled() {
            return Ok(());
        }
        for format in Format::ALL {
            for (layout, rate) in LAYOUTS {
                for mib in SIZES {
                    tell(product(format, layout, rate, mib));
                }
            }
        }
        tell(LabEvent::Dispatches(dispatches()));
        Ok(())
    }
}
