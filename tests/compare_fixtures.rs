//! `flux compare` on real llama-bench output: the verdicts of interleaved runs on an H200, and input as it comes in the wild
//! (cases C01, C02, C03, C45).
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::fs;

use flux::domain::bench_record::{Parsed, ProblemKind, parse};
use flux::domain::compare::{Report, compare};
use flux::domain::types::Verdict::{Improved, Inconclusive, Regressed};
use flux::domain::types::{Comparison, SampleUnit, TestSpec, Verdict};

const PP512: TestSpec = TestSpec::prompt(512);
const TG128: TestSpec = TestSpec::generation(128);

fn read(file: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/h200/");
    fs::read_to_string(format!("{root}{file}")).unwrap()
}

/// The records of the named runs of the dense fixture.
fn runs(names: &[&str]) -> Parsed {
    let all = read("qwen3-4b-dense.jsonl");
    let wanted: Vec<&str> = all
        .lines()
        .filter(|l| {
            names
                .iter()
                .any(|n| l.starts_with(&format!("{{\"run\": \"{n}\"")))
        })
        .collect();
    parse(wanted.join("\n").as_bytes())
}

fn metric(report: &Report, test: TestSpec) -> &Comparison {
    let found = report.metrics.iter().find(|m| m.test == test);
    &found.unwrap().comparison
}

/// What the README of the captured output states: change and interval (percent, two decimals), verdict.
const STATED: [(&str, TestSpec, &str, Verdict); 12] = [
    ("cuda-aa", TG128, "+0.53 [-1.27, +2.38]", Inconclusive),
    ("cuda-aa", PP512, "+0.07 [-6.60, +7.38]", Inconclusive),
    ("cuda-fa0", TG128, "-16.88 [-17.98, -15.75]", Regressed),
    ("cuda-fa0", PP512, "-16.88 [-22.76, -10.91]", Regressed),
    ("cuda-kvq8", TG128, "-10.63 [-11.47, -9.77]", Regressed),
    ("cuda-kvq8", PP512, "-1.97 [-10.31, +7.15]", Inconclusive),
    ("cuda-nographs", TG128, "-18.04 [-29.44, -6.62]", Regressed),
    ("cuda-nographs", PP512, "+15.37 [+9.06, +22.14]", Improved),
    ("vk-gq", TG128, "-1.65 [-4.30, +1.08]", Inconclusive),
    ("vk-gq", PP512, "+1.59 [-4.34, +7.76]", Inconclusive),
    ("cuda-vs-vk", TG128, "-18.81 [-23.67, -13.92]", Regressed),
    ("cuda-vs-vk", PP512, "+22.40 [+14.19, +31.83]", Improved),
];

#[test]
fn interleaved_runs_get_the_verdicts_their_readme_states() {
    for (name, test, numbers, verdict) in STATED {
        let side = |s: &str| parse(read(&format!("ab-{name}.{s}.jsonl")).as_bytes());
        let report = compare(&side("A"), &side("B"));
        let got = metric(&report, test);
        let [low, high] = got.ci95_pct.unwrap();
        let shown = format!("{:+.2} [{low:+.2}, {high:+.2}]", got.change_pct);
        assert_eq!(
            (shown.as_str(), got.verdict),
            (numbers, verdict),
            "{name} {test}"
        );
        let units = (got.baseline.n, got.candidate.n, got.unit);
        assert_eq!(units, (4, 4, SampleUnit::Runs));
    }
}

#[test]
fn one_process_against_four_is_inconclusive_without_an_interval() {
    let (one, four) = (
        runs(&["fa0"]),
        runs(&["stock1", "stock2", "stock3", "stock4"]),
    );
    for report in [compare(&one, &four), compare(&four, &one)] {
        for test in [TG128, PP512] {
            let got = metric(&report, test);
            assert_eq!(got.verdict, Verdict::Inconclusive);
            assert!(got.reason.starts_with("1 run: at least 3 are needed"));
            assert_eq!(
                (got.ci95_pct, got.t, got.df, got.p),
                (None, None, None, None)
            );
        }
    }
}

/// Repetitions of 1 and 1 process: shown (the golden test compares them with `SciPy`), never judged.
#[test]
fn one_process_on_each_side_shows_its_repetitions_and_judges_nothing() {
    let report = compare(&runs(&["stock1"]), &runs(&["fa0"]));
    let got = metric(&report, TG128);
    assert_eq!(
        (got.unit, got.verdict),
        (SampleUnit::Repetitions, Verdict::Inconclusive)
    );
    assert!(got.reason.starts_with("1 run: at least 3 are needed"));
    assert!(got.reason.contains("not independent"));
    assert_eq!((got.baseline.n, got.candidate.n), (1, 1));
    assert!(got.p.unwrap() < 0.01 && got.ci95_pct.unwrap()[1] < -1.0);
}

