//! Vulkan asked in a process of its own: a driver brings tens of megabytes (Mesa's LLVM) and memory of the GPU that
//! would stay in a measuring Flux, and one that crashes or hangs takes only that process with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::domain::doctor::Facts;
use crate::domain::types::{Host, Machine, Runtime, VulkanReport, VulkanStatus};
use crate::ports::{CancelToken, MachineProbe, PortResult};
use crate::probe::{MachineReader, vulkan};
use crate::runtime::process::{EndReason, Ended, Flow, Spec, run};

/// The word that makes `flux` print what Vulkan says, and nothing else.
pub const VULKAN_REPORT: &str = "vulkan-report";

/// A driver that starts for the first time after an update takes seconds; one that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(20);

/// This machine, its Vulkan devices read by another `flux`.
pub(super) struct VulkanApart {
    reader: MachineReader,
    flux: PathBuf,
}

impl VulkanApart {
    pub(super) fn new(flux: PathBuf) -> Self {
        Self {
            reader: MachineReader::new(),
            flux,
        }
    }

    fn report(&self) -> VulkanReport {
        let mut spec = Spec::new(&self.flux);
        spec.args.push(VULKAN_REPORT.into());
        spec.time_limit = Some(LIMIT);
        let ended = run(&spec, &CancelToken::new(), &mut |_| Flow::Continue);
        // A `flux` that cannot be started again, or is replaced by an update just now, is no reason to see no GPU.
        ended
            .ok()
            .and_then(|ended| read(&ended))
            .unwrap_or_else(vulkan::report)
    }
}

/// The report, or that the driver failed; `None` where the answer is no `flux`'s.
fn read(ended: &Ended) -> Option<VulkanReport> {
    let failed = match (ended.reason, ended.signal) {
        (EndReason::TimedOut, _) => format!("it did not answer within {} s", LIMIT.as_secs()),
        (_, Some(signal)) => format!("it crashed (signal {signal})"),
        _ => return serde_json::from_str(&ended.stdout).ok(),
    };
    Some(VulkanReport {
        status: VulkanStatus::NoDriver {
            detail: format!("a Vulkan driver of this machine is broken: {failed}"),
        },
        entries: Vec::new(),
    })
}

impl MachineProbe for VulkanApart {
    fn machine(&self) -> Machine {
        self.reader.machine_with(self.report())
    }

    fn host(&self) -> Host {
        self.reader.host()
    }

    fn facts(&self, data_dir: &Path) -> Facts {
        self.reader.facts(data_dir)
    }

    fn export(&self, machine: &Machine, runtimes: &[Runtime], dir: &Path) -> PortResult<PathBuf> {
        self.reader.export(machine, runtimes, dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(reason: EndReason, signal: Option<i32>, stdout: &str) -> Ended {
        Ended {
            reason,
            exit_code: signal.is_none().then_some(0),
            signal,
            stdout: stdout.to_owned(),
            stderr: String::new(),
            wall: Duration::ZERO,
        }
    }

    #[test]
    fn a_report_crosses_unchanged() {
        let report = VulkanReport {
            status: VulkanStatus::NoLoader {
                detail: "none".to_owned(),
            },
            entries: Vec::new(),
        };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(read(&ended(EndReason::Exited, None, &text)), Some(report));
    }

    #[test]
    fn a_driver_that_crashes_or_hangs_is_no_driver_and_says_so() {
        for (reason, signal, said) in [
            (EndReason::Exited, Some(11), "it crashed (signal 11)"),
            (
                EndReason::TimedOut,
                Some(9),
                "it did not answer within 20 s",
            ),
        ] {
            let report = read(&ended(reason, signal, "")).unwrap();
            let VulkanStatus::NoDriver { detail } = report.status else {
                panic!("{:?}", report.status)
            };
            assert!(detail.ends_with(said), "{detail}");
        }
    }

    #[test]
    fn another_programs_answer_is_none() {
        assert_eq!(
            read(&ended(EndReason::Exited, None, "running 0 tests")),
            None
        );
    }
}
