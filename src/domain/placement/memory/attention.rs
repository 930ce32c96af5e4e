//! The attention part of a layer (`build_qkv`, `build_attn`, `build_attn_mha` of `llama-graph.cpp`).

use super::cache;
use super::graph::{Elem, Id, MAX_BYTES, Op, Stored};
use super::net::Net;
use crate::domain::placement::layout::AttentionCache;

/// Queries, keys and values, by head.
#[derive(Debug, Clone, Copy)]
struct Heads {
    q: Id,
    k: Id,
    v: Id,
    /// What the output is multiplied by, where queries come with a gate.
    gate: Option<Id>,
}

/// CUDA's flash attention aligns the unpacked cache to this many bytes (`fattn-common.cuh`).
const UNPACKED_ALIGNMENT: u64 = 128;
/// Fewest queries for which CUDA unpacks a quantised cache rather than reading it as it is (`fattn.cu`).
const UNPACKED_QUERIES: u64 = 3;

impl Net<'_> {
    /// Attention of a layer, from its normed input to the output projection.
    pub(super) fn attention(&mut self, x: Id, layer: u32, cache: AttentionCache) -> Id {
        let heads = self.heads(x, layer);
        let heads = self.rotated(heads, layer, cache);
        self.expand_heads(heads);
        let (keys, values) = self.store(heads, layer, cache);
        let out = self.attend(heads.q, keys, values, layer, cache);
        self.graph.expand(out);
        let head = self.layer(layer).value_length;
        let out = match self.value_rotation(cache, head) {
            Some(rotation) => self.rotate(out, rotation),
            None => out,
        };
        let out = match heads.gate {
            Some(gate) => {
                let ne = self.graph.ne(out);
                let gate = self.graph.op(Op::Other, &ne, &[gate]);
                let gate = self.graph.like(Op::Unary, &[gate]);
                self.graph.like(Op::Mul, &[out, gate])
            }
            None => out,
        };
        self.project(out, Some(layer), "attn_output").unwrap_or(out)
    }

    /// Projects and splits into heads, normalises and turns them by position.
    fn heads(&mut self, x: Id, layer: u32) -> Heads {
        let shape = self.layer(layer);
        let sizes = [
            [shape.key_length, shape.heads],
            [shape.key_length, shape.kv_heads],
            [shape.value_length, shape.kv_heads],
        ];
        let [q, k, v] = if let Some(fused) = self.project(x, Some(layer), "attn_qkv") {
            sizes.map(|[head, n]| self.graph.part(fused, &[head, n, self.tokens]))
        } else {
            let names = ["attn_q", "attn_k", "attn_v"];
            let mut parts = names.map(|name| self.project(x, Some(layer), name).unwrap_or(x));
            for (part, [head, n]) in parts.iter_mut().zip(sizes) {
                let doubled = self.graph.ne(*part)[0] == 2 * head * n;
                let head = if doubled { 2 * head } else { head };
                *part = self.graph.view(Op::Reshape, *part, &[head, n, self.tokens]);
            }
            parts
        };
        let gated = self.graph.ne(q)[0] == 2 * shape.key_length;
        let half = |net: &mut Self| {
            net.graph
                .part(q, &[shape.key_length, shape.heads, net.tokens])
        };
        let (q, gate) = if gated {
            (half(self), Some(half(self)))
        } else {
            (q, None)
        };
        let q = self.head_norm(q, layer, "attn_q_norm");
        let q = self.turn(q, layer);
        let k = self.head_norm(k, layer, "attn_k_norm");
        let k = self.turn(k, layer);
        let q = if self.layout.info.architecture.starts_with("gemma") {
            self.graph.like(Op::Scale, &[q])
        } else {
            q
        };
        Heads { q, k, v, gate }
    }

    fn head_norm(&mut self, x: Id, layer: u32, name: &str) -> Id {
        if self.has(Some(layer), &format!("{name}.weight")) {
            self.norm(x, Some(layer), name)
        } else {
            x
        }
    }

    /// Rotary position embedding.
    fn turn(&mut self, x: Id, layer: u32) -> Id {
        let positions = self.positions();
        let mut sources = vec![x, positions];
        let factors = self.weight(Some(layer), "rope_freqs.weight");
        sources.extend(factors.or_else(|| self.weight(None, "rope_freqs.weight")));
        self.graph.like(Op::Rope, &sources)
    }

    fn rotated(&mut self, heads: Heads, layer: u32, cache: AttentionCache) -> Heads {
        let shape = self.layer(layer);
        let mut heads = heads;
        if let Some(rotation) = self.key_rotation(cache, shape.key_length) {
            heads.q = self.rotate(heads.q, rotation);
            heads.k = self.rotate(heads.k, rotation);
        }
        if let Some(rotation) = self.value_rotation(cache, shape.value_length) {
            heads.v = self.rotate(heads.v, rotation);
        }
        heads
    }

    /// Orders the three projections: models with sliding windows compute values last.
    fn expand_heads(&mut self, heads: Heads) {
        let windows = self.layout.layers.iter().filter_map(|l| l.attention);
        let order = if windows.into_iter().any(|a| a.window.is_some()) {
            [heads.q, heads.k, heads.v]
        } else {
            [heads.q, heads.v, heads.k]
        };
        for part in order {
            self.graph.expand(part);
        }
    }

    /// Writes keys and values to the cache, and gives the caches back.
    fn store(&mut self, heads: Heads, layer: u32, cache: AttentionCache) -> (Id, Id) {
        let cells = cache::layer_cells(self.context, cache);
        let [key_bytes, value_bytes] = cache::attention_bytes(self.context, cache);
        let stored = Stored::Cache(self.cache_home(layer));
        let all = cells * self.sequences;
        let keys = self
            .graph
            .stored([cache.keys, all, 1, 1], key_bytes, stored);
        let values = self
            .graph
            .stored([cache.values, all, 1, 1], value_bytes, stored);
        let key_cells = self.key_cells(cache);
        let flat = self
            .graph
            .view(Op::View, heads.k, &[cache.keys, self.tokens]);
        self.set_rows(keys, flat, key_cells);
        let value_cells = self.value_cells(cache);
        if self.context.flash_attention {
            let flat = self
                .graph
                .view(Op::View, heads.v, &[cache.values, self.tokens]);
            self.set_rows(values, flat, value_cells);
        } else {
            let view = self
                .graph
                .view(Op::Reshape, values, &[1, cache.values * all]);
            let flat = self
                .graph
                .view(Op::Reshape, heads.v, &[1, cache.values * self.tokens]);
            self.set_rows(view, flat, value_cells);
        }
        (keys, values)
    }

    /// `ggml_set_rows`: the result is the cache itself.
    pub(super) fn set_rows(&mut self, cache: Id, rows: Id, cells: Id) {
        let ne = self.graph.ne(cache);
        let id = self.graph.view(Op::SetRows, cache, &ne);
        self.graph.tensors[id].src = vec![rows, cells, cache];
        self.graph.expand(id);
    }

    fn attend(&mut self, q: Id, keys: Id, values: Id, layer: u32, cache: AttentionCache) -> Id {
        let shape = self.layer(layer);
        let (heads, kv_heads) = (shape.heads, shape.kv_heads);
        let (key, value) = (shape.key_length, shape.value_length);
        let (each, n) = (self.tokens / self.sequences, self.sequences);
        let cells = cache::layer_cells(self.context, cache);
        let mask = self.mask(cache);
        let k = self.graph.view(Op::View, keys, &[key, kv_heads, cells, n]);
        let v = self
            .graph
            .view(Op::View, values, &[value, kv_heads, cells, n]);
        let q = self.graph.view(Op::View, q, &[key, heads, each, n]);
        let q = self.graph.view(Op::Permute, q, &[key, each, heads, n]);
        let k = self.graph.view(Op::Permute, k, &[key, cells, kv_heads, n]);
        let v = self
            .graph
            .view(Op::Permute, v, &[value, cells, kv_heads, n]);
        let sinks = self.weight(Some(layer), "attn_sinks.weight");
        if self.context.flash_attention {
            let mut sources = vec![q, k, v, mask];
            sources.extend(sinks);
            let out = self
                .graph
                .op(Op::FlashAttention, &[value, heads, each, n], &sources);
            self.graph.tensors[out].extra = self.unpacked(cache, cells * n);
            return self
                .graph
                .view(Op::Reshape, out, &[value * heads, self.tokens]);
        }
        let kq = self.graph.op(Op::MulMat, &[cells, each, heads, n], &[k, q]);
        let mut sources = vec![kq, mask];
        sources.extend(sinks);
        let weights = self.graph.like(Op::SoftMax, &sources);
        let kqv = self
            .graph
            .op(Op::MulMat, &[value, each, heads, n], &[v, weights]);
        let turned = self.graph.view(Op::Permute, kqv, &[value, heads, each, n]);
        let out = self
            .graph
            .op(Op::Other, &[value * heads, self.tokens], &[turned]);
        if self.placement.kv_on_host {
            self.graph.tensors[out].pinned = Some(crate::domain::placement::assignment::Home::Host);
        }
        out
    }

    /// Bytes CUDA adds for a quantised cache's values as f16.
    pub(super) fn unpacked(&self, cache: AttentionCache, cells: u64) -> u64 {
        if self.tokens < UNPACKED_QUERIES {
            return 0;
        }
        let half = |kind: &str, values: u64| {
            let unpacks = !kind.eq_ignore_ascii_case("f16");
            let bytes = cache::row_bytes("f16", values.saturating_mul(cells)).min(MAX_BYTES)
                + UNPACKED_ALIGNMENT;
            if unpacks { bytes } else { 0 }
        };
        half(&self.context.type_k, cache.keys) + half(&self.context.type_v, cache.values)
    }

    /// Takes only the rows of the tokens whose results are wanted.
    pub(super) fn wanted(&mut self, x: Id) -> Id {
        let rows = self.outputs();
        let n = self.graph.ne(rows)[0];
        let width = self.graph.ne(x)[0];
        self.graph
            .typed(Op::GetRows, &[width, n], Elem::F32, &[x, rows])
    }
}
