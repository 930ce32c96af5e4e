//! A shape's tensors, in the order and with the names of llama.cpp's converter.

use super::mix::{self, Nth};
use super::{Latent, Linear, Shape, TOKENS};
use crate::gguf::tensor_type::TensorType;

/// A tensor to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) kind: TensorType,
    pub(crate) dims: Vec<u64>,
}

impl Plan {
    /// Bytes of its data; rows of every shape are whole blocks (tested).
    pub(crate) fn bytes(&self) -> u64 {
        let (values, bytes) = self.kind.block().unwrap_or((1, 0));
        self.dims.iter().product::<u64>() / values * bytes
    }
}

/// The tensors so far.
struct Plans<'a> {
    shape: &'a Shape,
    list: Vec<Plan>,
    /// Value projections so far and in all, whose types depend on their place among them.
    value: Nth,
    layer: u32,
}

impl Plans<'_> {
    fn of_model(&mut self, name: &str, dims: &[u32]) {
        let kind = mix::kind(self.shape, name, dims, self.layer, self.value);
        if mix::is_value(name) {
            self.value.index += 1;
        }
        self.list.push(Plan {
            name: name.to_owned(),
            kind,
            dims: dims.iter().copied().map(u64::from).collect(),
        });
    }

    /// A weight of the current block.
    fn add(&mut self, name: &str, dims: &[u32]) {
        self.of_model(&format!("blk.{}.{name}.weight", self.layer), dims);
    }

    /// Anything else of the current block.
    fn add_other(&mut self, name: &str, dims: &[u32]) {
        self.of_model(&format!("blk.{}.{name}", self.layer), dims);
    }
}

/// Parts of a layer that add to the residual stream: attention and feed-forward.
const PARTS: u32 = 2;

impl Shape {
    /// Standard deviation of a random tensor's values: 1/√(row length), so that activations keep their size from layer to layer.
    ///
    /// A mixture's token vectors are larger, √(parts that add to them) for every value. What parts add is about 1 in size, and
    /// much of it alike for all tokens, since attention with random weights is a mean over them. So each token stays
    /// itself to the last layer and chooses its own experts; from vectors as small as other weights, 64 tokens together
    /// choose 36 of the 128 experts in the fifth layer, where 126 are expected (`tests/studies/routing.py`). GPT-2 begins
    /// its training with the same proportion (Radford et al. 2019, section 2.3).
    pub(crate) fn spread(&self, plan: &Plan) -> f64 {
        if self.experts.is_some() && plan.name == TOKENS {
            return f64::from(PARTS * self.layers).sqrt();
        }
        1.0 / (plan.dims[0] as f64).sqrt()
    }

    /// Tensors in file order.
    pub(crate) fn tensors(&self) -> Vec<Plan> {
        let table = [self.embedding, self.vocabulary];
        let with_values = match &self.short_conv {
            Some(short) => short.attention_layers.len() as u32,
            None => self.layers,
        };
        let mut plans = Plans {
            shape: self,
            list: Vec::new(),
            value: Nth {
                index: 0,
                count: with_values,
            },
            layer: 0,
        };
        plans.of_model(TOKENS, &table);
        for layer in 0..self.layers {
            plans.layer = layer;
            plans.add("attn_norm", &[self.embedding]);
            match (&self.latent, &self.linear) {
                (Some(latent), _) => self.latent_attention(latent, &mut plans),
                (_, Some(linear)) if self.is_recurrent(layer) => {
                    self.linear_attention(linear, &mut plans);
                }
                _ if self.is_recurrent(layer) => self.short_convolution(&mut plans),
                _ => self.attention(&mut plans),
            }
            self.feed_forward(layer, &mut plans);
        }
        // LFM2's converter gives the output norm this name.
        let norm = if self.short_conv.is_some() {
            "token_embd_norm.weight"
        } else {
            "output_norm.weight"
        };
        plans.of_model(norm, &[self.embedding]);
        if !self.tied {
            plans.of_model("output.weight", &table);
        }
        plans.list
    }

