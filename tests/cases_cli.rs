//! Cases C10, C15, C40, C41 and C43 through the real binary, and an exported machine's part in a search.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;

use flux::domain::types::{RunOutcome, Settings, Side, Stage};
use flux::ports::{Store as _, StoredRun};
use serde_json::{Value, json};

use bench_runs::CARD_TOML;
use flux_cli::{Bed, FLASH_WINS, ONLY_FLASH, document};

const QUEUE: &str = "GGML_VK_ALLOW_GRAPHICS_QUEUE";
/// The card of the paper.
const MACHINE: &[&str] = &["--machine", "rx580-2048sp"];

fn tests_of(run: &StoredRun) -> &[flux::domain::types::TestSamples] {
    match &run.run.outcome {
        RunOutcome::Valid { tests } => tests,
        other => panic!("run {} is not valid: {other:?}", run.seq),
    }
}

fn strings(values: &Value) -> Vec<&str> {
    values
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_str().unwrap())
        .collect()
}

#[test]
fn c10_an_inherited_switch_is_said_and_not_passed_on() {
    let bed = Bed::new(FLASH_WINS);
    let mut tune = bed.tune(ONLY_FLASH);
    let output = tune
        .env(QUEUE, "0")
        .env("LLAMA_ARG_THREADS", "7")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    for name in [QUEUE, "LLAMA_ARG_THREADS"] {
        let said = format!("note: {name} is set here; no run of Flux inherits it");
        assert_eq!(stderr.matches(&said).count(), 1, "{stderr}");
    }
    let runs = bed.store().runs(1).unwrap();
    for run in &runs {
        assert!(
            tests_of(run)
                .iter()
                .all(|t| t.record["fake_env"] == json!([]))
        );
    }
}

/// A card whose driver cannot create a device on the compute-only queues.
fn needs_graphics_queue(effects: &str) -> Bed {
    let lost = "[[behaviour]]\nwhen = [\"!env:GGML_VK_ALLOW_GRAPHICS_QUEUE\"]\n\
                do = { abort = \"vk::PhysicalDevice::createDevice: ErrorDeviceLost\" }\n";
    Bed::new(&format!("process_sd = 0.004\n{CARD_TOML}{lost}{effects}"))
}

#[test]
fn c15_where_stock_fails_the_graphics_queue_is_the_baseline() {
    let bed = needs_graphics_queue("[[effect]]\nwhen = [\"flash_attn=1\"]\ntg = 1.3\n");
    let only = ["--only", "graphics-queue,flash-attn", "--processes", "4"];
    let result = document(bed.tune(&only).args(MACHINE));
    let queue = json!({"graphics-queue": "on"});
    assert_eq!(result["baseline"]["settings"], queue);
    assert_eq!(
        result["baseline"]["stock_failure"]["class"],
        "device-creation"
    );
    let notices = result["notices"].as_array().unwrap();
    let said = notices
        .iter()
        .find(|n| n["code"] == "stock-failed")
        .unwrap();
    assert!(
        said["text"]
            .as_str()
            .unwrap()
            .contains("device could not be created"),
        "{said}"
    );
    assert_eq!(
        result["confirmation"]["baseline"], queue,
        "no percentage against stock"
    );
    assert_eq!(result["verdict"], "improved");
    let both = json!({"flash-attn": "on", "graphics-queue": "on"});
    assert_eq!(result["profile"]["settings"], both);
    assert_eq!(result["profile"]["env"], json!({QUEUE: "1"}));
    assert_eq!(bed.store().introductions(1).unwrap().len(), 2);
}

#[test]
fn c15_where_nothing_beats_the_fallback_nothing_is_claimed() {
    let bed = needs_graphics_queue("");
    let only = ["--only", "graphics-queue,flash-attn", "--processes", "4"];
    let result = document(bed.tune(&only).args(MACHINE));
    assert_eq!(
        result["baseline"]["settings"],
        json!({"graphics-queue": "on"})
    );
    assert_ne!(result["verdict"], "improved");
}

#[test]
fn c40_a_cold_first_repetition_is_kept_in_every_run_of_both_arms() {
    let bed = Bed::new(&format!("first_factor = 0.3\n{FLASH_WINS}"));
    let result = document(&mut bed.tune(ONLY_FLASH));
    assert_eq!(result["verdict"], "improved");
    for run in &bed.store().runs(1).unwrap() {
        for test in tests_of(run).iter().filter(|t| t.test.n_prompt > 0) {
            let ns = &test.samples_ns;
            assert_eq!(ns.len(), run.planned.repetitions as usize);
            assert!(ns[1..].iter().all(|n| ns[0] > 2 * n), "{ns:?}");
        }
    }
}

