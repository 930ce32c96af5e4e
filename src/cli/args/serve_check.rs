//! `flux serve-check`.

use std::path::PathBuf;

use clap::Args;

use crate::domain::search::MAX_CLIENTS;
use crate::domain::server::speculation::NGRAM_KINDS;
use crate::engine::serve_check::{GENERATED, PROMPT};

use super::{GoalArg, MAX_COUNT};

/// `flux serve-check`.
#[derive(Debug, Args)]
pub struct ServeCheck {
    /// Model file
    #[arg(short, long, value_name = "FILE", required_unless_present = "resume")]
    pub model: Option<PathBuf>,
    /// Settings to check instead of the stored profile: "flash-attn=on ubatch=1024"
    #[arg(long, value_name = "SETTINGS")]
    pub settings: Option<String>,
    /// llama.cpp build: its name or folder
    #[arg(long, value_name = "NAME|DIR")]
    pub runtime: Option<String>,
    /// Device: the build's own name for it (Vulkan0) or a PCI address
    #[arg(long)]
    pub device: Option<String>,
    /// Which profile, and what the verdict is of: decode rate, time to first token, whole request, tokens per joule
    #[arg(long, value_enum)]
    pub goal: Option<GoalArg>,
    /// Tokens of each prompt, chat template included; every prompt is a new text
    #[arg(long, value_name = "N", default_value_t = PROMPT, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub prompt_tokens: u32,
    /// Tokens of each answer, at least 32
    #[arg(long, value_name = "N", default_value_t = GENERATED, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub gen_tokens: u32,
    /// Requests to each server, instead of the planned number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_COUNT))]
    pub reps: Option<u32>,
    /// Servers per arm, instead of the planned number; fewer than 3 cannot be judged
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=MAX_COUNT))]
    pub processes: Option<u32>,
    /// Measure so many clients at the same time instead of comparing with stock
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CLIENTS)))]
    pub clients: Vec<u32>,
    /// Compare speculation with none, on code and on prose apart: kinds of b11149's llama-server [without a kind: ngram-mod]
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', num_args = 0..=1, require_equals = true, default_missing_value = "ngram-mod", conflicts_with = "clients", value_parser = NGRAM_KINDS)]
    pub speculate: Vec<String>,
    /// The same with this smaller model's guesses; its vocabulary must be the model's
    #[arg(long, value_name = "FILE", conflicts_with = "clients")]
    pub draft: Option<PathBuf>,
    /// Check a profile that was measured on another fingerprint
    #[arg(long)]
    pub stale_ok: bool,
    /// Go on with a check: this session, or the last that did not end
    #[arg(long, value_name = "SESSION", num_args = 0..=1, conflicts_with_all = [
        "settings", "runtime", "device", "goal", "prompt_tokens", "gen_tokens", "reps", "processes", "clients",
        "speculate", "draft", "stale_ok",
    ])]
    #[expect(
        clippy::option_option,
        reason = "absent, given bare, given with a value: clap's own way"
    )]
    pub resume: Option<Option<i64>>,
}
