//! A simulated llama-bench (b11149): a real process that prints what the tool prints, at rates and with failures that
//! `fake-bench.toml` beside it scripts. Under the name `llama-server` it says its version and its flags, and serves until
//! it is ended.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it stands in for a program that prints"
)]

#[path = "fake_acts.rs"]
mod fake_acts;
#[path = "fake_config.rs"]
mod fake_config;
#[path = "fake_llama_server.rs"]
mod fake_llama_server;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use fake_config::{Act, Config, Situation};
use serde_json::{Map, Value, json};

const BENCH_HELP: &str = include_str!("fake_bench_help.txt");
const SERVER_HELP: &str = include_str!("fake_server_help.txt");

/// Flags with their record field; the value that follows becomes the field's.
const FLAGS: &[(&[&str], &str)] = &[
    (&["-m", "--model"], "model_filename"),
    (&["-b", "--batch-size"], "n_batch"),
    (&["-ub", "--ubatch-size"], "n_ubatch"),
    (&["-ctk", "--cache-type-k"], "type_k"),
    (&["-ctv", "--cache-type-v"], "type_v"),
    (&["-t", "--threads"], "n_threads"),
    (&["-C", "--cpu-mask"], "cpu_mask"),
    (&["--cpu-strict"], "cpu_strict"),
    (&["--poll"], "poll"),
    (&["-ngl", "--n-gpu-layers"], "n_gpu_layers"),
    (&["-ncmoe", "--n-cpu-moe"], "n_cpu_moe"),
    (&["-sm", "--split-mode"], "split_mode"),
    (&["-mg", "--main-gpu"], "main_gpu"),
    (&["-nkvo", "--no-kv-offload"], "no_kv_offload"),
    (&["-fa", "--flash-attn"], "flash_attn"),
    (&["-dev", "--device"], "devices"),
    (&["-lm", "--load-mode"], "load_mode"),
    (&["-lzm", "--lazy-mode"], "lazy_mode"),
    (&["-embd", "--embeddings"], "embeddings"),
    (&["-ts", "--tensor-split"], "tensor_split"),
    (&["-ot", "--override-tensor"], "tensor_buft_overrides"),
    (&["-nopo", "--no-op-offload"], "no_op_offload"),
    (&["--no-host"], "no_host"),
    (&["-fitt", "--fit-target"], "fit_target"),
    (&["-fitc", "--fit-ctx"], "fit_min_ctx"),
];
/// Flags with a value that is in no record.
const OTHER: &[&str] = &["-o", "--output", "--prio", "--delay", "--numa", "-oe"];

struct Args {
    fields: Map<String, Value>,
    prompts: Vec<u32>,
    generations: Vec<u32>,
    pairs: Vec<(u32, u32)>,
    depths: Vec<u32>,
    splits: Vec<String>,
    repetitions: u32,
    progress: bool,
    verbose: bool,
    given: BTreeSet<&'static str>,
}

fn main() -> ExitCode {
    let exe = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("llama-bench"));
    let dir = exe.parent().unwrap_or(Path::new(".")).to_owned();
    let is_server = exe
        .file_stem()
        .is_some_and(|s| s.to_string_lossy().contains("server"));
    let config = match Config::read(&dir) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("fake-llama-bench: {error}");
            return ExitCode::from(70);
        }
    };
    let args: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    match args.first().map(String::as_str) {
        Some("--sleep") => std::thread::sleep(std::time::Duration::from_hours(1)),
        Some("--version") => eprintln!("{}", config.version_text()),
        Some("-h" | "--help") if is_server => print!("{SERVER_HELP}"),
        Some("-h" | "--help") => print!("usage: {} [options]\n\n{BENCH_HELP}", exe.display()),
        Some("--list-devices") => config.list_devices(),
        _ if is_server => {
            let fields = server_fields(&config, &args);
            return fake_llama_server::serve(&dir, config, fields, &args);
        }
        _ => return bench(&dir, &config, &args),
    }
    ExitCode::SUCCESS
}

/// Record fields as llama-server's arguments set them, for conditions; it knows more arguments than these.
fn server_fields(config: &Config, args: &[String]) -> Map<String, Value> {
    let mut fields = config.default_fields();
    for pair in args.windows(2) {
        let known = FLAGS
            .iter()
            .find(|(names, _)| names.contains(&pair[0].as_str()));
        if let Some((_, field)) = known {
            fields.insert((*field).to_owned(), typed(field, &pair[1]));
        }
    }
    fields
}

