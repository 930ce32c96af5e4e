//! A shape's metadata, in writing order.

use super::Shape;
use crate::gguf::vocabulary;

/// Version of the quantisation formats (`GGML_QNT_VERSION`).
const QUANTISATION_VERSION: u32 = 2;

/// Of a mixture's file: records name models by the digest of their header, and those of the first version, whose tokens
/// shared their experts, are of another model.
const MIXTURE_VERSION: &str = "2";

/// A metadata value to write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Field {
    Text(String),
    U32(u32),
    F32(f32),
    Texts(Vec<String>),
    F32s(Vec<f32>),
    I32s(Vec<i32>),
}

impl Shape {
    /// Values of a head that turn with its position.
    pub(super) fn rope(&self) -> u32 {
        self.rope_size.unwrap_or(self.head_size)
    }

    /// Metadata in writing order.
    pub(crate) fn metadata(&self) -> Vec<(String, Field)> {
        let text = |s: &str| Field::Text(s.to_owned());
        let mut fields = vec![
            ("general.architecture".to_owned(), text(&self.architecture)),
            ("general.type".to_owned(), text("model")),
            (
                "general.name".to_owned(),
                Field::Text(format!("{} (random weights)", self.title)),
            ),
            (
                "general.file_type".to_owned(),
                Field::U32(self.mix.file_type()),
            ),
            (
                "general.quantization_version".to_owned(),
                Field::U32(QUANTISATION_VERSION),
            ),
        ];
        if self.experts.is_some() {
            fields.push(("general.version".to_owned(), text(MIXTURE_VERSION)));
        }
        let own = [self.sizes(), self.positions(), self.parts()].concat();
        let named = |(name, field)| (format!("{}.{name}", self.architecture), field);
        fields.extend(own.into_iter().map(named));
        fields.extend(vocabulary::metadata(self.vocabulary));
        fields
    }

    fn sizes(&self) -> Vec<(&'static str, Field)> {
        // Latent attention runs as one head over the cached vector.
        let (kv_heads, key_length, value_length) = match &self.latent {
            Some(latent) => (1, latent.kv_rank + self.rope(), latent.kv_rank),
            None => (self.kv_heads, self.head_size, self.head_size),
        };
        let kv_heads = match &self.short_conv {
            Some(short) => {
                let heads = |layer| {
                    let has = short.attention_layers.contains(&layer);
                    if has { kv_heads.cast_signed() } else { 0 }
                };
                Field::I32s((0..self.layers).map(heads).collect())
            }
            None => Field::U32(kv_heads),
        };
        vec![
            ("block_count", Field::U32(self.layers)),
            ("context_length", Field::U32(self.context)),
            ("embedding_length", Field::U32(self.embedding)),
            ("feed_forward_length", Field::U32(self.feed_forward)),
            ("attention.head_count", Field::U32(self.heads)),
            ("attention.head_count_kv", kv_heads),
            ("attention.key_length", Field::U32(key_length)),
            ("attention.value_length", Field::U32(value_length)),
            ("rope.dimension_count", Field::U32(self.rope())),
            ("vocab_size", Field::U32(self.vocabulary)),
        ]
    }

    fn positions(&self) -> Vec<(&'static str, Field)> {
        let text = |s: &str| Field::Text(s.to_owned());
        let mut fields = vec![
            ("rope.freq_base", Field::F32(self.rope_base)),
            ("attention.layer_norm_rms_epsilon", Field::F32(self.epsilon)),
        ];
        if let Some(window) = self.window {
            fields.push(("attention.sliding_window", Field::U32(window)));
        }
        if let Some(factor) = self.linear_rope_scaling {
            fields.push(("rope.scaling.type", text("linear")));
            fields.push(("rope.scaling.factor", Field::F32(factor)));
        }
        if let Some(yarn) = &self.yarn {
            fields.push(("rope.scaling.type", text("yarn")));
            fields.push(("rope.scaling.factor", Field::F32(yarn.factor)));
            fields.push((
                "rope.scaling.original_context_length",
                Field::U32(yarn.original_context),
            ));
        }
        fields
    }

    fn parts(&self) -> Vec<(&'static str, Field)> {
        let mut fields = Vec::new();
        let mut add = |name, value| fields.push((name, Field::U32(value)));
        if let Some(experts) = &self.experts {
            add("expert_count", experts.count);
            add("expert_used_count", experts.used);
            add("expert_feed_forward_length", experts.feed_forward);
            let shared = experts.shared_feed_forward;
            if self.latent.is_some() {
                add("leading_dense_block_count", experts.dense_layers);
                add("expert_shared_count", shared / experts.feed_forward);
            } else if shared > 0 {
                add("expert_shared_feed_forward_length", shared);
            }
        }
        if let Some(latent) = &self.latent {
            if let Some(rank) = latent.q_rank {
                add("attention.q_lora_rank", rank);
            }
            add("attention.kv_lora_rank", latent.kv_rank);
            add("attention.key_length_mla", self.head_size);
            add("attention.value_length_mla", latent.value_size);
        }
        if let Some(linear) = &self.linear {
            add("ssm.conv_kernel", linear.conv_kernel);
            add("ssm.state_size", linear.head_size);
            add("ssm.group_count", linear.key_heads);
            add("ssm.time_step_rank", linear.value_heads);
            add("ssm.inner_size", linear.value_heads * linear.head_size);
            add("full_attention_interval", linear.interval);
        }
        if let Some(short) = &self.short_conv {
            add("shortconv.l_cache", short.taps);
        }
        fields
    }
}
