//! What a tensor is for, by the names of llama.cpp (`LLM_TENSOR_NAMES` in llama-arch.cpp).

use crate::domain::placement::layout::TensorClass;

/// Block of a tensor `blk.N.NAME` (also `enc.blk.N.NAME`, `dec.blk.N.NAME`), and the name within it.
pub(super) fn split_layer(name: &str) -> (Option<u32>, &str) {
    let inner = name.strip_prefix("enc.").or(name.strip_prefix("dec."));
    let inside = inner.unwrap_or(name).strip_prefix("blk.");
    let parts = inside.and_then(|rest| rest.split_once('.'));
    match parts.and_then(|(number, rest)| Some((number.parse().ok()?, rest))) {
        Some((layer, rest)) => (Some(layer), rest),
        None => (None, name),
    }
}

/// Class of a tensor outside of the blocks.
pub(super) fn of_model(name: &str, architecture: &str) -> TensorClass {
    let (first, _) = name.split_once('.').unwrap_or((name, ""));
    match first {
        // The output norm of LFM2 has the wrong name in its files.
        "token_embd_norm" if architecture.starts_with("lfm2") => TensorClass::Output,
        "token_embd"
        | "token_embd_norm"
        | "token_types"
        | "position_embd"
        | "per_layer_token_embd" => TensorClass::Embedding,
        "altup_proj" | "altup_unembd_proj" | "cls" | "dec" | "dense_2" | "dense_3" | "enc" => {
            TensorClass::Output
        }
        _ if first.starts_with("output") => TensorClass::Output,
        _ => TensorClass::Norm,
    }
}

/// Class of a tensor within a block, by its name there; the attention weights of a `linear` layer are recurrent.
pub(super) fn of_layer(name: &str, linear: bool) -> TensorClass {
    let (first, rest) = name.split_once('.').unwrap_or((name, ""));
    // Older mixtures have one tensor per expert: `ffn_up.0.weight`.
    let numbered = rest.starts_with(|c: char| c.is_ascii_digit());
    match first {
        "attn_norm" | "attn_norm_2" | "attn_output_norm" | "attn_sub_norm" | "attn_post_norm"
        | "attn_res_score" | "ffn_gate_inp" | "ffn_gate_inp_shexp" | "ffn_gate_tid2eid"
        | "ffn_res_score" => TensorClass::Norm,
        _ if first.starts_with("ffn_") && first.contains("norm") => TensorClass::Norm,
        _ if first.ends_with("_exps") || first.ends_with("_chexps") => TensorClass::Experts,
        _ if first.starts_with("ffn_") && numbered => TensorClass::Experts,
        _ if begins(
            first,
            &["ffn_", "channel_mix", "vis_gate", "vis_up", "vis_down"],
        ) =>
        {
            TensorClass::FeedForward
        }
        _ if begins(first, &["ssm_", "shortconv", "time_mix"]) => TensorClass::Recurrent,
        _ if begins(first, &["attn_", "cross_attn_", "indexer", "vis_attn"]) => {
            if linear {
                TensorClass::Recurrent
            } else {
                TensorClass::Attention
            }
        }
        _ => TensorClass::Norm,
    }
}

fn begins(name: &str, with: &[&str]) -> bool {
    with.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_by_their_number() {
        assert_eq!(split_layer("blk.12.attn_q.bias"), (Some(12), "attn_q.bias"));
        assert_eq!(
            split_layer("dec.blk.3.ffn_up.weight"),
            (Some(3), "ffn_up.weight")
        );
        for name in [
            "output.weight",
            "blk.x.attn_q.weight",
            "blk.99999999999.a",
            "blk.1",
        ] {
            assert_eq!(split_layer(name), (None, name));
        }
    }

    #[test]
    fn every_name_has_its_class() {
        use TensorClass::{Attention, Embedding, Experts, FeedForward, Norm, Output, Recurrent};
        for (name, class) in [
            ("attn_q.weight", Attention),
            ("attn_q.bias", Attention),
            ("attn_q_norm.weight", Attention),
            ("attn_kv_a_mqa.weight", Attention),
            ("attn_sinks.weight", Attention),
            ("indexer.proj.weight", Attention),
            ("attn_norm.weight", Norm),
            ("post_attention_norm.weight", Norm),
            ("ffn_norm.weight", Norm),
            ("ffn_gate_inp.weight", Norm),
            ("ffn_gate_inp_shexp.weight", Norm),
            ("exp_probs_b.bias", Norm),
            ("ffn_up.weight", FeedForward),
            ("ffn_down.bias", FeedForward),
            ("ffn_gate_shexp.weight", FeedForward),
            ("channel_mix_key.weight", FeedForward),
            ("ffn_up_exps.weight", Experts),
            ("ffn_gate_up_exps.weight", Experts),
            ("ffn_down_exps.bias", Experts),
            ("ffn_down_chexps.weight", Experts),
            ("ffn_gate.7.weight", Experts),
            ("ssm_conv1d.weight", Recurrent),
            ("ssm_a", Recurrent),
            ("shortconv.in_proj.weight", Recurrent),
            ("time_mix_key.weight", Recurrent),
            ("layer_output_scale.weight", Norm),
        ] {
            assert_eq!(of_layer(name, false), class, "{name}");
        }
        assert_eq!(of_layer("attn_qkv.weight", true), Recurrent);
        assert_eq!(of_layer("attn_norm.weight", true), Norm);
        for (name, class) in [
            ("token_embd.weight", Embedding),
            ("position_embd.weight", Embedding),
            ("per_layer_token_embd.weight", Embedding),
            ("output.weight", Output),
            ("output_norm.weight", Output),
            ("rope_freqs.weight", Norm),
        ] {
            assert_eq!(of_model(name, "gemma3n"), class, "{name}");
        }
        assert_eq!(of_model("token_embd_norm.weight", "lfm2"), Output);
        assert_eq!(of_model("token_embd_norm.weight", "bloom"), Embedding);
    }
}
