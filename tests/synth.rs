//! Synthesised models against the sizes of the real ones, and what a failed synthesis leaves behind.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::fs;
use std::path::Path;

use flux::domain::types::{Bytes, ModelInfo, ModelKind};
use flux::gguf::{GgufModels, Model};
use flux::ports::{CancelMode, CancelToken, Models, PortResult, SynthRequest};
use tempfile::TempDir;

fn request(shape: &str, output: &Path, sparse: bool) -> SynthRequest {
    SynthRequest {
        shape: shape.to_owned(),
        output: output.to_owned(),
        sparse,
        seed: 1,
    }
}

fn make(request: &SynthRequest) -> PortResult<ModelInfo> {
    GgufModels.synthesise(request, &CancelToken::new(), &mut |_, _| {})
}

fn sparse(shape: &str) -> ModelInfo {
    let dir = TempDir::new().unwrap();
    make(&request(shape, &dir.path().join("m.gguf"), true)).unwrap()
}

/// llama-bench's own `model_size` and `model_n_params` for Qwen3-4B `Q4_K_M`.
#[test]
fn qwen3_4b_has_the_real_size_to_the_byte() {
    let info = sparse("qwen3-4b");
    assert_eq!(info.tensor_bytes, Bytes(2_491_323_904));
    assert_eq!(info.parameters, 4_022_468_096);
    assert_eq!(
        (info.layers, info.architecture.as_str()),
        (Some(36), "qwen3")
    );
    // 36 layers × 8 heads × (128 + 128) × 2 bytes.
    assert_eq!(info.kv_bytes_per_token_f16, Some(Bytes(147_456)));
    assert_eq!((info.kind, info.tokenizer), (ModelKind::Model, true));
}

/// llama.cpp's server README gives 4,912,898,304 bytes and 8,030,261,312 parameters for Llama 3.1 8B `Q4_K_M`,
/// which has the 64 floats of `rope_freqs.weight` more than Llama 3.
#[test]
fn llama3_8b_has_the_real_size_to_the_byte() {
    assert_eq!(
        sparse("llama3-8b").tensor_bytes,
        Bytes(4_912_898_304 - 64 * 4)
    );
}

/// Parameters as the models' cards and llama.cpp give them, by hand from the shapes.
#[test]
fn every_shape_has_the_real_number_of_parameters() {
    for (shape, parameters) in [
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-8b", 8_190_735_360),
        ("llama3-8b", 8_030_261_248),
        ("gemma3-12b", 11_765_788_416),
        ("qwen3-30b-a3b", 30_532_122_624),
    ] {
        assert_eq!(sparse(shape).parameters, parameters, "{shape}");
    }
}

/// Files of the published `Q4_K_M` quants; vocabularies differ by a few megabytes.
#[test]
fn large_shapes_weigh_what_the_real_files_weigh() {
    for (shape, gigabytes) in [
        ("qwen3-8b", 5.03),
        ("llama3-8b", 4.92),
        ("gemma3-12b", 7.30),
        ("qwen3-30b-a3b", 18.56),
    ] {
        let real = gigabytes * 1e9;
        let ours = sparse(shape).file_bytes.0 as f64;
        assert!(
            (ours / real - 1.0).abs() < 0.003,
            "{shape}: {ours} for {real}"
        );
    }
}

#[test]
fn a_mixture_of_experts_names_its_experts() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("m.gguf");
    let info = make(&request("qwen3-30b-a3b", &path, true)).unwrap();
    assert_eq!((info.experts, info.layers), (128, Some(48)));
    let model = Model::open(&path).unwrap();
    let tensor = |name: &str| {
        let found = model.headers[0].tensors.iter().find(|t| t.name == name);
        let found = found.unwrap();
        (found.kind.to_string(), found.dims)
    };
    assert_eq!(
        tensor("blk.47.ffn_down_exps.weight"),
        ("Q6_K".to_owned(), [768, 2048, 128, 1])
    );
    assert_eq!(
        tensor("blk.0.ffn_gate_inp.weight"),
        ("F32".to_owned(), [2048, 128, 1, 1])
    );
}

#[cfg(unix)]
#[test]
fn a_sparse_model_takes_no_room() {
    use std::os::unix::fs::MetadataExt as _;
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("m.gguf");
    let info = make(&request("qwen3-30b-a3b", &path, true)).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(Bytes(meta.len()), info.file_bytes);
    assert!(meta.blocks() * 512 < 16 * 1024 * 1024);
}

#[test]
fn the_same_seed_writes_the_same_file() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, seed: u64| {
        let mut request = request("tiny", &dir.path().join(name), false);
        request.seed = seed;
        make(&request).unwrap();
        fs::read(&request.output).unwrap()
    };
    let first = write("a.gguf", 1);
    assert!(first == write("b.gguf", 1));
    assert!(first != write("c.gguf", 2));
}

#[test]
fn progress_ends_at_the_files_size() {
    let dir = TempDir::new().unwrap();
    let request = request("tiny", &dir.path().join("m.gguf"), false);
    let mut steps = Vec::new();
    let info = GgufModels
        .synthesise(&request, &CancelToken::new(), &mut |done, all| {
            steps.push((done, all));
        })
        .unwrap();
    let size = info.file_bytes.0;
    assert_eq!(steps.last(), Some(&(size, size)));
    assert!(steps.is_sorted());
}

#[test]
fn nothing_is_left_after_a_cancel() {
    let dir = TempDir::new().unwrap();
    let cancel = CancelToken::new();
    let request = request("tiny", &dir.path().join("m.gguf"), false);
    let error = GgufModels
        .synthesise(&request, &cancel, &mut |done, all| {
            if done > all / 2 {
                cancel.cancel(CancelMode::Now);
            }
        })
        .unwrap_err();
    assert!(
        error.headline.starts_with("cancelled"),
        "{}",
        error.headline
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_existing_file_is_kept() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("m.gguf");
    fs::write(&path, "mine").unwrap();
    let error = make(&request("tiny", &path, false)).unwrap_err();
    let told = format!("file exists already: {}", path.display());
    assert_eq!(error.headline, told);
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn an_unknown_shape_or_folder_is_told() {
    let dir = TempDir::new().unwrap();
    let error = make(&request("qwen9", &dir.path().join("m.gguf"), false)).unwrap_err();
    assert_eq!(error.headline, "no model shape is named qwen9");
    assert!(error.hint.unwrap().contains("qwen3-4b"));
    let path = dir.path().join("none/m.gguf");
    let error = make(&request("tiny", &path, false)).unwrap_err();
    assert!(error.headline.ends_with(&path.display().to_string()));
}

#[test]
fn the_shapes_are_listed() {
    let shapes = GgufModels.shapes();
    for shape in [
        "qwen3-0.6b",
        "qwen3-4b",
        "qwen3-8b",
        "llama3-8b",
        "gemma3-12b",
        "qwen3-30b-a3b",
        "tiny",
    ] {
        assert!(shapes.iter().any(|s| s == shape), "{shape}");
    }
}
