//! What each block keeps for a token or a sequence, from the header, by the rules of llama.cpp's `load_arch_hparams`
//! (cases C31, C32).

use super::header::{Header, MAX_KEPT_NUMBERS, Value};
use crate::domain::placement::layout::{AttentionCache, LayerShape, RecurrentState};

/// Architectures whose header may leave out which layers have a sliding window: every `period`-th is global, the first of
/// a period where `first`, else the last (`load_swa_pattern` calls of b11149).
const WINDOW_PERIODS: &[(&str, u64, bool)] = &[
    ("afmoe", 4, false),
    ("cohere2", 4, false),
    ("cohere2moe", 4, true),
    ("exaone4", 4, false),
    ("exaone-moe", 4, false),
    ("gemma-embedding", 6, false),
    ("gemma2", 2, false),
    ("gemma3", 6, false),
    ("gemma3n", 5, false),
    ("gpt-oss", 2, false),
    ("laguna", 4, true),
    ("llama4", 4, false),
    ("mellum", 4, false),
    ("modern-bert", 3, true),
    ("olmo2", 4, false),
    ("plamo3", 8, false),
    ("smallthinker", 4, true),
];
/// Architectures that ignore a window their header names.
const WINDOW_IGNORED: &[&str] = &["mistral", "llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe"];
/// Blocks are recurrent from the first to the last.
const ALL_RECURRENT: &[&str] = &["mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"];
/// Blocks have attention and a recurrent state side by side.
const BOTH: &[&str] = &["falcon-h1"];
/// Every so many blocks one has attention, where the header does not say how many (Qwen3-Next and its kin).
const FULL_ATTENTION_INTERVAL: u64 = 4;
const LINEAR_ATTENTION: &[&str] = &["qwen3next", "qwen35", "qwen35moe", "minimax-01"];
/// Gemma 3n: blocks with a cache of their own, the others read these (`n_layer_kv_from_start`).
const GEMMA3N_OWN_CACHES: u64 = 20;
/// RWKV: tokens of shift state, where the header does not say.
const TOKEN_SHIFT_COUNT: u64 = 2;
/// Convolution steps kept for Kimi's delta attention, where the header does not say.
const KDA_CONVOLUTION: u64 = 4;

/// Keys of one architecture.
struct Keys<'a> {
    header: &'a Header,
    architecture: &'a str,
    layers: u32,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.header.unsigned(&self.key(name))
    }

    /// A value per layer from a scalar or an array; nothing where it is missing or unusable.
    fn per_layer(&self, name: &str) -> Result<Option<Vec<u64>>, String> {
        let key = self.key(name);
        let layers = u64::from(self.layers);
        let wrong = |len: u64| Err(format!("{key} has {len} entries for {layers} layers"));
        match self.header.metadata.get(&key) {
            Some(Value::Integers(list)) if list.len() as u64 != layers => wrong(list.len() as u64),
            Some(Value::Integers(list)) => {
                Ok(list.iter().map(|n| u64::try_from(*n).ok()).collect())
            }
            Some(Value::Skipped(len)) if *len != layers => wrong(*len),
            _ if layers > MAX_KEPT_NUMBERS => Ok(None),
            _ => Ok(self
                .header
                .unsigned(&key)
                .map(|n| vec![n; self.layers as usize])),
        }
    }

    fn is(&self, list: &[&str]) -> bool {
        list.contains(&self.architecture)
    }
}

/// Every block of a model, and what the header leaves open.
///
/// # Errors
/// A per-layer array has another length than the number of layers; llama.cpp refuses such a file too.
pub(super) fn layers(
    header: &Header,
    architecture: &str,
    layers: u32,
) -> Result<(Vec<LayerShape>, Vec<String>), String> {
    let keys = Keys {
        header,
        architecture,
        layers,
    };
    let heads = keys.per_layer("attention.head_count")?;
    let kv_heads = keys.per_layer("attention.head_count_kv")?;
    let feed_forward = keys.per_layer("feed_forward_length")?;
    let mut notices = Vec::new();
    if u64::from(layers) > MAX_KEPT_NUMBERS {
        notices.push(format!("{layers} layers are more than Flux can place"));
        return Ok((Vec::new(), notices));
    }
    let none = || vec![0; layers as usize];
    let heads = heads.unwrap_or_else(none);
    // As in llama.cpp: without head_count_kv every head has its own keys and values.
    let kv_heads = kv_heads.unwrap_or_else(|| heads.clone());
    let feed_forward = feed_forward.unwrap_or_else(none);
    let windows = windows(&keys, &mut notices);
    let recurrent = recurrent(&keys, &kv_heads, &feed_forward)?;
    let state = state(&keys, &heads);
    let own = own_caches(&keys);
    let width = heads.iter().find(|n| **n > 0);
    let width = width.and_then(|n| Some(keys.number("embedding_length")? / n));
    let shape = |i: usize| {
        let window = windows[i];
        let swa = |name: &str| {
            let own = window.and_then(|_| keys.number(&format!("{name}_swa")));
            own.or_else(|| keys.number(name)).or(width).unwrap_or(0)
        };
        let (key_length, value_length) =
            (swa("attention.key_length"), swa("attention.value_length"));
        let attends = (i as u64) < own && (!recurrent[i] || keys.is(BOTH)) && kv_heads[i] > 0;
        LayerShape {
            heads: heads[i],
            kv_heads: kv_heads[i],
            key_length,
            value_length,
            feed_forward: feed_forward[i],
            attention: attends.then(|| AttentionCache {
                window,
                ..cache(&keys, kv_heads[i], key_length, value_length)
            }),
            recurrent: state.filter(|_| recurrent[i]),
        }
    };
    Ok(((0..layers as usize).map(shape).collect(), notices))
}

