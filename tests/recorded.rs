//! Recorded sessions judged again from their samples: the README's numbers are theirs.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use flux::domain::search::{Confirmation, Step, TunePlan, Tuner};
use flux::domain::stats::{Ordered, confirm};
use flux::domain::telemetry::{Metric, SeriesId};
use flux::domain::types::{Comparison, Stage, Verdict};
use flux::ports::Store as _;
use flux::store::{Access, SqliteStore};

#[path = "support/replay.rs"]
mod replay;

/// Change, interval and verdict of a metric in the last judgement of a session of a recorded database, as the README prints
/// them: whole percents where the interval is wide, tenths else.
fn judged(recorded: &str, session: i64, metric: &str) -> String {
    all_judged(recorded, session, metric).pop().unwrap()
}

/// The same of every judgement of the session.
fn all_judged(recorded: &str, session: i64, metric: &str) -> Vec<String> {
    let (_dir, store) = replay::opened(recorded);
    let verdicts = store.verdicts(session).unwrap();
    let read = |v: &flux::ports::StoredVerdict| read(&v.detail, metric);
    verdicts.iter().map(read).collect()
}

/// One judgement.
fn read(detail: &serde_json::Value, metric: &str) -> String {
    let confirmation: Confirmation = serde_json::from_value(detail.clone()).unwrap();
    let c = &confirmation.metrics[metric].confirmed;
    let decimals = usize::from(c.ci95_pct.is_some_and(|[low, high]| high - low < 2.0));
    let [low, high] = c.ci95_pct.unwrap();
    format!(
        "{:+.decimals$} ({low:+.decimals$} to {high:+.decimals$}) {:?}, {} + {}",
        c.change_pct, c.verdict, c.baseline.n, c.candidate.n
    )
}

#[test]
fn cuda_against_vulkan_reads_as_the_readme_says() {
    let of = |metric| judged(replay::PLANS, 6, metric);
    assert_eq!(of("tg128"), "-20.6 (-21.5 to -19.8) Regressed, 6 + 6");
    assert_eq!(of("pp512"), "+14.2 (+13.4 to +14.9) Improved, 6 + 6");
}

#[test]
fn two_gpus_read_as_the_readme_says() {
    let of = |session, metric| judged(replay::PAIR, session, metric);
    assert_eq!(of(1, "tg128"), "+4 (+3 to +5) Improved, 4 + 4");
    assert_eq!(of(1, "pp512"), "+41 (+37 to +46) Improved, 4 + 4");
    assert_eq!(of(2, "tg32"), "+0 (-1 to +2) Inconclusive, 3 + 3");
    assert_eq!(of(3, "tg32"), "+25 (+4 to +53) Improved, 3 + 3");
    assert_eq!(of(3, "pp256"), "-44 (-53 to -33) Regressed, 3 + 3");
}

#[test]
fn placements_against_llama_cpps_fitting_read_as_the_readme_says() {
    let of = |metric| judged(replay::PLANS, 3, metric);
    assert_eq!(of("tg32"), "-4 (-12 to +4) Inconclusive, 3 + 3");
    assert_eq!(of("pp512"), "-59 (-66 to -51) Regressed, 3 + 3");
}

