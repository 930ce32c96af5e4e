//! Model files on this machine: where they are, each once, and what each needs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::domain::types::{Bytes, ModelInfo, ModelListing};
use crate::ports::{Notice, NoticeLevel};

use super::Ports;
use super::message::JobError;

/// Context for which the KV cache is counted: llama.cpp's usual working size; shorter where the model ends earlier.
const CONTEXT: u64 = 4096;

/// Models found, and the folders that could not be read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// One listing per file, broken ones with what is wrong.
    pub models: Vec<ModelListing>,
    /// What the user should know.
    pub notices: Vec<Notice>,
}

/// What is in the usual folders that exist, in Flux's own and in `also`; one that cannot be read is a note, because
/// nobody named it. Reads every header: seconds on a large collection.
pub fn usual(also: &[PathBuf], ports: &Ports) -> Found {
    let mut dirs = ports.models.usual_dirs();
    dirs.push(models_dir(&ports.data_dir));
    dirs.extend_from_slice(also);
    let mut found = Found::default();
    for dir in dirs.iter().filter(|dir| dir.is_dir()) {
        match ports.models.list(dir) {
            Ok(listings) => found.models.extend(listings),
            Err(error) => found.notices.push(Notice {
                level: NoticeLevel::Info,
                code: "unreadable-folder".to_owned(),
                text: error.headline,
            }),
        }
    }
    found.models = once_each(found.models);
    found
}

/// What is in files and folders the user named.
///
/// # Errors
/// One of them cannot be read, or is no model.
pub fn named(paths: &[PathBuf], ports: &Ports) -> Result<Vec<ModelListing>, JobError> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_file() {
            found.push(ModelListing {
                path: path.clone(),
                model: Some(ports.models.inspect(path)?),
                problem: None,
            });
        } else {
            found.extend(ports.models.list(path)?);
        }
    }
    Ok(once_each(found))
}

/// One listing per file, however many ways lead to it.
fn once_each(listings: Vec<ModelListing>) -> Vec<ModelListing> {
    let mut seen = BTreeSet::new();
    let mut is_new = |path: &Path| seen.insert(path.canonicalize().unwrap_or(path.to_owned()));
    listings.into_iter().filter(|l| is_new(&l.path)).collect()
}

/// Where Flux keeps models it makes.
pub fn models_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("models")
}

/// Weights and an f16 KV cache at 4,096 tokens; the flag says that the KV cache is in it.
pub fn needs(model: &ModelInfo) -> (Bytes, bool) {
    match model.kv_bytes_per_token_f16 {
        Some(per_token) => {
            let context = model
                .context_length
                .map_or(CONTEXT, |longest| longest.min(CONTEXT));
            (
                Bytes(
                    model
                        .tensor_bytes
                        .0
                        .saturating_add(per_token.0.saturating_mul(context)),
                ),
                true,
            )
        }
        None => (model.tensor_bytes, false),
    }
}

/// A real model's header, for tests.
#[cfg(test)]
pub(crate) fn qwen3_4b() -> ModelInfo {
    ModelInfo {
        path: PathBuf::from("/m/a.gguf"),
        parts: vec![PathBuf::from("/m/a.gguf")],
        digest: String::new(),
        kind: crate::domain::types::ModelKind::Model,
        architecture: "qwen3".to_owned(),
        name: "Qwen3 4B".to_owned(),
        parameters: 4_022_468_096,
        tensor_bytes: Bytes::gib(2),
        file_bytes: Bytes::gib(2),
        layers: Some(36),
        context_length: Some(40960),
        experts: 0,
        quant_mix: vec![
            ("Q4_K".to_owned(), Bytes::mib(1536)),
            ("Q6_K".to_owned(), Bytes::mib(512)),
        ],
        tokenizer: true,
        // 36 layers × 8 heads × 128 × 2 (K and V) × 2 bytes.
        kv_bytes_per_token_f16: Some(Bytes(147_456)),
        notices: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_needs_its_weights_and_its_cache() {
        // 2 GiB + 147,456 × 4,096 B = 2 GiB + 576 MiB.
        assert_eq!(needs(&qwen3_4b()), (Bytes::mib(2048 + 576), true));
        let short = ModelInfo {
            context_length: Some(2048),
            ..qwen3_4b()
        };
        assert_eq!(needs(&short), (Bytes::mib(2048 + 288), true));
        let unknown = ModelInfo {
            kv_bytes_per_token_f16: None,
            ..qwen3_4b()
        };
        assert_eq!(needs(&unknown), (Bytes::gib(2), false));
    }

    #[test]
    fn a_file_found_in_two_ways_is_listed_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.gguf");
        std::fs::write(&file, b"").unwrap();
        let listing = |path: PathBuf| ModelListing {
            path,
            model: None,
            problem: None,
        };
        let twice = [listing(file.clone()), listing(dir.path().join("./a.gguf"))];
        assert_eq!(once_each(twice.to_vec()), [listing(file)]);
    }
}