    fn attention(&self, plans: &mut Plans<'_>) {
        let (queries, keys) = (self.heads * self.head_size, self.kv_heads * self.head_size);
        // Qwen3-Next has a gate beside each query.
        let gated = if self.linear.is_some() { 2 } else { 1 };
        plans.add("attn_q", &[self.embedding, queries * gated]);
        plans.add("attn_k", &[self.embedding, keys]);
        plans.add("attn_v", &[self.embedding, keys]);
        plans.add("attn_output", &[queries, self.embedding]);
        if self.is_gpt_oss() {
            plans.add_other("attn_q.bias", &[queries]);
            plans.add_other("attn_k.bias", &[keys]);
            plans.add_other("attn_v.bias", &[keys]);
            plans.add_other("attn_output.bias", &[self.embedding]);
            plans.add("attn_sinks", &[self.heads]);
        }
        if self.qk_norm {
            plans.add("attn_q_norm", &[self.head_size]);
            plans.add("attn_k_norm", &[self.head_size]);
        }
        if self.post_norm {
            plans.add("post_attention_norm", &[self.embedding]);
            plans.add("post_ffw_norm", &[self.embedding]);
        }
    }

    fn latent_attention(&self, latent: &Latent, plans: &mut Plans<'_>) {
        let (embedding, rank) = (self.embedding, latent.kv_rank);
        let queries = self.heads * self.head_size;
        let still = self.head_size - self.rope();
        match latent.q_rank {
            Some(q_rank) => {
                plans.add("attn_q_a", &[embedding, q_rank]);
                plans.add("attn_q_a_norm", &[q_rank]);
                plans.add("attn_q_b", &[q_rank, queries]);
            }
            None => plans.add("attn_q", &[embedding, queries]),
        }
        plans.add("attn_kv_a_mqa", &[embedding, rank + self.rope()]);
        plans.add("attn_kv_a_norm", &[rank]);
        plans.add("attn_k_b", &[still, rank, self.heads]);
        plans.add("attn_v_b", &[rank, latent.value_size, self.heads]);
        plans.add("attn_output", &[self.heads * latent.value_size, embedding]);
    }

    fn linear_attention(&self, linear: &Linear, plans: &mut Plans<'_>) {
        let keys = linear.key_heads * linear.head_size;
        let values = linear.value_heads * linear.head_size;
        plans.add("attn_qkv", &[self.embedding, 2 * keys + values]);
        plans.add("attn_gate", &[self.embedding, values]);
        plans.add("ssm_conv1d", &[linear.conv_kernel, 2 * keys + values]);
        plans.add_other("ssm_dt.bias", &[linear.value_heads]);
        plans.add_other("ssm_a", &[linear.value_heads]);
        plans.add("ssm_ba", &[self.embedding, 2 * linear.value_heads]);
        plans.add("ssm_norm", &[linear.head_size]);
        plans.add("ssm_out", &[values, self.embedding]);
    }

    fn short_convolution(&self, plans: &mut Plans<'_>) {
        let embedding = self.embedding;
        let taps = self.short_conv.as_ref().map_or(0, |short| short.taps);
        plans.add("shortconv.conv", &[taps, embedding]);
        plans.add("shortconv.in_proj", &[embedding, 3 * embedding]);
        plans.add("shortconv.out_proj", &[embedding, embedding]);
    }

    fn feed_forward(&self, layer: u32, plans: &mut Plans<'_>) {
        let embedding = self.embedding;
        let norm = if self.linear.is_some() || self.is_gpt_oss() {
            "post_attention_norm"
        } else {
            "ffn_norm"
        };
        plans.add(norm, &[embedding]);
        let experts = self.experts.as_ref();
        let Some(experts) = experts.filter(|experts| layer >= experts.dense_layers) else {
            plans.add("ffn_gate", &[embedding, self.feed_forward]);
            plans.add("ffn_up", &[embedding, self.feed_forward]);
            plans.add("ffn_down", &[self.feed_forward, embedding]);
            return;
        };
        let (count, inner) = (experts.count, experts.feed_forward);
        plans.add("ffn_gate_inp", &[embedding, count]);
        plans.add("ffn_gate_exps", &[embedding, inner, count]);
        plans.add("ffn_up_exps", &[embedding, inner, count]);
        plans.add("ffn_down_exps", &[inner, embedding, count]);
        if self.is_gpt_oss() {
            plans.add_other("ffn_gate_inp.bias", &[count]);
            plans.add_other("ffn_gate_exps.bias", &[inner, count]);
            plans.add_other("ffn_up_exps.bias", &[inner, count]);
            plans.add_other("ffn_down_exps.bias", &[embedding, count]);
        }
        let shared = experts.shared_feed_forward;
        if shared > 0 {
            if self.linear.is_some() {
                plans.add("ffn_gate_inp_shexp", &[embedding]);
            }
            plans.add("ffn_gate_shexp", &[embedding, shared]);
            plans.add("ffn_up_shexp", &[embedding, shared]);
            plans.add("ffn_down_shexp", &[shared, embedding]);
        }
    }
}
