//! What each block keeps for a token and for a sequence: `llama_hparams` and the layer filters of `create_memory` in
//! llama.cpp b11149 (cases C31, C32).

use super::keys::Keys;
use super::windows;
use crate::domain::placement::layout::{AttentionCache, LayerShape, RecurrentState};
use crate::domain::text::count;

/// Every layer's state and nothing else (`llm_arch_is_recurrent`).
const RECURRENT: &[&str] = &["arwkv7", "mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7"];
/// Recurrent are the layers without key-value heads.
const RECURRENT_WITHOUT_HEADS: &[&str] = &[
    "bailingmoe3",
    "granitehybrid",
    "jamba",
    "kimi-k3",
    "kimi-linear",
    "lfm2",
    "lfm2moe",
    "plamo2",
];
/// Recurrent are all but every n-th layer, by `attention.recurrent_layers` or `full_attention_interval`, with the
/// interval where neither is told.
const RECURRENT_BY_INTERVAL: &[(&str, u64)] = &[
    ("minimax-01", 8),
    ("qwen35", 4),
    ("qwen35moe", 4),
    ("qwen3next", 4),
    ("qwen4exp", 4),
];
/// Encoders and diffusion models, which keep no cache.
const WITHOUT_CACHE: &[&str] = &[
    "bert",
    "dream",
    "eurobert",
    "gemma-embedding",
    "jina-bert-v2",
    "jina-bert-v3",
    "llada",
    "llada-moe",
    "modern-bert",
    "neo-bert",
    "nomic-bert",
    "nomic-bert-moe",
    "rnd1",
    "wavtokenizer-dec",
];
/// Caches with parts that are counted nowhere here.
const OTHER_CACHES: &[&str] = &[
    "deepseek4",
    "dflash",
    "dots3note",
    "graniteswitch",
    "nanbeige",
    "qwen4exp",
];
/// Layers with a key-value cache of their own in gemma3n, whatever the file says (`n_layer_kv_from_start`).
const GEMMA3N_OWN_LAYERS: u64 = 20;
/// `token_shift_count` where RWKV files tell none.
const TOKEN_SHIFTS: u64 = 2;

/// The architecture reads a whole text at once and keeps nothing of it.
pub(super) fn is_encoder(architecture: &str) -> bool {
    WITHOUT_CACHE.contains(&architecture)
}

/// The blocks of a model.
#[derive(Debug)]
pub(super) struct Blocks {
    /// In order, without the inner width of the feed-forward part.
    pub(super) layers: Vec<LayerShape>,
    /// How many of the last ones are never loaded.
    pub(super) predicted: u64,
    /// The header says what its caches hold.
    pub(super) cache_known: bool,
    /// What it leaves open.
    pub(super) notices: Vec<String>,
}

impl Blocks {
    /// Reads every block.
    ///
    /// # Errors
    /// An array with values per layer has another length than there are layers.
    pub(super) fn read(keys: Keys<'_>) -> Result<Self, String> {
        let all = keys.layers as usize;
        let heads = keys.per_layer("attention.head_count")?;
        let kv_heads = keys.per_layer("attention.head_count_kv")?;
        let feed_forward = keys.per_layer("feed_forward_length")?;
        let told = |name: &str| keys.number(name).is_some();
        let length_known = told("attention.key_length") && told("attention.value_length")
            || told("embedding_length");
        let without_heads = |list: &Vec<u64>| list.iter().all(|n| *n == 0);
        let cache_known = RECURRENT.contains(&keys.architecture)
            || kv_heads
                .as_ref()
                .or(heads.as_ref())
                .is_some_and(without_heads)
            || heads.is_some() && length_known;
        let heads = heads.unwrap_or_else(|| vec![0; all]);
        let reader = Reader {
            keys,
            // As in llama.cpp: without head_count_kv every head has its own keys and values.
            kv_heads: kv_heads.unwrap_or_else(|| heads.clone()),
            heads,
            feed_forward: feed_forward.unwrap_or_else(|| vec![0; all]),
            predicted: predicted_layers(keys),
        };
        let mut notices = Vec::new();
        if OTHER_CACHES.contains(&keys.architecture) {
            notices.push(format!(
                "the cache of {} has parts that Flux does not count",
                keys.architecture
            ));
        }
        if !cache_known {
            notices.push(
                "heads or their lengths are missing, so the size of its cache is not known"
                    .to_owned(),
            );
        }
        if reader.predicted > 0 {
            notices.push(format!(
                "further tokens are predicted by the last {} of {}: llama.cpp leaves that in the file, and it is not counted",
                count(reader.predicted, "layer"), keys.layers
            ));
        }
        let layers = reader.layers(&mut notices);
        Ok(Self {
            layers,
            predicted: reader.predicted,
            cache_known,
            notices,
        })
    }

