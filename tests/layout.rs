//! A model's layout, worked out by hand from the published shapes or read off llama.cpp b11149.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/gguf_bytes.rs"]
mod gguf_bytes;

use std::fs;

use flux::domain::placement::layout::{
    AttentionCache, ExpertShape, LayerShape, ModelLayout, RecurrentState, TensorClass,
};
use flux::domain::types::Bytes;
use flux::gguf::GgufModels;
use flux::ports::{CancelToken, Models, PortResult, SynthRequest};
use gguf_bytes::{F32, Gguf};
use tempfile::TempDir;

fn synthesised(shape: &str) -> ModelLayout {
    let dir = TempDir::new().unwrap();
    let request = SynthRequest {
        shape: shape.to_owned(),
        output: dir.path().join("m.gguf"),
        sparse: true,
        seed: 1,
    };
    GgufModels
        .synthesise(&request, &CancelToken::new(), &mut |_, _| {})
        .unwrap();
    GgufModels.layout(&request.output).unwrap()
}

fn read(file: &Gguf) -> PortResult<ModelLayout> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("m.gguf");
    let file = file.clone().tensor("rope_freqs.weight", &[8], F32, 0);
    fs::write(&path, file.data(32).build()).unwrap();
    GgufModels.layout(&path)
}

/// A file of `layers` layers with 4 heads of 64 and 2 for keys and values.
fn dense(architecture: &str, layers: u32) -> Gguf {
    let key = |name: &str| format!("{architecture}.{name}");
    Gguf::model(architecture, layers)
        .u32(&key("embedding_length"), 256)
        .u32(&key("attention.head_count"), 4)
        .u32(&key("attention.head_count_kv"), 2)
}

fn windows(file: &Gguf) -> Vec<u64> {
    let layers = read(file).unwrap().layers;
    let window = |l: &LayerShape| l.attention.unwrap().window.unwrap_or(0);
    layers.iter().map(window).collect()
}

fn keys(file: &Gguf) -> Vec<u64> {
    let layers = read(file).unwrap().layers;
    layers
        .iter()
        .map(|l| l.attention.map_or(0, |cache| cache.keys))
        .collect()
}

#[test]
fn a_dense_model_by_layer_and_class() {
    let layout = synthesised("qwen3-4b");
    assert_eq!((layout.n_layer(), layout.embedding), (36, 2560));
    assert_eq!((layout.vocabulary, layout.tied_embeddings), (151_936, true));
    assert_eq!(layout.experts, None);
    let shape = LayerShape {
        heads: 32,
        kv_heads: 8,
        key_length: 128,
        value_length: 128,
        feed_forward: 9728,
        attention: Some(AttentionCache {
            keys: 1024,
            values: 1024,
            window: None,
        }),
        recurrent: None,
    };
    assert!(layout.layers.iter().all(|layer| *layer == shape));
    // Q6_K, 210 bytes for 256 values.
    let table = 151_936 * 2560 / 256 * 210;
    assert_eq!(layout.bytes(None, TensorClass::Embedding), Bytes(table));
    // Layer 5 is all Q4_K (144 bytes): q and o 4096 wide, k and v 1024; two norms of 128 heads as F32.
    let attention = 2560 * (4096 + 1024 + 1024 + 4096) / 256 * 144 + 2 * 128 * 4;
    assert_eq!(
        layout.bytes(Some(5), TensorClass::Attention),
        Bytes(attention)
    );
    let feed_forward = 3 * 2560 * 9728 / 256 * 144;
    assert_eq!(
        layout.bytes(Some(5), TensorClass::FeedForward),
        Bytes(feed_forward)
    );
    assert_eq!(
        layout.bytes(Some(5), TensorClass::Norm),
        Bytes(2 * 2560 * 4)
    );
    assert_eq!(layout.bytes(None, TensorClass::Output), Bytes(2560 * 4));
    let all: Bytes = layout.tensors.iter().map(|t| t.bytes).sum();
    assert_eq!(all, layout.info.tensor_bytes);
    assert!(layout.notices.is_empty());
}

