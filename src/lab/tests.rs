//! On Mesa's lavapipe, which every test machine has (`mesa-vulkan-drivers`): values, not speed.

use super::*;
use crate::domain::lab::{KernelResult, LabReport, Outcome};
use crate::domain::types::Timestamp;

fn request() -> LabRequest {
    LabRequest {
        device: Some("llvmpipe".to_owned()),
        quick: true,
        largest: Bytes(256 << 10),
        ..LabRequest::default()
    }
}

fn measured(request: &LabRequest) -> LabReport {
    let mut report = LabReport::begun(Timestamp(0));
    InProcess
        .measure(request, &CancelToken::new(), &mut |event| {
            report.record(event)
        })
        .unwrap();
    report
}

#[test]
fn every_kernel_is_right_on_lavapipe() {
    let report = measured(&request());
    assert_eq!(report.fault, None);
    for result in &report.kernels {
        let KernelResult {
            kernel, outcome, ..
        } = result;
        println!("{kernel} {} {outcome:?}", result.size);
    }
    println!("{:?}", report.queues());
    let is_measured = |r: &&KernelResult| matches!(r.outcome, Outcome::Measured { .. });
    assert_eq!(report.kernels.iter().filter(is_measured).count(), 27);
}
