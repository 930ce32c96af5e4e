//! A whole model: the headers of all its parts, and what they say of it (cases C30, C31, C35).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::{HeaderError, shown};
use super::header::{Header, Value};
use super::hparams::Blocks;
use super::keys::Keys;
use super::split::{SplitName, parts_of};
use crate::domain::text;
use crate::domain::types::{Bytes, ModelInfo, ModelKind};
use crate::ports::{PortError, PortResult};

/// A model with the header of every part.
#[derive(Debug, Clone)]
pub struct Model {
    /// What is known of it as a whole.
    pub info: ModelInfo,
    /// One header per part, in order; the metadata is that of the first.
    pub headers: Vec<Header>,
}

impl Model {
    /// Opens a model by any of its parts or its folder; header only.
    ///
    /// # Errors
    /// A file cannot be read or is no sound GGUF, a part is missing, the parts are not of one model.
    pub fn open(path: &Path) -> PortResult<Self> {
        let parts = parts_of(path)?;
        if let Some(odd) = parts.iter().find(|part| part.to_str().is_none()) {
            let bytes = odd.as_os_str().as_encoded_bytes().escape_ascii();
            let headline = format!("the path is no Unicode text: {bytes}");
            return Err(PortError::new(headline).hint("rename the file or its folder"));
        }
        let mut hash = Sha256::new();
        let mut headers = Vec::new();
        for part in &parts {
            headers.push(read_part(part, &mut hash).map_err(|e| e.of(part))?);
        }
        check_parts(&parts, &headers)?;
        let digest = hash
            .finalize()
            .iter()
            .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let info = describe(parts, &headers, digest)?;
        Ok(Self { info, headers })
    }
}

fn read_part(path: &Path, hash: &mut Sha256) -> Result<Header, HeaderError> {
    let file = File::open(path).map_err(HeaderError::Io)?;
    let size = file.metadata().map_err(HeaderError::Io)?.len();
    let header = Header::read(file, size, hash)?;
    hash.update(size.to_le_bytes());
    Ok(header)
}

/// `split.*` of every part against its name, and no tensor twice.
fn check_parts(parts: &[PathBuf], headers: &[Header]) -> PortResult<()> {
    let count = headers.len();
    for (index, (path, header)) in parts.iter().zip(headers).enumerate() {
        let shown = path.display();
        let says = header.unsigned("split.count").unwrap_or(0).max(1);
        if says != count as u64 {
            let text = match SplitName::of(path) {
                Some(_) => {
                    format!("named as one of {count} parts, but its header says {says}: {shown}")
                }
                None => {
                    format!("one of {says} parts, but not named -0000N-of-{says:05}.gguf: {shown}")
                }
            };
            return Err(PortError::new(text).hint("give the parts their original names"));
        }
        let number = header.unsigned("split.no").unwrap_or(0);
        if count > 1 && number != index as u64 {
            return Err(PortError::new(format!(
                "named as part {} of {count}, but its header says part {}: {shown}",
                index + 1,
                number.saturating_add(1),
            ))
            .hint("give the parts their original names"));
        }
    }
    let total: usize = headers.iter().map(|h| h.tensors.len()).sum();
    let promised = headers[0].unsigned("split.tensors.count");
    if let Some(promised) = promised.filter(|&n| count > 1 && n != total as u64) {
        return Err(PortError::new(format!(
            "the parts hold {}, but should hold {promised}: {}",
            text::count(total as u64, "tensor"),
            parts[0].display()
        ))
        .hint("download all parts again, from one place"));
    }
    let mut seen = HashSet::new();
    for (path, header) in parts.iter().zip(headers) {
        if let Some(twice) = header.tensors.iter().find(|t| !seen.insert(&t.name)) {
            let name = shown(&twice.name);
            return Err(PortError::new(format!(
                "tensor {name} is in an earlier part already: {}",
                path.display()
            )));
        }
    }
    Ok(())
}