fn bench(dir: &Path, config: &Config, args: &[String]) -> ExitCode {
    config.print_banner();
    let args = match parse(config, args) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("error: invalid parameter for argument: {error}");
            print!("{BENCH_HELP}");
            return ExitCode::from(1);
        }
    };
    let process = fake_config::count_process(dir);
    let situation = Situation::new(args.fields.clone(), process);
    let acts = config.acts(&situation);
    for act in &acts {
        if let Some(code) = fake_acts::before_results(act) {
            return code;
        }
    }
    let code = results(config, &args, &situation, &acts);
    for act in &acts {
        if let Some(code) = fake_acts::after_results(act) {
            return code;
        }
    }
    code
}

fn numbers(text: &str) -> Result<Vec<u32>, String> {
    let parse = |part: &str| part.trim().parse().map_err(|_| text.to_owned());
    text.split(',').map(parse).collect()
}

fn parse(config: &Config, given: &[String]) -> Result<Args, String> {
    let mut args = Args {
        fields: config.default_fields(),
        prompts: vec![512],
        generations: vec![128],
        pairs: Vec::new(),
        depths: vec![0],
        splits: Vec::new(),
        repetitions: 5,
        progress: false,
        verbose: false,
        given: BTreeSet::new(),
    };
    let mut rest = given.iter();
    while let Some(flag) = rest.next() {
        match flag.as_str() {
            "--progress" => args.progress = true,
            "-v" | "--verbose" => args.verbose = true,
            "--no-warmup" => {}
            _ => {
                let value = rest.next().ok_or_else(|| flag.clone())?;
                set(&mut args, flag, value)?;
            }
        }
    }
    Ok(args)
}

fn set(args: &mut Args, flag: &str, value: &str) -> Result<(), String> {
    match flag {
        "-p" | "--n-prompt" => args.prompts = numbers(value)?,
        "-n" | "--n-gen" => args.generations = numbers(value)?,
        "-d" | "--n-depth" => args.depths = numbers(value)?,
        "-r" | "--repetitions" => args.repetitions = numbers(value)?[0],
        "-pg" => match numbers(value)?[..] {
            [prompt, generated] => args.pairs.push((prompt, generated)),
            _ => return Err(flag.to_owned()),
        },
        _ if OTHER.contains(&flag) => {}
        _ => {
            let known = FLAGS.iter().find(|(names, _)| names.contains(&flag));
            let (_, field) = known.ok_or_else(|| flag.to_owned())?;
            // A comma means several tests (case C06); only the split is followed here.
            if *field == "tensor_split" {
                args.splits = value.split(',').map(str::to_owned).collect();
            }
            // The tool would measure both values; nothing of Flux asks for that.
            if !args.given.insert(field) {
                return Err(format!("{flag}, given twice"));
            }
            args.fields.insert((*field).to_owned(), typed(field, value));
        }
    }
    Ok(())
}

/// The value as the tool prints it.
fn typed(field: &str, value: &str) -> Value {
    match (field, value) {
        ("flash_attn", "on") => json!(1),
        ("flash_attn", "off") => json!(0),
        ("flash_attn", "auto") => json!(-1),
        ("cpu_strict" | "no_kv_offload" | "embeddings" | "no_host", v) => json!(v == "1"),
        (_, v) => v.parse::<i64>().map_or_else(|_| json!(v), |n| json!(n)),
    }
}

/// (prompt, generated, depth) in the tool's order.
fn tests(args: &Args) -> Vec<(u32, u32, u32)> {
    let mut all = Vec::new();
    for &depth in &args.depths {
        all.extend(args.prompts.iter().map(|&p| (p, 0, depth)));
        all.extend(args.generations.iter().map(|&g| (0, g, depth)));
        all.extend(args.pairs.iter().map(|&(p, g)| (p, g, depth)));
    }
    all.retain(|(p, g, _)| p + g > 0);
    let times = args.splits.len().max(1);
    all.repeat(times)
}

