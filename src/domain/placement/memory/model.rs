//! A whole model's graph: embeddings, layers, output (`src/models/*.cpp`).

use super::graph::{Elem, Graph, Id, Op};
use super::net::Net;

impl Net<'_> {
    /// Builds the graph of a micro-batch in which every token's result is wanted.
    pub(super) fn build(mut self) -> Graph {
        let mut x = self.embed();
        let n_layer = self.layout.n_layer();
        for layer in 0..n_layer {
            x = self.block(x, layer, layer + 1 == n_layer);
        }
        let x = if self.late_outputs() {
            self.wanted(x)
        } else {
            x
        };
        let x = self.norm(x, None, "output_norm");
        self.graph.tensors[x].output = false;
        if let Some(matrix) = self.output_matrix() {
            let logits = self.multiply(matrix, x);
            self.graph.tensors[logits].output = true;
            self.graph.expand(logits);
        } else {
            self.graph.expand(x);
        }
        self.graph
    }

    /// Token embeddings, and the room for embeddings given instead of tokens.
    fn embed(&mut self) -> Id {
        let (width, tokens) = (self.layout.embedding, self.tokens);
        let ids = self.graph.input(&[tokens], Elem::I32);
        let given = self.graph.input(&[width, tokens], Elem::F32);
        let mut sources = vec![];
        sources.extend(self.weight(None, "token_embd.weight"));
        sources.push(ids);
        let x = self.graph.op(Op::GetRows, &[width, tokens], &sources);
        self.graph.expand(x);
        self.graph.expand(given);
        if self.layout.info.architecture.starts_with("gemma") {
            return self.graph.like(Op::Scale, &[x]);
        }
        x
    }

    /// Some models pick the wanted tokens after the last layer, the others within it.
    fn late_outputs(&self) -> bool {
        self.layout.info.architecture == "gpt-oss"
    }

    fn block(&mut self, x: Id, layer: u32, last: bool) -> Id {
        let shape = self.layer(layer);
        let mut residual = x;
        let mut y = self.norm(x, Some(layer), "attn_norm");
        if let Some(cache) = shape.attention {
            y = self.attention(y, layer, cache);
        }
        if last && !self.late_outputs() {
            y = self.wanted(y);
            residual = self.wanted(residual);
        }
        let has_ffn_norm = self.has(Some(layer), "ffn_norm.weight");
        if has_ffn_norm && self.has(Some(layer), "post_attention_norm.weight") {
            y = self.norm(y, Some(layer), "post_attention_norm");
        }
        let residual = self.graph.like(Op::Add, &[y, residual]);
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
        self.graph.like(Op::Add, &[y, residual])
    }
}

/// Architectures whose graphs are built here as llama.cpp does (checked against llama-fit-params).
const KNOWN: [&str; 5] = ["gemma3", "gpt-oss", "llama", "qwen3", "qwen3moe"];

/// Is this architecture's graph known?
pub(super) fn is_known(architecture: &str) -> bool {
    KNOWN.contains(&architecture)
}
