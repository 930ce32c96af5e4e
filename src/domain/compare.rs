//! `flux compare`: a verdict on two llama-bench outputs, without run order (design section 2). One record of a test is one
//! run; with a single process on both sides the repetitions are shown but never judged.

use crate::domain::bench_record::{Parsed, Record};
use crate::domain::stats::{MIN_RUNS, compare as compare_runs};
use crate::domain::types::{ArmSummary, Comparison, SampleUnit, TestSpec, Verdict};

/// One test compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// The test; its `Display` is the key of the JSON contract (`pp512`, `tg128 @ d4096`).
    pub test: TestSpec,
    /// The comparison.
    pub comparison: Comparison,
}

/// Two outputs compared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// Tests present on both sides, in the baseline's order.
    pub metrics: Vec<Metric>,
    /// What a reader should know: tests on one side only, other builds or models, damaged input.
    pub notices: Vec<String>,
}

/// Compares two outputs test by test.
pub fn compare(baseline: &Parsed, candidate: &Parsed) -> Report {
    let mut report = Report::default();
    let damaged = damage("baseline", baseline).or_else(|| damage("candidate", candidate));
    for test in tests(&baseline.records) {
        let (a, b) = (of_test(baseline, test), of_test(candidate, test));
        if b.is_empty() {
            let notice = format!("{test} is in the baseline only");
            report.notices.push(notice);
            continue;
        }
        let mut comparison = compare_test(&a, &b);
        let mixed = mixed("baseline", &a).or_else(|| mixed("candidate", &b));
        if let Some(reason) = damaged.as_ref().or(mixed.as_ref()) {
            comparison.verdict = Verdict::Inconclusive;
            comparison.reason.clone_from(reason);
        }
        report.metrics.push(Metric { test, comparison });
    }
    report.notices.extend(
        tests(&candidate.records)
            .into_iter()
            .filter(|&test| of_test(baseline, test).is_empty())
            .map(|test| format!("{test} is in the candidate only")),
    );
    for (side, parsed) in [("baseline", baseline), ("candidate", candidate)] {
        let problems = parsed
            .problems
            .iter()
            .map(|p| format!("{side}: {}", p.message));
        report.notices.extend(problems);
        if !parsed.complete {
            let notice = format!("{side}: the output is cut inside a record or an array");
            report.notices.push(notice);
        }
    }
    let build = |r: &Record| Some(r.build());
    let model = |r: &Record| r.text("model_type").map(str::to_owned);
    report
        .notices
        .extend(differing(baseline, candidate, "build", build));
    report
        .notices
        .extend(differing(baseline, candidate, "model", model));
    for field in ["gpu_info", "cpu_info", "backends", "n_threads"] {
        let of = |r: &Record| r.raw.get(field).map(ToString::to_string);
        report
            .notices
            .extend(differing(baseline, candidate, field, of));
    }
    report
}

/// What a record says of a run beside its configuration: may differ between repeats of one arm.
const OF_THE_RUN: &[&str] = &[
    "run",
    "arm",
    "position",
    "model_filename",
    "test_time",
    "avg_ns",
    "stddev_ns",
    "avg_ts",
    "stddev_ts",
    "samples_ns",
    "samples_ts",
];

/// Why records of one test are no repeats of one arm: another configuration is another arm, not another sample.
fn mixed(side: &str, records: &[&Record]) -> Option<String> {
    let (first, others) = records.split_first()?;
    let differs = |field: &str| {
        others
            .iter()
            .any(|r| r.raw.get(field) != first.raw.get(field))
    };
    let fields = first.raw.as_object()?.keys().map(String::as_str);
    let differing: Vec<&str> = fields
        .filter(|f| !OF_THE_RUN.contains(f) && differs(f))
        .collect();
    (!differing.is_empty()).then(|| {
        let fields = differing.join(", ");
        format!("the {side} mixes configurations that differ in {fields}: give each its own file")
    })
}

/// Tests in order of first appearance.
fn tests(records: &[Record]) -> Vec<TestSpec> {
    let mut seen = Vec::new();
    for record in records {
        if !seen.contains(&record.test) {
            seen.push(record.test);
        }
    }
    seen
}

fn of_test(parsed: &Parsed, test: TestSpec) -> Vec<&Record> {
    parsed.records.iter().filter(|r| r.test == test).collect()
}

fn compare_test(a: &[&Record], b: &[&Record]) -> Comparison {
    let means = |records: &[&Record]| -> Vec<f64> {
        records.iter().map(|r| r.samples().mean_rate()).collect()
    };
    let mut result = compare_runs(&means(a), &means(b));
    let ([a], [b]) = (a, b) else {
        return result;
    };
    let repetitions = compare_runs(&a.samples().rates(), &b.samples().rates());
    let cv_of = |arm: ArmSummary, shown: &ArmSummary| ArmSummary {
        cv_pct: shown.cv_pct,
        ..arm
    };
    result.baseline = cv_of(result.baseline, &repetitions.baseline);
    result.candidate = cv_of(result.candidate, &repetitions.candidate);
    result.ci95_pct = repetitions.ci95_pct;
    result.hedges_g = repetitions.hedges_g;
    result.t = repetitions.t;
    result.df = repetitions.df;
    result.p = repetitions.p;
    result.unit = SampleUnit::Repetitions;
    result.verdict = Verdict::Inconclusive;
    result.reason = format!(
        "1 run: at least {MIN_RUNS} are needed in each arm; repetitions inside one process are not independent"
    );
    result
}

/// Why a side cannot be judged: a failed run is no sample in any of its tests, and must not quietly lower n.
fn damage(side: &str, parsed: &Parsed) -> Option<String> {
    if !parsed.complete {
        return Some(format!(
            "the {side} is cut inside a record or an array: a failed run is not judged"
        ));
    }
    let problem = parsed.problems.first()?;
    Some(format!("{side}: {}", problem.message))
}

fn differing(
    baseline: &Parsed,
    candidate: &Parsed,
    what: &str,
    of: impl Fn(&Record) -> Option<String>,
) -> Option<String> {
    let values = |parsed: &Parsed| {
        let mut all: Vec<String> = parsed.records.iter().filter_map(&of).collect();
        all.sort_unstable();
        all.dedup();
        all.join(", ")
    };
    let (a, b) = (values(baseline), values(candidate));
    (a != b && !a.is_empty() && !b.is_empty())
        .then(|| format!("the {what} differs: baseline {a}, candidate {b}"))
}
