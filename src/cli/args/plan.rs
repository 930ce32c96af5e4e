//! The arguments of `flux plan`.

use std::path::PathBuf;

use clap::Args;

use super::super::values::{request_shape, size};
use super::{GoalArg, MAX_COUNT, MachineArg};
use crate::domain::types::{Bytes, RequestShape};

/// Longer contexts than any model has.
const MAX_CONTEXT: u64 = 1 << 30;

/// `flux plan`.
#[derive(Debug, Args)]
pub struct Plan {
    /// Model file
    #[arg(short, long, value_name = "FILE")]
    pub model: PathBuf,
    /// llama.cpp build: name or folder
    #[arg(long, value_name = "NAME|DIR")]
    pub runtime: Option<String>,
    /// Devices to use, by the build's names (`CUDA0,CUDA1`); all without it, `cpu` for none
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    pub device: Vec<String>,
    /// RPC servers whose devices are used too, in a network you trust
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub rpc: Vec<String>,
    /// Tokens of context
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_CONTEXT))]
    pub context: Option<u64>,
    /// Most memory of each device to use, e.g. 6GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub vram_limit: Option<Bytes>,
    /// Most RAM to use, e.g. 12GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub ram_limit: Option<Bytes>,
    /// Reduced KV caches may be used
    #[arg(long)]
    pub allow_kv_quant: bool,
    /// What must be fast
    #[arg(long, value_enum, default_value_t = GoalArg::Request)]
    pub goal: GoalArg,
    /// Prompt and generated tokens of the request goal
    #[arg(long, value_name = "P,N", value_parser = request_shape, default_value = "1500,300")]
    pub request: RequestShape,
    /// Learn the machine's speed from llama-bench records (repeatable)
    #[arg(long, value_name = "RECORDS.jsonl")]
    pub learn_from: Vec<PathBuf>,
    /// Answer for exactly this placement, e.g. "ngl=24" or "ncmoe=8 ub=2048" (repeatable)
    #[arg(long, value_name = "PLACEMENT", allow_hyphen_values = true)]
    pub predict: Vec<String>,
    /// Measure the best, confirm it against stock and llama.cpp's own fitting, and learn from every run
    #[arg(long)]
    pub bench: bool,
    /// Processes per arm of each confirmation
    #[arg(long, value_name = "N", requires = "bench", value_parser = clap::value_parser!(u32).range(3..=MAX_COUNT))]
    pub processes: Option<u32>,
    /// Tokens of the prompt test
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt_tokens: Option<u32>,
    /// Tokens of the generation test
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub gen_tokens: Option<u32>,
    /// Another machine.
    #[command(flatten)]
    pub machine: MachineArg,
}