#[test]
fn a_mixture_has_its_experts_apart() {
    let layout = synthesised("qwen3-30b-a3b");
    let experts = ExpertShape {
        count: 128,
        used: 8,
        feed_forward: 768,
    };
    assert_eq!(layout.experts, Some(experts));
    assert!(!layout.tied_embeddings);
    // Layer 0 has its down projections in Q6_K.
    let one = 2048 * 768 * 128 / 256;
    let bytes = layout.bytes(Some(0), TensorClass::Experts);
    assert_eq!(bytes, Bytes(one * (144 + 144 + 210)));
    assert_eq!(layout.bytes(Some(0), TensorClass::FeedForward), Bytes(0));
    assert_eq!(layout.layers[0].feed_forward, 0);
    // The router and two norms.
    let small = 2048 * 128 * 4 + 2 * 2048 * 4;
    assert_eq!(layout.bytes(Some(0), TensorClass::Norm), Bytes(small));
}

/// Gemma 3 12B: of 48 layers every sixth reaches over the whole context, the others over 1024 tokens.
#[test]
fn c32_gemma3_has_a_window_on_five_of_six_layers() {
    let layout = synthesised("gemma3-12b");
    for (number, layer) in layout.layers.iter().enumerate() {
        let cache = AttentionCache {
            keys: 2048,
            values: 2048,
            window: (number % 6 != 5).then_some(1024),
        };
        assert_eq!(layer.attention, Some(cache), "layer {number}");
    }
}

#[test]
fn c32_the_pattern_is_a_number_a_list_or_the_architectures() {
    let window = |architecture: &str, layers| {
        let key = format!("{architecture}.attention.sliding_window");
        dense(architecture, layers).u32(&key, 100)
    };
    assert_eq!(windows(&window("gpt-oss", 4)), [100, 0, 100, 0]);
    assert_eq!(windows(&window("cohere2moe", 5)), [0, 100, 100, 100, 0]);
    let pattern = "gemma3.attention.sliding_window_pattern";
    let gemma = window("gemma3", 4);
    assert_eq!(windows(&gemma), [100; 4]);
    assert_eq!(windows(&gemma.clone().u32(pattern, 3)), [100, 100, 0, 100]);
    assert_eq!(windows(&gemma.clone().u32(pattern, 1)), [0; 4]);
    assert_eq!(
        windows(&gemma.clone().i32s(pattern, &[0, 1, 1, 0])),
        [0, 100, 100, 0]
    );
    assert_eq!(windows(&dense("gemma3", 2)), [0, 0]);
    assert_eq!(windows(&dense("gemma2", 2)), [4096, 0]);
    assert_eq!(windows(&dense("llama4", 4)), [8192, 8192, 8192, 0]);
    let off = dense("llama4", 2).u32("llama4.attention.sliding_window", 0);
    assert_eq!(windows(&off), [0, 0]);
    assert_eq!(windows(&dense("exaone4", 2)), [0, 0]);
    assert_eq!(windows(&dense("exaone4", 64))[..4], [4096, 4096, 4096, 0]);
}

/// llama.cpp has the window of Phi-3 switched off, and an unknown one is an upper bound.
#[test]
fn c32_a_window_of_unknown_layers_is_counted_in_full_and_told() {
    let file = dense("phi3", 2).u32("phi3.attention.sliding_window", 2047);
    let layout = read(&file).unwrap();
    assert!(
        layout
            .layers
            .iter()
            .all(|l| l.attention.unwrap().window.is_none())
    );
    assert_eq!(layout.notices.len(), 1);
    assert!(
        layout.notices[0].contains("2047 tokens"),
        "{:?}",
        layout.notices
    );
}

/// Gemma 4: heads and their lengths differ between layers with and without window; the last layers share a cache.
#[test]
fn layers_with_a_window_have_lengths_of_their_own() {
    let key = |name: &str| format!("gemma4.attention.{name}");
    let file = Gguf::model("gemma4", 4)
        .u32("gemma4.embedding_length", 1536)
        .u32(&key("head_count"), 8)
        .i32s(&key("head_count_kv"), &[2, 1, 2, 1])
        .u32(&key("key_length"), 512)
        .u32(&key("value_length"), 512)
        .u32(&key("key_length_swa"), 256)
        .u32(&key("value_length_swa"), 128)
        .u32(&key("sliding_window"), 512)
        .i32s(&key("sliding_window_pattern"), &[1, 0, 1, 0])
        .u32(&key("shared_kv_layers"), 2);
    let layout = read(&file).unwrap();
    let cache = |keys, values, window| {
        Some(AttentionCache {
            keys,
            values,
            window,
        })
    };
    let caches: Vec<_> = layout.layers.iter().map(|l| l.attention).collect();
    assert_eq!(
        caches,
        [
            cache(512, 256, Some(512)),
            cache(512, 512, None),
            None,
            None
        ]
    );
}

