//! Synthesised models against the sizes of the real ones, and what a failed synthesis leaves behind.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::fs;
use std::path::Path;

use flux::domain::types::{Bytes, ModelInfo, ModelKind};
use flux::gguf::{GgufModels, Model};
use flux::ports::{CancelMode, CancelToken, Models, PortResult, SynthRequest};
use sha2::{Digest as _, Sha256};
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
        ("llama3-70b", 70_553_706_496),
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

/// GiB and billions of parameters as llama-bench prints them for the published quants.
#[test]
fn shapes_of_other_kinds_are_what_llama_bench_shows() {
    for (shape, size, parameters) in [
        ("llama3-70b", "39.59", "70.55"),
        ("gpt-oss-20b", "11.27", "20.91"),
        ("qwen3-235b-a22b", "132.39", "235.09"),
        ("deepseek-v2-lite", "9.65", "15.71"),
        ("gemma3-1b", "0.74", "1.00"),
        ("lfm2-1.2b", "0.68", "1.17"),
        ("qwen3-next-80b-a3b", "45.15", "79.67"),
    ] {
        let info = sparse(shape);
        let gib = info.tensor_bytes.0 as f64 / f64::from(1 << 30);
        let billions = info.parameters as f64 / 1e9;
        let shown = (format!("{gib:.2}"), format!("{billions:.2}"));
        assert_eq!(shown, (size.to_owned(), parameters.to_owned()), "{shape}");
    }
}

/// Records name models by their digest, so that a shape's file stays what it was.
#[test]
fn shapes_keep_their_bytes() {
    for (shape, digest) in [
        (
            "qwen3-0.6b",
            "fb907c6239b5447777350853c8c03a917fbb7a2b7b956a83c9c8a4ba3e640172",
        ),
        (
            "qwen3-4b",
            "b4cb1a31d869a512acde079c2ab125da248926d3e532654973f0df23888a3f1b",
        ),
        (
            "qwen3-8b",
            "c8485f077ef119b07039d1fadfbb34f02fe17ba1f75a761f3a681f0073211da3",
        ),
        (
            "llama3-8b",
            "f0158a55a9867e8acb1bb24e8d1a6188a6a7c24ec8f1c22931f23f73bc035441",
        ),
        (
            "gemma3-12b",
            "58a1dd1fb67689d5ce56dbebb5a541b4062eb2c974627feb037e2915e7217938",
        ),
        (
            "qwen3-30b-a3b",
            "7cef11c0415cd4a5fab540bca0c55e2c0d6c1a0ac1483d6cac3be1b1d9eae3e4",
        ),
    ] {
        assert_eq!(sparse(shape).digest, digest, "{shape}");
    }
    let dir = TempDir::new().unwrap();
    let mut tiny = request("tiny", &dir.path().join("m.gguf"), false);
    tiny.seed = 0;
    make(&tiny).unwrap();
    let hash = Sha256::digest(fs::read(&tiny.output).unwrap());
    let hex = hash
        .iter()
        .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    assert_eq!(
        hex,
        "63ec7c67e6aef7be89fb32553094c63309bc2020e00c63a1c62a6988e912bf76"
    );
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
        "gpt-oss-20b",
        "qwen3-235b-a22b",
        "deepseek-v2-lite",
        "tiny-moe",
        "tiny-swa",
        "tiny-hybrid",
        "tiny-mla",
    ] {
        assert!(shapes.iter().any(|s| s == shape), "{shape}");
    }
}
