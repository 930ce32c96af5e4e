//! A placement written out for each tool, exact and anchored, and checked against the file's own tensors (cases C06, C36,
//! C37, C39).

use std::collections::BTreeSet;

use regex::Regex;

use crate::domain::search::Tool;
use crate::domain::types::Bytes;

use super::assignment::{ContextParams, HostTensors, Placement};
use super::layout::{ModelLayout, TensorClass};

/// llama.cpp's name of RAM as a buffer type.
const CPU: &str = "CPU";

/// One `-ot` rule with what it takes off its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The pattern, an ECMAScript regular expression that is searched for in tensor names.
    pub pattern: String,
    /// The buffer type, `CPU`.
    pub buffer: String,
    /// Tensors of the file that match.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: Bytes,
}

/// Why a rule is refused before anything is started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Not a pattern.
    #[error("not a regular expression: {0}")]
    Pattern(String),
    /// No tensor has such a name (case C39).
    #[error("the rule {0} matches no tensor of the model")]
    Nothing(String),
    /// Older builds' llama-bench always repacks.
    #[error("this build's {0} cannot leave weights as they are in the file: it has no --repack")]
    Repacks(&'static str),
}

impl Rule {
    /// A rule with what it matches.
    ///
    /// # Errors
    /// The pattern cannot be read, or matches no tensor.
    pub fn new(pattern: &str, buffer: &str, layout: &ModelLayout) -> Result<Self, RuleError> {
        let search = Regex::new(pattern).map_err(|_| RuleError::Pattern(pattern.to_owned()))?;
        let matching = layout.tensors.iter().filter(|t| search.is_match(&t.name));
        let (tensors, bytes) = matching.fold((0, 0), |(n, b), t| (n + 1, b + t.bytes.0));
        if tensors == 0 {
            return Err(RuleError::Nothing(format!("{pattern}={buffer}")));
        }
        Ok(Self {
            pattern: pattern.to_owned(),
            buffer: buffer.to_owned(),
            tensors,
            bytes: Bytes(bytes),
        })
    }
}

/// The rules that keep `placement`'s tensors in RAM.
///
/// # Errors
/// A class and layers of which the model has no tensor.
pub fn rules(placement: &Placement, layout: &ModelLayout) -> Result<Vec<Rule>, RuleError> {
    let of = |kept: &HostTensors| Rule::new(&pattern(kept, layout), CPU, layout);
    placement.host_tensors.iter().map(of).collect()
}

/// `^blk\.(12|13)\.(ffn_down_exps|ffn_gate_exps)\.weight$`: `blk\.` and the dot after the number keep 1 from meaning 11.
fn pattern(kept: &HostTensors, layout: &ModelLayout) -> String {
    let wanted: BTreeSet<u32> = kept.layers.iter().copied().collect();
    let of_class = |t: &&super::layout::TensorEntry| {
        t.class == kept.class && t.layer.is_some_and(|l| wanted.contains(&l))
    };
    let stems: BTreeSet<String> = layout
        .tensors
        .iter()
        .filter(of_class)
        .filter_map(|t| Some(t.name.strip_prefix("blk.")?.split_once('.')?.1))
        .map(regex::escape)
        .collect();
    let layers: Vec<String> = wanted.iter().map(u32::to_string).collect();
    let stems: Vec<String> = stems.into_iter().collect();
    format!(r"^blk\.({})\.({})$", layers.join("|"), stems.join("|"))
}

/// Flags a build knows; a flag that it lacks is written another way or left out.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The tool.
    pub tool: Tool,
    /// Long flags of its `--help`.
    pub flags: &'a BTreeSet<String>,
}

/// The arguments that make `tool` run exactly this placement, nothing left to a default.
///
/// # Errors
/// As [`rules`].
pub fn args(
    placement: &Placement,
    context: &ContextParams,
    layout: &ModelLayout,
    known: Known<'_>,
) -> Result<Vec<String>, RuleError> {
    let mut args: Vec<String> = Vec::new();
    let mut add = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
    let all = layout.n_layer() + 1;
    add(
        "-ngl",
        placement.n_gpu_layers.unwrap_or(all).min(all).to_string(),
    );
    let mut placed = placement.clone();
    if placement.n_cpu_moe > 0 {
        if known.flags.contains("--n-cpu-moe") {
            add("-ncmoe", placement.n_cpu_moe.to_string());
        } else {
            placed.host_tensors.push(HostTensors {
                class: TensorClass::Experts,
                layers: (0..placement.n_cpu_moe.min(layout.n_layer())).collect(),
            });
        }
    }
    if !placement.tensor_split.is_empty() {
        add("-ts", known.tool.tensor_split(&placement.tensor_split));
    }
    let rules = rules(&placed, layout)?;
    if !rules.is_empty() {
        let pairs: Vec<_> = rules.into_iter().map(|r| (r.pattern, r.buffer)).collect();
        add("-ot", known.tool.overrides(&pairs));
    }
    if known.tool == Tool::Server {
        add("-c", context.context.to_string());
        // Its own default is four slots, each with a window of its own in a sliding-window model's cache.
        add("-np", context.sequences.to_string());
    }
    add("-b", context.batch.max(context.micro_batch).to_string());
    add("-ub", context.micro_batch.to_string());
    add("-ctk", context.type_k.clone());
    add("-ctv", context.type_v.clone());
    // A reduced V cache needs flash attention; otherwise the choice stays the build's own.
    if [&context.type_k, &context.type_v]
        .iter()
        .any(|t| *t != "f16")
    {
        let on = if known.tool == Tool::Bench { "1" } else { "on" };
        add("-fa", on.to_owned());
    }
    if placement.kv_on_host {
        match known.tool {
            Tool::Bench => add("-nkvo", "1".to_owned()),
            Tool::Server => args.push("-nkvo".to_owned()),
        }
    }
    if placement.no_repack {
        args.extend(no_repack(known)?);
    }
    if known.tool == Tool::Server && known.flags.contains("--fit") {
        args.extend(["--fit".to_owned(), "off".to_owned()]);
    }
    Ok(args)
}

fn no_repack(known: Known<'_>) -> Result<Vec<String>, RuleError> {
    let words: &[&str] = match known.tool {
        Tool::Bench if known.flags.contains("--repack") => &["--repack", "0"],
        Tool::Server if known.flags.contains("--no-repack") => &["--no-repack"],
        Tool::Bench => return Err(RuleError::Repacks("llama-bench")),
        Tool::Server => return Err(RuleError::Repacks("llama-server")),
    };
    Ok(words.iter().map(|w| (*w).to_owned()).collect())
}