/// Qwen3-Next 80B A3B: three of four layers are linear attention.
#[test]
fn qwen3_next_keeps_a_state_in_three_of_four_layers() {
    let key = |name: &str| format!("qwen3next.{name}");
    let file = Gguf::model("qwen3next", 8)
        .u32(&key("embedding_length"), 2048)
        .u32(&key("attention.head_count"), 16)
        .u32(&key("attention.head_count_kv"), 2)
        .u32(&key("attention.key_length"), 256)
        .u32(&key("attention.value_length"), 256)
        .u32(&key("ssm.conv_kernel"), 4)
        .u32(&key("ssm.inner_size"), 4096)
        .u32(&key("ssm.state_size"), 128)
        .u32(&key("ssm.group_count"), 16)
        .u32(&key("ssm.time_step_rank"), 32);
    assert_eq!(keys(&file), [0, 0, 0, 512, 0, 0, 0, 512]);
    // (4 − 1) × (4096 + 2 × 16 × 128) and 128 × 4096.
    let state = RecurrentState {
        convolution: 24_576,
        state: 524_288,
    };
    let states: Vec<_> = read(&file)
        .unwrap()
        .layers
        .iter()
        .map(|l| l.recurrent)
        .collect();
    assert_eq!(states[..4], [Some(state), Some(state), Some(state), None]);
    let listed = file.i32s(
        &key("attention.recurrent_layers"),
        &[0, 1, 1, 1, 1, 1, 1, 1],
    );
    assert_eq!(keys(&listed), [512, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn recurrent_models_keep_states_only() {
    let mamba = Gguf::model("mamba2", 2)
        .u32("mamba2.embedding_length", 2560)
        .u32("mamba2.attention.head_count", 0)
        .u32("mamba2.ssm.conv_kernel", 4)
        .u32("mamba2.ssm.inner_size", 5120)
        .u32("mamba2.ssm.state_size", 128)
        .u32("mamba2.ssm.group_count", 1);
    let rwkv = Gguf::model("rwkv7", 2)
        .u32("rwkv7.embedding_length", 2048)
        .u32("rwkv7.attention.head_count", 0)
        .u32("rwkv7.wkv.head_size", 64);
    // 3 × (5120 + 2 × 128) and 128 × 5120; two shifts of 2048 and 2048 × 64.
    for (file, convolution, state) in [(mamba, 16_128, 655_360), (rwkv, 4096, 131_072)] {
        for layer in read(&file).unwrap().layers {
            assert_eq!(layer.attention, None);
            let kept = RecurrentState { convolution, state };
            assert_eq!(layer.recurrent, Some(kept));
        }
    }
}

/// LFM2-1.2B: 10 of 16 layers are short convolutions of 3 taps over 2048 channels.
#[test]
fn lfm2_keeps_short_convolutions() {
    let heads = [0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0];
    let file = Gguf::model("lfm2", 16)
        .u32("lfm2.embedding_length", 2048)
        .u32("lfm2.attention.head_count", 32)
        .i32s("lfm2.attention.head_count_kv", &heads)
        .u32("lfm2.shortconv.l_cache", 3);
    for (layer, heads) in read(&file).unwrap().layers.iter().zip(heads) {
        let state = RecurrentState {
            convolution: 4096,
            state: 0,
        };
        assert_eq!(layer.recurrent, (heads == 0).then_some(state));
        assert_eq!(layer.attention.is_some(), heads > 0);
    }
}

/// Falcon-H1 has both in each layer, Nemotron-H one of attention, state or feed-forward.
#[test]
fn other_hybrids_follow_their_own_rules() {
    let falcon = dense("falcon-h1", 2).u32("falcon-h1.ssm.inner_size", 1536);
    for layer in read(&falcon).unwrap().layers {
        assert!(layer.attention.is_some() && layer.recurrent.is_some());
    }
    let nemotron = Gguf::model("nemotron_h", 3)
        .u32("nemotron_h.embedding_length", 256)
        .u32("nemotron_h.attention.head_count", 4)
        .i32s("nemotron_h.attention.head_count_kv", &[0, 2, 0])
        .i32s("nemotron_h.feed_forward_length", &[0, 0, 512]);
    let layers = read(&nemotron).unwrap().layers;
    let kinds: Vec<_> = layers
        .iter()
        .map(|l| (l.attention.is_some(), l.recurrent.is_some()))
        .collect();
    assert_eq!(kinds, [(false, true), (true, false), (false, false)]);
}

/// DeepSeek-V2-Lite: 512 latent values and 64 of position for each token, nothing else; converted the old way, full heads.
#[test]
fn latent_attention_keeps_one_vector() {
    let key = |name: &str| format!("deepseek2.attention.{name}");
    let file = |kv_heads: u32, key_length: u32, value_length: u32| {
        Gguf::model("deepseek2", 2)
            .u32("deepseek2.embedding_length", 2048)
            .u32(&key("head_count"), 16)
            .u32(&key("head_count_kv"), kv_heads)
            .u32(&key("kv_lora_rank"), 512)
            .u32(&key("key_length"), key_length)
            .u32(&key("value_length"), value_length)
    };
    let cache = |file: &Gguf| {
        let cache = read(file).unwrap().layers[0].attention.unwrap();
        (cache.keys, cache.values)
    };
    let latent = file(1, 576, 512)
        .u32(&key("key_length_mla"), 192)
        .u32(&key("value_length_mla"), 128);
    assert_eq!(cache(&latent), (576, 0));
    assert_eq!(cache(&file(16, 192, 128)), (16 * 192, 16 * 128));
}

/// llama.cpp leaves them in the file, yet counts them for `-ngl`; a file of such layers alone is a model.
#[test]
fn layers_that_predict_further_tokens_are_not_loaded() {
    let layout = |predicted| {
        let file = dense("glm4moe", 3).u32("glm4moe.nextn_predict_layers", predicted);
        let file = file
            .tensor("blk.1.attn_q.weight", &[8], F32, 0)
            .tensor("blk.2.attn_q.weight", &[8], F32, 32)
            .tensor("blk.2.nextn.eh_proj.weight", &[8], F32, 64);
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("m.gguf");
        fs::write(&path, file.data(96).build()).unwrap();
        GgufModels.layout(&path).unwrap()
    };
    let loaded = |layout: &ModelLayout| -> Vec<String> {
        layout.tensors.iter().map(|t| t.name.clone()).collect()
    };
    let one = layout(1);
    assert_eq!(loaded(&one), ["blk.1.attn_q.weight"]);
    assert_eq!((one.n_layer(), one.computed_layers()), (3, 2));
    assert_eq!(one.layers[2].attention, None);
    let told = &one.notices[0];
    assert!(
        told.starts_with("further tokens are predicted by the last 1 layer of 3: "),
        "{told:?}"
    );
    assert_eq!(loaded(&layout(0)).len(), 3);
    assert_eq!(loaded(&layout(3)).len(), 3);
}

#[test]
fn what_is_no_model_has_no_layout() {
    let told = |file: &Gguf| {
        let headline = read(file).unwrap_err().headline;
        headline.split(": ").next().unwrap().to_owned()
    };
    assert_eq!(
        told(&Gguf::model("clip", 2)),
        "no model with layers, nothing to place"
    );
    assert_eq!(
        told(&dense("llama", u32::MAX)),
        "llama.block_count is 4294967295, but llama.cpp takes at most 512 layers"
    );
}

/// MiB of context memory that llama-fit-params of b11149 projects for 16384 tokens, a micro-batch of 512 and f16.
#[test]
fn caches_are_those_that_llama_cpp_projects() {
    /// Cells of a layer: the whole context, or window + micro-batch in steps of 256 (`llama_kv_cache_iswa`).
    fn cells(window: Option<u64>) -> u64 {
        window.map_or(16_384, |n| (n + 512).next_multiple_of(256).min(16_384))
    }
    for (shape, projected) in [
        ("llama3-70b", 5120),
        ("gemma3-1b", 86),
        ("gemma3-12b", 1504),
        ("gpt-oss-20b", 402),
        ("qwen3-235b-a22b", 3008),
        ("deepseek-v2-lite", 486),
        ("qwen3-next-80b-a3b", 459),
        ("lfm2-1.2b", 192),
        ("tiny-hybrid", 16),
        ("tiny-mla", 36),
    ] {
        let layout = synthesised(shape);
        let of = |layer: &LayerShape| {
            let attention = layer.attention.map_or(0, |cache| {
                (cache.keys + cache.values) * 2 * cells(cache.window)
            });
            let state = layer.recurrent.map_or(0, |r| (r.convolution + r.state) * 4);
            attention + state
        };
        let bytes: u64 = layout.layers.iter().map(of).sum();
        assert_eq!(bytes >> 20, projected, "{shape}");
        assert!(layout.notices.is_empty(), "{shape}: {:?}", layout.notices);
    }
}

/// DeepSeek-V2-Lite: a dense first layer, then 64 experts of which 6 are used, and two shared ones together.
#[test]
fn shared_experts_count_as_dense() {
    let layout = synthesised("deepseek-v2-lite");
    let experts = ExpertShape {
        count: 64,
        used: 6,
        feed_forward: 1408,
    };
    assert_eq!(layout.experts, Some(experts));
    let width: Vec<u64> = layout.layers.iter().map(|l| l.feed_forward).collect();
    assert_eq!((width[0], &width[1..]), (10_944, &[2816; 26][..]));
    assert_eq!(layout.bytes(Some(0), TensorClass::Experts), Bytes(0));
    // Layer 7 is all Q4_K, but rows of 1408 are no whole blocks of 256: Q5_0, 22 bytes for 32 values.
    let shared = 3 * 2048 * 2816 / 256 * 144;
    let bytes = layout.bytes(Some(7), TensorClass::FeedForward);
    assert_eq!(bytes, Bytes(shared));
    let one = 2048 * 1408 * 64;
    let bytes = layout.bytes(Some(7), TensorClass::Experts);
    assert_eq!(bytes, Bytes(2 * one / 256 * 144 + one / 32 * 22));
}

/// The attention weights of Qwen3-Next's linear layers belong to their state.
#[test]
fn linear_attention_is_recurrent() {
    let layout = synthesised("tiny-hybrid");
    assert_eq!(layout.bytes(Some(0), TensorClass::Attention), Bytes(0));
    assert_eq!(layout.bytes(Some(3), TensorClass::Recurrent), Bytes(0));
    let named = |name: &str| layout.tensors.iter().find(|t| t.name == name).unwrap();
    assert_eq!(named("blk.0.attn_qkv.weight").class, TensorClass::Recurrent);
    assert_eq!(named("blk.3.attn_q.weight").class, TensorClass::Attention);
}

/// llama.cpp ends at these by an assertion (`load_hparams`).
#[test]
fn experts_that_no_token_uses_are_refused() {
    for (count, used) in [(8, 0), (8, 9), (2000, 2)] {
        let file = dense("qwen3moe", 1)
            .u32("qwen3moe.expert_count", count)
            .u32("qwen3moe.expert_used_count", used);
        let told = read(&file).unwrap_err().headline;
        let why = format!("qwen3moe.expert_used_count is {used} of {count} experts");
        assert!(told.starts_with(&why), "{told}");
    }
}

#[test]
fn numbers_that_no_model_has_do_not_overflow() {
    let mut file = Gguf::model("llama", 512);
    for key in [
        "embedding_length",
        "attention.head_count",
        "attention.key_length",
        "attention.value_length",
    ] {
        file = file.u32(&format!("llama.{key}"), u32::MAX);
    }
    let layout = read(&file).unwrap();
    let cache = layout.layers[0].attention.unwrap();
    assert_eq!((cache.keys, cache.values), (1 << 40, 1 << 40));
}
