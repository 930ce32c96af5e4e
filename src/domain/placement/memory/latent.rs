//! Multi-head latent attention (`deepseek2.cpp`): keys and values are read from one latent vector a token.

use super::cache;
use super::graph::{Id, Op, Stored};
use super::net::Net;
use crate::domain::placement::layout::AttentionCache;

impl Net<'_> {
    /// Is this layer's attention latent, with its up-projections absorbed into queries and output?
    pub(super) fn is_latent(&self, layer: u32) -> bool {
        self.has(Some(layer), "attn_k_b.weight") && self.has(Some(layer), "attn_kv_a_mqa.weight")
    }

    /// Latent attention of a layer, from its normed input to the output projection.
    pub(super) fn latent_attention(&mut self, x: Id, layer: u32, cache: AttentionCache) -> Id {
        let at = Some(layer);
        let tokens = self.tokens;
        let heads = self.layer(layer).heads;
        let q = match self.project(x, at, "attn_q_a") {
            Some(low) => {
                let low = self.norm(low, at, "attn_q_a_norm");
                self.project(low, at, "attn_q_b").unwrap_or(low)
            }
            None => self.project(x, at, "attn_q").unwrap_or(x),
        };
        let head = self.graph.ne(q)[0] / heads.max(1);
        let q = self.graph.view(Op::Reshape, q, &[head, heads, tokens]);
        let both = self.project(x, at, "attn_kv_a_mqa").unwrap_or(x);
        let [plain, rank, ..] = self.dims(at, "attn_k_b.weight").unwrap_or([1; 4]);
        let turned = head.saturating_sub(plain);
        let latent = self.graph.part(both, &[rank, tokens]);
        let key_turned = self.graph.part(both, &[turned, 1, tokens]);
        let positions = self.positions();
        let key_turned = self.graph.like(Op::Rope, &[key_turned, positions]);
        let latent = self.norm(latent, at, "attn_kv_a_norm");
        let q_plain = self.graph.part(q, &[plain, heads, tokens]);
        let q_turned = self.graph.part(q, &[turned, heads, tokens]);
        let q_turned = self.graph.like(Op::Rope, &[q_turned, positions]);
        let q_plain = self
            .graph
            .view(Op::Permute, q_plain, &[plain, tokens, heads]);
        let mut sources: Vec<Id> = self.weight(at, "attn_k_b.weight").into_iter().collect();
        sources.push(q_plain);
        let absorbed = self.graph.op(Op::MulMat, &[rank, tokens, heads], &sources);
        let absorbed = self
            .graph
            .view(Op::Permute, absorbed, &[rank, heads, tokens]);
        let query = self.graph.op(
            Op::Other,
            &[rank + turned, heads, tokens],
            &[absorbed, q_turned],
        );
        let latent = self.graph.view(Op::Reshape, latent, &[rank, 1, tokens]);
        let key = self.graph.op(
            Op::Other,
            &[rank + turned, 1, tokens],
            &[latent, key_turned],
        );
        for part in [query, latent, key] {
            self.graph.expand(part);
        }
        let keys = self.store_latent(key, layer, cache);
        let out = self.attend_latent(query, keys, layer, cache, rank);
        self.graph.expand(out);
        self.project(out, at, "attn_output").unwrap_or(out)
    }

    fn store_latent(&mut self, key: Id, layer: u32, cache: AttentionCache) -> Id {
        let cells = cache::layer_cells(self.context, cache) * self.sequences;
        let [bytes, _] = cache::attention_bytes(self.context, cache);
        let stored = Stored::Cache(self.cache_home(layer));
        let keys = self.graph.stored([cache.keys, cells, 1, 1], bytes, stored);
        let rows = self.graph.view(Op::View, key, &[cache.keys, self.tokens]);
        let places = self.key_cells(cache);
        self.set_rows(keys, rows, places);
        keys
    }

    fn attend_latent(
        &mut self,
        query: Id,
        keys: Id,
        layer: u32,
        cache: AttentionCache,
        rank: u64,
    ) -> Id {
        let (each, n) = (self.tokens / self.sequences, self.sequences);
        let cells = cache::layer_cells(self.context, cache);
        let heads = self.layer(layer).heads;
        let key = cache.keys;
        let mask = self.mask(cache);
        let k = self.graph.view(Op::View, keys, &[key, 1, cells, n]);
        let v = self.graph.view(Op::View, k, &[rank, 1, cells, n]);
        let q = self.graph.view(Op::View, query, &[key, heads, each, n]);
        let q = self.graph.view(Op::Permute, q, &[key, each, heads, n]);
        let k = self.graph.view(Op::Permute, k, &[key, cells, 1, n]);
        let v = self.graph.view(Op::Permute, v, &[rank, cells, 1, n]);
        let up = self.weight(Some(layer), "attn_v_b.weight");
        let value = up.map_or(rank, |up| self.graph.ne(up)[1]);
        let decompress = |net: &mut Self, latent: Id| {
            let mut sources: Vec<Id> = up.into_iter().collect();
            sources.push(latent);
            net.graph.op(Op::MulMat, &[value, each, heads, n], &sources)
        };
        let out = if self.context.flash_attention {
            let out = self.graph.op(
                Op::FlashAttention,
                &[rank, heads, each, n],
                &[q, k, v, mask],
            );
            self.graph.tensors[out].extra =
                self.unpacked(AttentionCache { values: 0, ..cache }, cells * n);
            let turned = self.graph.view(Op::Permute, out, &[rank, each, heads, n]);
            let out = decompress(self, turned);
            let turned = self.graph.view(Op::Permute, out, &[value, heads, each, n]);
            let whole = self
                .graph
                .op(Op::Other, &[value, heads, each, n], &[turned]);
            return self
                .graph
                .view(Op::Reshape, whole, &[value * heads, self.tokens]);
        } else {
            let kq = self.graph.op(Op::MulMat, &[cells, each, heads, n], &[k, q]);
            let weights = self.graph.like(Op::SoftMax, &[kq, mask]);
            let v = self.graph.view(Op::Permute, v, &[cells, rank, 1, n]);
            let v = self.graph.typed(
                Op::Other,
                &[cells, rank, 1, n],
                super::graph::Elem::F16,
                &[v],
            );
            let kqv = self
                .graph
                .op(Op::MulMat, &[rank, each, heads, n], &[v, weights]);
            decompress(self, kqv)
        };
        let turned = self.graph.view(Op::Permute, out, &[value, heads, each, n]);
        self.graph
            .op(Op::Other, &[value * heads, self.tokens], &[turned])
    }
}
