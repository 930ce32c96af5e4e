//! The reader as a whole: right values on a sound file; any bytes end in a value or an error, never in a panic
//! or a large allocation.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/gguf_bytes.rs"]
mod gguf_bytes;
#[path = "support/watched_alloc.rs"]
mod watched_alloc;

use std::fs;

use flux::domain::types::{Bytes, ModelKind};
use flux::gguf::{GgufModels, Header, HeaderError, TensorType, Value};
use flux::ports::Models;
use gguf_bytes::{F32, Gguf, Q8_0};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use watched_alloc::largest_allocation;

/// Reads `bytes` and fails on an allocation that the file's size does not justify.
fn read(bytes: &[u8]) -> Result<Header, HeaderError> {
    let (header, largest) =
        largest_allocation(|| Header::read(bytes, bytes.len() as u64, &mut Sha256::new()));
    // Growing vectors double and start at four rows of about 100 bytes; messages stay under 1 KiB.
    let allowed = 8 * bytes.len() + 1024;
    assert!(
        largest <= allowed,
        "{largest} bytes for a file of {}",
        bytes.len()
    );
    header
}

fn sound() -> Gguf {
    Gguf::model("qwen3", 2)
        .text("general.name", "Small")
        .u32("qwen3.context_length", 4096)
        .u32("qwen3.embedding_length", 64)
        .u32("qwen3.attention.head_count", 4)
        .u32("qwen3.attention.head_count_kv", 2)
        .u32("qwen3.expert_count", 8)
        .i32s("qwen3.rope.sections", &[1, -2, 3])
        .text("tokenizer.ggml.model", "gpt2")
        .strings("tokenizer.ggml.tokens", &["a", "bc", ""])
        .tensor("token_embd.weight", &[64, 3], Q8_0, 0)
        .tensor("output_norm.weight", &[64], F32, 224)
        .data(480)
}

#[test]
fn a_sound_file_reads_as_written() {
    let bytes = sound().build();
    let header = read(&bytes).unwrap();
    assert_eq!(header.version, 3);
    assert_eq!(header.header_bytes, sound().header().len() as u64);
    assert_eq!(header.text("general.name"), Some("Small"));
    assert_eq!(header.unsigned("qwen3.context_length"), Some(4096));
    assert_eq!(
        header.metadata["qwen3.rope.sections"],
        Value::Integers(vec![1, -2, 3])
    );
    assert_eq!(header.metadata["tokenizer.ggml.tokens"], Value::Skipped(3));
    let first = &header.tensors[0];
    assert_eq!(first.kind, TensorType(8));
    assert_eq!(first.dims, [64, 3, 1, 1]);
    // 192 values in blocks of 32 with 34 bytes.
    assert_eq!((first.elements(), first.offset, first.bytes), (192, 0, 204));
    let second = &header.tensors[1];
    assert_eq!((second.offset, second.bytes), (224, 256));
}

#[test]
fn a_model_is_described_from_its_header() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("small-q8.gguf");
    fs::write(&path, sound().build()).unwrap();
    let info = GgufModels.inspect(&path).unwrap();
    assert_eq!(info.kind, ModelKind::Model);
    assert_eq!(
        (info.architecture.as_str(), info.name.as_str()),
        ("qwen3", "Small")
    );
    assert_eq!((info.layers, info.context_length), (Some(2), Some(4096)));
    assert_eq!((info.experts, info.parameters), (8, 256));
    assert_eq!(info.tensor_bytes, Bytes(460));
    assert_eq!(info.file_bytes, Bytes(sound().build().len() as u64));
    let mix = [
        ("F32".to_owned(), Bytes(256)),
        ("Q8_0".to_owned(), Bytes(204)),
    ];
    assert_eq!(info.quant_mix, mix);
    assert!(info.tokenizer);
    // 2 layers × 2 heads × (16 + 16) × 2 bytes.
    assert_eq!(info.kv_bytes_per_token_f16, Some(Bytes(256)));
    assert!(info.notices.is_empty());
}

#[test]
fn the_digest_covers_header_and_size_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("m.gguf");
    let digest = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        GgufModels.inspect(&path).unwrap().digest
    };
    let bytes = sound().build();
    let mut hash = Sha256::new();
    hash.update(sound().header());
    hash.update((bytes.len() as u64).to_le_bytes());
    let hex = |hex: String, byte: &u8| hex + &format!("{byte:02x}");
    let expected = hash.finalize().iter().fold(String::new(), hex);
    assert_eq!(digest(&bytes), expected);
    let mut weights = bytes.clone();
    *weights.last_mut().unwrap() = 1;
    assert_eq!(digest(&weights), expected);
    weights.push(0);
    assert_ne!(digest(&weights), expected);
    assert_ne!(digest(&sound().u32("extra", 1).build()), expected);
}

/// Larger than the reader's buffer, so that values straddle its refills.
#[test]
fn a_header_longer_than_the_buffer_reads_and_hashes_right() {
    let words: Vec<String> = (0..60_000).map(|n| format!("token-{n}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let file = Gguf::model("llama", 1)
        .strings("tokenizer.ggml.tokens", &words)
        .u32("after", 7)
        .tensor("w", &[8], F32, 0)
        .data(32);
    let mut hash = Sha256::new();
    let bytes = file.build();
    let header = Header::read(bytes.as_slice(), bytes.len() as u64, &mut hash).unwrap();
    assert_eq!(
        header.metadata["tokenizer.ggml.tokens"],
        Value::Skipped(60_000)
    );
    assert_eq!(header.unsigned("after"), Some(7));
    assert_eq!(hash.finalize(), Sha256::digest(file.header()));
}

#[test]
fn cut_anywhere_it_is_an_error() {
    let bytes = sound().build();
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "cut at {end}");
    }
    assert!(read(&bytes).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_end_well(tail in proptest::collection::vec(any::<u8>(), 0..400), version in 2u32..=3) {
        let _ = read(&tail);
        let bytes = [b"GGUF".as_slice(), &version.to_le_bytes(), &tail].concat();
        let _ = read(&bytes);
    }

    #[test]
    fn any_change_of_a_sound_file_ends_well(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = sound().build();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = read(&bytes);
        let _ = read(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn any_large_number_in_a_sound_file_ends_well(
        at in any::<prop::sample::Index>(),
        value in prop_oneof![any::<u64>(), Just(u64::MAX), Just(i64::MAX as u64), Just(1 << 30), Just((1 << 42) + 1)],
    ) {
        let mut bytes = sound().build();
        let at = at.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let _ = read(&bytes);
    }
}
