//! `flux plan` as a contract: its document, what it learns from, what it refuses, and what measuring stores.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;
#[path = "support/gguf_bytes.rs"]
mod gguf_bytes;
#[path = "support/placement.rs"]
mod placement_support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use flux::ports::{SessionKind, Store as _};
use flux_cli::{Bed, document, refused};
use gguf_bytes::{F32, Gguf};
use placement_support::sparse;

const QUIET: &str = "process_sd = 0.002\nrepetition_sd = 0.002\n";

fn model_of(bed: &Bed, shape: &str) -> PathBuf {
    let output = bed.fake.scratch().join(format!("{shape}.gguf"));
    sparse(shape, &output);
    output
}

/// The H200 runs named, in a file of their own.
fn records(bed: &Bed, runs: &[&str]) -> PathBuf {
    let all =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/placement/h200-dense.jsonl");
    let of_run = |line: &&str| {
        let record: Value = serde_json::from_str(line).unwrap();
        runs.contains(&record["run"].as_str().unwrap())
    };
    let text = fs::read_to_string(all).unwrap();
    let kept: Vec<&str> = text.lines().filter(of_run).collect();
    let file = bed.fake.scratch().join("records.jsonl");
    fs::write(&file, kept.join("\n")).unwrap();
    file
}

fn plan(bed: &Bed, model: &Path, args: &[&str]) -> Value {
    let mut command = bed.flux(&["plan", "--json", "-m"]);
    command.arg(model).args(args);
    document(&mut command)
}

/// Case C35: a projector of 4 MiB beside the model takes its room on the first device, and the plan says so.
#[test]
fn a_projector_beside_the_model_is_left_room() {
    let bed = Bed::new(QUIET);
    let folder = bed.fake.scratch().join("vision");
    fs::create_dir(&folder).unwrap();
    let model = folder.join("model.gguf");
    sparse("qwen3-0.6b", &model);
    let usable = |document: &Value| document["chosen"]["memory"][0]["usable"].as_u64().unwrap();
    let without = plan(&bed, &model, &["--machine", "h200"]);
    let projector = Gguf::new().text("general.architecture", "clip").tensor(
        "v.patch_embd.weight",
        &[1024, 1024],
        F32,
        0,
    );
    let beside = model.with_file_name("mmproj-f32.gguf");
    fs::write(beside, projector.data(4 << 20).build()).unwrap();
    let with = plan(&bed, &model, &["--machine", "h200"]);
    assert_eq!(usable(&without) - usable(&with), 4 << 20);
    let notices = with["notices"].as_array().unwrap();
    let said = notices.iter().find(|n| n["code"] == "projector").unwrap();
    let text = said["text"].as_str().unwrap();
    let start = "mmproj-f32.gguf lies beside the model: its weights, 4.0 MiB, are left free on ";
    assert!(text.starts_with(start), "{text}");
    // Two models in the folder: whose it is cannot be told.
    sparse("tiny", &folder.join("another.gguf"));
    let again = plan(&bed, &model, &["--machine", "h200"]);
    assert_eq!(usable(&again), usable(&without));
}

#[test]
fn a_plan_for_an_exported_machine_learns_from_records_and_answers_by_name() {
    let bed = Bed::new(QUIET);
    let model = model_of(&bed, "qwen3-4b");
    let three = records(&bed, &["ngl37", "ngl30", "ngl6"]);
    let three = three.to_str().unwrap();
    let args = [
        "--machine",
        "h200",
        "--learn-from",
        three,
        "--predict",
        "ngl=24",
        "--predict",
        "ngl=0 p=128 n=32",
    ];
    let plan = plan(&bed, &model, &args);
    let answers = plan["predictions"].as_array().unwrap();
    // Measured: 56.34 and 21.07 tokens per second.
    for (answer, measured) in answers.iter().zip([56.34, 21.07]) {
        let tg = answer["predicted"]["tg"].as_f64().unwrap();
        assert!((tg / measured - 1.0).abs() < 0.06, "{tg} for {measured}");
    }
    assert_eq!(answers[0]["placement"]["n_gpu_layers"], 24);
    assert_eq!(answers[0]["tier"], "split-by-layer");
    let status = |name: &str| {
        let constants = plan["fit"]["constants"].as_array().unwrap();
        let found = constants
            .iter()
            .find(|c| c["name"].as_str().unwrap().starts_with(name));
        found.unwrap()["status"].clone()
    };
    assert_eq!(status("cpu_bandwidth"), "fitted");
    assert_eq!(status("gpu_bandwidth"), "fitted");
    assert_eq!(status("handoff"), "assumed");
    assert_eq!(plan["fit"]["runs"], 6);
    assert!(plan["fit"]["mean_abs_error_pct"].as_f64().unwrap() < 6.0);
    assert_eq!(plan["fit"]["models"][0]["runs"], 6);
    assert_eq!(plan["fit"]["residuals"].as_array().unwrap().len(), 6);
    let residual = &plan["fit"]["residuals"][0];
    let ratio = residual["predicted"].as_f64().unwrap() / residual["measured"].as_f64().unwrap();
    assert!((100.0 * (ratio - 1.0) - residual["error_pct"].as_f64().unwrap()).abs() < 1e-6);
    let chosen = &plan["chosen"];
    assert_eq!(chosen["tier"], "gpu-resident");
    let memory = chosen["memory"].as_array().unwrap();
    assert_eq!(memory.last().unwrap()["device"], "Host");
    assert!(memory.iter().all(|m| m["fits"] == true));
    let total = |m: &Value| {
        ["weights", "kv", "compute"]
            .map(|k| m[k].as_u64().unwrap())
            .iter()
            .sum::<u64>()
    };
    assert!(
        memory
            .iter()
            .all(|m| total(m) == m["total"].as_u64().unwrap())
    );
    let args = chosen["args"]["server"].as_array().unwrap();
    assert!(args.windows(2).any(|w| w[0] == "-ngl" && w[1] == "37"));
}

