//! KV cache bytes per token of context, layer by layer (case C31).
//! Sliding-window layers are charged in full, an upper bound; the placement planner refines it (case C32).

use super::header::{Header, MAX_KEPT_NUMBERS, Value};

/// Bytes of an f16 number.
const F16_BYTES: u64 = 2;

/// Bytes one more token of context takes with f16 keys and values:
/// Σ over layers with attention of `head_count_kv` × (`key_length` + `value_length`) × 2.
/// Nothing where the header does not tell, or the cache is laid out differently (multi-head latent attention).
///
/// # Errors
/// A per-layer array has another length than the number of layers; llama.cpp refuses such a file too.
pub(super) fn bytes_per_token_f16(
    header: &Header,
    architecture: &str,
    layers: u32,
) -> Result<Option<u64>, String> {
    let key = |name: &str| format!("{architecture}.{name}");
    let heads = per_layer(header, &key("attention.head_count"), layers)?;
    let heads_kv = per_layer(header, &key("attention.head_count_kv"), layers)?;
    per_layer(header, &key("feed_forward_length"), layers)?;
    let latent = header.unsigned(&key("attention.kv_lora_rank")).unwrap_or(0) > 0;
    let Some(heads) = heads.filter(|_| !latent) else {
        return Ok(None);
    };
    // As in llama.cpp: without head_count_kv every head has its own keys and values.
    let heads_kv = heads_kv.unwrap_or_else(|| heads.clone());
    let every = header
        .unsigned(&key("full_attention_interval"))
        .map_or(1, |n| n.max(1));
    let shared = header
        .unsigned(&key("attention.shared_kv_layers"))
        .unwrap_or(0);
    let own = u64::from(layers).saturating_sub(shared);
    let total = (0u64..)
        .zip(&heads_kv)
        .filter(|(layer, _)| *layer < own && (layer + 1) % every == 0)
        .try_fold(0u64, |sum, (_, heads)| sum.checked_add(*heads));
    if total == Some(0) {
        return Ok(Some(0));
    }
    let width = heads
        .iter()
        .find(|n| **n > 0)
        .and_then(|heads| Some(header.unsigned(&key("embedding_length"))? / heads));
    let length = |name: &str| header.unsigned(&key(name)).or(width);
    let (keys, values) = (
        length("attention.key_length"),
        length("attention.value_length"),
    );
    Ok((|| {
        total?
            .checked_mul(keys?.checked_add(values?)?)?
            .checked_mul(F16_BYTES)
    })())
}

/// A value per layer from a scalar or an array; nothing where it is missing or unusable.
fn per_layer(header: &Header, key: &str, layers: u32) -> Result<Option<Vec<u64>>, String> {
    let wrong = |len: u64| Err(format!("{key} has {len} entries for {layers} layers"));
    match header.metadata.get(key) {
        Some(Value::Integers(list)) if list.len() as u64 != u64::from(layers) => {
            wrong(list.len() as u64)
        }
        Some(Value::Integers(list)) => Ok(list.iter().map(|n| u64::try_from(*n).ok()).collect()),
        Some(Value::Skipped(len)) if *len != u64::from(layers) => wrong(*len),
        _ if u64::from(layers) > MAX_KEPT_NUMBERS => Ok(None),
        _ => Ok(header.unsigned(key).map(|n| vec![n; layers as usize])),
    }
}