fn describe(parts: Vec<PathBuf>, headers: &[Header], digest: String) -> PortResult<ModelInfo> {
    let first = &headers[0];
    let path = parts[0].clone();
    let Some(architecture) = first.text("general.architecture").map(str::to_owned) else {
        let text = format!(
            "not a model, general.architecture is missing: {}",
            path.display()
        );
        return Err(PortError::new(text));
    };
    let key = |name: &str| format!("{architecture}.{name}");
    let tensors = || headers.iter().flat_map(|h| &h.tensors);
    let mut notices = unknown_types(headers);
    let layers = first.unsigned(&key("block_count"));
    let layers = layers.and_then(|n| u32::try_from(n).ok());
    let kind = kind_of(first, &architecture, layers, tensors().next().is_none());
    if kind == ModelKind::VocabularyOnly {
        notices.push(match first.text("general.type") {
            Some(other) if other != "model" => {
                format!("a file of type {other}, not a runnable model")
            }
            _ => "no layers, not a runnable model".to_owned(),
        });
    }
    let cache = match layers {
        Some(layers) if kind == ModelKind::Model => {
            bytes_per_token_f16(first, &architecture, layers).map_err(|why| {
                PortError::new(format!("{why}: {}", path.display())).hint("download the file again")
            })?
        }
        _ => None,
    };
    Ok(ModelInfo {
        name: first
            .text("general.name")
            .map_or_else(|| file_name(&path), str::to_owned),
        parameters: tensors().fold(0, |sum: u64, t| sum.saturating_add(t.elements())),
        tensor_bytes: tensors().map(|t| Bytes(t.bytes)).sum(),
        file_bytes: headers.iter().map(|h| Bytes(h.file_bytes)).sum(),
        context_length: first.unsigned(&key("context_length")),
        experts: first
            .unsigned(&key("expert_count"))
            .map_or(0, |n| n.try_into().unwrap_or(u32::MAX)),
        quant_mix: quant_mix(headers),
        tokenizer: matches!(first.metadata.get("tokenizer.ggml.tokens"), Some(Value::Skipped(n)) if *n > 0),
        kv_bytes_per_token_f16: cache.map(Bytes),
        path,
        parts,
        digest,
        kind,
        architecture,
        layers,
        notices,
    })
}

/// Bytes that one more token of context takes with f16 keys and values. Layers with a sliding window are counted in
/// full: an upper bound.
fn bytes_per_token_f16(
    header: &Header,
    architecture: &str,
    layers: u32,
) -> Result<Option<u64>, String> {
    /// Bytes of an f16 number.
    const F16_BYTES: u64 = 2;
    let blocks = Blocks::read(Keys::new(header, architecture, layers)?)?;
    let bytes = blocks.values_per_token().saturating_mul(F16_BYTES);
    Ok(blocks.cache_known.then_some(bytes))
}

fn kind_of(first: &Header, architecture: &str, layers: Option<u32>, bare: bool) -> ModelKind {
    if architecture == "clip" || first.text("general.type") == Some("mmproj") {
        ModelKind::Projector
    } else if bare || layers.is_none() {
        ModelKind::VocabularyOnly
    } else {
        ModelKind::Model
    }
}

/// The file's name without `.gguf` and part numbers.
fn file_name(path: &Path) -> String {
    let whole = SplitName::of(path).map_or_else(|| path.with_extension(""), |split| split.prefix);
    whole
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn unknown_types(headers: &[Header]) -> Vec<String> {
    let kinds: BTreeSet<_> = headers
        .iter()
        .flat_map(|h| &h.tensors)
        .map(|t| t.kind)
        .filter(|kind| kind.block().is_none())
        .collect();
    let say = |kind| format!("tensor {kind} is unknown to Flux; this llama.cpp build decides");
    kinds.into_iter().map(say).collect()
}

/// Bytes by tensor type, largest first.
fn quant_mix(headers: &[Header]) -> Vec<(String, Bytes)> {
    let mut bytes = BTreeMap::new();
    for tensor in headers.iter().flat_map(|h| &h.tensors) {
        *bytes.entry(tensor.kind).or_insert(0) += tensor.bytes;
    }
    let mut mix: Vec<_> = bytes
        .into_iter()
        .map(|(kind, n)| (kind.to_string(), Bytes(n)))
        .collect();
    mix.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    mix
}