/// Values kept per token: with multi-head latent attention one latent vector (`is_mla`).
fn cache(keys: &Keys<'_>, kv_heads: u64, key_length: u64, value_length: u64) -> AttentionCache {
    let latent = ["attention.key_length_mla", "attention.value_length_mla"];
    let latent = latent.iter().all(|name| keys.number(name).unwrap_or(0) > 0);
    AttentionCache {
        keys: kv_heads.saturating_mul(key_length),
        values: if latent {
            0
        } else {
            kv_heads.saturating_mul(value_length)
        },
        window: None,
    }
}

/// The sliding window of each block.
fn windows(keys: &Keys<'_>, notices: &mut Vec<String>) -> Vec<Option<u64>> {
    let count = keys.layers as usize;
    let size = keys.number("attention.sliding_window").filter(|n| *n > 0);
    let Some(size) = size.filter(|_| !keys.is(WINDOW_IGNORED)) else {
        return vec![None; count];
    };
    let name = keys.key("attention.sliding_window_pattern");
    if let Some(Value::Integers(pattern)) = keys.header.metadata.get(&name) {
        let of = |i| {
            pattern
                .get(i)
                .is_some_and(|on: &i64| *on != 0)
                .then_some(size)
        };
        return (0..count).map(of).collect();
    }
    let known = WINDOW_PERIODS
        .iter()
        .find(|(name, ..)| *name == keys.architecture);
    let Some((_, period, first)) = known else {
        notices.push(format!(
            "which layers of {} have the sliding window of {size} tokens is not known: the KV cache is counted in full, an upper bound",
            keys.architecture
        ));
        return vec![None; count];
    };
    let period = keys
        .number("attention.sliding_window_pattern")
        .unwrap_or(*period);
    let global = |i: u64| match (period, first) {
        (0, _) => false,
        (_, true) => i.is_multiple_of(period),
        (_, false) => i % period == period - 1,
    };
    (0..count as u64)
        .map(|i| (!global(i)).then_some(size))
        .collect()
}

/// Which blocks are recurrent.
fn recurrent(keys: &Keys<'_>, kv_heads: &[u64], feed_forward: &[u64]) -> Result<Vec<bool>, String> {
    let count = keys.layers as usize;
    if keys.is(ALL_RECURRENT) || keys.is(BOTH) {
        return Ok(vec![true; count]);
    }
    if keys.is(LINEAR_ATTENTION) {
        if let Some(flags) = keys.per_layer("attention.recurrent_layers")? {
            return Ok(flags.iter().map(|n| *n != 0).collect());
        }
        let every = keys.number("full_attention_interval");
        let every = every.unwrap_or(FULL_ATTENTION_INTERVAL).max(1);
        return Ok((1..=count as u64)
            .map(|n| !n.is_multiple_of(every))
            .collect());
    }
    // Nemotron-H has blocks that are feed-forward alone.
    let alone = |i: usize| keys.architecture == "nemotron_h" && feed_forward[i] > 0;
    Ok((0..count).map(|i| kv_heads[i] == 0 && !alone(i)).collect())
}

/// What a recurrent block keeps: `n_embd_r` and `n_embd_s` of llama-hparams.cpp.
fn state(keys: &Keys<'_>, heads: &[u64]) -> Option<RecurrentState> {
    let number = |name: &str| keys.number(name).unwrap_or(0);
    let embedding = number("embedding_length");
    let heads = heads.iter().copied().find(|n| *n > 0).unwrap_or(0);
    let (convolution, state) = if let Some(size) = keys.number("wkv.head_size") {
        let shifts = keys
            .number("token_shift_count")
            .unwrap_or(TOKEN_SHIFT_COUNT);
        (shifts.checked_mul(embedding)?, embedding.checked_mul(size)?)
    } else if let Some(cached) = keys.number("shortconv.l_cache") {
        (embedding.checked_mul(cached.saturating_sub(1))?, 0)
    } else if let Some(size) = keys.number("kda.head_dim") {
        let steps = keys.number("ssm.conv_kernel").unwrap_or(KDA_CONVOLUTION);
        let inner = heads.checked_mul(size)?;
        (
            inner.checked_mul(steps.saturating_sub(1))?.checked_mul(3)?,
            inner.checked_mul(size)?,
        )
    } else {
        let (inner, state) = (number("ssm.inner_size"), number("ssm.state_size"));
        let groups = number("ssm.group_count")
            .checked_mul(state)?
            .checked_mul(2)?;
        let steps = number("ssm.conv_kernel").saturating_sub(1);
        (
            steps.checked_mul(inner.checked_add(groups)?)?,
            state.checked_mul(inner)?,
        )
    };
    (convolution > 0 || state > 0).then_some(RecurrentState { convolution, state })
}

/// Blocks from the first that have a cache of their own.
fn own_caches(keys: &Keys<'_>) -> u64 {
    let layers = u64::from(keys.layers);
    if keys.architecture == "gemma3n" {
        return GEMMA3N_OWN_CACHES.min(layers);
    }
    let shared = keys.number("attention.shared_kv_layers").unwrap_or(0);
    layers.saturating_sub(shared)
}
