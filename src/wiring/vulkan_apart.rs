//! Vulkan asked, and its devices measured, in a process of its own: a driver brings tens of megabytes (Mesa's LLVM) and memory of the GPU that
//! would stay in a measuring Flux, and one that crashes or hangs takes only that process with it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::bandwidth::vulkan::InProcess;
use crate::bandwidth::{Devices, DevicesReport, DevicesRequest};
use crate::domain::doctor::Facts;
use crate::domain::lab::{Fault, FaultKind, LabEvent};
use crate::domain::types::{Host, Machine, Runtime, VulkanReport, VulkanStatus};
use crate::lab;
use crate::ports::{CancelToken, Lab, LabRequest, MachineProbe, PortError, PortResult};
use crate::probe::{MachineReader, vulkan};
use crate::runtime::process::{EndReason, Ended, Event, Flow, Spec, run};

/// The word that makes `flux` print what Vulkan says, and nothing else.
pub const VULKAN_REPORT: &str = "vulkan-report";

/// The word that makes it measure the Vulkan devices, followed by the request as JSON.
pub const VULKAN_BANDWIDTH: &str = "vulkan-bandwidth";

/// The word that makes it run the kernel lab, followed by the request as JSON: one event a line, between whatever drivers
/// print.
pub const VULKAN_LAB: &str = "vulkan-lab";

/// A driver that starts for the first time after an update takes seconds; one that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(20);
/// As long again for the copies themselves, of which a slow card's take a second or two.
const MEASURE_LIMIT: Duration = Duration::from_secs(40);

/// A lab of a fast card takes a quarter of a minute; a lab that takes longer than this hangs somewhere.
const LAB_LIMIT: Duration = Duration::from_mins(5);

/// A `flux` to ask.
#[derive(Debug, Clone)]
struct Apart(PathBuf);

/// What came of asking.
#[derive(Debug, PartialEq)]
enum Answer<T> {
    /// The answer.
    Given(T),
    /// The driver took the process down: how.
    Broken(String),
    /// Not a `flux`'s answer: it could not be started again, or is replaced by an update just now.
    None,
}

impl Apart {
    fn ask<T: DeserializeOwned>(
        &self,
        args: &[&str],
        limit: Duration,
        cancel: &CancelToken,
    ) -> Answer<T> {
        let mut spec = Spec::new(&self.0);
        spec.args.extend(args.iter().map(OsString::from));
        spec.time_limit = Some(limit);
        // The measurement is asked every few milliseconds whether anybody still waits for it.
        let mut watch = |_: Event| {
            if cancel.is_cancelled() {
                Flow::Stop
            } else {
                Flow::Continue
            }
        };
        run(&spec, cancel, &mut watch).map_or(Answer::None, |ended| read(&ended, limit))
    }
}

/// What the process said, or how its driver failed.
fn read<T: DeserializeOwned>(ended: &Ended, limit: Duration) -> Answer<T> {
    match (ended.reason, ended.signal) {
        (EndReason::TimedOut, _) => {
            Answer::Broken(format!("it did not answer within {} s", limit.as_secs()))
        }
        (EndReason::Exited, Some(signal)) => {
            Answer::Broken(format!("it crashed (signal {signal})"))
        }
        _ => serde_json::from_str(&ended.stdout).map_or(Answer::None, Answer::Given),
    }
}

fn broken(how: &str) -> String {
    format!("a Vulkan driver of this machine is broken: {how}")
}

/// This machine, its Vulkan devices read by another `flux`.
pub(super) struct VulkanApart {
    reader: MachineReader,
    apart: Apart,
}

impl VulkanApart {
    pub(super) fn new(flux: PathBuf) -> Self {
        Self {
            reader: MachineReader::new(),
            apart: Apart(flux),
        }
    }

    fn report(&self) -> VulkanReport {
        let never = CancelToken::new();
        // A missing answer is no reason to see no GPU.
        match self.apart.ask(&[VULKAN_REPORT], LIMIT, &never) {
            Answer::Given(report) => report,
            Answer::Broken(how) => no_driver(&how),
            Answer::None => vulkan::report(),
        }
    }
}

fn no_driver(how: &str) -> VulkanReport {
    VulkanReport {
        status: VulkanStatus::NoDriver {
            detail: broken(how),
        },
        entries: Vec::new(),
    }
}

/// Devices measured by another `flux`.
pub(super) struct DevicesApart(Apart);

impl DevicesApart {
    pub(super) fn new(flux: PathBuf) -> Self {
        Self(Apart(flux))
    }
}

impl Devices for DevicesApart {
    fn measure(&self, request: &DevicesRequest, cancel: &CancelToken) -> DevicesReport {
        let Ok(asked) = serde_json::to_string(request) else {
            return InProcess.measure(request, cancel);
        };
        match self
            .0
            .ask(&[VULKAN_BANDWIDTH, &asked], MEASURE_LIMIT, cancel)
        {
            _ if cancel.is_cancelled() => DevicesReport::default(),
            Answer::Given(report) => report,
            Answer::Broken(how) => DevicesReport {
                paths: Vec::new(),
                notices: vec![format!("no GPU was measured: {}", broken(&how))],
            },
            Answer::None => InProcess.measure(request, cancel),
        }
    }
}

/// The kernel lab in another `flux`.
pub(super) struct LabApart(PathBuf);

impl LabApart {
    pub(super) fn new(flux: PathBuf) -> Self {
        Self(flux)
    }
}

