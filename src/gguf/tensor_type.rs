//! ggml's tensor types (`ggml_type`), with the block sizes llama.cpp b11149 reports for them.

use std::fmt;

/// A tensor type by its number in the file; unknown and removed numbers are carried as they are (case C33).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorType(pub u32);

/// Number, name, values per block, bytes per block.
const TYPES: &[(u32, &str, u64, u64)] = &[
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
];

impl TensorType {
    /// 32-bit floats.
    pub const F32: Self = Self(0);
    /// 5-bit quant with one scale.
    pub const Q5_0: Self = Self(6);
    /// 8-bit quant.
    pub const Q8_0: Self = Self(8);
    /// 4-bit k-quant.
    pub const Q4_K: Self = Self(12);
    /// 5-bit k-quant.
    pub const Q5_K: Self = Self(13);
    /// 6-bit k-quant.
    pub const Q6_K: Self = Self(14);
    /// 4-bit floats with a power of two as scale.
    pub const MXFP4: Self = Self(39);

    /// Values and bytes per block; nothing for a type Flux does not know.
    pub fn block(self) -> Option<(u64, u64)> {
        self.row().map(|&(_, _, values, bytes)| (values, bytes))
    }

    fn row(self) -> Option<&'static (u32, &'static str, u64, u64)> {
        TYPES.iter().find(|(id, ..)| *id == self.0)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some((_, name, ..)) => f.pad(name),
            None => write!(f, "type {}", self.0),
        }
    }
}
