//! The arguments of `flux` (design section 2): a contract, scripts depend on it.

mod data;
mod export;
mod plan;
mod run;
mod serve_check;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::domain::environment::parse_variable;
use crate::domain::search::plan::MAX_PROCESSES;
use crate::domain::types::{Backend, Goal, RequestShape};
use crate::wiring;

use super::values::{duration_secs, request_shape};

pub use data::{Compact, Data, DataAction};
pub use export::{Export, Import};
pub use plan::Plan;
pub use run::Run;
pub use serve_check::ServeCheck;

/// Repetitions and processes one may ask for: more than this is a typing error, not a plan.
const MAX_COUNT: i64 = 100;

/// Processes one may allow a search: days of measuring.
const MOST_PROCESSES: i64 = 10_000;

/// Transfers of more than this take memory from others and measure nothing better.
const MAX_TRANSFER_MIB: u64 = 4096;

/// Finds the llama.cpp settings that are really faster on this machine, by measuring.
#[derive(Debug, Parser)]
#[command(name = "flux", version, propagate_version = true)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do; the desktop app without one.
    #[command(subcommand)]
    pub command: Option<Action>,
}

/// Options of every command.
#[derive(Debug, Args)]
pub struct Global {
    /// Folder for everything Flux keeps
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Print one JSON document on stdout
    #[arg(long, global = true)]
    pub json: bool,
    /// No progress on stderr
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// More on stderr: logs; in `show`, the raw output of every run
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Scan, find or install llama.cpp, take or make a model, tune it
    Quickstart(Quickstart),
    /// Devices, drivers, host, runtimes and the fingerprint of this machine
    Scan(Scan),
    /// llama.cpp builds known to Flux
    #[command(subcommand)]
    Runtime(RuntimeAction),
    /// Model files: what they are, what they need, what is wrong with them
    Models(Models),
    /// Make a model file
    #[command(subcommand)]
    Model(ModelAction),
    /// Search for faster settings and confirm them against stock
    Tune(Tune),
    /// Where each tensor of a model should live: placements for this machine, predicted
    Plan(Plan),
    /// Confirm one arm against another, interleaved
    Ab(Ab),
    /// Verdict on two llama-bench JSON or JSONL files; measures nothing
    Compare(Compare),
    /// Start llama-server with the stored profile
    Run(Run),
    /// What the card can do by itself: kernels against its memory, costs of its queue families
    Lab(Lab),
    /// The stored profile against stock through live servers, or what several clients get
    ServeCheck(ServeCheck),
    /// Power, clocks, temperatures, load and memory, live
    Monitor(Monitor),
    /// Sessions, newest first
    History(History),
    /// One session: every sample, verdict and notice
    Show(Show),
    /// One session as JSON or CSV, or its profile as a script, unit, preset, configuration
    Export(Export),
    /// Take over a profile that `flux export ID --format profile` wrote on another machine
    Import(Import),
    /// One session as one HTML file: verdict, charts, every sample
    Report(Report),
    /// What Flux keeps and how much room it takes; `compact` makes it smaller
    Data(Data),
    /// What would spoil a measurement now
    Doctor(Doctor),
    /// What Vulkan says, as JSON; asked by another Flux
    #[command(hide = true, name = wiring::VULKAN_REPORT)]
    VulkanReport,
    /// What Vulkan devices deliver, as JSON; asked by another Flux
    #[command(hide = true, name = wiring::VULKAN_BANDWIDTH)]
    VulkanBandwidth {
        /// The request, as JSON
        request: String,
    },
    /// Waits for another Flux to be gone and ends what is left of its children
    #[cfg(unix)]
    #[command(hide = true, name = wiring::CHILD_GUARD)]
    ChildGuard {
        /// What its children bear in their environment
        mark: String,
    },
    /// The kernel lab, one event a line; asked by another Flux
    #[command(hide = true, name = wiring::VULKAN_LAB)]
    VulkanLab {
        /// The request, as JSON
        request: String,
    },
}

impl Action {
    /// Whether people ask for it, and not another Flux.
    pub const fn is_for_people(&self) -> bool {
        !matches!(
            self,
            Self::VulkanReport | Self::VulkanBandwidth { .. } | Self::VulkanLab { .. }
        )
    }
}

/// `flux quickstart`.
#[derive(Debug, Args)]
pub struct Quickstart {
    /// Model file; without one Flux makes one that suits the machine
    pub model: Option<PathBuf>,
    /// Measuring time after which no further candidate is started
    #[arg(long, value_name = "TIME", value_parser = duration_secs, default_value = "10m")]
    pub time_limit: f64,
}

/// `flux lab`.
#[derive(Debug, Args)]
pub struct Lab {
    /// Card: its number in Vulkan's order, a part of its name, its PCI address, or llama.cpp's name for it (Vulkan0);
    /// without it the first discrete card
    #[arg(long)]
    pub device: Option<String>,
    /// Fewer sizes and repetitions
    #[arg(long)]
    pub quick: bool,
    /// MiB of the largest buffer, at most
    #[arg(long, hide = true, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_TRANSFER_MIB))]
    pub largest_mib: Option<u64>,
}