#[test]
fn c40_processes_that_differ_by_far_are_inconclusive() {
    let bed = Bed::new("process_sd = 0.3\n[[effect]]\nwhen = [\"flash_attn=1\"]\ntg = 1.3\n");
    let mut ab = bed.flux(&[
        "ab",
        "stock",
        "flash-attn=on",
        "--json",
        "--processes",
        "5",
        "--runtime",
    ]);
    let result = document(ab.arg(bed.fake.dir()).arg("-m").arg(&bed.model));
    assert_eq!(result["verdict"], "inconclusive");
    assert!(
        result["reason"].as_str().unwrap().contains('%'),
        "{}",
        result["reason"]
    );
}

#[test]
fn c41_every_arm_has_one_discarded_process_before_its_first_counted_one() {
    let bed = Bed::new(FLASH_WINS);
    let result = document(&mut bed.tune(ONLY_FLASH));
    let runs = bed.store().runs(1).unwrap();
    for arm in [
        Settings::stock(),
        Settings::stock().with("flash-attn", "on"),
    ] {
        let of_arm = |stage: Stage| {
            let matching = runs
                .iter()
                .filter(|r| r.planned.settings == arm && r.planned.stage == stage);
            matching.map(|r| r.seq).collect::<Vec<_>>()
        };
        let (warm_up, counted) = (of_arm(Stage::WarmUp), of_arm(Stage::Confirmation));
        assert_eq!((warm_up.len(), counted.len()), (1, 4), "{arm}");
        assert!(warm_up[0] < counted[0]);
    }
    let generation = &result["confirmation"]["metrics"]["tg128"];
    assert_eq!(generation["baseline"]["n"], 4);
    assert_eq!(generation["candidate"]["n"], 4);
}