/// Records of a model whose file is still there give the machine's constants for another one.
#[test]
fn another_models_records_start_a_plan() {
    let bed = Bed::new(QUIET);
    let (dense, mixture) = (model_of(&bed, "qwen3-4b"), model_of(&bed, "qwen3-30b-a3b"));
    let file = records(&bed, &["ngl37", "ngl30", "ngl6"]);
    let text = fs::read_to_string(&file).unwrap();
    let moved: Vec<String> = text
        .lines()
        .map(|line| {
            let mut record: Value = serde_json::from_str(line).unwrap();
            record["model_filename"] = dense.to_str().unwrap().into();
            record.to_string()
        })
        .collect();
    fs::write(&file, moved.join("\n")).unwrap();
    let args = ["--machine", "h200", "--learn-from", file.to_str().unwrap()];
    let started = plan(&bed, &mixture, &args);
    let fit = &started["fit"];
    assert_eq!(
        (&fit["runs"], &fit["models"][0]["runs"]),
        (&6.into(), &6.into())
    );
    assert!(fit["mean_abs_error_pct"].is_null());
    let constants = fit["constants"].as_array().unwrap();
    let named = |name: &str| {
        let found = constants.iter().find(|c| c["name"] == name);
        found.unwrap().clone()
    };
    let ram = named("cpu_bandwidth");
    assert_eq!(ram["status"], "fitted");
    let origin = ram["origin"].as_str().unwrap();
    assert!(origin.contains("3 runs of Qwen3 4B"), "{origin}");
    assert_eq!(named("expert_spread")["status"], "assumed");
    let mut told = bed.flux(&["plan", "-m"]);
    told.arg(&mixture).args(args);
    let told = String::from_utf8(told.output().unwrap().stdout).unwrap();
    assert!(
        told.contains("from a fit over 6 benchmarks: 6 of Qwen3 4B"),
        "{told}"
    );
    assert!(told.contains("none of them of this model"), "{told}");
    // Without its file nothing says what a placement of it reads.
    fs::remove_file(&dense).unwrap();
    let left_out = plan(&bed, &mixture, &args);
    assert_eq!(left_out["fit"]["runs"], 0);
    let notices = left_out["notices"].to_string();
    assert!(
        notices.contains("no file of that model is known here"),
        "{notices}"
    );
}

#[test]
fn limits_hold_and_a_model_larger_than_ram_is_told_to_stream() {
    let bed = Bed::new(QUIET);
    let model = model_of(&bed, "qwen3-8b");
    let limited = plan(
        &bed,
        &model,
        &["--machine", "rx580-2048sp", "--vram-limit", "1.37GB"],
    );
    let card = &limited["chosen"]["memory"][0];
    assert!(card["total"].as_u64().unwrap() <= 1_370_000_000);
    let little = [
        "--machine",
        "rx580-2048sp",
        "--device",
        "cpu",
        "--ram-limit",
        "2GiB",
    ];
    let streamed = plan(&bed, &model, &little);
    assert_eq!(streamed["chosen"]["streams"], true);
    assert_eq!(streamed["chosen"]["memory"][0]["fits"], false);
    // No device is to be used: without the word llama.cpp would use the card for prompts all the same.
    for tool in ["bench", "server"] {
        let args = &streamed["chosen"]["args"][tool];
        let begins: Vec<&str> = args
            .as_array()
            .unwrap()
            .iter()
            .take(2)
            .filter_map(|a| a.as_str())
            .collect();
        assert!(begins.is_empty() || begins == ["-dev", "none"], "{args}");
    }
    let mut command = bed.flux(&["plan", "-m"]);
    let printed = command.arg(&model).args(little).output().unwrap();
    let text = String::from_utf8_lossy(&printed.stdout);
    let said = "Weights do not fit in RAM: they are read from the disk for every token, at 0.500 GB/s (assumed); --no-repack, ";
    assert!(text.lines().any(|line| line.starts_with(said)), "{text}");
    let server = text.lines().rfind(|line| line.contains("llama-server"));
    assert!(server.unwrap().contains(" --no-repack "), "{text}");
    assert!(text.contains("predicted from assumed bandwidths"), "{text}");
}

