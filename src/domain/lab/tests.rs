use super::*;

fn report(kernels: Vec<KernelResult>) -> LabReport {
    LabReport {
        kernels,
        ..LabReport::default()
    }
}

fn measured(kernel: Kernel, mib: u64, samples: &[f64]) -> KernelResult {
    KernelResult {
        kernel,
        size: Bytes::mib(mib),
        outcome: Outcome::Measured {
            samples: samples.to_vec(),
            dispatches: 1,
            moved: 1,
        },
    }
}

const NAIVE: Kernel = Kernel::MatVec {
    format: Format::F32,
    layout: Layout::ThreadPerRow,
};
const SUBGROUP: Kernel = Kernel::MatVec {
    format: Format::F32,
    layout: Layout::SubgroupPerRow,
};

/// The paper's card: the best matrix-vector kernel 197.3 GB/s, the naive one 2.3, the copy 169.4.
#[test]
fn the_best_read_is_the_best_median_at_the_largest_size() {
    let report = report(vec![
        measured(Kernel::Read, 16, &[900e9]),
        measured(Kernel::Copy, 1024, &[169.4e9]),
        measured(NAIVE, 1024, &[2.3e9]),
        measured(SUBGROUP, 1024, &[197.3e9, 190e9, 197.4e9]),
        measured(Kernel::Read, 1024, &[196.0e9, 210e9, 195.0e9]),
    ]);
    let (best, rate) = report.best_read().unwrap();
    assert_eq!(best.kernel, SUBGROUP);
    let expected = Rate {
        best: 197.4e9,
        median: 197.3e9,
        slowest: 190e9,
    };
    assert_eq!(rate, expected);
}

#[test]
fn what_was_not_measured_is_no_best_read() {
    let failed = KernelResult {
        kernel: Kernel::Read,
        size: Bytes::mib(1024),
        outcome: Outcome::Failed(Fault {
            kind: FaultKind::OutOfMemory,
            detail: "vkAllocateMemory: out of device memory".to_owned(),
        }),
    };
    assert!(report(vec![failed.clone()]).best_read().is_none());
    let with = report(vec![measured(Kernel::Read, 16, &[5e9]), failed]);
    assert_eq!(with.best_read().unwrap().0.size, Bytes::mib(16));
}

/// A row of 4096 weights: 128 blocks of 18 bytes in ggml's `Q4_0`.
#[test]
fn rows_weigh_what_their_format_says() {
    let bytes = Format::ALL.map(|f| f.row_bytes(4096));
    assert_eq!(bytes, [16384, 8192, 2304]);
    assert_eq!(Kernel::all().len(), 3 + 3 * 8);
}

#[test]
fn a_result_reads_back_as_it_was_written() {
    for outcome in [
        Outcome::Measured {
            samples: vec![1.5e9],
            dispatches: 3,
            moved: 7,
        },
        Outcome::Missing {
            feature: "16-bit floats".to_owned(),
        },
        Outcome::Failed(Fault {
            kind: FaultKind::DeviceLost,
            detail: "gone".to_owned(),
        }),
    ] {
        let result = KernelResult {
            kernel: NAIVE,
            size: Bytes(9),
            outcome,
        };
        let text = serde_json::to_string(&result).unwrap();
        assert_eq!(serde_json::from_str::<KernelResult>(&text).unwrap(), result);
    }
}

const UNIVERSAL: Family = Family {
    index: 0,
    graphics: true,
    timestamp_bits: 64,
};
const COMPUTE: Family = Family {
    index: 2,
    graphics: false,
    timestamp_bits: 64,
};

/// Series of a driver whose submission costs `submission` µs and whose dispatch 2 µs, after 30 µs once; `wobble` µs more or
/// less per submission from round to round.
fn series(family: Family, submission: f64, wobble: f64) -> Vec<DispatchSample> {
    let mut all = Vec::new();
    for round in 0..6 {
        for (submissions, dispatches) in [(1, 1), (64, 1), (1, 64), (8, 8), (8, 1)] {
            let per = submission + if round % 2 == 0 { wobble } else { -wobble };
            let (m, n) = (f64::from(submissions), f64::from(dispatches));
            all.push(DispatchSample {
                family: family.index,
                round,
                barriers: true,
                submissions,
                dispatches,
                host_secs: (30.0 + per * m + 2.0 * m * n) * 1e-6,
                device_secs: None,
            });
        }
    }
    all
}

#[test]
fn costs_are_the_slopes_of_the_series() {
    let found = QueueFindings::of(&[UNIVERSAL], &series(UNIVERSAL, 5.0, 0.0)).unwrap();
    let [costs] = &found.costs[..] else {
        panic!("{found:?}")
    };
    assert!((costs.submission.mean_us - 5.0).abs() < 1e-6, "{costs:?}");
    assert!((costs.dispatch.mean_us - 2.0).abs() < 1e-6, "{costs:?}");
    assert_eq!(costs.submission.rounds, 6);
    assert_eq!(
        found.verdict,
        "only one queue family computes: graphics + compute (family 0)"
    );
}

/// Six rounds of 5 ± 0.1 µs against six of 9 ± 0.1: sd = 0.1095, standard error of the difference 0.0632, df = 10, so
/// t = 2.228 and the half-width is 0.141 µs.
#[test]
fn a_driver_that_costs_more_on_the_compute_family_is_found_out() {
    let mut samples = series(UNIVERSAL, 5.0, 0.1);
    samples.extend(series(COMPUTE, 9.0, 0.1));
    let found = QueueFindings::of(&[UNIVERSAL, COMPUTE], &samples).unwrap();
    let [difference] = found.differences[..] else {
        panic!("{found:?}")
    };
    let [lo, hi] = difference.submission_ci95_us.unwrap();
    assert!(
        (lo - 3.859).abs() < 1e-3 && (hi - 4.141).abs() < 1e-3,
        "{lo} {hi}"
    );
    assert_eq!(
        found.verdict,
        "this driver costs 4.0 µs more per submission (95 % interval 3.9 to 4.1) on the compute-only family"
    );
    // The other way round it costs less.
    let mut samples = series(UNIVERSAL, 9.0, 0.1);
    samples.extend(series(COMPUTE, 5.0, 0.1));
    let found = QueueFindings::of(&[UNIVERSAL, COMPUTE], &samples).unwrap();
    assert_eq!(
        found.verdict,
        "this driver costs 4.0 µs less per submission (95 % interval 3.9 to 4.1) on the compute-only family"
    );
}

#[test]
fn families_that_cost_the_same_are_said_to_and_how_well_that_is_known() {
    let mut samples = series(UNIVERSAL, 5.0, 0.5);
    samples.extend(series(COMPUTE, 5.1, 0.5));
    let found = QueueFindings::of(&[UNIVERSAL, COMPUTE], &samples).unwrap();
    assert_eq!(
        found.verdict,
        "no difference between the queue families was found: per submission, the compute-only family costs between −0.6 \
         and +0.8 µs more (95 % interval)"
    );
}

#[test]
fn without_samples_there_is_no_finding() {
    assert_eq!(QueueFindings::of(&[UNIVERSAL, COMPUTE], &[]), None);
}