/// `--machine`.
#[derive(Debug, Args)]
pub struct MachineArg {
    /// Act as on an exported machine: its folder, or the name of one under tests/fixtures/machines
    #[arg(long, value_name = "FIXTURE")]
    pub machine: Option<PathBuf>,
}

/// `flux scan`.
#[derive(Debug, Args)]
pub struct Scan {
    /// Write this machine as a fixture into DIR
    #[arg(long, value_name = "DIR")]
    pub export: Option<PathBuf>,
    /// Measure what RAM, disk and GPUs deliver, and remember it: about ten seconds
    #[arg(long)]
    pub bandwidth: bool,
    /// Model, or folder of models, whose disk is measured; without it, the disk of the data folder
    #[arg(short, long, value_name = "FILE|DIR", requires = "bandwidth")]
    pub model: Option<PathBuf>,
    /// Measure software renderers too
    #[arg(long, requires = "bandwidth")]
    pub software: bool,
    /// MiB moved in one repetition, at most
    #[arg(long, hide = true, value_name = "N", requires = "bandwidth", value_parser = clap::value_parser!(u64).range(1..=MAX_TRANSFER_MIB))]
    pub transfer_mib: Option<u64>,
    /// Another machine.
    #[command(flatten)]
    pub machine: MachineArg,
}

/// `flux runtime …`.
#[derive(Debug, Subcommand)]
pub enum RuntimeAction {
    /// Every build known here
    List,
    /// Add a folder that holds a build
    Add {
        /// Folder with llama-bench
        dir: PathBuf,
        /// Name to know it by
        #[arg(long)]
        name: Option<String>,
        /// A variable every process of this build gets, e.g. `HSA_OVERRIDE_GFX_VERSION=10.3.0` (repeatable)
        #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
        env: Vec<(String, String)>,
    },
    /// Install a build into the data folder
    Install {
        /// Backend; without one, the one this machine's GPU wants
        #[arg(long)]
        backend: Option<BackendArg>,
    },
    /// Forget a build; one that Flux installed is deleted
    Remove {
        /// Name, as `flux runtime list` shows it
        name: String,
    },
}

/// `flux models`.
#[derive(Debug, Args)]
pub struct Models {
    /// Folders or files to look at; without any, the usual model folders and this one
    pub dirs: Vec<PathBuf>,
}

/// `flux model …`.
#[derive(Debug, Subcommand)]
pub enum ModelAction {
    /// Write a random-weight GGUF with a real model's shapes and quant mix
    Synth {
        /// Shape, e.g. qwen3-4b, or tiny
        shape: String,
        /// File to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Leave the weights a hole, for planning only
        #[arg(long)]
        sparse: bool,
        /// Seed of the weights
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
}

/// What to measure with, shared by `tune` and `ab`.
#[derive(Debug, Args)]
pub struct Workload {
    /// llama.cpp build: its name or folder
    #[arg(long, value_name = "NAME|DIR")]
    pub runtime: Option<String>,
    /// Device: the build's own name for it (Vulkan0) or a PCI address
    #[arg(long)]
    pub device: Option<String>,
    /// What shall be faster
    #[arg(long, value_enum, default_value_t = GoalArg::Generation)]
    pub goal: GoalArg,
    /// Repetitions in a process, instead of the planned number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_COUNT))]
    pub reps: Option<u32>,
    /// Processes per arm in the confirmation, instead of the planned number; fewer than 3 cannot be judged
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=MAX_COUNT))]
    pub processes: Option<u32>,
    /// Tokens of the prompt test
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt_tokens: Option<u32>,
    /// Tokens of the generation test
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub gen_tokens: Option<u32>,
    /// Context depth of all tests
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub depth: u32,
}

/// `flux tune`.
#[derive(Debug, Args)]
pub struct Tune {
    /// Model file
    #[arg(short, long, value_name = "FILE", required_unless_present = "resume")]
    pub model: Option<PathBuf>,
    /// What to measure with.
    #[command(flatten)]
    pub workload: Workload,
    /// The request of `--goal request`: prompt tokens, generated tokens
    #[arg(long, value_name = "P,G", value_parser = request_shape, default_value = "1500,300")]
    pub request: RequestShape,
    /// Also try reduced-precision KV caches
    #[arg(long)]
    pub allow_kv_quant: bool,
    /// Measuring time after which no further candidate is started: 30m, 1h, 90
    #[arg(long, value_name = "TIME", value_parser = duration_secs)]
    pub time_limit: Option<f64>,
    /// llama-bench processes of the whole search, of which about 50 are kept for the confirmation
    #[arg(long, value_name = "N", default_value_t = MAX_PROCESSES, value_parser = clap::value_parser!(u32).range(i64::from(MAX_PROCESSES)..=MOST_PROCESSES))]
    pub max_processes: u32,
    /// Only these dimensions
    #[arg(long, value_name = "DIM,…", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Search on this placement, e.g. "ngl=24", or on `stock`; without it on what `flux plan --bench` chose here
    #[arg(long, value_name = "PLACEMENT")]
    pub placement: Option<String>,
    /// Go on with a session: this one, or the last that did not end
    #[arg(long, value_name = "SESSION", num_args = 0..=1, conflicts_with_all = [
        "runtime", "device", "goal", "reps", "processes", "prompt_tokens", "gen_tokens", "depth", "request",
        "allow_kv_quant", "time_limit", "max_processes", "only", "placement", "dry_run",
    ])]
    #[expect(
        clippy::option_option,
        reason = "absent, given bare, given with a value: clap's own way"
    )]
    pub resume: Option<Option<i64>>,
    /// Print the candidates and the expected time; measure nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Another machine.
    #[command(flatten)]
    pub machine: MachineArg,
}