/// Runs are not held to the limit: what they read came from RAM, and teaches nothing of the disk.
#[test]
fn a_limit_on_ram_changes_the_plan_and_not_what_runs_taught() {
    let bed = Bed::new(QUIET);
    let model = model_of(&bed, "qwen3-4b");
    let cpu = records(&bed, &["ngl0"]);
    let machine = ["--machine", "h200", "--device", "cpu", "--learn-from"];
    let with = |more: &[&str]| {
        let args: Vec<&str> = machine.into_iter().chain([cpu.to_str().unwrap()]).collect();
        plan(&bed, &model, &[&args[..], more].concat())
    };
    let (free, limited) = (with(&[]), with(&["--ram-limit", "1GiB"]));
    assert_eq!(limited["chosen"]["streams"], true);
    assert_eq!(free["chosen"]["streams"], false);
    assert_eq!(limited["fit"], free["fit"]);
    let constants = limited["fit"]["constants"].as_array().unwrap();
    let status = |name: &str| &constants.iter().find(|c| c["name"] == name).unwrap()["status"];
    assert_eq!(status("cpu_bandwidth"), "fitted");
    assert_eq!(status("disk_bandwidth"), "assumed");
}

#[test]
fn what_cannot_be_planned_is_refused_in_one_sentence() {
    let bed = Bed::new(QUIET);
    let model = model_of(&bed, "qwen3-4b");
    let said = |args: &[&str], status| {
        let mut command = bed.flux(&["plan", "-m"]);
        command.arg(&model).args(["--machine", "h200"]).args(args);
        refused(&command.output().unwrap(), status)
    };
    assert!(said(&["--predict", "layers=3"], 2).contains("known: ngl"));
    assert!(said(&["--predict", "experts=0-3"], 2).contains("this model has no experts"));
    assert!(said(&["--device", "CUDA7"], 2).contains("no device CUDA7"));
    assert!(said(&["--learn-from", "/no/such.jsonl"], 1).contains("cannot read records"));
    let empty = bed.fake.scratch().join("empty.jsonl");
    fs::write(&empty, "no record\n").unwrap();
    assert!(said(&["--learn-from", empty.to_str().unwrap()], 1).contains("no llama-bench record"));
    assert!(said(&["--vram-limit", "much"], 2).contains("6GiB"));
}

/// The simulated runtime offloads nothing: two placements on the CPU, stock beside them, and no gain to be found.
#[test]
fn measuring_stores_a_session_its_placements_and_the_fit() {
    let bed = Bed::new(QUIET);
    let mut command = bed.flux(&["plan", "--json", "--bench", "--processes", "3", "-m"]);
    command.arg(&bed.model).arg("--runtime").arg(bed.fake.dir());
    let plan = document(&mut command);
    let bench = &plan["bench"];
    assert!(bench["stock"]["tg"].as_f64().unwrap() > 0.0);
    assert!(!bench["placements"].as_array().unwrap().is_empty());
    assert!(bench["profile"].is_null(), "{}", bench["reason"]);
    assert!(
        bench["reason"]
            .as_str()
            .unwrap()
            .contains("not shown to be faster")
    );
    let store = bed.store();
    let session = store
        .session(bench["session"].as_i64().unwrap())
        .unwrap()
        .unwrap();
    assert_eq!(session.begun.kind, SessionKind::Plan);
    let key = session.begun.fingerprint.hash;
    assert_eq!(store.fits(&key).unwrap().len(), 1);
    // Nobody had measured this machine: that came first, and is remembered.
    let scan = document(&mut bed.flux(&["scan", "--json"]));
    let paths = scan["bandwidth"]["paths"].as_array().unwrap();
    assert!(paths.iter().any(|p| p["path"] == "ram-read"), "{paths:?}");
    let digest = session.begun.model.digest;
    let placements = store.placements(&key, Some(&digest)).unwrap();
    assert_eq!(
        placements.len(),
        bench["placements"].as_array().unwrap().len()
    );
    let error = &plan["fit"]["history"][0];
    let counted = bench["placements"].as_array().unwrap();
    let predicted = counted.iter().filter(|p| p["failure"].is_null());
    let errors: Vec<f64> = predicted
        .map(|p| p["predicted_tg"].as_f64().unwrap() / p["tg"].as_f64().unwrap() - 1.0)
        .map(|e| e.abs() * 100.0)
        .collect();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    assert!((error["error_pct"].as_f64().unwrap() - mean).abs() < 1e-9);
    // A later plan tells what predictions were worth.
    let mut later = bed.flux(&["plan", "-m"]);
    later.arg(&bed.model).arg("--runtime").arg(bed.fake.dir());
    let later = String::from_utf8(later.output().unwrap().stdout).unwrap();
    assert!(later.contains("Error of predictions so far: "), "{later}");
    assert!(
        later.contains(" % over 1 benchmark of this machine"),
        "{later}"
    );
    let history = bed.flux(&["history"]).output().unwrap();
    assert!(String::from_utf8_lossy(&history.stdout).contains("plan"));
}

