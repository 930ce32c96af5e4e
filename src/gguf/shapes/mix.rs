//! Which type llama-quantize gives a tensor (`llama_tensor_get_type` in llama-quant.cpp of b11149).

use super::{Mix, Shape, TOKENS};
use crate::gguf::tensor_type::TensorType;

/// `LLAMA_FTYPE_MOSTLY_Q4_K_M`, shown as `Q4_K - Medium`.
const FILE_TYPE_Q4_K_M: u32 = 15;
/// `LLAMA_FTYPE_MOSTLY_MXFP4_MOE`.
const FILE_TYPE_MXFP4_MOE: u32 = 38;
/// Values of a k-quant's block.
const K_BLOCK: u32 = 256;
/// Layers of Llama's 70B, whose eight heads share each value.
const LLAMA_70B_LAYERS: u32 = 80;

impl Mix {
    /// `general.file_type`.
    pub(super) fn file_type(self) -> u32 {
        match self {
            Self::Q4KM => FILE_TYPE_Q4_K_M,
            Self::Mxfp4Moe => FILE_TYPE_MXFP4_MOE,
        }
    }
}

/// llama.cpp's rule for the layers whose `attn_v` and `ffn_down` get more bits in a "medium" mix:
/// the first eighth, the last eighth, and every third between (`use_more_bits`).
fn more_bits(layer: u32, layers: u32) -> bool {
    layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2
}

/// Which of all value projections a tensor is.
#[derive(Clone, Copy)]
pub(super) struct Nth {
    pub(super) index: u32,
    pub(super) count: u32,
}

/// Whether llama-quantize counts a tensor among the value projections.
pub(super) fn is_value(name: &str) -> bool {
    name.ends_with("attn_v.weight") || name.ends_with("attn_qkv.weight")
}

/// Type of the tensor `name` of layer `layer`.
pub(super) fn kind(shape: &Shape, name: &str, dims: &[u32], layer: u32, value: Nth) -> TensorType {
    let kept = [
        "_norm.weight",
        "ffn_gate_inp.weight",
        "ssm_conv1d.weight",
        "shortconv.conv.weight",
    ];
    let matrix = dims.len() > 1 && name.ends_with("weight");
    if !matrix || kept.iter().any(|end| name.ends_with(end)) {
        return TensorType::F32;
    }
    let whole = dims[0].is_multiple_of(K_BLOCK);
    let output = name == "output.weight" || shape.tied && name == TOKENS;
    let wanted = match shape.mix {
        Mix::Mxfp4Moe if dims.len() > 2 => return TensorType::MXFP4,
        Mix::Mxfp4Moe => return TensorType::Q8_0,
        Mix::Q4KM if output && whole => return TensorType::Q6_K,
        Mix::Q4KM if output => return TensorType::Q8_0,
        Mix::Q4KM if is_value(name) => value_kind(shape, value),
        Mix::Q4KM if name.contains("ffn_down") && more_bits(layer, shape.layers) => {
            TensorType::Q6_K
        }
        Mix::Q4KM => TensorType::Q4_K,
    };
    match wanted {
        _ if whole => wanted,
        TensorType::Q6_K => TensorType::Q8_0,
        _ => TensorType::Q5_0,
    }
}

fn value_kind(shape: &Shape, value: Nth) -> TensorType {
    if more_bits(value.index, value.count) {
        TensorType::Q6_K
    } else if shape.architecture == "llama" && shape.layers == LLAMA_70B_LAYERS {
        TensorType::Q5_K
    } else {
        TensorType::Q4_K
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Qwen3-4B's 36 layers, worked out by hand: 0–3, then 6, 9, …, 30, then 31–35 (7·36/8 = 31).
    #[test]
    fn more_bits_go_to_the_ends_and_every_third_layer_between() {
        let layers: Vec<u32> = (0..36).filter(|&l| more_bits(l, 36)).collect();
        let expected = [
            0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 31, 32, 33, 34, 35,
        ];
        assert_eq!(layers, expected);
    }
}