impl Lab for LabApart {
    fn measure(
        &self,
        request: &LabRequest,
        cancel: &CancelToken,
        tell: &mut dyn FnMut(LabEvent),
    ) -> PortResult<()> {
        let Ok(asked) = serde_json::to_string(request) else {
            return lab::InProcess.measure(request, cancel, tell);
        };
        let mut spec = Spec::new(&self.0);
        spec.args = vec![VULKAN_LAB.into(), asked.into()];
        spec.time_limit = Some(LAB_LIMIT);
        let mut told = 0;
        let mut watch = |event: Event| {
            // While Vulkan is asked, stdout goes where stderr does.
            if let Event::Line(_, line) = event
                && let Ok(event) = serde_json::from_str::<LabEvent>(line)
            {
                told += 1;
                tell(event);
            }
            if cancel.is_cancelled() {
                Flow::Stop
            } else {
                Flow::Continue
            }
        };
        let Ok(ended) = run(&spec, cancel, &mut watch) else {
            return lab::InProcess.measure(request, cancel, tell);
        };
        match lab_end(&ended, told) {
            LabEnd::Fine => Ok(()),
            LabEnd::Fault(fault) => {
                tell(LabEvent::Fault(fault));
                Ok(())
            }
            LabEnd::Refused(why) => Err(PortError::new(why)),
        }
    }
}

/// How a lab's process ended.
#[derive(Debug, PartialEq)]
enum LabEnd {
    /// By itself, or because nobody waits for it any more.
    Fine,
    /// The driver took it down.
    Fault(Fault),
    /// It could not begin: why.
    Refused(String),
}

fn lab_end(ended: &Ended, told: usize) -> LabEnd {
    let broken = |kind, how: &str| {
        LabEnd::Fault(Fault {
            kind,
            detail: broken(how),
        })
    };
    match (ended.reason, ended.signal, ended.exit_code) {
        (EndReason::TimedOut, ..) => {
            let how = format!("it did not end within {} s", LAB_LIMIT.as_secs());
            broken(FaultKind::Timeout, &how)
        }
        (EndReason::Cancelled | EndReason::Stopped, ..) | (_, None, Some(0)) => LabEnd::Fine,
        (_, Some(signal), _) => broken(FaultKind::Crash, &format!("it crashed (signal {signal})")),
        (_, None, code) if told > 0 => {
            let code = code.map_or_else(|| "unknown".to_owned(), |code| code.to_string());
            broken(FaultKind::Crash, &format!("it ended with status {code}"))
        }
        _ => {
            let said = ended.stderr.lines().find_map(|l| l.strip_prefix("error: "));
            LabEnd::Refused(said.unwrap_or("the kernel lab could not begin").to_owned())
        }
    }
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
            memory_ran_out: None,
            stdout: stdout.to_owned(),
            stderr: String::new(),
            wall: Duration::ZERO,
        }
    }

    fn said<T: DeserializeOwned>(ended: &Ended) -> Answer<T> {
        read(ended, LIMIT)
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
        assert_eq!(
            said(&ended(EndReason::Exited, None, &text)),
            Answer::Given(report)
        );
    }

    #[test]
    fn a_driver_that_crashes_or_hangs_is_no_driver_and_says_so() {
        for (reason, signal, how) in [
            (EndReason::Exited, Some(11), "it crashed (signal 11)"),
            (
                EndReason::TimedOut,
                Some(9),
                "it did not answer within 20 s",
            ),
        ] {
            let Answer::Broken(found) = said::<VulkanReport>(&ended(reason, signal, "")) else {
                panic!("{reason:?}")
            };
            assert_eq!(found, how);
            let VulkanStatus::NoDriver { detail } = no_driver(&found).status else {
                panic!("{found}")
            };
            assert!(detail.ends_with(how), "{detail}");
        }
    }

    #[test]
    fn a_driver_that_takes_the_lab_down_is_a_fault_and_a_refusal_is_told() {
        let crashed = lab_end(&ended(EndReason::Exited, Some(11), ""), 3);
        let LabEnd::Fault(fault) = crashed else {
            panic!("{crashed:?}")
        };
        assert_eq!(fault.kind, FaultKind::Crash);
        assert!(
            fault.detail.ends_with("it crashed (signal 11)"),
            "{}",
            fault.detail
        );
        let late = lab_end(&ended(EndReason::TimedOut, Some(9), ""), 3);
        assert!(matches!(
            late,
            LabEnd::Fault(Fault {
                kind: FaultKind::Timeout,
                ..
            })
        ));
        let refused = Ended {
            exit_code: Some(1),
            stderr: "MESA: warning\nerror: there is no GPU to measure\n".to_owned(),
            ..ended(EndReason::Exited, None, "")
        };
        assert_eq!(
            lab_end(&refused, 0),
            LabEnd::Refused("there is no GPU to measure".to_owned())
        );
        let cancelled = ended(EndReason::Stopped, Some(9), "");
        assert_eq!(lab_end(&cancelled, 3), LabEnd::Fine);
    }

    #[test]
    fn another_programs_answer_is_none() {
        let other = ended(EndReason::Exited, None, "running 0 tests");
        assert_eq!(said::<VulkanReport>(&other), Answer::None);
    }

    #[cfg(unix)]
    #[test]
    fn a_driver_that_crashes_under_the_measurement_is_a_notice() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let flux = dir.path().join("flux");
        std::fs::write(&flux, "#!/bin/sh\nkill -SEGV $$\n").unwrap();
        std::fs::set_permissions(&flux, std::fs::Permissions::from_mode(0o755)).unwrap();
        let request = DevicesRequest {
            software: false,
            size: crate::domain::types::Bytes(1 << 20),
        };
        let report = DevicesApart::new(flux).measure(&request, &CancelToken::new());
        assert_eq!(report.paths, []);
        assert_eq!(
            report.notices,
            [
                "no GPU was measured: a Vulkan driver of this machine is broken: it crashed (signal 11)"
            ]
        );
    }
}
