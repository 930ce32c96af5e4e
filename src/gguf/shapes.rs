//! Real models' shapes (`assets/shapes.toml`) as GGUF metadata and tensors in llama.cpp's `Q4_K_M` mix.

use serde::Deserialize;

use super::tensor_type::TensorType;
use super::vocabulary;

/// `LLAMA_FTYPE_MOSTLY_Q4_K_M`, shown as `Q4_K - Medium`.
const FILE_TYPE_Q4_K_M: u32 = 15;
/// Version of the quantisation formats (`GGML_QNT_VERSION`).
const QUANTISATION_VERSION: u32 = 2;

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
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Experts {
    count: u32,
    used: u32,
    feed_forward: u32,
}

#[derive(Deserialize)]
struct File {
    shape: Vec<Shape>,
}

/// A metadata value to write.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Field {
    Text(String),
    U32(u32),
    F32(f32),
    Texts(Vec<String>),
    F32s(Vec<f32>),
    I32s(Vec<i32>),
}

/// A tensor to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) kind: TensorType,
    pub(super) dims: Vec<u64>,
}

impl Plan {
    fn new(name: impl Into<String>, kind: TensorType, dims: &[u32]) -> Self {
        Self {
            name: name.into(),
            kind,
            dims: dims.iter().copied().map(u64::from).collect(),
        }
    }

    /// Bytes of its data; rows of every shape are whole blocks (tested).
    pub(super) fn bytes(&self) -> u64 {
        let (values, bytes) = self.kind.block().unwrap_or((1, 0));
        self.dims.iter().product::<u64>() / values * bytes
    }
}

/// Every shape, in the file's order. The file is part of the program and tested, so it always reads.
pub(super) fn all() -> Vec<Shape> {
    toml::from_str::<File>(include_str!("../../assets/shapes.toml"))
        .map(|file| file.shape)
        .unwrap_or_default()
}

/// llama.cpp's rule for the layers whose `attn_v` and `ffn_down` get more bits in a "medium" mix:
/// the first eighth, the last eighth, and every third between (`use_more_bits` in llama-quant.cpp).
fn more_bits(layer: u32, layers: u32) -> bool {
    layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2
}

