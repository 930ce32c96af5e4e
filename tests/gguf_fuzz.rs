//! Files that are almost sound: whatever a header says, the reader ends with a layout that holds together or with a
//! sentence, without a panic and without an allocation that the file does not justify (case C34).
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/gguf_draft.rs"]
mod gguf_draft;
#[path = "support/watched_alloc.rs"]
mod watched_alloc;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use flux::domain::placement::layout::ModelLayout;
use flux::domain::types::Bytes;
use flux::gguf::GgufModels;
use flux::ports::Models;
use gguf_draft::{Draft, damage};
use tempfile::TempDir;
use watched_alloc::largest_allocation;

/// Bytes that a single allocation may exceed the files by: a layout of 512 blocks, a folder's entries, a kept array of
/// 16,384 numbers.
const BESIDE_THE_FILE: usize = 128 * 1024;
/// Cases of the ordinary run, about a second.
const SHORT: u64 = 3000;

/// Writes the case of this number; the path to open and the bytes of all its files.
fn write(dir: &Path, seed: u64, case: u64) -> (PathBuf, usize) {
    let mut rng = Rng::with_seed(seed ^ case.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let parts = if rng.u32(..6) == 0 { rng.u64(2..4) } else { 1 };
    let mut size = 0;
    let mut path = PathBuf::new();
    for no in (0..parts).rev() {
        let mut draft = Draft::sound(&mut rng);
        if parts > 1 {
            draft.split(&mut rng, no, parts);
        }
        for _ in 0..rng.u32(..4) {
            draft.mutate(&mut rng);
        }
        let mut bytes = draft.build();
        if rng.u32(..8) == 0 {
            damage(&mut rng, &mut bytes);
        }
        let name = match parts {
            1 => "m.gguf".to_owned(),
            _ => format!("m-{:05}-of-{parts:05}.gguf", no + 1),
        };
        path = dir.join(name);
        size += bytes.len();
        // A new file: some file systems write an overwritten one to the disk at once.
        let _ = fs::remove_file(&path);
        fs::write(&path, bytes).unwrap();
    }
    (path, size)
}

/// What every layout promises.
fn check(layout: &ModelLayout, size: usize) {
    let layers = layout.layers.len();
    assert_eq!(layout.info.layers, Some(layers as u32));
    let sum: Bytes = layout.tensors.iter().map(|t| t.bytes).sum();
    let all = layout.info.tensor_bytes;
    // Layers that predict further tokens stay in the file.
    let left = layout
        .notices
        .iter()
        .any(|n| n.starts_with("further tokens are predicted"));
    assert!(if left { sum <= all } else { sum == all }, "{sum} of {all}");
    assert!(all.0 <= size as u64, "{all} of tensors in {size} bytes");
    for tensor in &layout.tensors {
        assert!(tensor.layer.is_none_or(|n| (n as usize) < layers));
        assert!(tensor.dims.iter().all(|d| *d > 0) && tensor.elements() > 0);
    }
}

/// One case; whether its file was taken for a model.
fn run(dir: &Path, seed: u64, case: u64) -> bool {
    let (path, size) = write(dir, seed, case);
    let read = || catch_unwind(AssertUnwindSafe(|| GgufModels.layout(&path)));
    let (answer, largest) = largest_allocation(read);
    let of = format!("case {case} of seed {seed}");
    let answer = answer.unwrap_or_else(|_| panic!("{of} panics"));
    let allowed = size + BESIDE_THE_FILE;
    assert!(largest <= allowed, "{of}: {largest} bytes for {size}");
    match &answer {
        Ok(layout) => check(layout, size),
        Err(error) => {
            let told = &error.headline;
            assert!(
                told.contains("gguf") && !told.contains('\n'),
                "{of}: {told}"
            );
        }
    }
    if case.is_multiple_of(64) {
        let listed = GgufModels.list(dir).unwrap();
        assert!(
            listed
                .iter()
                .all(|l| l.model.is_some() != l.problem.is_some())
        );
    }
    answer.is_ok()
}

#[test]
fn almost_sound_files_end_well() {
    let dir = TempDir::new().unwrap();
    let models = (0..SHORT).filter(|case| run(dir.path(), 1, *case)).count();
    // Both ends are reached: a fuzzer that is always refused at the door finds nothing behind it.
    assert!(
        (SHORT as usize / 10..SHORT as usize * 9 / 10).contains(&models),
        "{models}"
    );
}
