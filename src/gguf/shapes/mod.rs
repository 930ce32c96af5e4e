//! Real models' shapes (`assets/shapes.toml`) as GGUF metadata and tensors in llama.cpp's `Q4_K_M` mix, or in its
//! `MXFP4_MOE` one.

mod metadata;
mod mix;
mod tensors;

use serde::Deserialize;

pub(super) use metadata::Field;
pub(super) use tensors::Plan;

/// The table of the tokens' vectors.
const TOKENS: &str = "token_embd.weight";

/// One `[[shape]]`; the names are those of llama.cpp's hyperparameters.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shape {
    pub(super) name: String,
    architecture: String,
    title: String,
    layers: u32,
    context: u32,
    embedding: u32,
    feed_forward: u32,
    heads: u32,
    kv_heads: u32,
    head_size: u32,
    vocabulary: u32,
    #[serde(default)]
    tied: bool,
    #[serde(default)]
    qk_norm: bool,
    #[serde(default)]
    post_norm: bool,
    rope_base: f32,
    epsilon: f32,
    window: Option<u32>,
    linear_rope_scaling: Option<f32>,
    experts: Option<Experts>,
    /// Values of a head that turn with its position; all where missing.
    rope_size: Option<u32>,
    yarn: Option<Yarn>,
    #[serde(default)]
    mix: Mix,
    latent: Option<Latent>,
    linear: Option<Linear>,
    short_conv: Option<ShortConv>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Experts {
    count: u32,
    used: u32,
    feed_forward: u32,
    /// Layers at the start that have a dense part instead.
    #[serde(default)]
    dense_layers: u32,
    /// Inner width of all shared experts together.
    #[serde(default)]
    shared_feed_forward: u32,
}

/// Rope scaling by `YaRN`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Yarn {
    factor: f32,
    original_context: u32,
}

/// Which of llama.cpp's mixes the weights are in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mix {
    #[default]
    Q4KM,
    /// Experts in `MXFP4`, the other matrices in `Q8_0`.
    Mxfp4Moe,
}

/// Multi-head latent attention; `head_size` is that of a query, of which `rope_size` values turn.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Latent {
    kv_rank: u32,
    q_rank: Option<u32>,
    value_size: u32,
}

/// Gated linear attention in all but every `interval`-th layer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Linear {
    interval: u32,
    conv_kernel: u32,
    head_size: u32,
    key_heads: u32,
    value_heads: u32,
}

/// Short convolutions in all but the `attention_layers`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShortConv {
    taps: u32,
    attention_layers: Vec<u32>,
}

#[derive(Deserialize)]
struct File {
    shape: Vec<Shape>,
}

/// Every shape, in the file's order. The file is part of the program and tested, so it always reads.
pub(super) fn all() -> Vec<Shape> {
    toml::from_str::<File>(include_str!("../../../assets/shapes.toml"))
        .map(|file| file.shape)
        .unwrap_or_default()
}

impl Shape {
    fn is_gpt_oss(&self) -> bool {
        self.architecture == "gpt-oss"
    }

    /// The layer has no attention over its tokens.
    fn is_recurrent(&self, layer: u32) -> bool {
        if let Some(linear) = &self.linear {
            !(layer + 1).is_multiple_of(linear.interval)
        } else if let Some(short) = &self.short_conv {
            !short.attention_layers.contains(&layer)
        } else {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Qwen3-30B-A3B has 48 layers of two parts each, and rows of 2,048; Qwen3-8B rows of 4,096.
    #[test]
    fn tokens_of_a_mixture_keep_their_own_vector_beside_what_layers_add() {
        let spread = |shape: &str, tensor: &str| {
            let shape = all().into_iter().find(|s| s.name == shape).unwrap();
            let plan = shape.tensors().into_iter().find(|t| t.name == tensor);
            shape.spread(&plan.unwrap())
        };
        let tokens = spread("qwen3-30b-a3b", "token_embd.weight");
        assert!((tokens.powi(2) - 96.0).abs() < 1e-9, "{tokens}");
        let router = spread("qwen3-30b-a3b", "blk.0.ffn_gate_inp.weight");
        assert!((router.powi(2) * 2048.0 - 1.0).abs() < 1e-9, "{router}");
        let dense = spread("qwen3-8b", "token_embd.weight");
        assert!((dense - 1.0 / 64.0).abs() < 1e-9, "{dense}");
    }

    #[test]
    fn every_shape_has_rows_of_whole_blocks() {
        let shapes = all();
        assert_eq!(shapes.len(), 20);
        for shape in shapes {
            for plan in shape.tensors() {
                let (values, _) = plan.kind.block().unwrap();
                assert_eq!(plan.dims[0] % values, 0, "{}: {}", shape.name, plan.name);
            }
        }
    }
}
