//! Benchmarks as observations for the fit: llama-bench records, from a file or from the store, read back into the placement
//! they were made with.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use crate::domain::types::TestSamples;

use super::assignment::{ContextParams, HostTensors, Placement};
use super::devices::Memories;
use super::fit::Observation;
use super::footprint::Footprint;
use super::layout::{ModelLayout, TensorClass};
use super::memory::repacked_bytes;
use super::speed::{Setting, work};
use super::words::MAX_TOKENS;

/// Records turned into observations, and why others were left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Learned {
    /// One per usable record.
    pub observations: Vec<Observation>,
    /// Why records were left out, each a sentence, each once.
    pub left_out: Vec<String>,
}

/// Observations of the model `layout` in `records`. Left out are records of another model, of another number of processor
/// threads than `threads`, and of settings whose placement cannot be told.
pub fn observations(
    records: &[TestSamples],
    threads: Option<u64>,
    layout: &ModelLayout,
    footprint: &Footprint,
    memories: &Memories,
) -> Learned {
    let mut learned = Learned::default();
    for samples in records {
        match observation(samples, threads, layout, footprint, memories) {
            Ok(observation) => learned.observations.push(observation),
            Err(why) if learned.left_out.contains(&why) => {}
            Err(why) => learned.left_out.push(why),
        }
    }
    learned
}

fn number(record: &Value, field: &str) -> Option<i64> {
    let value = record.get(field)?;
    value.as_i64().or_else(|| value.as_bool().map(i64::from))
}

/// The number of threads most records have; the larger of two that are as frequent.
pub fn usual_threads(records: &[TestSamples]) -> Option<u64> {
    let mut counts = BTreeMap::new();
    for samples in records {
        if let Some(n) = number(&samples.record, "n_threads").and_then(|n| u64::try_from(n).ok()) {
            *counts.entry(n).or_insert(0) += 1;
        }
    }
    let most = counts
        .into_iter()
        .max_by_key(|&(threads, count)| (count, threads));
    most.map(|(threads, _)| threads)
}

fn observation(
    samples: &TestSamples,
    threads: Option<u64>,
    layout: &ModelLayout,
    footprint: &Footprint,
    memories: &Memories,
) -> Result<Observation, String> {
    let record = &samples.record;
    same_model(record, layout)?;
    let own = number(record, "n_threads").and_then(|n| u64::try_from(n).ok());
    if let (Some(own), Some(usual)) = (own, threads)
        && own != usual
    {
        return Err(format!(
            "records with {own} processor threads are left out: most have {usual}"
        ));
    }
    let placement = placement(record, layout)?;
    let context = context(record);
    let rate = samples.mean_rate();
    if !(rate.is_finite() && rate > 0.0) {
        return Err("records without a valid sample are left out".to_owned());
    }
    let homes = placement.resolve(layout.n_layer(), memories.devices.len());
    let setting = Setting {
        model: footprint,
        homes: &homes,
        context: &context,
        memories,
        repacked: repacked_bytes(layout, &placement, memories) as f64,
    };
    let run = record.get("run").and_then(Value::as_str);
    let name = run.map_or_else(|| placement.to_string(), str::to_owned);
    Ok(Observation {
        name: format!("{name} {}", samples.test),
        work: work(setting, samples.test),
        model: layout.info.name.clone(),
        tokens: f64::from(samples.test.tokens()),
        seconds: f64::from(samples.test.tokens()) / rate,
        prompt: samples.test.is_prompt(),
    })
}

/// A record names its model by size and parameters; its file name may be another one (case C45).
fn same_model(record: &Value, layout: &ModelLayout) -> Result<(), String> {
    let is = |field: &str, own: u64| {
        let said = number(record, field).and_then(|n| u64::try_from(n).ok());
        said.is_none_or(|n| n == own)
    };
    if is("model_size", layout.info.tensor_bytes.0) && is("model_n_params", layout.info.parameters)
    {
        return Ok(());
    }
    Err(format!(
        "records of {} are left out: they are of another model",
        model_of(record)
    ))
}

/// The model of a record, in llama-bench's words.
pub fn model_of(record: &Value) -> &str {
    let model = record.get("model_type").and_then(Value::as_str);
    model.unwrap_or("another model")
}

/// Is a record of this model?
pub fn is_of(record: &Value, layout: &ModelLayout) -> bool {
    same_model(record, layout).is_ok()
}