    /// Values that one more token of context adds to all caches, as though no layer had a window.
    pub(super) fn values_per_token(&self) -> u64 {
        let caches = self.layers.iter().filter_map(|layer| layer.attention);
        caches.fold(0, |sum, cache| {
            sum.saturating_add(cache.keys.saturating_add(cache.values))
        })
    }
}

/// Layers at the end that predict further tokens: neither their weights nor a cache are kept for ordinary contexts
/// (`llama_model_params::load_mtp`, `TENSOR_SKIP`).
fn predicted_layers(keys: Keys<'_>) -> u64 {
    let predicted = keys.number("nextn_predict_layers").unwrap_or(0);
    // A model of such layers alone has no others to keep; granite-switch has a router in their place.
    if predicted < u64::from(keys.layers) && keys.architecture != "graniteswitch" {
        predicted
    } else {
        0
    }
}

struct Reader<'a> {
    keys: Keys<'a>,
    heads: Vec<u64>,
    kv_heads: Vec<u64>,
    feed_forward: Vec<u64>,
    predicted: u64,
}

impl Reader<'_> {
    fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.keys.architecture)
    }

    fn layers(&self, notices: &mut Vec<String>) -> Vec<LayerShape> {
        let windows = windows::of_layers(self.keys, self.predicted, notices);
        let recurrent = self.recurrent_layers();
        let state = self.state();
        let latent = self.is_latent();
        let indexer = self.indexer(notices);
        let own = self.layers_with_own_cache();
        let both = self.is(&["falcon-h1"]);
        let one = |index: usize| {
            let layer = index as u64;
            let window = windows[index];
            let (key_length, value_length) = self.head_lengths(window.is_some());
            let kv_heads = self.kv_heads[index];
            let counts = layer < own && self.has_attention(index);
            let attention = (counts && (both || !recurrent[index])).then(|| {
                let (more_keys, more_values) = indexer(layer);
                let values = if latent { 0 } else { value_length };
                AttentionCache {
                    keys: kv_heads
                        .saturating_mul(key_length)
                        .saturating_add(more_keys),
                    values: kv_heads.saturating_mul(values).saturating_add(more_values),
                    window,
                }
            });
            LayerShape {
                heads: self.heads[index],
                kv_heads,
                key_length,
                value_length,
                feed_forward: 0,
                attention: attention.filter(|cache| cache.keys > 0 || cache.values > 0),
                recurrent: recurrent[index].then_some(state),
            }
        };
        (0..self.keys.layers as usize).map(one).collect()
    }

    /// Values of a key and of a value of one head.
    fn head_lengths(&self, windowed: bool) -> (u64, u64) {
        let keys = self.keys;
        let first = self.heads.iter().find(|n| **n > 0);
        let width = first.and_then(|heads| Some(keys.number("embedding_length")? / heads));
        let length = |name: &str| {
            let whole = || keys.number(&format!("attention.{name}_length"));
            let short = || keys.number(&format!("attention.{name}_length_swa"));
            let told = if windowed {
                short().or_else(whole)
            } else {
                whole()
            };
            told.or(width).unwrap_or(0)
        };
        (length("key"), length("value"))
    }

    /// Multi-head latent attention (`llama_hparams::is_mla`): the cache holds one vector per token, as keys.
    fn is_latent(&self) -> bool {
        let told = |name| self.keys.positive(name).is_some();
        told("attention.key_length_mla") && told("attention.value_length_mla")
    }

    /// Layers from the start that keep a cache; those after them use the cache of an earlier one, or none.
    fn layers_with_own_cache(&self) -> u64 {
        let all = u64::from(self.keys.layers);
        match self.keys.architecture {
            _ if self.is(WITHOUT_CACHE) || self.is(RECURRENT) => 0,
            "gemma3n" => all.min(GEMMA3N_OWN_LAYERS),
            "gemma4" => {
                let shared = self.keys.number("attention.shared_kv_layers").unwrap_or(0);
                all.saturating_sub(shared.max(self.predicted))
            }
            _ => all - self.predicted,
        }
    }

    /// The layer is no pure feed-forward block (`NEMOTRON_H` in `create_memory`).
    fn has_attention(&self, index: usize) -> bool {
        !self.is(&["nemotron_h", "nemotron_h_moe"]) || self.feed_forward[index] == 0
    }

    fn recurrent_layers(&self) -> Vec<bool> {
        let all = self.keys.layers as usize;
        let trunk = all - self.predicted as usize;
        let by = |rule: &dyn Fn(usize) -> bool| (0..all).map(|l| l < trunk && rule(l)).collect();
        if self.is(RECURRENT) || self.is(&["falcon-h1"]) {
            return vec![true; all];
        }
        if self.is(RECURRENT_WITHOUT_HEADS) {
            return by(&|l| self.kv_heads[l] == 0);
        }
        if self.is(&["nemotron_h", "nemotron_h_moe"]) {
            return by(&|l| self.kv_heads[l] == 0 && self.feed_forward[l] == 0);
        }
        let named = RECURRENT_BY_INTERVAL
            .iter()
            .find(|(name, _)| *name == self.keys.architecture);
        let Some((_, interval)) = named else {
            return vec![false; all];
        };
        if let Some(list) = self.keys.list("attention.recurrent_layers") {
            return by(&|l| list.get(l).is_some_and(|n| *n != 0));
        }
        let told = self.keys.positive("full_attention_interval");
        let interval = told.unwrap_or(*interval) as usize;
        by(&|l| !(l + 1).is_multiple_of(interval))
    }

    /// `n_embd_r` and `n_embd_s`.
    fn state(&self) -> RecurrentState {
        let number = |name: &str| self.keys.number(name).unwrap_or(0);
        let product = |factors: &[u64]| factors.iter().fold(1, |p: u64, n| p.saturating_mul(*n));
        let embedding = number("embedding_length");
        let heads = self.heads.first().copied().unwrap_or(0);
        let kernel = number("ssm.conv_kernel");
        let (convolution, state) = if let Some(size) = self.keys.positive("wkv.head_size") {
            let shifts = self
                .keys
                .number("token_shift_count")
                .unwrap_or(TOKEN_SHIFTS);
            (product(&[shifts, embedding]), product(&[embedding, size]))
        } else if let Some(length) = self.keys.positive("shortconv.l_cache") {
            (product(&[embedding, length - 1]), 0)
        } else if let Some(dim) = self.keys.positive("kda.head_dim") {
            // Four taps where none are told.
            let taps = if kernel > 0 { kernel - 1 } else { 3 };
            (product(&[3, taps, heads, dim]), product(&[dim, dim, heads]))
        } else if self.is(&["minimax-01"]) {
            let (dim, _) = self.head_lengths(false);
            (0, product(&[dim, dim, heads]))
        } else {
            let (inner, size) = (number("ssm.inner_size"), number("ssm.state_size"));
            let groups = product(&[2, number("ssm.group_count"), size]);
            let convolved = inner.saturating_add(groups);
            let taps = kernel.saturating_sub(1);
            (product(&[taps, convolved]), product(&[size, inner]))
        };
        RecurrentState { convolution, state }
    }

    /// Keys and values that sparse attention adds to a layer's cache for choosing what to attend to: one more head.
    fn indexer(&self, notices: &mut Vec<String>) -> impl Fn(u64) -> (u64, u64) + use<> {
        /// From this context on, files of glm-dsa share indexers between layers (GLM 5.2).
        const SHARED_FROM_CONTEXT: u64 = 1_048_576;
        let keys = self.keys;
        let length = keys.number("attention.indexer.key_length").unwrap_or(0);
        let (_, value_length) = self.head_lengths(false);
        let (from, values, used) = match keys.architecture {
            "deepseek32" | "glm-dsa" => (0, 0, true),
            "hy_v4" => (0, 0, keys.positive("attention.indexer.top_k").is_some()),
            // Not latent, so that its indexer has values too.
            "minimax-m3" => {
                let dense = keys.number("leading_dense_block_count").unwrap_or(0);
                (dense, value_length, true)
            }
            _ => (0, 0, false),
        };
        let list = keys.list("attention.indexer.types");
        let long = keys.number("context_length") >= Some(SHARED_FROM_CONTEXT);
        if keys.architecture == "glm-dsa" && list.is_none() && long {
            notices.push(
                "which layers of glm-dsa have an indexer is not told, so one is counted for each"
                    .to_owned(),
            );
        }
        move |layer| {
            let named = list
                .as_ref()
                .is_none_or(|list| list.get(layer as usize).is_some_and(|n| *n != 0));
            if used && named && layer >= from {
                (length, values)
            } else {
                (0, 0)
            }
        }
    }
}
