//! The recurrent part of a layer: short convolutions and gated delta nets (`lfm2.cpp`, `qwen3next.cpp`,
//! `delta-net-base.cpp`, `build_rs` of `llama-graph.cpp`).

use super::cache;
use super::graph::{Elem, Id, Op, Stored};
use super::net::Net;
use crate::domain::placement::layout::RecurrentState;

impl Net<'_> {
    /// The recurrent part of a layer, from its normed input to its projection.
    pub(super) fn recurrence(&mut self, x: Id, layer: u32, state: RecurrentState) -> Id {
        if self.has(Some(layer), "shortconv.in_proj.weight") {
            self.short_convolution(x, layer, state)
        } else {
            self.delta_net(x, layer, state)
        }
    }

    /// A layer's state of one kind: all of it, and the rows this micro-batch continues.
    fn load_state(&mut self, layer: u32, bytes: u64, values: u64) -> (Id, Id) {
        let sequences = self.sequences;
        let stored = Stored::Cache(self.cache_home(layer));
        let all = self.graph.stored([values, sequences, 1, 1], bytes, stored);
        let [main, none] = self.state_rows();
        let flat = self.graph.view(Op::Reshape, all, &[values, sequences]);
        let cleared = self.graph.view(Op::View, flat, &[0]);
        self.graph.tensors[cleared].bytes = 0;
        let zeroed = self.graph.view(Op::Scale, cleared, &[0]);
        self.graph.tensors[zeroed].bytes = 0;
        self.graph.expand(zeroed);
        let state = self
            .graph
            .op(Op::GetRows, &[values, sequences], &[flat, main]);
        self.graph.expand(state);
        let extra = self.graph.op(Op::GetRows, &[values, 0], &[flat, none]);
        let place = self.graph.view(Op::View, all, &[0]);
        self.store_state(extra, place);
        (all, state)
    }

    /// `ggml_cpy` into a state: the result is the state itself.
    fn store_state(&mut self, new: Id, place: Id) {
        let ne = self.graph.ne(place);
        let id = self.graph.view(Op::Other, place, &ne);
        self.graph.tensors[id].src = vec![new, place];
        self.graph.expand(id);
    }

    fn short_convolution(&mut self, x: Id, layer: u32, state: RecurrentState) -> Id {
        let [width, tokens, ..] = self.graph.ne(x);
        let (each, n) = (tokens / self.sequences, self.sequences);
        let x = self.graph.view(Op::Reshape, x, &[width, each, n]);
        let Some(mixed) = self.project(x, Some(layer), "shortconv.in_proj") else {
            return x;
        };
        let [gate_in, gate_out, value] =
            [(); 3].map(|()| self.graph.part(mixed, &[width, each, n]));
        let gated = self.graph.op(Op::Mul, &[width, each, n], &[gate_in, value]);
        let turned = self.graph.view(Op::Permute, gated, &[each, width, n]);
        let [bytes, _] = cache::recurrent_bytes(self.context, self.layer(layer));
        let (all, conv) = self.load_state(layer, bytes, state.convolution);
        let kept = state.convolution / width;
        let conv = self.graph.view(Op::Reshape, conv, &[kept, width, n]);
        let joined = self
            .graph
            .op(Op::Other, &[kept + each, width, n], &[conv, turned]);
        let last = self.graph.part(joined, &[kept, width, n]);
        let place = self.graph.view(Op::View, all, &[state.convolution, n]);
        self.store_state(last, place);
        let mut sources = vec![joined];
        sources.extend(self.weight(Some(layer), "shortconv.conv.weight"));
        let convolved = self.graph.op(Op::Conv, &[width, each, n], &sources);
        let y = self
            .graph
            .op(Op::Mul, &[width, each, n], &[gate_out, convolved]);
        let y = self
            .project(y, Some(layer), "shortconv.out_proj")
            .unwrap_or(y);
        self.graph.view(Op::Reshape, y, &[width, tokens])
    }

    fn delta_net(&mut self, x: Id, layer: u32, state: RecurrentState) -> Id {
        let (tokens, n) = (self.tokens, self.sequences);
        let each = tokens / n;
        let Some(size) = self.delta_size(layer, state) else {
            return x;
        };
        let Some(mixed) = self.project(x, Some(layer), "attn_qkv") else {
            return x;
        };
        let mixed = self
            .graph
            .view(Op::Reshape, mixed, &[size.channels, each, n]);
        let z = self.project(x, Some(layer), "attn_gate").unwrap_or(x);
        let (beta, gate) = self.delta_gates(x, layer, size);
        let [_, state_bytes] = cache::recurrent_bytes(self.context, self.layer(layer));
        let joined = self.delta_input(mixed, layer, state, size);
        let (memory, old) = self.load_state(layer, state_bytes, state.state);
        let old = self
            .graph
            .view(Op::Reshape, old, &[size.value, size.value, size.heads, n]);
        let mut sources = vec![joined];
        sources.extend(self.weight(Some(layer), "ssm_conv1d.weight"));
        let y = self.graph.op(Op::Conv, &[size.channels, each, n], &sources);
        let y = self.graph.like(Op::Unary, &[y]);
        let [q, k] = [(); 2].map(|()| self.delta_key(y, size, each));
        let v = self.graph.part(y, &[size.value, size.heads, each, n]);
        let rows = size.value * size.heads;
        let result = self.graph.op(
            Op::Other,
            &[rows, tokens + size.value * n],
            &[q, k, v, gate, beta, old],
        );
        let out = self
            .graph
            .view(Op::View, result, &[size.value, size.heads, each, n]);
        let new = self
            .graph
            .part(result, &[size.value, size.value, size.heads, n]);
        let place = self.graph.view(Op::View, memory, &[state.state, n]);
        self.store_state(new, place);
        let z = self
            .graph
            .view(Op::Reshape, z, &[size.value, size.heads, each, n]);
        let normed = self.norm(out, Some(layer), "ssm_norm");
        let opened = self.graph.like(Op::Unary, &[z]);
        let y = self.graph.like(Op::Mul, &[normed, opened]);
        let y = self.graph.view(Op::Reshape, y, &[rows, each, n]);
        let y = self.project(y, Some(layer), "ssm_out").unwrap_or(y);
        self.graph
            .view(Op::Reshape, y, &[self.layout.embedding, tokens])
    }

    /// The new channels behind those of the last tokens, which are kept for the next micro-batch.
    fn delta_input(&mut self, mixed: Id, layer: u32, state: RecurrentState, size: DeltaSize) -> Id {
        let n = self.sequences;
        let each = self.tokens / n;
        let [conv_bytes, _] = cache::recurrent_bytes(self.context, self.layer(layer));
        let (all, conv) = self.load_state(layer, conv_bytes, state.convolution);
        let kept = state.convolution / size.channels;
        let conv = self
            .graph
            .view(Op::Reshape, conv, &[kept, size.channels, n]);
        let turned = self
            .graph
            .view(Op::Permute, mixed, &[each, size.channels, n]);
        let joined = self
            .graph
            .op(Op::Other, &[kept + each, size.channels, n], &[conv, turned]);
        let last = self.graph.part(joined, &[kept, size.channels, n]);
        let place = self.graph.view(Op::View, all, &[state.convolution, n]);
        self.store_state(last, place);
        joined
    }

    /// Sizes of a gated delta net, from its weights: `ssm_a` has a value for each head, the convolution a row a channel.
    fn delta_size(&self, layer: u32, state: RecurrentState) -> Option<DeltaSize> {
        let heads = self.dims(Some(layer), "ssm_a").map(|d| d[0].max(d[1]))?;
        let channels = self.dims(Some(layer), "ssm_conv1d.weight")?[1];
        let value = self.dims(Some(layer), "ssm_norm.weight")?[0].max(1);
        let keys = (channels.checked_sub(heads * value)? / 2) / value;
        let sound = heads * value * value == state.state && keys > 0;
        sound.then_some(DeltaSize {
            channels,
            heads,
            keys,
            value,
        })
    }

    /// How much each head remembers and forgets.
    fn delta_gates(&mut self, x: Id, layer: u32, size: DeltaSize) -> (Id, Id) {
        let (tokens, n) = (self.tokens, self.sequences);
        let each = tokens / n;
        let per_key = size.heads / size.keys;
        let both = self.project(x, Some(layer), "ssm_ba").unwrap_or(x);
        let both = self
            .graph
            .view(Op::Reshape, both, &[2 * per_key, size.keys, each, n]);
        let [b, a] = [(); 2].map(|()| self.graph.part(both, &[per_key, size.keys, each, n]));
        let b = self
            .graph
            .op(Op::Other, &[per_key, size.keys, each, n], &[b]);
        let beta = self.graph.like(Op::Unary, &[b]);
        let alpha = self.graph.op(Op::Other, &[size.heads, each, n], &[a]);
        let mut sources = vec![alpha];
        sources.extend(self.weight(Some(layer), "ssm_dt.bias"));
        let alpha = self.graph.like(Op::Add, &sources);
        let alpha = self.graph.like(Op::Unary, &[alpha]);
        let mut sources = vec![alpha];
        sources.extend(self.weight(Some(layer), "ssm_a"));
        let gate = self.graph.like(Op::Mul, &sources);
        let shape = [1, size.heads, each, n];
        let beta = self.graph.view(Op::Reshape, beta, &shape);
        (beta, self.graph.view(Op::Reshape, gate, &shape))
    }

    /// Queries or keys of the convolved values: normalised, and repeated for each value head.
    fn delta_key(&mut self, y: Id, size: DeltaSize, each: u64) -> Id {
        let n = self.sequences;
        let part = self.graph.part(y, &[size.value, size.keys, each, n]);
        let normed = self.graph.like(Op::RmsNorm, &[part]);
        let normed = self.graph.like(Op::Scale, &[normed]);
        if size.keys == size.heads {
            return normed;
        }
        let per_key = size.heads / size.keys;
        let flat = self
            .graph
            .view(Op::Reshape, normed, &[size.value, 1, size.keys, each * n]);
        let shape = [size.value, per_key, size.keys, each * n];
        let repeated = self.graph.typed(Op::Other, &shape, Elem::F32, &[flat]);
        self.graph
            .view(Op::Reshape, repeated, &[size.value, size.heads, each, n])
    }
}

/// Sizes of a gated delta net.
#[derive(Debug, Clone, Copy)]
struct DeltaSize {
    /// Channels of the convolution: queries, keys and values.
    channels: u64,
    /// Value heads.
    heads: u64,
    /// Query and key heads.
    keys: u64,
    /// Values of a head.
    value: u64,
}