/// The context a record was made with.
pub fn context(record: &Value) -> ContextParams {
    let stock = ContextParams::default();
    let count = |field: &str, stock: u64| {
        let said = number(record, field).and_then(|n| u64::try_from(n).ok());
        said.unwrap_or(stock).clamp(1, MAX_TOKENS)
    };
    let text = |field: &str| {
        let said = record.get(field).and_then(Value::as_str);
        said.unwrap_or("f16").to_owned()
    };
    ContextParams {
        batch: count("n_batch", stock.batch),
        micro_batch: count("n_ubatch", stock.micro_batch),
        type_k: text("type_k"),
        type_v: text("type_v"),
        flash_attention: number(record, "flash_attn") != Some(0),
        ..stock
    }
}

/// The placement a record was made with.
///
/// # Errors
/// Settings that the placement cannot express, in a sentence.
pub fn placement(record: &Value, layout: &ModelLayout) -> Result<Placement, String> {
    let layers = number(record, "n_gpu_layers").and_then(|n| u32::try_from(n).ok());
    let moe = number(record, "n_cpu_moe").and_then(|n| u32::try_from(n).ok());
    if ["fit_target", "fit_min_ctx"]
        .iter()
        .any(|f| number(record, f) > Some(0))
    {
        return Err(
            "records of llama.cpp's own fitting are left out: they do not say what it chose"
                .to_owned(),
        );
    }
    if let Some(mode @ ("row" | "tensor")) = record.get("split_mode").and_then(Value::as_str) {
        return Err(format!(
            "records of -sm {mode} are left out: layers are no one device's there"
        ));
    }
    let text = |field: &str| record.get(field).and_then(Value::as_str).unwrap_or("");
    if number(record, "no_op_offload") == Some(1) {
        return Err("records with --no-op-offload are left out: they show another path".to_owned());
    }
    // Host weights in pinned pages are copied several times faster than mapped ones.
    if matches!(text("load_mode"), "none" | "dio") {
        return Err(
            "records without mapped weights (--load-mode none, dio) are left out: they are copied to the GPU another way"
                .to_owned(),
        );
    }
    let no_repack = record.get("repack").and_then(Value::as_bool) == Some(false);
    if text("devices") == "none" {
        return Ok(Placement {
            no_repack,
            ..Placement::cpu_only()
        });
    }
    let mut host_tensors = Vec::new();
    let rules = text("tensor_buft_overrides");
    if !matches!(rules, "" | "none") {
        for rule in rules.split(';') {
            host_tensors.extend(kept_by(rule, layout)?);
        }
    }
    let split = text("tensor_split")
        .split('/')
        .map(|s| s.parse().unwrap_or(0.0));
    let split: Vec<f64> = split.collect();
    let one = split.iter().filter(|s| **s > 0.0).count() == 0;
    Ok(Placement {
        n_gpu_layers: layers,
        n_cpu_moe: moe.unwrap_or(0),
        host_tensors,
        tensor_split: if one { Vec::new() } else { split },
        kv_on_host: number(record, "no_kv_offload") == Some(1),
        no_repack,
    })
}

/// What an `-ot` rule keeps in RAM, where it takes whole classes of layers.
fn kept_by(rule: &str, layout: &ModelLayout) -> Result<Vec<HostTensors>, String> {
    let refuse = || {
        format!(
            "records with the rule {rule} are left out: it is not whole layers' feed-forward weights in RAM"
        )
    };
    let (pattern, buffer) = rule.rsplit_once('=').ok_or_else(refuse)?;
    let search = Regex::new(pattern).map_err(|_| refuse())?;
    if buffer != "CPU" {
        return Err(refuse());
    }
    let mut kept = Vec::new();
    let mut matched = layout
        .tensors
        .iter()
        .filter(|t| search.is_match(&t.name))
        .count();
    for class in [TensorClass::FeedForward, TensorClass::Experts] {
        let mut layers = Vec::new();
        for layer in 0..layout.n_layer() {
            let own = |t: &&super::layout::TensorEntry| t.class == class && t.layer == Some(layer);
            let (hit, miss): (Vec<_>, Vec<_>) = layout
                .tensors
                .iter()
                .filter(own)
                .partition(|t| search.is_match(&t.name));
            if !hit.is_empty() && miss.is_empty() {
                matched -= hit.len();
                layers.push(layer);
            }
        }
        if !layers.is_empty() {
            kept.push(HostTensors { class, layers });
        }
    }
    if matched > 0 {
        return Err(refuse());
    }
    Ok(kept)
}