/// The finished plans: the two best of Flux's own against each other, then llama.cpp's fitting against the better.
#[test]
fn finished_plans_read_as_the_readme_says() {
    for (session, metric, own, fit) in [
        (
            1,
            "tg12",
            "-7 (-13 to -1) Unchanged",
            "+10 (-0 to +21) Inconclusive",
        ),
        (
            2,
            "tg16",
            "-9 (-17 to +2) Inconclusive",
            "+5 (-0 to +10) Inconclusive",
        ),
        (
            3,
            "tg24",
            "-9 (-17 to -1) Unchanged",
            "-6 (-13 to +1) Inconclusive",
        ),
        (
            4,
            "tg32",
            "+4 (-10 to +24) Inconclusive",
            "-9 (-14 to -2) Regressed",
        ),
        (
            5,
            "tg32",
            "+1 (-9 to +13) Inconclusive",
            "+1 (-17 to +27) Inconclusive",
        ),
    ] {
        let judged = all_judged(replay::BUDGETS, session, metric);
        let expected = [own, fit].map(|text| format!("{text}, 3 + 3"));
        assert_eq!(judged, expected, "session {session}");
    }
    let prompts = |session| judged(replay::BUDGETS, session, "pp256");
    assert_eq!(prompts(4), "-41 (-49 to -32) Regressed, 3 + 3");
    assert_eq!(prompts(5), "-31 (-39 to -22) Regressed, 3 + 3");
    let pair = all_judged(replay::TUNES, 15, "tg32");
    assert_eq!(
        pair,
        [
            "-3 (-19 to +15) Inconclusive, 3 + 3",
            "+1 (-16 to +22) Inconclusive, 3 + 3"
        ]
    );
    let prompts = judged(replay::TUNES, 15, "pp256");
    assert_eq!(prompts, "-30 (-35 to -23) Regressed, 3 + 3");
}

/// Tokens per second of prompt and of generation with 18 layers' experts in RAM: the first, the middle, the last, the first.
#[test]
fn where_experts_stay_in_ram_reads_as_the_readme_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/h200-expert-order.jsonl");
    let records = flux::domain::bench_record::parse(&fs::read(path).unwrap()).records;
    let rate = |r: &flux::domain::bench_record::Record| {
        let tokens = f64::from(r.test.tokens());
        let rates = r.samples_ns.iter().map(|ns| tokens * 1e9 / *ns as f64);
        (rates.sum::<f64>() / r.samples_ns.len() as f64).round() as u32
    };
    let rates: Vec<u32> = records.iter().map(rate).collect();
    assert_eq!(rates, [794, 107, 1180, 112, 1218, 96, 803, 104]);
}

/// Stock against stock 22 times, on both cards at once.
#[test]
fn of_22_sessions_of_stock_against_stock_none_improves_and_none_regresses() {
    let mut found = BTreeMap::new();
    let mut largest: f64 = 0.0;
    for recorded in [replay::TUNES, replay::STOCK] {
        for session in 1..=11 {
            let text = judged(recorded, session, "tg128");
            let change: f64 = text.split(' ').next().unwrap().parse().unwrap();
            largest = largest.max(change.abs());
            let verdict = text.split(' ').nth(4).unwrap().to_owned();
            *found.entry(verdict).or_insert(0) += 1;
        }
    }
    let found: Vec<(&str, i32)> = found.iter().map(|(v, n)| (v.as_str(), *n)).collect();
    assert_eq!(found, [("Inconclusive,", 21), ("Unchanged,", 1)]);
    assert!(largest < 3.0, "{largest}");
}

/// Percent of a session's time that is Flux's own: tunings, plans, comparisons of 15 s.
#[test]
fn what_flux_itself_took_reads_as_the_readme_says() {
    let of = |recorded, sessions: &[i64]| -> Vec<String> {
        let (_dir, store) = replay::opened(recorded);
        let share = |s: &i64| {
            let result = store.session(*s).unwrap().unwrap().end.unwrap().result;
            format!("{:.1}", result["overhead"]["flux_pct"].as_f64().unwrap())
        };
        sessions.iter().map(share).collect()
    };
    assert_eq!(of(replay::TUNES, &[14, 15]), ["0.4", "0.9"]);
    let plans = of(replay::BUDGETS, &[1, 2, 3, 4, 5]);
    assert_eq!(plans, ["1.4", "0.6", "0.8", "0.6", "0.7"]);
    assert_eq!(of(replay::TUNES, &[1, 3, 4]), ["4.0", "13.9", "1.6"]);
    assert_eq!(of(replay::STOCK, &[1, 3, 5]), ["4.0", "12.6", "1.8"]);
    assert_eq!(
        of(replay::VULKAN, &[1, 2, 3, 4, 6]),
        ["0.2", "0.4", "1.1", "0.3", "0.3"]
    );
}

