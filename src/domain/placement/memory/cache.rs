//! What a context keeps: KV cache and recurrent state (`llama-kv-cache.cpp`, `llama-kv-cache-iswa.cpp`,
//! `llama-memory-recurrent.cpp`).

use crate::domain::placement::assignment::ContextParams;
use crate::domain::placement::layout::{AttentionCache, LayerShape};

use super::graph::MAX_BYTES;

/// llama.cpp rounds the cells of a cache up to this many.
const CELL_STEP: u64 = 256;
/// Bytes of a value of recurrent state, always f32.
const STATE_BYTES: u64 = 4;

/// Values of a block and bytes of it, of every type a cache can have (`ggml.c`, `type_traits`).
const CACHE_TYPES: [(&str, u64, u64); 9] = [
    ("f32", 1, 4),
    ("f16", 1, 2),
    ("bf16", 1, 2),
    ("q8_0", 32, 34),
    ("q4_0", 32, 18),
    ("q4_1", 32, 20),
    ("q5_0", 32, 22),
    ("q5_1", 32, 24),
    ("iq4_nl", 32, 18),
];

/// Bytes of `values` values of a cache's type; of an unknown one as f16, the default.
pub(in crate::domain::placement) fn row_bytes(kind: &str, values: u64) -> u64 {
    let known = |t: &&(&str, u64, u64)| t.0.eq_ignore_ascii_case(kind);
    let (_, block, bytes) = CACHE_TYPES.iter().find(known).unwrap_or(&CACHE_TYPES[1]);
    values.div_ceil(*block).saturating_mul(*bytes)
}

/// Is this a type of blocks, so that attention must rotate and unpack it?
pub(super) fn is_quantized(kind: &str) -> bool {
    let known = |t: &(&str, u64, u64)| t.0.eq_ignore_ascii_case(kind) && t.1 > 1;
    CACHE_TYPES.iter().any(known)
}

/// Is this type known, so that sizes are exact?
pub(super) fn is_known(kind: &str) -> bool {
    CACHE_TYPES.iter().any(|t| t.0.eq_ignore_ascii_case(kind))
}

/// Cells of one sequence's cache.
pub(super) fn sequence_cells(context: &ContextParams) -> u64 {
    let each = context.context / context.sequences.max(1);
    each.max(1).next_multiple_of(CELL_STEP)
}

/// Tokens of a micro-batch, as llama.cpp limits it.
pub(super) fn micro_batch(context: &ContextParams) -> u64 {
    let all = sequence_cells(context) * context.sequences.max(1);
    context.micro_batch.min(context.batch).min(all).max(1)
}

/// Cells of a layer's cache per sequence: a window and a micro-batch, or the whole context.
pub(super) fn layer_cells(context: &ContextParams, cache: AttentionCache) -> u64 {
    let all = sequence_cells(context);
    match cache.window {
        Some(window) => {
            let reach = window + context.micro_batch.min(context.batch);
            all.min(reach).next_multiple_of(CELL_STEP)
        }
        None => all,
    }
}

/// K and V cache of a layer, in bytes: per-token values × cells × sequences.
pub(super) fn attention_bytes(context: &ContextParams, cache: AttentionCache) -> [u64; 2] {
    let cells = layer_cells(context, cache) * context.sequences.max(1);
    let bytes = |kind, values| row_bytes(kind, values).saturating_mul(cells).min(MAX_BYTES);
    [
        bytes(&context.type_k, cache.keys),
        bytes(&context.type_v, cache.values),
    ]
}

/// Convolution and recurrent state of a layer, in bytes.
pub(super) fn recurrent_bytes(context: &ContextParams, layer: &LayerShape) -> [u64; 2] {
    let sequences = context.sequences.max(1) * STATE_BYTES;
    layer.recurrent.map_or([0, 0], |r| {
        [r.convolution, r.state].map(|n| n.saturating_mul(sequences).min(MAX_BYTES))
    })
}

/// All a layer keeps: K, V, convolution and recurrent state, each a tensor of its own.
pub(in crate::domain::placement) fn layer_parts(
    context: &ContextParams,
    layer: &LayerShape,
) -> [u64; 4] {
    let [k, v] = layer
        .attention
        .map_or([0, 0], |a| attention_bytes(context, a));
    let [convolution, state] = recurrent_bytes(context, layer);
    [k, v, convolution, state]
}