impl Shape {
    /// Metadata in writing order.
    pub(super) fn metadata(&self) -> Vec<(String, Field)> {
        let text = |s: &str| Field::Text(s.to_owned());
        let mut fields = vec![
            ("general.architecture".to_owned(), text(&self.architecture)),
            ("general.type".to_owned(), text("model")),
            (
                "general.name".to_owned(),
                Field::Text(format!("{} (random weights)", self.title)),
            ),
            ("general.file_type".to_owned(), Field::U32(FILE_TYPE_Q4_K_M)),
            (
                "general.quantization_version".to_owned(),
                Field::U32(QUANTISATION_VERSION),
            ),
        ];
        let mut own =
            |name: &str, field| fields.push((format!("{}.{name}", self.architecture), field));
        for (name, value) in [
            ("block_count", self.layers),
            ("context_length", self.context),
            ("embedding_length", self.embedding),
            ("feed_forward_length", self.feed_forward),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_size),
            ("attention.value_length", self.head_size),
            ("rope.dimension_count", self.head_size),
            ("vocab_size", self.vocabulary),
        ] {
            own(name, Field::U32(value));
        }
        own("rope.freq_base", Field::F32(self.rope_base));
        own("attention.layer_norm_rms_epsilon", Field::F32(self.epsilon));
        if let Some(window) = self.window {
            own("attention.sliding_window", Field::U32(window));
        }
        if let Some(factor) = self.linear_rope_scaling {
            own("rope.scaling.type", text("linear"));
            own("rope.scaling.factor", Field::F32(factor));
        }
        if let Some(experts) = &self.experts {
            own("expert_count", Field::U32(experts.count));
            own("expert_used_count", Field::U32(experts.used));
            own(
                "expert_feed_forward_length",
                Field::U32(experts.feed_forward),
            );
        }
        fields.extend(vocabulary::metadata(self.vocabulary));
        fields
    }

    /// Tensors in file order.
    pub(super) fn tensors(&self) -> Vec<Plan> {
        let (embedding, vocabulary) = (self.embedding, self.vocabulary);
        // Tied embeddings are the output matrix too and get its type.
        let embedding_kind = if self.tied {
            TensorType::Q6_K
        } else {
            TensorType::Q4_K
        };
        let mut plans = vec![Plan::new(
            "token_embd.weight",
            embedding_kind,
            &[embedding, vocabulary],
        )];
        for layer in 0..self.layers {
            self.attention(layer, &mut plans);
            self.feed_forward(layer, &mut plans);
        }
        plans.push(Plan::new(
            "output_norm.weight",
            TensorType::F32,
            &[embedding],
        ));
        if !self.tied {
            plans.push(Plan::new(
                "output.weight",
                TensorType::Q6_K,
                &[embedding, vocabulary],
            ));
        }
        plans
    }

    fn sensitive(&self, layer: u32) -> TensorType {
        if more_bits(layer, self.layers) {
            TensorType::Q6_K
        } else {
            TensorType::Q4_K
        }
    }

    fn attention(&self, layer: u32, plans: &mut Vec<Plan>) {
        let (norm, quant) = (TensorType::F32, TensorType::Q4_K);
        let (queries, keys) = (self.heads * self.head_size, self.kv_heads * self.head_size);
        let mut add = |name: &str, kind, dims: &[u32]| {
            plans.push(Plan::new(format!("blk.{layer}.{name}.weight"), kind, dims));
        };
        add("attn_norm", norm, &[self.embedding]);
        add("attn_q", quant, &[self.embedding, queries]);
        add("attn_k", quant, &[self.embedding, keys]);
        add("attn_v", self.sensitive(layer), &[self.embedding, keys]);
        add("attn_output", quant, &[queries, self.embedding]);
        if self.qk_norm {
            add("attn_q_norm", norm, &[self.head_size]);
            add("attn_k_norm", norm, &[self.head_size]);
        }
        if self.post_norm {
            add("post_attention_norm", norm, &[self.embedding]);
            add("post_ffw_norm", norm, &[self.embedding]);
        }
    }

    fn feed_forward(&self, layer: u32, plans: &mut Vec<Plan>) {
        let (norm, quant, down) = (TensorType::F32, TensorType::Q4_K, self.sensitive(layer));
        let embedding = self.embedding;
        let mut add = |name: &str, kind, dims: &[u32]| {
            plans.push(Plan::new(format!("blk.{layer}.{name}.weight"), kind, dims));
        };
        add("ffn_norm", norm, &[embedding]);
        if let Some(experts) = &self.experts {
            let (count, inner) = (experts.count, experts.feed_forward);
            add("ffn_gate_inp", TensorType::F32, &[embedding, count]);
            add("ffn_gate_exps", quant, &[embedding, inner, count]);
            add("ffn_up_exps", quant, &[embedding, inner, count]);
            add("ffn_down_exps", down, &[inner, embedding, count]);
        } else {
            add("ffn_gate", quant, &[embedding, self.feed_forward]);
            add("ffn_up", quant, &[embedding, self.feed_forward]);
            add("ffn_down", down, &[self.feed_forward, embedding]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_has_rows_of_whole_blocks() {
        let shapes = all();
        assert_eq!(shapes.len(), 7);
        for shape in shapes {
            for plan in shape.tensors() {
                let (values, _) = plan.kind.block().unwrap();
                assert_eq!(plan.dims[0] % values, 0, "{}: {}", shape.name, plan.name);
            }
        }
    }

    /// Qwen3-4B's 36 layers, worked out by hand: 0–3, then 6, 9, …, 30, then 31–35 (7·36/8 = 31).
    #[test]
    fn more_bits_go_to_the_ends_and_every_third_layer_between() {
        let layers: Vec<u32> = (0..36).filter(|&l| more_bits(l, 36)).collect();
        let expected = [
            0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 31, 32, 33, 34, 35,
        ];
        assert_eq!(layers, expected);
    }
}