fn results(config: &Config, args: &Args, situation: &Situation, acts: &[Act]) -> ExitCode {
    let mut noise = config.noise(situation.process);
    let tests = tests(args);
    let is_array = acts.contains(&Act::Array) || acts.contains(&Act::Truncated);
    if is_array {
        println!("[");
    }
    if args.verbose {
        config.log_model(&args.fields);
    }
    for (index, &(prompt, generated, depth)) in tests.iter().enumerate() {
        let mark = |what: String| {
            if args.progress {
                let (i, n) = (index + 1, tests.len());
                eprintln!("llama-bench: benchmark {i}/{n}: {what}");
            }
        };
        let kind = if prompt > 0 { "prompt" } else { "generation" };
        mark("starting".to_owned());
        if args.verbose {
            config.log_context(prompt + generated + depth, &args.fields);
        }
        mark(format!("warmup {kind} run"));
        let mut samples = Vec::new();
        for repetition in 0..args.repetitions {
            mark(format!(
                "{kind} run {}/{}",
                repetition + 1,
                args.repetitions
            ));
            std::thread::sleep(Duration::from_millis(config.sleep_ms_per_rep));
            let slowed = config.seconds(situation, prompt, generated, repetition);
            samples.push((slowed * 1e9 * noise.next()).round().max(1.0) as u64);
        }
        let mut fields = args.fields.clone();
        fields.extend(config.effective(situation));
        if let Some(split) = args.splits.get(index * args.splits.len() / tests.len()) {
            fields.insert("tensor_split".to_owned(), json!(split));
        }
        let record = record(fields, (prompt, generated, depth), &samples, acts);
        if !acts.contains(&Act::WrongTests) || index == 0 {
            print_record(&record, is_array, index + 1 < tests.len(), acts);
        }
        if acts.contains(&Act::Truncated) && index == 0 {
            print!("{}", &record[..record.len() / 2]);
            let _ = std::io::stdout().flush();
            return ExitCode::from(1);
        }
    }
    if is_array {
        println!("]");
    }
    ExitCode::SUCCESS
}

fn print_record(record: &str, is_array: bool, has_next: bool, acts: &[Act]) {
    if acts.contains(&Act::Noise) {
        println!("load_backend: loaded CPU backend from /opt/libggml-cpu.so");
    }
    let comma = if is_array && has_next { "," } else { "" };
    let mut out = std::io::stdout();
    if acts.contains(&Act::NonUtf8) {
        let (before, after) = record.split_once("simulated.gguf").unwrap_or((record, ""));
        let _ =
            out.write_all(&[before.as_bytes(), b"\xff\xfe.gguf", after.as_bytes(), b"\n"].concat());
    } else {
        println!("{record}{comma}");
    }
    if acts.contains(&Act::Noise) {
        println!("WARNING: radv is not a conformant Vulkan implementation, testing use only.");
    }
    let _ = out.flush();
}

/// One record as the tool prints it: one line, samples last.
fn record(
    mut fields: Map<String, Value>,
    test: (u32, u32, u32),
    ns: &[u64],
    acts: &[Act],
) -> String {
    let (prompt, generated, depth) = test;
    let tokens = f64::from(prompt + generated);
    let rates: Vec<f64> = ns.iter().map(|&n| tokens * 1e9 / n as f64).collect();
    let of_ns: Vec<f64> = ns.iter().map(|&n| n as f64).collect();
    let ((avg_ns, stddev_ns), (avg_ts, stddev_ts)) = (moments(&of_ns), moments(&rates));
    for (name, value) in [
        ("n_prompt", json!(prompt)),
        ("n_gen", json!(generated)),
        ("n_depth", json!(depth)),
        ("test_time", json!("2026-11-29T00:00:00Z")),
        ("avg_ns", json!(avg_ns as u64)),
        ("stddev_ns", json!(stddev_ns as u64)),
        ("avg_ts", json!(avg_ts)),
        ("stddev_ts", json!(stddev_ts)),
        ("samples_ns", json!(ns)),
        ("samples_ts", json!(rates)),
    ] {
        fields.insert(name.to_owned(), value);
    }
    let mut text = Value::Object(fields).to_string();
    if acts.contains(&Act::PrintNan) {
        // The tool's own printf of a non-finite rate; this is no JSON.
        text = text.replacen(
            &format!("\"avg_ts\":{}", json!(avg_ts)),
            "\"avg_ts\":nan",
            1,
        );
    }
    text
}

/// Mean and sample standard deviation.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0).max(1.0)).sqrt())
}
