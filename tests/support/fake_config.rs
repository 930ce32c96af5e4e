//! What `fake-bench.toml` scripts: true rates, effects of settings, noise, devices, and behaviours by condition.
//! A condition is `n_ubatch=1024` (a record field), `env:NAME` (set) or `env:NAME=VALUE`, `!` before it turns it round;
//! all of a list must hold.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// True stock rates, tokens per second.
    pp: f64,
    tg: f64,
    /// Relative standard deviations between processes and between repetitions.
    process_sd: f64,
    repetition_sd: f64,
    /// Speed of a process's first prompt repetition, as a share of the others'.
    first_factor: f64,
    /// Relative change of speed from one process to the next.
    process_drift: f64,
    seed: u64,
    pub sleep_ms_per_rep: u64,
    version: String,
    build_number: u64,
    build_commit: String,
    layers: u32,
    model_mib: f64,
    device: Vec<Device>,
    effect: Vec<Effect>,
    behaviour: Vec<Behaviour>,
}

impl Default for Config {
    /// The RX 580 of the paper, section 4, without noise.
    fn default() -> Self {
        Self {
            pp: 187.0,
            tg: 22.81,
            process_sd: 0.0,
            repetition_sd: 0.0,
            first_factor: 1.0,
            process_drift: 0.0,
            seed: 1,
            sleep_ms_per_rep: 0,
            version: "0.5.0-dev".to_owned(),
            build_number: 0,
            build_commit: "unknown".to_owned(),
            layers: 37,
            model_mib: 2375.91,
            device: Vec::new(),
            effect: Vec::new(),
            behaviour: Vec::new(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Device {
    id: String,
    name: String,
    total_mib: u64,
    free_mib: u64,
}

/// Multiplies speeds where its conditions hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Effect {
    when: Vec<String>,
    #[serde(default = "one")]
    pp: f64,
    #[serde(default = "one")]
    tg: f64,
}

fn one() -> f64 {
    1.0
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Behaviour {
    #[serde(rename = "do")]
    act: Act,
    #[serde(default)]
    when: Vec<String>,
    /// Only in the process of this number, from 1.
    process: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// Writes these lines to stderr and exits with 1 before any result.
    Fail(String),
    /// The same, by abort.
    Abort(String),
    Oom,
    DeviceLost,
    DiskFull,
    /// Runs to its results, then exits with this status.
    Exit(u8),
    /// Ended by SIGKILL from elsewhere.
    Killed,
    Garbage,
    HeaderOnly,
    Noise,
    NonUtf8,
    Array,
    Truncated,
    CrashAfterOutput,
    Hang,
    IgnoreSigterm,
    Grandchild,
    /// A process in a session of its own that holds the pipes.
    Daemon,
    PrintNan,
    WrongTests,
    /// Other effective values than asked for.
    Effective(BTreeMap<String, Value>),
    /// So many MiB of log.
    FloodMib(u64),
    /// So many MiB that are no result.
    FloodStdoutMib(u64),
    /// Sleeps so long before anything else.
    SleepMs(u64),
    /// Warns and uses the CPU.
    NoGpu,
    /// What only the server does.
    Server(ServerAct),
}

/// What goes wrong in the simulated llama-server; in its answers, from the second on.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerAct {
    LoadsSlowly,
    HangsLoading,
    /// It has this model.
    Model(String),
    /// It loses its device in the middle of an answer.
    Dies,
    /// It closes the connection in the middle of an answer.
    HangsUp,
    /// It sends no JSON in the middle of an answer.
    Babbles,
    /// Its answers are web pages.
    Garbage,
    Stalls,
    Refuses,
    /// After an answer it has another model.
    Switches,
    OneToken,
    /// It takes prompts from its cache, asked for or not.
    Caches,
    /// Everything it drafts is right: it says an old answer again.
    Replays,
    /// It answers something else altogether, as sure of itself as ever; or only what it is asked a second time.
    Nonsense,
    NonsenseWhenWarm,
    /// Its log-probabilities are those of another order of summation; of a coarse KV cache.
    Rounds,
    Coarse,
    /// Where two tokens are nearly as likely it takes the other.
    TakesTheOther,
    NotNumbers,
}

/// What this process was asked, for conditions.
pub struct Situation {
    fields: Map<String, Value>,
    pub process: u64,
}

impl Situation {
    pub fn new(fields: Map<String, Value>, process: u64) -> Self {
        Self { fields, process }
    }

    fn holds(&self, conditions: &[String]) -> bool {
        conditions.iter().all(|c| self.holds_one(c))
    }

    fn holds_one(&self, condition: &str) -> bool {
        if let Some(condition) = condition.strip_prefix('!') {
            return !self.holds_one(condition);
        }
        let (name, value) = match condition.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (condition, None),
        };
        let actual = match name.strip_prefix("env:") {
            Some(variable) => std::env::var(variable).ok(),
            None => self.fields.get(name).map(plain),
        };
        match (actual, value) {
            (Some(actual), Some(value)) => actual == value,
            (actual, None) => actual.is_some(),
            (None, Some(_)) => false,
        }
    }
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The number of this process, from 1: one byte per process in a file beside the program.
pub fn count_process(dir: &Path) -> u64 {
    let path = dir.join("fake-bench.count");
    let file = fs::OpenOptions::new().append(true).create(true).open(&path);
    let written = file.and_then(|mut f| f.write_all(b"."));
    written
        .and_then(|()| fs::metadata(&path))
        .map_or(1, |m| m.len())
}

/// Does what comes before any result; a status ends the process.
pub fn before_results(act: &Act) -> Option<ExitCode> {
    match act {
        Act::Fail(lines) => return Some(failed(lines)),
        Act::Abort(lines) => {
            eprintln!("{lines}");
            std::process::abort()
        }
        Act::Oom => {
            return Some(failed(
                "ggml_vulkan: Device memory allocation of size 2491323904 failed.\n\
                 ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n\
                 llama_bench: error: failed to load model 'simulated.gguf'",
            ));
        }
        Act::DeviceLost => {
            eprintln!("terminate called after throwing an instance of 'vk::DeviceLostError'");
            eprintln!("  what():  vk::Device::waitForFences: ErrorDeviceLost");
            std::process::abort()
        }
        Act::DiskFull => {
            return Some(failed(
                "ggml_vulkan: pipeline cache: No space left on device",
            ));
        }
        Act::Garbage => println!("this is not the program you are looking for"),
        Act::HeaderOnly => {
            println!("| model | size | params | backend | ngl | fa | test | t/s |");
            println!("| ----- | ---: | -----: | ------- | --: | -: | ---: | --: |");
        }
        Act::Killed => raise(9),
        Act::Hang => loop {
            std::thread::sleep(Duration::from_hours(1));
        },
        Act::SleepMs(ms) => std::thread::sleep(Duration::from_millis(*ms)),
        // The handler that replaces SIGTERM's default does nothing.
        Act::IgnoreSigterm => drop(ctrlc::set_handler(|| {})),
        Act::Grandchild => {
            let exe = std::env::current_exe();
            drop(exe.and_then(|exe| Command::new(exe).arg("--sleep").spawn()));
        }
        Act::FloodMib(mib) => flood(*mib, std::io::stderr()),
        Act::FloodStdoutMib(mib) => flood(*mib, std::io::stdout()),
        Act::Daemon => drop(
            Command::new("setsid")
                .args(["--fork", "sleep", "3600"])
                .status(),
        ),
        Act::NoGpu => {
            eprintln!("warning: no usable GPU found, --gpu-layers option will be ignored");
        }
        _ => {}
    }
    matches!(act, Act::Garbage | Act::HeaderOnly).then_some(ExitCode::SUCCESS)
}

/// Does what comes after the results.
pub fn after_results(act: &Act) -> Option<ExitCode> {
    match act {
        Act::Exit(code) => Some(ExitCode::from(*code)),
        Act::CrashAfterOutput => raise(11),
        _ => None,
    }
}

fn failed(lines: &str) -> ExitCode {
    eprintln!("{lines}");
    ExitCode::from(1)
}

fn flood(mib: u64, mut into: impl std::io::Write) {
    let line = format!("{}\n", "x".repeat(127));
    let block = line.repeat(8 * 1024);
    for _ in 0..mib {
        let _ = into.write_all(block.as_bytes());
    }
}

/// Ends by this signal. Rust's own SIGSEGV handler takes the first one, so it is sent until it works.
#[cfg(unix)]
fn raise(signal: i32) -> ! {
    use rustix::process::{Signal, getpid, kill_process};
    while let Some(signal) = Signal::from_named_raw(signal) {
        let _ = kill_process(getpid(), signal);
    }
    std::process::abort()
}

#[cfg(not(unix))]
fn raise(_: i32) -> ! {
    std::process::abort()
}

/// Random factors of one process, the same for the same seed and process number.
pub struct Noise {
    random: fastrand::Rng,
    process: f64,
    repetition_sd: f64,
}

impl Noise {
    /// Factor on the time of the next repetition.
    pub fn next(&mut self) -> f64 {
        self.process * (1.0 + self.repetition_sd * normal(&mut self.random)).max(0.05)
    }
}

/// A standard normal number (Box and Muller 1958).
fn normal(random: &mut fastrand::Rng) -> f64 {
    let (u, v) = (1.0 - random.f64(), random.f64());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

impl Config {
    /// The script beside the program; none is the default.
    pub fn read(dir: &Path) -> Result<Self, String> {
        match fs::read_to_string(dir.join("fake-bench.toml")) {
            Ok(text) => toml::from_str(&text).map_err(|e| e.to_string()),
            Err(_) => Ok(Self::default()),
        }
    }

    pub fn version_text(&self) -> String {
        format!(
            "version: {} (build {}, commit {})\nbuilt with GNU 12.2.0 for Linux x86_64",
            self.version, self.build_number, self.build_commit
        )
    }

    /// Vulkan's banner, without a device as with.
    pub fn print_banner(&self) {
        if self.device.is_empty() {
            eprintln!("ggml_vulkan: No devices found.");
        }
        for (index, device) in self.device.iter().enumerate() {
            eprintln!(
                "ggml_vulkan: {index} = {} (radv) | uma: 0 | fp16: 0",
                device.name
            );
        }
    }

    pub fn list_devices(&self) {
        self.print_banner();
        println!("Available devices:");
        if self.device.is_empty() {
            println!("  (none)");
        }
        for Device {
            id,
            name,
            total_mib,
            free_mib,
        } in &self.device
        {
            println!("  {id}: {name} ({total_mib} MiB, {free_mib} MiB free)");
        }
    }

    /// A stock record's fields up to the test, in the tool's order.
    pub fn default_fields(&self) -> Map<String, Value> {
        let names: Vec<&str> = self.device.iter().map(|d| d.name.as_str()).collect();
        let env: Vec<String> = std::env::vars()
            .map(|(name, _)| name)
            .filter(|n| n.starts_with("GGML_") || n.starts_with("LLAMA_"))
            .collect();
        let fields = json!({
            "build_commit": self.build_commit, "build_number": self.build_number,
            "cpu_info": "Simulated CPU", "gpu_info": names.join(", "), "backends": "Vulkan",
            "model_filename": "simulated.gguf", "model_type": "qwen3 4B Q4_K - Medium",
            "model_size": 2_491_323_904_u64, "model_n_params": 4_022_468_096_u64,
            "n_batch": 2048, "n_ubatch": 512, "n_threads": 2, "cpu_mask": "0x0", "cpu_strict": false,
            "poll": 50, "type_k": "f16", "type_v": "f16", "n_gpu_layers": -1, "n_cpu_moe": 0,
            "split_mode": "layer", "main_gpu": 0, "no_kv_offload": false, "flash_attn": -1,
            "devices": "auto", "tensor_split": "0.00", "tensor_buft_overrides": "none",
            "load_mode": "auto", "lazy_mode": "auto", "embeddings": false, "no_op_offload": 0,
            "no_host": false, "fit_target": 0, "fit_min_ctx": 0, "fake_env": env,
        });
        match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    pub fn acts(&self, situation: &Situation) -> Vec<Act> {
        let applies = |b: &&Behaviour| {
            b.process.is_none_or(|p| p == situation.process) && situation.holds(&b.when)
        };
        self.behaviour
            .iter()
            .filter(applies)
            .map(|b| b.act.clone())
            .collect()
    }

    /// Values that take effect instead of those asked for.
    pub fn effective(&self, situation: &Situation) -> Map<String, Value> {
        let acts = self.acts(situation).into_iter();
        acts.filter_map(|act| match act {
            Act::Effective(values) => Some(values),
            _ => None,
        })
        .flatten()
        .collect()
    }

    pub fn noise(&self, process: u64) -> Noise {
        let mut random = fastrand::Rng::with_seed(self.seed.wrapping_mul(1_000_003) ^ process);
        let process = (1.0 + self.process_sd * normal(&mut random)).max(0.05);
        Noise {
            random,
            process,
            repetition_sd: self.repetition_sd,
        }
    }

    /// True seconds of one repetition, before noise.
    pub fn seconds(
        &self,
        situation: &Situation,
        prompt: u32,
        generated: u32,
        repetition: u32,
    ) -> f64 {
        let (mut pp, mut tg) = (self.pp, self.tg);
        for effect in self.effect.iter().filter(|e| situation.holds(&e.when)) {
            pp *= effect.pp;
            tg *= effect.tg;
        }
        if repetition == 0 {
            pp *= self.first_factor;
        }
        let drift = 1.0 + self.process_drift * (situation.process - 1) as f64;
        (f64::from(prompt) / pp + f64::from(generated) / tg) / drift
    }

    /// The device that takes the layers, if one does.
    fn gpu(&self, fields: &Map<String, Value>) -> Option<&Device> {
        let is_off = fields["n_gpu_layers"] == json!(0) || fields["devices"] == json!("none");
        let wanted = fields["devices"].as_str().filter(|d| *d != "auto");
        let mut devices = self.device.iter();
        if is_off {
            None
        } else {
            devices.find(|d| wanted.is_none_or(|w| w == d.id))
        }
    }

    pub fn log_model(&self, fields: &Map<String, Value>) {
        eprintln!("llama_model_loader: loaded meta data with 15 key-value pairs and 398 tensors");
        let Some(Device {
            id, name, free_mib, ..
        }) = self.gpu(fields)
        else {
            eprintln!(
                "load_tensors:   CPU_Mapped model buffer size = {:8.2} MiB",
                self.model_mib
            );
            return;
        };
        let n = self.layers;
        eprintln!(
            "llama_prepare_model_devices: using device {id} ({name}) (0000:01:00.0) - {free_mib} MiB free"
        );
        eprintln!("load_tensors: offloaded {n}/{n} layers to GPU");
        eprintln!("load_tensors:   CPU_Mapped model buffer size =   304.28 MiB");
        eprintln!(
            "load_tensors: {id:>12} model buffer size = {:8.2} MiB",
            self.model_mib
        );
    }

    pub fn log_context(&self, tokens: u32, fields: &Map<String, Value>) {
        let device = self.gpu(fields).map_or("CPU", |d| d.id.as_str());
        let n_ctx = tokens.next_multiple_of(256);
        // Qwen3-4B: 144 KiB of f16 cache per token; the graph grows with the micro-batch.
        let kv = f64::from(n_ctx) * 144.0 / 1024.0;
        let compute = 301.75 * f64::from(n_ctx.min(512)) / 512.0;
        eprintln!("llama_context: n_ctx                 = {n_ctx}");
        eprintln!("llama_kv_cache: {device:>10} KV buffer size = {kv:8.2} MiB");
        eprintln!("resolve_fused_ops: Flash Attention enabled");
        eprintln!("sched_reserve: {device:>11} compute buffer size = {compute:8.2} MiB");
    }
}
