//! A model's headers as the planner sees them.

use super::caches;
use super::header::{Header, Tensor, Value};
use super::model::Model;
use crate::domain::placement::layout::{ExpertShape, ModelLayout, TensorClass, TensorEntry};
use crate::domain::types::{Bytes, ModelKind};
use crate::ports::{PortError, PortResult};

impl Model {
    /// The model as the planner sees it.
    ///
    /// # Errors
    /// The file is no runnable model, or its per-layer arrays do not fit its number of layers.
    pub fn layout(self) -> PortResult<ModelLayout> {
        let Self { info, headers } = self;
        let shown = info.path.display();
        let Some(count) = info.layers.filter(|_| info.kind == ModelKind::Model) else {
            return Err(PortError::new(format!("not a runnable model: {shown}"))
                .hint("give a language model, not a projector or a vocabulary"));
        };
        let first = &headers[0];
        let (layers, notices) =
            caches::layers(first, &info.architecture, count).map_err(|why| {
                PortError::new(format!("{why}: {shown}")).hint("download the file again")
            })?;
        let tensors: Vec<TensorEntry> =
            headers.iter().flat_map(|h| &h.tensors).map(entry).collect();
        let key = |name: &str| first.unsigned(&format!("{}.{name}", info.architecture));
        let has = |name: &str| tensors.iter().any(|t| t.name == name);
        Ok(ModelLayout {
            embedding: key("embedding_length").unwrap_or(0),
            vocabulary: vocabulary(first, &info.architecture, &tensors),
            experts: key("expert_count")
                .filter(|n| *n > 0)
                .map(|count| ExpertShape {
                    count,
                    used: key("expert_used_count").unwrap_or(count).min(count),
                    feed_forward: key("expert_feed_forward_length").unwrap_or(0),
                }),
            tied_embeddings: has("token_embd.weight") && !has("output.weight"),
            layers,
            notices,
            tensors,
            info,
        })
    }
}

fn vocabulary(first: &Header, architecture: &str, tensors: &[TensorEntry]) -> u64 {
    let rows = |name: &str| tensors.iter().find(|t| t.name == name).map(|t| t.dims[1]);
    let listed = match first.metadata.get("tokenizer.ggml.tokens") {
        Some(Value::Skipped(n)) => Some(*n),
        _ => first.unsigned(&format!("{architecture}.vocab_size")),
    };
    let matrix = rows("output.weight").or_else(|| rows("token_embd.weight"));
    matrix.or(listed).unwrap_or(0)
}

fn entry(tensor: &Tensor) -> TensorEntry {
    let layer = layer_of(&tensor.name);
    TensorEntry {
        class: class_of(&tensor.name, layer),
        layer,
        kind: tensor.kind.to_string(),
        dims: tensor.dims,
        bytes: Bytes(tensor.bytes),
        name: tensor.name.clone(),
    }
}

/// `blk.12.attn_q.weight` → 12.
fn layer_of(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// The class by llama.cpp's tensor names (`LLM_TENSOR_NAMES`).
fn class_of(name: &str, layer: Option<u32>) -> TensorClass {
    /// Parts of names of recurrent weights: state-space, convolution, RWKV.
    const RECURRENT: [&str; 5] = ["ssm_", "shortconv", "time_mix", "channel_mix", "kda_"];
    if layer.is_none() {
        return if name.starts_with("output") || name.starts_with("cls") {
            TensorClass::Output
        } else {
            TensorClass::Embedding
        };
    }
    let stem = name.splitn(3, '.').nth(2).unwrap_or(name);
    let is_norm = stem.contains("norm");
    if stem.contains("_exps") || stem.contains("_chexps") {
        TensorClass::Experts
    } else if RECURRENT.iter().any(|part| stem.starts_with(part)) {
        TensorClass::Recurrent
    } else if stem.starts_with("attn_") && stem != "attn_norm.weight" {
        TensorClass::Attention
    } else if stem.starts_with("ffn_") && !is_norm && !stem.starts_with("ffn_gate_inp") {
        TensorClass::FeedForward
    } else {
        TensorClass::Norm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_of_their_class_by_name() {
        let of = |name| class_of(name, layer_of(name));
        assert_eq!(of("token_embd.weight"), TensorClass::Embedding);
        assert_eq!(of("output.weight"), TensorClass::Output);
        assert_eq!(of("output_norm.weight"), TensorClass::Output);
        assert_eq!(of("blk.3.attn_q.weight"), TensorClass::Attention);
        assert_eq!(of("blk.3.attn_q_norm.weight"), TensorClass::Attention);
        assert_eq!(of("blk.3.attn_norm.weight"), TensorClass::Norm);
        assert_eq!(of("blk.3.ffn_norm.weight"), TensorClass::Norm);
        assert_eq!(of("blk.3.ffn_gate_inp.weight"), TensorClass::Norm);
        assert_eq!(of("blk.3.ffn_down.weight"), TensorClass::FeedForward);
        assert_eq!(of("blk.3.ffn_down_shexp.weight"), TensorClass::FeedForward);
        assert_eq!(of("blk.3.ffn_down_exps.weight"), TensorClass::Experts);
        assert_eq!(of("blk.3.ssm_in.weight"), TensorClass::Recurrent);
        assert_eq!(of("blk.3.shortconv.conv.weight"), TensorClass::Recurrent);
        assert_eq!(layer_of("blk.12.attn_q.weight"), Some(12));
        assert_eq!(layer_of("blk.x.attn_q.weight"), None);
    }
}