/// The same by `flux show`: predictions before their runs, what was screened, what it cost.
#[test]
fn flux_show_prints_what_the_readme_says() {
    let shown = |recorded, sessions: &[i64]| -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        replay::unpack(recorded, dir.path());
        let show = |session: &i64| {
            let mut flux = std::process::Command::new(env!("CARGO_BIN_EXE_flux"));
            flux.arg("--data-dir").arg(dir.path());
            let output = flux.args(["show", &session.to_string()]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        sessions.iter().map(show).collect()
    };
    let has = |text: &str, part: &str| assert!(text.contains(part), "{part:?} is not in\n{text}");
    let plans = shown(replay::BUDGETS, &[1, 2, 3, 4, 5]);
    for (text, error) in plans.iter().zip(["12 %", "14 %", "5.8 %", "17 %", "11 %"]) {
        let told = format!("Mean error of the predictions: generation {error}, prompts ");
        has(text, &told);
    }
    let [mixture] = shown(replay::VULKAN, &[3]).try_into().unwrap();
    has(
        &mixture,
        "Mean error of the predictions: generation 22 %, prompts 22 %\n",
    );
    has(&mixture, "  Limits       12.00 GiB of each device\n");
    let [prompts] = shown(replay::VULKAN, &[2]).try_into().unwrap();
    for became in [
        "+9.1 %  15074 / 13026 / 332  confirmation: improved\n",
        "+12.7 %  15573 / 12935 / 332  no further gain: confirmed without batch size",
        "+13.2 %  15641 / 13791 / 314  harmful: nothing is built on it: a guarded",
        "−44.5 %    7663 / 7738 / 331  slower\n",
    ] {
        has(&prompts, became);
    }
    let [tuned] = shown(replay::H200, &[1]).try_into().unwrap();
    has(&tuned, "CUDA fusion off ");
    has(&tuned, "−7.8 %");
    has(&tuned, "What it cost\n  In all              2 min 58 s\n");
    has(&tuned, "Flux itself, share  0.16 %\n");
    // Broken off and gone on with, before sessions said so; and one that still can be.
    let [resumed] = shown(replay::TUNES, &[12]).try_into().unwrap();
    has(
        &resumed,
        "Runs until it broke off  3 min 35 s\n  Since it went on         23 s\n",
    );
    let [cancelled] = shown(replay::PLANS, &[7]).try_into().unwrap();
    has(&cancelled, " tune --resume 7` goes on with it\n");
}

#[test]
fn the_tunes_of_an_8b_read_as_the_readme_says() {
    let of = |session, metric| judged(replay::TUNES, session, metric);
    assert_eq!(of(12, "tg128"), "+3.3 (+2.6 to +3.9) Improved, 8 + 8");
    assert_eq!(of(12, "pp512"), "-0.2 (-0.4 to +0.0) Unchanged, 8 + 8");
    assert_eq!(of(12, "pp2048"), "-0.1 (-0.4 to +0.3) Unchanged, 8 + 8");
    assert_eq!(of(13, "pp2048"), "+0.8 (-0.1 to +1.8) Inconclusive, 8 + 8");
    assert_eq!(of(13, "tg128"), "+0.0 (-0.5 to +0.5) Unchanged, 8 + 8");
}

/// Four tunings on one card that ran to their end: on Vulkan 1, 4 and 6, on CUDA 2.
#[test]
fn the_tunes_on_both_backends_read_as_the_readme_says() {
    let of = |session, metric| judged(replay::VULKAN, session, metric);
    assert_eq!(of(1, "tg128"), "+8.7 (+8.1 to +9.2) Improved, 8 + 8");
    assert_eq!(of(1, "pp2048"), "-0.4 (-1.0 to +0.2) Unchanged, 8 + 8");
    assert_eq!(of(2, "pp2048"), "+8 (+7 to +10) Improved, 8 + 8");
    assert_eq!(of(2, "tg128"), "+0.1 (-0.1 to +0.3) Unchanged, 8 + 8");
    assert_eq!(of(4, "pp2048"), "+9.3 (+8.4 to +10.3) Improved, 8 + 8");
    assert_eq!(of(4, "tg128"), "+0.1 (-0.2 to +0.4) Unchanged, 8 + 8");
    assert_eq!(of(6, "tg128"), "+0 (-2 to +2) Inconclusive, 8 + 8");
}

/// Batch 1024 beside micro-batch 1024 read 15,489 to 15,630 tokens per second of pp2048, without it 14,911 to 15,161. The noise of
/// all tests together, 3.8 %, hid the loss of 3.2 % when the session ran, and batch 1024 was left behind. What the readings
/// tell by themselves counts now: after the same runs it stays.
#[test]
fn a_loss_that_the_readings_tell_is_no_noise() {
    let (_dir, store) = replay::opened(replay::VULKAN);
    let begun = store.session(2).unwrap().unwrap().begun;
    let plan: TunePlan = serde_json::from_value(begun.config["plan"].clone()).unwrap();
    let runs = store.runs(2).unwrap();
    let searched = runs.iter().take_while(|r| r.planned.side.is_none());
    let tuner = Tuner::resume(plan, searched.map(|r| (&r.planned, &r.run))).unwrap();
    let Step::Run(next) = tuner.next() else {
        panic!("the search is over");
    };
    // Batch 1024 stays; whether micro-batch 1024 earns its place is asked next.
    assert_eq!(next.stage, Stage::DropOne);
    assert_eq!(next.settings.to_string(), "batch=1024");
}

/// A mixture whose tokens choose different experts, within 12 GiB: two placements of Flux's own, then llama.cpp's fitting
/// against the better.
#[test]
fn the_plan_of_a_mixture_reads_as_the_readme_says() {
    let of = |metric| all_judged(replay::VULKAN, 3, metric);
    let tg = [
        "+6 (+0 to +12) Unchanged, 8 + 8",
        "-3 (-7 to +1) Inconclusive, 8 + 8",
    ];
    assert_eq!(of("tg32"), tg);
    let pp = [
        "+5 (-0 to +11) Inconclusive, 8 + 8",
        "-9 (-12 to -7) Regressed, 8 + 8",
    ];
    assert_eq!(of("pp256"), pp);
}

/// What a process takes of the card beside its buffers: the driver's context and pools, MiB.
#[test]
fn memory_beside_buffers_reads_as_the_readme_says() {
    let (_dir, store) = replay::opened(replay::PLANS);
    let of = |sessions: &[i64]| -> [u64; 2] {
        let mut found = Vec::new();
        for head in sessions.iter().flat_map(|s| store.run_heads(*s).unwrap()) {
            let placed = head.planned.settings.to_string();
            let told = head.buffers.iter().filter(|b| b.device == "CUDA0");
            let told: u64 = told.map(|b| b.total().0).sum();
            // A run that fits itself tells of its trials; one without layers tells little.
            if told == 0
                || placed.contains("fit=")
                || placed.contains("ngl=0")
                || head.planned.settings.is_stock()
            {
                continue;
            }
            let series = SeriesId {
                source: "0000:00:06.0".to_owned(),
                metric: Metric::VramUsed,
            };
            let used = head.telemetry.unwrap().timed(&series).unwrap().max;
            found.push((used as u64 - told) / (1 << 20));
        }
        [*found.iter().min().unwrap(), *found.iter().max().unwrap()]
    };
    assert_eq!(of(&[3, 4]), [711, 791]);
    assert_eq!(of(&[1, 2, 5]), [619, 696]);
}

/// The confirmation of one test of a recorded session, from the mean of each run and its place in run order.
fn confirmation(file: &str, test: &str) -> Comparison {
    let path = format!("{}/tests/recorded/{file}.csv", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    // session,run,seq,stage,side,settings,test,repetition,ns,tokens_per_second,outcome
    let mut runs: BTreeMap<u32, (String, Vec<f64>)> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        if fields[3] == "confirmation" && fields[6] == test {
            let run = runs.entry(fields[2].parse().unwrap()).or_default();
            fields[4].clone_into(&mut run.0);
            run.1.push(fields[9].parse().unwrap());
        }
    }
    let arm = |side: &str| -> Vec<Ordered> {
        let places = runs.values().enumerate().filter(|(_, (of, _))| of == side);
        let run_mean = |(place, (_, rates)): (usize, &(String, Vec<f64>))| Ordered {
            position: place as f64 + 1.0,
            value: rates.iter().sum::<f64>() / rates.len() as f64,
        };
        places.map(run_mean).collect()
    };
    confirm(&arm("A"), &arm("B"))
}

/// Change and interval as the README prints them, the runs per arm, the verdict.
fn assert_reads(c: &Comparison, change: &str, interval: [&str; 2], n: usize, verdict: Verdict) {
    let decimals = change.split_once('.').map_or(0, |(_, after)| after.len());
    let shown = |x: f64| format!("{x:+.decimals$}");
    let [low, high] = c.ci95_pct.unwrap();
    assert_eq!(shown(c.change_pct), change);
    assert_eq!([shown(low), shown(high)], interval);
    assert_eq!((c.baseline.n, c.candidate.n), (n, n));
    assert_eq!(c.verdict, verdict, "{}", c.reason);
}

/// The README's charts are those of `flux report SESSION --chart`. `UPDATE_SNAPSHOTS=1` draws them anew.
#[test]
fn the_charts_of_the_readme_are_of_these_sessions() {
    for (recorded, session, file) in [
        (replay::H200, "1", "h200-tune.svg"),
        (replay::PAIR, "1", "h200-pair.svg"),
        (replay::VULKAN, "1", "h200-vulkan.svg"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        replay::unpack(recorded, dir.path());
        let mut flux = Command::new(env!("CARGO_BIN_EXE_flux"));
        flux.arg("--data-dir").arg(dir.path());
        flux.args(["report", session, "--chart", "-o", "-"]);
        let output = flux.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("screenshots")
            .join(file);
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            fs::write(&path, &output.stdout).unwrap();
        }
        let kept = fs::read(&path).unwrap();
        assert!(kept == output.stdout, "{file} is not what Flux draws now");
    }
}

/// What is screened is in `flux show 1 --json`; the change against the last baseline before it.
#[test]
fn the_h200_sessions_read_as_the_readme_says() {
    let of = |session, metric| judged(replay::H200, session, metric);
    assert_eq!(of(1, "tg128"), "+3.0 (+2.3 to +3.6) Improved, 12 + 12");
    assert_eq!(of(1, "pp512"), "-2 (-4 to +1) Inconclusive, 12 + 12");
    assert_eq!(of(1, "pp2048"), "-0 (-1 to +1) Inconclusive, 12 + 12");
    assert_eq!(of(2, "tg128"), "+0.5 (-0.3 to +1.2) Inconclusive, 12 + 12");
    let dir = tempfile::tempdir().unwrap();
    replay::restore(dir.path());
    let store = SqliteStore::open(dir.path(), Access::Look).unwrap();
    let result = store.session(1).unwrap().unwrap().end.unwrap().result;
    let share = result["overhead"]["flux_pct"].as_f64().unwrap();
    assert_eq!(format!("{share:.2}"), "0.16");
    let changes = result["candidates"].as_array().unwrap().iter().map(|c| {
        let change = c["change_pct"].as_f64().unwrap();
        (c["settings"].to_string(), format!("{change:.1}"))
    });
    let changes: BTreeMap<String, String> = changes.collect();
    for (setting, change) in [
        (r#"{"pinned-memory":"off"}"#, "-1.9"),
        (r#"{"cuda-fusion":"off"}"#, "-7.8"),
        (r#"{"cuda-pdl":"off"}"#, "-13.2"),
        (r#"{"cuda-graphs":"off"}"#, "-16.8"),
        (r#"{"flash-attn":"off"}"#, "-17.3"),
    ] {
        assert_eq!(changes[setting], change, "{setting}");
    }
}

#[test]
fn the_h200_tune_reads_as_the_readme_says() {
    let file = "h200-qwen3-4b-tune";
    let tg = confirmation(file, "tg128");
    assert_reads(&tg, "+3.6", ["+2.7", "+4.4"], 12, Verdict::Improved);
    let pp = confirmation(file, "pp2048");
    assert_reads(&pp, "-0.1", ["-1.0", "+0.9"], 12, Verdict::Inconclusive);
}

/// Rates are GB/s at the largest size.
#[test]
fn the_h200_lab_reads_as_the_readme_says() {
    let path = format!(
        "{}/tests/recorded/lab-h200.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).unwrap();
    let lab: serde_json::Value = serde_json::from_str(&text).unwrap();
    let fastest_at_1gib = |is: &dyn Fn(&serde_json::Value) -> bool| {
        let kernels = lab["kernels"].as_array().unwrap().iter();
        let of = |k: &serde_json::Value| -> Option<f64> {
            let mut samples: Vec<f64> = k["samples"]
                .as_array()?
                .iter()
                .map(|s| s.as_f64().unwrap())
                .collect();
            samples.sort_by(f64::total_cmp);
            Some(samples[samples.len() / 2] / 1e9)
        };
        let rates = kernels
            .filter(|k| k["size"] == 1_u64 << 30 && is(k))
            .filter_map(of);
        rates.fold(0.0, f64::max).round() as u64
    };
    assert_eq!(fastest_at_1gib(&|k| k["operation"] == "copy"), 4218);
    assert_eq!(fastest_at_1gib(&|k| k["operation"] == "mat-vec"), 4531);
    let naive = |k: &serde_json::Value| k["layout"] == "thread-per-row" && k["format"] == "f32";
    assert_eq!(fastest_at_1gib(&naive), 955);
    let peak = lab["card"]["peak"].as_f64().unwrap() / 1e9;
    assert_eq!(peak.round() as u64, 4814);
    assert_eq!(
        lab["queues"]["verdict"],
        "this driver costs 5 µs less per submission (95 % interval 4 to 7) on the compute-only family"
    );
}

#[test]
fn the_h200_comparisons_read_as_the_readme_says() {
    let on = confirmation("h200-qwen3-4b-ab-graph-opt", "tg128");
    assert_reads(&on, "+5.6", ["+4.8", "+6.4"], 12, Verdict::Improved);
    let stock = confirmation("h200-qwen3-4b-ab-stock", "tg128");
    assert_reads(&stock, "+0.2", ["-0.7", "+1.0"], 12, Verdict::Inconclusive);
}

#[test]
fn the_cpu_tune_reads_as_the_readme_says() {
    let file = "gemma3-270m-cpu-tune";
    let tg = confirmation(file, "tg128");
    assert_reads(&tg, "+2", ["-9", "+15"], 4, Verdict::Inconclusive);
    assert!(tg.candidate.cv_pct.unwrap() > 10.0);
    let pp512 = confirmation(file, "pp512");
    assert_reads(&pp512, "+1", ["-7", "+10"], 4, Verdict::Inconclusive);
    let pp2048 = confirmation(file, "pp2048");
    assert_reads(&pp2048, "+13", ["+6", "+22"], 4, Verdict::Improved);
}