/// Switches that this build ignores: every pair is an A/A pair.
#[test]
fn pairs_without_a_difference_are_never_improved() {
    let same = ["stock1", "stock2", "stock3", "stock4", "mmq", "cublas"];
    for split in 1..same.len() {
        let (a, b) = same.split_at(split);
        for report in [compare(&runs(a), &runs(b)), compare(&runs(b), &runs(a))] {
            assert!(
                report
                    .metrics
                    .iter()
                    .all(|m| m.comparison.verdict != Verdict::Improved)
            );
        }
    }
    let stock = runs(&same[..4]);
    let itself = compare(&stock, &stock);
    assert_eq!(metric(&itself, TG128).verdict, Verdict::Unchanged);
}

#[test]
fn tests_on_one_side_and_other_builds_and_models_are_noticed() {
    let candidate = read("qwen3-4b-dense.jsonl")
        .lines()
        .filter(|l| l.starts_with("{\"run\": \"d4096\"") || l.starts_with("{\"run\": \"fa1\""))
        .map(|l| {
            l.replace("\"build_number\": 0", "\"build_number\": 11669")
                .replace("qwen3 4B", "qwen3 8B")
        })
        .collect::<Vec<_>>()
        .join("\n");
    let report = compare(&runs(&["stock1"]), &parse(candidate.as_bytes()));
    let all = report.notices.join("\n");
    assert!(all.contains("tg128 @ d4096 is in the candidate only"));
    assert!(all.contains("the build differs: baseline unknown (0), candidate unknown (11669)"));
    assert!(all.contains("the model differs"));
    assert_eq!(report.metrics.len(), 2);
}

/// C02: the README record of build 5163, with booleans and without the fields of newer builds.
const OLD: &str = r#"{"build_commit": "8cf427ff", "build_number": 5163, "flash_attn": false, "use_mmap": true,
  "n_gpu_layers": 99, "n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 7100.002165,
  "samples_ns": [74601900, 71632900, 71745200, 71952700, 70745500],
  "samples_ts": [6863.1, 7147.55, 7136.37, 7115.79, 7237.21]}"#;

