//! What a model's header says of it, as far as placing and predicting go: tensors by layer and class, and what each
//! layer keeps in its cache.

use serde::{Deserialize, Serialize};

use crate::domain::types::{Bytes, ModelInfo};

/// What a tensor is for; the rows of the placement grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TensorClass {
    /// Token and position embeddings: rows are looked up, never read whole. llama.cpp keeps them on the CPU.
    Embedding,
    /// The output matrix (and its norm); of a model with tied embeddings the embeddings once more.
    Output,
    /// Attention projections, with their biases and norms of heads.
    Attention,
    /// State-space, convolution and linear-attention weights of recurrent layers.
    Recurrent,
    /// Dense feed-forward weights, shared experts among them: read for every token.
    FeedForward,
    /// Routed experts (`*_exps`): of `expert_count` only `expert_used_count` are read for a token.
    Experts,
    /// Router, norms and all else that is small.
    Norm,
}

impl TensorClass {
    /// Every class, in the grid's order.
    pub const ALL: [Self; 7] = [
        Self::Embedding,
        Self::Attention,
        Self::Recurrent,
        Self::FeedForward,
        Self::Experts,
        Self::Norm,
        Self::Output,
    ];
}

/// One tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorEntry {
    /// Name, e.g. `blk.0.attn_q.weight`.
    pub name: String,
    /// Block it belongs to; `None` for input and output tensors.
    pub layer: Option<u32>,
    /// What it is for.
    pub class: TensorClass,
    /// Its type's name, e.g. `Q4_K`.
    pub kind: String,
    /// Dimensions, innermost first; unused ones are 1.
    pub dims: [u64; 4],
    /// Bytes of its data.
    pub bytes: Bytes,
}

impl TensorEntry {
    /// Number of values.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }
}

/// What attention keeps for each token in one layer, in values of the cache's type (multi-head latent attention keeps its
/// latent vector as keys, and no values).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttentionCache {
    /// Values of the K cache per token: `n_embd_k_gqa`.
    pub keys: u64,
    /// Values of the V cache per token: `n_embd_v_gqa`.
    pub values: u64,
    /// Tokens of its sliding window; `None` reaches over the whole context (case C32).
    pub window: Option<u64>,
}

/// What a recurrent layer keeps for each sequence, as 32-bit floats whatever the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecurrentState {
    /// Values of the convolution state: `n_embd_r`.
    pub convolution: u64,
    /// Values of the recurrent state: `n_embd_s`.
    pub state: u64,
}

/// One block.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LayerShape {
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Values of a key of one head.
    pub key_length: u64,
    /// Values of a value of one head.
    pub value_length: u64,
    /// Inner width of the dense feed-forward part; 0 without one.
    pub feed_forward: u64,
    /// Its attention cache; `None` where it has none (recurrent layers, layers that share another's).
    pub attention: Option<AttentionCache>,
    /// Its recurrent state.
    pub recurrent: Option<RecurrentState>,
}

/// Mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpertShape {
    /// Routed experts of a layer: `expert_count`.
    pub count: u64,
    /// Experts used for a token: `expert_used_count`.
    pub used: u64,
    /// Inner width of one expert.
    pub feed_forward: u64,
}

/// A model as the planner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelLayout {
    /// What is known of the file.
    pub info: ModelInfo,
    /// Every tensor of every part that llama.cpp loads, in the file's order.
    pub tensors: Vec<TensorEntry>,
    /// Every block, in order; `layers.len()` is `block_count`.
    pub layers: Vec<LayerShape>,
    /// `embedding_length`.
    pub embedding: u64,
    /// Tokens of the vocabulary (rows of the output matrix).
    pub vocabulary: u64,
    /// Experts, of a mixture.
    pub experts: Option<ExpertShape>,
    /// The embeddings are the output matrix too: a second copy is made on the output's device.
    pub tied_embeddings: bool,
    /// Numbers the header leaves open, so that memory is an upper bound or a guess; each a sentence.
    pub notices: Vec<String>,
}

impl ModelLayout {
    /// Number of blocks.
    pub fn n_layer(&self) -> u32 {
        self.layers.len() as u32
    }

    /// Blocks that a context computes. Those after them predict further tokens: they count for `-ngl`, and stay in the file.
    pub fn computed_layers(&self) -> u32 {
        let last = self.tensors.iter().filter_map(|t| t.layer).max();
        last.map_or(0, |layer| layer + 1)
    }

    /// Bytes of the tensors of a class, of one layer or of none.
    pub fn bytes(&self, layer: Option<u32>, class: TensorClass) -> Bytes {
        let of = |t: &&TensorEntry| t.layer == layer && t.class == class;
        self.tensors.iter().filter(of).map(|t| t.bytes).sum()
    }
}