#[test]
fn c43_a_micro_batch_is_searched_with_prompts_of_twice_its_size() {
    let bed = Bed::new("");
    let dry = document(&mut bed.tune(&["--only", "ubatch", "--dry-run", "--goal", "prompt"]));
    let longest = strings(&dry["tests"])
        .iter()
        .filter_map(|t| t.strip_prefix("pp")?.parse::<u32>().ok())
        .max()
        .unwrap();
    let candidates = dry["candidates"].as_array().unwrap();
    assert!(!candidates.is_empty());
    for candidate in candidates {
        let size: u32 = candidate["settings"]["ubatch"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!(2 * size <= longest, "{size} with a prompt of {longest}");
        assert_ne!(size, 512, "stock is no candidate");
    }
    let refused = dry["refused"].as_array().unwrap();
    let large = refused
        .iter()
        .find(|r| r["dimension"] == "ubatch" && r["value"] == "2048")
        .unwrap();
    assert!(
        large["reason"].as_str().unwrap().contains("prompt"),
        "{large}"
    );
    assert_eq!(bed.fake.processes(), 0, "a dry run measures nothing");
    assert_eq!(bed.store().sessions(9).unwrap(), []);
}

#[test]
fn a_card_without_int8_dot_fp16_and_matrix_cores_is_offered_none_of_them() {
    let bed = Bed::new(CARD_TOML);
    let dry = document(bed.tune(&["--dry-run"]).args(MACHINE));
    let offered: Vec<String> = dry["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|c| c["settings"].as_object().unwrap().keys().cloned())
        .collect();
    assert!(
        offered.contains(&"graphics-queue".to_owned()),
        "{offered:?}"
    );
    let refused = dry["refused"].as_array().unwrap();
    for (dimension, reason) in [
        ("mmvq", "8-bit dot"),
        ("integer-dot", "8-bit dot"),
        ("f16", "half-precision"),
        ("coopmat", "cooperative"),
        ("coopmat2", "cooperative"),
    ] {
        assert!(!offered.contains(&dimension.to_owned()), "{dimension}");
        let why = refused
            .iter()
            .find(|r| r["dimension"] == dimension)
            .unwrap();
        let text = why["reason"].as_str().unwrap().to_lowercase();
        assert!(text.contains(reason), "{dimension}: {text}");
    }
}

#[test]
fn a_builds_own_variables_are_in_the_command_that_serves() {
    let bed = Bed::new(CARD_TOML);
    let mut add = bed.flux(&["runtime", "add", "--name", "rocm", "--json"]);
    add.args(["--env", "HSA_OVERRIDE_GFX_VERSION=10.3.0"]);
    let added = document(add.arg(bed.fake.dir()));
    let env = json!({"HSA_OVERRIDE_GFX_VERSION": "10.3.0"});
    assert_eq!(added["runtime"]["env"], env);
    let mut run = bed.flux(&["run", "--print", "--json", "--runtime", "rocm", "-m"]);
    assert_eq!(document(run.arg(&bed.model))["env"], env);
    let mut print = bed.flux(&["-q", "run", "--print", "--runtime", "rocm", "-m"]);
    let printed = print.arg(&bed.model).output().unwrap();
    let text = String::from_utf8_lossy(&printed.stdout);
    assert!(
        text.starts_with("HSA_OVERRIDE_GFX_VERSION=10.3.0 "),
        "{text}"
    );
    let listed = bed.flux(&["runtime", "list"]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("rocm runs with HSA_OVERRIDE_GFX_VERSION=10.3.0"),
        "{listed}"
    );
}

#[test]
fn a_profile_of_an_exported_machine_never_reaches_the_real_one() {
    let bed = Bed::new(&format!("{FLASH_WINS}{CARD_TOML}"));
    let only = ONLY_FLASH;
    let result = document(bed.tune(only).args(MACHINE));
    assert_eq!(
        (&result["simulated"], &result["verdict"]),
        (&json!(true), &json!("improved"))
    );
    let profiles = bed.store().profiles().unwrap();
    assert!(profiles.iter().all(|p| p.simulated) && profiles.len() == 1);
    for more in [&[][..], &["--stale-ok"]] {
        let mut run = bed.flux(&["run", "--print", "--json", "--runtime"]);
        let plan = document(run.arg(bed.fake.dir()).arg("-m").arg(&bed.model).args(more));
        assert!(plan["profile"].is_null(), "{plan}");
        assert!(!strings(&plan["argv"]).contains(&"--flash-attn"));
        let codes = |plan: &serde_json::Value| -> Vec<String> {
            let notices = plan["notices"].as_array().unwrap().iter();
            notices
                .map(|n| n["code"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(codes(&plan), ["no-profile"]);
        // A document was asked for, and no server can be started beside it: it says so.
        let mut run = bed.flux(&["run", "--json", "--runtime"]);
        let plan = document(run.arg(bed.fake.dir()).arg("-m").arg(&bed.model).args(more));
        assert_eq!(codes(&plan), ["no-profile", "not-started"]);
    }
    // On the real machine it is no stale profile to begin with either.
    let dry = document(&mut bed.tune(&["--only", "flash-attn", "--dry-run"]));
    assert_eq!(dry["schema"], 1);
}

/// One folder with two environments is two builds: each is measured as itself, whichever is named first, and again later.
#[test]
fn two_builds_of_one_folder_are_not_mixed_up() {
    let bed = Bed::new(FLASH_WINS);
    let dir = bed.fake.dir().display().to_string();
    for (name, value) in [("one", "GGML_X=1"), ("two", "GGML_X=2")] {
        let add = ["runtime", "add", &dir, "--name", name, "--env", value];
        assert!(bed.flux(&add).status().unwrap().success());
    }
    let value = |run: &StoredRun| run.run.raw.env["GGML_X"].clone();
    let ab = ["ab", "two", "one", "--json", "--processes", "3", "-m"];
    document(bed.flux(&ab).arg(&bed.model));
    for run in &bed.store().runs(1).unwrap() {
        let expected = if run.planned.side == Some(Side::A) {
            "2"
        } else {
            "1"
        };
        assert_eq!(value(run), expected, "{:?}", run.planned);
    }
    let tune = [
        "tune",
        "--json",
        "--runtime",
        "two",
        "--only",
        "flash-attn",
        "--processes",
        "4",
    ];
    let tuned = document(bed.flux(&tune).arg("-m").arg(&bed.model));
    assert_eq!(tuned["verdict"], "improved");
    let check = [
        "serve-check",
        "--json",
        "--processes",
        "3",
        "--prompt-tokens",
        "64",
        "-m",
    ];
    document(bed.flux(&check).arg(&bed.model));
    for session in [2, 3] {
        let runs = bed.store().runs(session).unwrap();
        assert!(
            runs.iter().all(|run| value(run) == "2"),
            "session {session}"
        );
    }
}
