//! On Mesa's lavapipe, which every test machine has (`mesa-vulkan-drivers`): values, not speed.

use ash::vk;

use super::*;
use crate::domain::lab::{Format, Kernel, LabReport, Layout, Outcome};
use crate::domain::types::Timestamp;
use crate::ports::CancelMode;

pub(super) fn request() -> LabRequest {
    LabRequest {
        device: Some("llvmpipe".to_owned()),
        quick: true,
        largest: Bytes(256 << 10),
        ..LabRequest::default()
    }
}

fn measured(request: &LabRequest, cancel: &CancelToken) -> LabReport {
    let mut report = LabReport::begun(Timestamp(0));
    InProcess
        .measure(request, cancel, &mut |event| report.record(event))
        .unwrap();
    report
}

pub(super) fn opened() -> (Rc<Vulkan>, Physical) {
    let Ok(vulkan) = Vulkan::open().map(Rc::new) else {
        panic!("lavapipe is needed: apt-get install mesa-vulkan-drivers libvulkan1")
    };
    let found = cards(&vulkan).unwrap();
    let physical = choose(found, Some("llvmpipe")).unwrap();
    (vulkan, physical)
}

/// The lab on a card that is described so.
fn on(vulkan: &Rc<Vulkan>, physical: Physical, prepare: impl FnOnce(&Gpu)) -> LabReport {
    let mut report = LabReport::begun(Timestamp(0));
    let gpu = Gpu::open(vulkan, Rc::new(physical), &[0]).unwrap();
    prepare(&gpu);
    let mut tell = |event| report.record(event);
    if let Err(error) = on_gpu(&gpu, &request(), &CancelToken::new(), &mut tell) {
        tell(LabEvent::Fault(fault(&error)));
    }
    report
}

#[test]
fn every_kernel_gives_the_processors_result_and_every_dispatch_counts() {
    let report = measured(&request(), &CancelToken::new());
    assert_eq!(report.fault, None);
    let all: Vec<Kernel> = report.kernels.iter().map(|r| r.kernel).collect();
    assert_eq!(all, Kernel::all());
    for result in &report.kernels {
        let rate = result.rate().unwrap_or_else(|| panic!("{result:?}"));
        assert!(rate.slowest > 0.0 && rate.best.is_finite(), "{result:?}");
        assert_eq!(result.samples().len(), 3);
        assert_eq!(result.size, Bytes(256 << 10));
    }
    // 256 KiB in rows of 16 KiB: 16 rows, the vector of 16 KiB, 16 results.
    let product = Kernel::MatVec {
        format: Format::F32,
        layout: Layout::FourRows,
    };
    let Some(Outcome::Measured { moved, .. }) = report.of(product).next().map(|r| &r.outcome)
    else {
        panic!("not measured")
    };
    assert_eq!(*moved, (256 << 10) + (16 << 10) + 64);
    // Eight rounds of five series with barriers and five without; nothing was miscounted.
    assert_eq!(report.dispatches.len(), 80);
    assert!(report.dispatches.iter().all(|d| d.host_secs > 0.0));
    assert_eq!(report.notices.len(), 1, "{:?}", report.notices);
    assert!(report.notices[0].contains("software renderer"));
    let queues = report.queues().unwrap();
    assert_eq!(
        queues.verdict,
        "only one queue family computes: graphics + compute (family 0)"
    );
    let card = report.card.unwrap();
    assert!(card.used.0 * 2 <= card.free.0);
}

#[test]
fn what_a_card_lacks_is_a_result() {
    let (vulkan, mut physical) = opened();
    physical.features = crate::vulkan::Features::default();
    let report = on(&vulkan, physical, |_| {});
    assert_eq!(report.fault, None);
    for result in &report.kernels {
        let missing = match result.kernel {
            Kernel::MatVec { layout, .. } if layout.needs_subgroups() => {
                Some("sums over a sub-group")
            }
            Kernel::MatVec {
                format: Format::F16,
                layout,
            } if !layout.is_vector() => Some("16-bit floats in arithmetic and storage"),
            _ => None,
        };
        match (&result.outcome, missing) {
            (Outcome::Missing { feature }, Some(missing)) => assert_eq!(feature, missing),
            (Outcome::Measured { .. }, None) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_card_that_is_lost_or_full_ends_the_lab_with_a_fault() {
    for (answer, kind) in [
        (vk::Result::ERROR_DEVICE_LOST, FaultKind::DeviceLost),
        (
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
            FaultKind::OutOfMemory,
        ),
    ] {
        let (vulkan, physical) = opened();
        let report = on(&vulkan, physical, |gpu| gpu.fail_next(answer));
        assert_eq!(report.fault.unwrap().kind, kind);
    }
}

/// Nothing of the device's memory is left to use.
#[test]
fn a_card_without_free_memory_is_out_of_memory() {
    let (vulkan, mut physical) = opened();
    physical.leave_free(Bytes::mib(2).0);
    let report = on(&vulkan, physical, |_| {});
    assert_eq!(report.fault.unwrap().kind, FaultKind::OutOfMemory);
}

#[test]
fn a_cancelled_lab_stops_at_the_next_repetition() {
    let cancel = CancelToken::new();
    cancel.cancel(CancelMode::Now);
    let report = measured(&request(), &cancel);
    assert_eq!((report.kernels.len(), report.dispatches.len()), (0, 0));
}

#[test]
fn a_card_that_is_not_there_is_refused_with_those_that_are() {
    let asked = LabRequest {
        device: Some("Voodoo".to_owned()),
        ..request()
    };
    let refused = InProcess.measure(&asked, &CancelToken::new(), &mut |_| {});
    let headline = refused.unwrap_err().headline;
    assert!(
        headline.starts_with("no card is called Voodoo; Vulkan lists "),
        "{headline}"
    );
}

#[test]
fn a_card_is_meant_by_its_place_or_a_part_of_its_name() {
    let names = [
        "NVIDIA GeForce RTX 4090",
        "llvmpipe (LLVM 15.0.6, 256 bits)",
    ]
    .map(str::to_owned);
    for (wanted, place) in [
        ("1", Some(1)),
        ("5", None),
        ("4090", Some(0)),
        ("rtx", Some(0)),
        (" llvmpipe", Some(1)),
        (" ", None),
        ("voodoo", None),
    ] {
        assert_eq!(super::place_of(&names, wanted), place, "{wanted}");
    }
}