/// `flux ab`.
#[derive(Debug, Args)]
pub struct Ab {
    /// Arm A: settings ("flash-attn=on ubatch=1024"), `stock`, or a build's name or folder
    pub a: String,
    /// Arm B, likewise
    pub b: String,
    /// Model file
    #[arg(short, long, value_name = "FILE")]
    pub model: PathBuf,
    /// What to measure with.
    #[command(flatten)]
    pub workload: Workload,
}

/// `flux compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// llama-bench output of the baseline
    pub base: PathBuf,
    /// llama-bench output of the candidate
    pub cand: PathBuf,
}

/// `flux monitor`.
#[derive(Debug, Args)]
pub struct Monitor {
    /// Write every reading into FILE, - for stdout
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Replace a file that exists
    #[arg(long, requires = "csv")]
    pub force: bool,
    /// Milliseconds between readings
    #[arg(long, value_name = "MS", default_value_t = 250, value_parser = clap::value_parser!(u64).range(100..=10_000))]
    pub interval: u64,
    /// End after so many readings of all sensors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: Option<u64>,
    /// End after so long: 30, 10m, 1h
    #[arg(long, value_name = "TIME", value_parser = duration_secs)]
    pub seconds: Option<f64>,
}

/// `flux history`.
#[derive(Debug, Args)]
pub struct History {
    /// Sessions shown at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

/// `flux show`.
#[derive(Debug, Args)]
pub struct Show {
    /// Session
    pub id: i64,
}

/// `flux report`.
#[derive(Debug, Args)]
pub struct Report {
    /// Session
    #[arg(value_name = "SESSION")]
    pub id: i64,
    /// Only its charts, as one SVG image
    #[arg(long)]
    pub chart: bool,
    /// File to write, - for stdout [default: flux-session-N.html, or .svg]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace a file that exists
    #[arg(long)]
    pub force: bool,
    /// Leave home folders and user names in paths as they are
    #[arg(long)]
    pub full_paths: bool,
}

/// `flux doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Also say whether this model fits into the RAM that is free
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Another machine.
    #[command(flatten)]
    pub machine: MachineArg,
}

/// `Goal` as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GoalArg {
    /// Tokens generated per second
    Generation,
    /// Prompt tokens per second
    Prompt,
    /// Time of a whole request
    Request,
    /// Tokens per joule
    Energy,
}

impl From<GoalArg> for Goal {
    fn from(goal: GoalArg) -> Self {
        match goal {
            GoalArg::Generation => Self::Generation,
            GoalArg::Prompt => Self::Prompt,
            GoalArg::Request => Self::Request,
            GoalArg::Energy => Self::Energy,
        }
    }
}

/// `Backend` as an argument: those Flux can install.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    /// CPU only
    Cpu,
    /// Vulkan: AMD, Intel, NVIDIA
    Vulkan,
    /// NVIDIA CUDA
    Cuda,
    /// AMD ROCm/HIP
    Hip,
    /// Apple Metal
    Metal,
    /// Intel SYCL
    Sycl,
}

impl From<BackendArg> for Backend {
    fn from(backend: BackendArg) -> Self {
        match backend {
            BackendArg::Cpu => Self::Cpu,
            BackendArg::Vulkan => Self::Vulkan,
            BackendArg::Cuda => Self::Cuda,
            BackendArg::Hip => Self::Hip,
            BackendArg::Metal => Self::Metal,
            BackendArg::Sycl => Self::Sycl,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn clap_finds_nothing_wrong_with_the_definition() {
        Cli::command().debug_assert();
    }

    #[test]
    fn resume_is_absent_bare_or_numbered_and_stands_in_for_the_model() {
        let tune = |args: &[&str]| {
            let all = ["flux", "tune"].iter().chain(args).copied();
            match Cli::try_parse_from(all).map(|cli| cli.command) {
                Ok(Some(Action::Tune(tune))) => Some(tune),
                _ => None,
            }
        };
        assert!(tune(&[]).is_none());
        assert_eq!(tune(&["-m", "x"]).unwrap().resume, None);
        assert_eq!(tune(&["--resume"]).unwrap().resume, Some(None));
        assert_eq!(tune(&["--resume", "7"]).unwrap().resume, Some(Some(7)));
        assert_eq!(
            tune(&["-m", "x", "--only", "a,b"]).unwrap().only,
            ["a", "b"]
        );
    }
}