#[test]
fn c02_fields_of_any_build_are_read() {
    let old = &parse(OLD.as_bytes()).records[0];
    assert_eq!(
        (old.flash_attn(), old.use_mmap(), old.n_gpu_layers()),
        (Some(0), Some(true), Some(99))
    );
    assert_eq!(old.build(), "8cf427ff (5163)");
    // 512 / 0.0746019 s.
    assert!((old.samples().rates()[0] - 6863.10).abs() < 0.005);
    assert_eq!(old.int("n_cpu_moe"), None);

    let new = &runs(&["stock1"]).records[0];
    assert_eq!(
        (new.flash_attn(), new.use_mmap(), new.n_gpu_layers()),
        (Some(-1), None, Some(-1))
    );
    assert_eq!(
        (new.flag("no_host"), new.flag("no_op_offload")),
        (Some(false), Some(false))
    );
    assert_eq!(new.raw["run"], "stock1");

    let bare = parse(br#"{"build_commit":"x","n_gen":128,"samples_ns":[1000]}"#);
    assert_eq!(
        (bare.records[0].test, bare.records[0].build_number),
        (TG128, 0)
    );
    let without = parse(br#"{"n_gen":128,"samples_ns":[1000]}"#);
    assert_eq!(without.problems[0].kind, ProblemKind::NotARecord);
}

const BANNER: &str = "ggml_vulkan: Found 1 Vulkan devices:\nggml_vulkan: 0 = AMD Radeon RX 580 Series (RADV POLARIS10) (radv) | uma: 0 | matrix cores: none\nWARNING: radv is not a conformant Vulkan implementation, testing use only.\n";

#[test]
fn c01_log_lines_around_an_array_do_not_hide_it() {
    let tail = "\n[1]    4711 segmentation fault (core dumped)  llama-bench";
    let text = format!("{BANNER}[\n  {OLD},\n  {OLD}\n]{tail}");
    let parsed = parse(text.as_bytes());
    assert_eq!((parsed.records.len(), parsed.complete), (2, true));
    assert_eq!(parsed.noise_lines.len(), 4);
    let one_line = format!("[{},{}]", OLD.replace('\n', " "), OLD.replace('\n', " "));
    assert_eq!(parse(one_line.as_bytes()).records, parsed.records);
    let jsonl = format!(
        "{BANNER}{}\nload_backend: loaded CPU backend\n{}\n",
        OLD.replace('\n', " "),
        OLD.replace('\n', " ")
    );
    assert_eq!(parse(jsonl.as_bytes()).records, parsed.records);
}

#[test]
fn c03_a_cut_array_gives_its_whole_objects_and_says_it_is_cut() {
    let cut = &OLD[..OLD.find("71745200").unwrap()];
    for text in [
        format!("[\n{OLD},\n{cut}"),
        format!("[\n{OLD},\n"),
        format!("{OLD}\n{cut}"),
    ] {
        let parsed = parse(text.as_bytes());
        assert_eq!(
            (parsed.records.len(), parsed.complete),
            (1, false),
            "{text}"
        );
        assert_eq!(parsed.salvaged().len(), 1);
        let report = compare(&parsed, &parsed);
        assert_eq!(report.metrics[0].comparison.verdict, Verdict::Inconclusive);
        assert!(report.metrics[0].comparison.reason.contains("cut"));
    }
}

#[test]
fn c03_no_stand_in_for_a_number_becomes_a_sample() {
    for bad in [
        "null", "NULL", "NA", "nan", "-nan", "inf", "-inf", "0", "-5", "\"NA\"", "{}",
    ] {
        let sample = OLD.replace("71745200", bad);
        let rate = OLD.replace("7100.002165", bad);
        for text in [sample, rate] {
            let good = OLD.replace("512", "256");
            let parsed = parse(format!("[{good},{text},{good}]").as_bytes());
            assert_eq!(
                parsed.records.len(),
                2,
                "{bad}: the neighbours stay readable"
            );
            assert_eq!(parsed.problems[0].kind, ProblemKind::InvalidSample, "{bad}");
            assert!(parsed.complete, "{bad}");
        }
    }
    for list in ["[]", "null", "7"] {
        let text = format!(r#"{{"build_commit":"x","n_gen":128,"samples_ns":{list}}}"#);
        assert_eq!(
            parse(text.as_bytes()).problems[0].kind,
            ProblemKind::InvalidSample
        );
    }
    let failed = parse(format!("[\n{OLD},\nnull\n]").as_bytes());
    assert_eq!(
        (failed.records.len(), failed.problems.len(), failed.complete),
        (1, 1, true)
    );
}

#[test]
fn a_failed_run_is_not_quietly_left_out() {
    let lines = read("ab-cuda-nographs.B.jsonl");
    let spoilt = lines.replacen(
        "\"n_prompt\": 512, \"n_gen\": 0, \"n_depth\": 0,",
        "\"n_prompt\": 512, \"n_gen\": 0, \"n_depth\": 0, \"avg_ts\": 0,",
        1,
    );
    let baseline = parse(read("ab-cuda-nographs.A.jsonl").as_bytes());
    let fine = compare(&baseline, &parse(lines.as_bytes()));
    assert_eq!(metric(&fine, PP512).verdict, Verdict::Improved);
    let candidate = parse(
        spoilt
            .replacen("\"samples_ns\": [", "\"samples_ns\": [0, ", 1)
            .as_bytes(),
    );
    let report = compare(&baseline, &candidate);
    for m in &report.metrics {
        assert_eq!(m.comparison.verdict, Verdict::Inconclusive);
        assert!(m.comparison.reason.contains("that run failed"));
    }
}

/// C45: bytes above 0x7f come raw or as a mangled escape; the numbers count.
#[test]
fn c45_a_mangled_model_name_does_not_stop_the_numbers() {
    let mangled = OLD.replace(
        "\"flash_attn\"",
        r#""model_filename": "C:\\Users\\\uffffffc5\uffffffbd\\m.gguf", "flash_attn""#,
    );
    assert_eq!(parse(mangled.as_bytes()).records.len(), 1);
    let mut raw = OLD.as_bytes().to_vec();
    raw.splice(
        1..1,
        b"\"model_filename\": \"C:\\\\Users\\\\\xc5\xbd\xff\xfe\", "
            .iter()
            .copied(),
    );
    let parsed = parse(&raw);
    assert_eq!(parsed.records[0].samples_ns.len(), 5);
    assert!(parsed.complete);
}

#[test]
fn nothing_at_all_is_complete_and_empty() {
    let parsed = parse(b"\n  \n");
    assert_eq!((parsed.records.len(), parsed.complete), (0, true));
    assert_eq!(parse(b"error: failed to load model").noise_lines.len(), 1);
}