#[test]
fn what_matches_nothing_and_what_cannot_be_measured_is_refused() {
    let bed = Bed::new(QUIET);
    let model = model_of(&bed, "qwen3-4b");
    let said = |args: &[&str]| {
        let mut command = bed.flux(&["plan", "-m"]);
        command.arg(&model).args(args);
        refused(&command.output().unwrap(), 2)
    };
    assert!(said(&["--predict", "ncmoe=8"]).contains("this model has no experts"));
    assert!(said(&["--predict", "ffn=0-200"]).contains("this model has the layers 0 to 35"));
    assert!(said(&["--goal", "energy"]).contains("not energy"));
    let other = [
        "--machine",
        "tests/fixtures/machines/rx580-2048sp",
        "--bench",
    ];
    assert!(said(&other).contains("cannot measure the one of --machine"));
}

#[test]
fn records_of_another_machine_and_too_long_contexts_are_told() {
    let bed = Bed::new(QUIET);
    let model = model_of(&bed, "qwen3-4b");
    let file = records(&bed, &["ngl37"]);
    let machine = "tests/fixtures/machines/rtx-4070";
    let args = [
        "--machine",
        machine,
        "--learn-from",
        file.to_str().unwrap(),
        "--context",
        "1000000",
    ];
    let plan = plan(&bed, &model, &args);
    let codes: Vec<&str> = plan["notices"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|n| n["code"].as_str())
        .collect();
    assert!(
        codes.contains(&"other-machine") && codes.contains(&"context"),
        "{codes:?}"
    );
}

#[test]
fn where_nothing_fits_it_says_what_lacks() {
    let bed = Bed::new(QUIET);
    let model = model_of(&bed, "qwen3-4b");
    let mut command = bed.flux(&[
        "plan",
        "--machine",
        "tests/fixtures/machines/rtx-4070",
        "--vram-limit",
        "10MiB",
        "-m",
    ]);
    let output = command.arg(&model).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("No placement of this model fits"), "{text}");
    assert!(text.contains("With everything in RAM: "), "{text}");
}

/// Each confirmation with its own arms, in the report as in the session.
#[test]
fn a_report_of_a_benchmark_shows_its_confirmations() {
    let bed = Bed::new(
        "process_sd = 0.002\nrepetition_sd = 0.002\n\n[[effect]]\nwhen = [\"n_ubatch=2048\"]\npp = 1.2\ntg = 1.2\n",
    );
    bed.knows_bandwidths();
    let mut command = bed.flux(&["plan", "--json", "--bench", "--processes", "3", "-m"]);
    command.arg(&bed.model).arg("--runtime").arg(bed.fake.dir());
    let bench = document(&mut command)["bench"].clone();
    let confirmations = bench["confirmations"].as_array().unwrap().len();
    assert!(confirmations > 0);
    let page = bed.fake.scratch().join("report.html");
    let report = bed
        .flux(&["report", "1", "-o", page.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(
        report.status.success(),
        "{}",
        String::from_utf8_lossy(&report.stderr)
    );
    let html = fs::read_to_string(&page).unwrap();
    assert!(
        !html.contains("Not judged yet") && !html.contains("A failed"),
        "the arms are not those of its runs"
    );
    let shown = bed.flux(&["show", "1"]).output().unwrap();
    let text = String::from_utf8_lossy(&shown.stdout);
    assert_eq!(
        text.matches(" against ").count().min(confirmations),
        confirmations,
        "{text}"
    );
}
