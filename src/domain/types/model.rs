//! A model file, as far as choosing and identifying it goes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Bytes;

/// What a GGUF file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// A language model that can run.
    Model,
    /// A vision or audio projector: belongs to the model beside it, never benchmarked (case C35).
    Projector,
    /// A vocabulary without layers.
    VocabularyOnly,
}

/// What Flux knows of a model from its header alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// The file given to llama.cpp: part 1 of a split model.
    pub path: PathBuf,
    /// Every part, in order; one for an unsplit model.
    pub parts: Vec<PathBuf>,
    /// SHA-256 over the header (metadata, tensor table) and the size of every part: the model's identity.
    pub digest: String,
    /// What the file is.
    pub kind: ModelKind,
    /// `general.architecture`.
    pub architecture: String,
    /// `general.name`, else the file's name.
    pub name: String,
    /// Number of parameters: elements of all tensors.
    pub parameters: u64,
    /// Bytes of all tensors, all parts.
    pub tensor_bytes: Bytes,
    /// Bytes on disk, all parts.
    pub file_bytes: Bytes,
    /// `*.block_count`.
    pub layers: Option<u32>,
    /// `*.context_length`.
    pub context_length: Option<u64>,
    /// `*.expert_count`, 0 for a dense model.
    pub experts: u32,
    /// Quant mix: tensor type and bytes in it, largest first.
    pub quant_mix: Vec<(String, Bytes)>,
    /// It carries a tokenizer.
    pub tokenizer: bool,
    /// KV cache bytes per token of context with f16 keys and values, where the header tells it.
    pub kv_bytes_per_token_f16: Option<Bytes>,
    /// Things worth saying: unknown tensor types, odd values.
    pub notices: Vec<String>,
}

/// One line of `flux models`: a model, or what is wrong with the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelListing {
    /// The file looked at.
    pub path: PathBuf,
    /// The model, unless something is wrong.
    pub model: Option<ModelInfo>,
    /// What is wrong, in one sentence.
    pub problem: Option<String>,
}
