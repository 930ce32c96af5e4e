//! A whole model's graph: embeddings, layers, output (`src/models/*.cpp`).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::graph::{Elem, Graph, Id, Op};
use super::net::Net;
use crate::domain::placement::assignment::Home;

/// How often two neighbouring layers are built before another such pair hardly changes anything.
const RUN: usize = 3;
const REPEATS: u32 = 2;

impl Net<'_> {
    /// Builds the graph of a micro-batch in which every token's result is wanted.
    pub(super) fn build(mut self) -> Graph {
        let mut x = self.embed();
        let computed = self.layout.computed_layers();
        let layers = if self.shortened {
            self.telling_layers()
        } else {
            (0..computed).collect()
        };
        for layer in layers {
            x = self.block(x, layer, layer + 1 == computed);
        }
        let x = self.finish(x);
        if let Some(matrix) = self.output_matrix() {
            let logits = self.multiply(matrix, x);
            self.graph.tensors[logits].output = true;
            self.graph.expand(logits);
        } else {
            self.graph.expand(x);
        }
        self.graph
    }

    /// The layers to build: of a run of layers alike, with every neighbour they have, mostly only the first few change what
    /// is allocated. Layers are left out in pairs, because results change places in the buffer from one layer to the next.
    fn telling_layers(&self) -> Vec<u32> {
        let likeness = self.likeness();
        let mut met: BTreeMap<&[u64], u32> = BTreeMap::new();
        let mut telling = Vec::new();
        let mut left_out = None;
        for at in 0..likeness.len() {
            let times = met
                .entry(&likeness[(at + 1).saturating_sub(RUN)..=at])
                .or_default();
            *times += 1;
            if *times > REPEATS && at + 1 < likeness.len() {
                left_out = left_out.xor(Some(at as u32));
                continue;
            }
            telling.extend(left_out.take());
            telling.push(at as u32);
        }
        telling
    }

    /// A number for each layer, the same for layers whose graphs and placement are the same.
    fn likeness(&self) -> Vec<u64> {
        let hash = |layer: u32| {
            let mut hasher = DefaultHasher::new();
            self.layer(layer).hash(&mut hasher);
            self.cache_home(layer).hash(&mut hasher);
            let n_layer = self.layout.n_layer();
            self.placement
                .layer_home(layer, n_layer, self.devices)
                .hash(&mut hasher);
            hasher
        };
        let mut hashers: Vec<DefaultHasher> =
            (0..self.layout.computed_layers()).map(hash).collect();
        for (tensor, home) in self.layout.tensors.iter().zip(&self.homes.of) {
            let Some(hasher) = tensor.layer.and_then(|l| hashers.get_mut(l as usize)) else {
                continue;
            };
            // On its device a weight's size does not matter; from RAM it may be copied.
            let copied = if *home == Home::Host {
                tensor.bytes.0
            } else {
                0
            };
            (tensor.name.splitn(3, '.').nth(2), tensor.dims, home, copied).hash(hasher);
        }
        hashers.iter().map(Hasher::finish).collect()
    }

    /// Token embeddings, and the room for embeddings given instead of tokens.
    fn embed(&mut self) -> Id {
        let (width, tokens) = (self.layout.embedding, self.tokens);
        let ids = self.graph.input(&[tokens], Elem::I32);
        let given = self.graph.input(&[width, tokens], Elem::F32);
        let mut sources = vec![];
        sources.extend(self.weight(None, super::weights::EMBEDDINGS));
        sources.push(ids);
        let x = self.graph.op(Op::GetRows, &[width, tokens], &sources);
        self.graph.expand(x);
        self.graph.expand(given);
        if self.layout.info.architecture.starts_with("gemma") {
            return self.graph.like(Op::Scale, &[x]);
        }
        x
    }

    /// The last norm; models that predict several tokens keep its source or result for that.
    fn finish(&mut self, x: Id) -> Id {
        let x = match self.layout.info.architecture.as_str() {
            "gpt-oss" => {
                self.graph.tensors[x].output = true;
                let x = self.wanted(x);
                self.norm(x, None, "output_norm")
            }
            "qwen3next" => {
                let x = self.norm(x, None, "output_norm");
                self.graph.tensors[x].output = true;
                self.wanted(x)
            }
            "lfm2" => self.norm(x, None, "token_embd_norm"),
            _ => self.norm(x, None, "output_norm"),
        };
        self.graph.tensors[x].output = true;
        x
    }

    /// Some models pick the wanted tokens after the last layer, the others within it.
    fn late_outputs(&self) -> bool {
        matches!(
            self.layout.info.architecture.as_str(),
            "gpt-oss" | "qwen3next"
        )
    }

    fn block(&mut self, x: Id, layer: u32, last: bool) -> Id {
        let shape = self.layer(layer);
        let mut residual = x;
        let mut y = self.norm(x, Some(layer), "attn_norm");
        if self.layout.info.architecture == "qwen3next" {
            self.graph.expand(y);
        }
        if let Some(cache) = shape.attention {
            y = if self.is_latent(layer) {
                self.latent_attention(y, layer, cache)
            } else {
                self.attention(y, layer, cache)
            };
        } else if let Some(state) = shape.recurrent {
            y = self.recurrence(y, layer, state);
        }
        if last && !self.late_outputs() {
            y = self.wanted(y);
            residual = self.wanted(residual);
        }
        let has_ffn_norm = self.has(Some(layer), "ffn_norm.weight");
        if has_ffn_norm && self.has(Some(layer), "post_attention_norm.weight") {
            y = self.norm(y, Some(layer), "post_attention_norm");
        }
        let residual = self.add_residual(y, residual);
        let name = if has_ffn_norm {
            "ffn_norm"
        } else {
            "post_attention_norm"
        };
        let y = self.norm(residual, Some(layer), name);
        let mut y = self.feed_forward(y, layer);
        if self.has(Some(layer), "post_ffw_norm.weight") {
            y = self.norm(y, Some(layer), "post_ffw_norm");
        }
        self.add_residual(y, residual)
    }

    /// The sum overwrites its first source where it may.
    fn add_residual(&mut self, y: Id, residual: Id) -> Id {
        let first = self.layout.info.architecture == "lfm2";
        let sources = if first { [residual, y] } else { [y, residual] };
        self.graph.like(Op::Add, &sources)
    }
}

/// Architectures whose graphs are built here as llama.cpp does (checked against llama-fit-params).
const KNOWN: [&str; 8] = [
    "deepseek2",
    "gemma3",
    "gpt-oss",
    "lfm2",
    "llama",
    "qwen3",
    "qwen3moe",
    "qwen3next",
];

/// Is this architecture's graph known?
pub(super) fn is_known(architecture: &str) -> bool {
    KNOWN.contains(&architecture)
}
