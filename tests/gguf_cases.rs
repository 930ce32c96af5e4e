//! Every case of family E (C29 to C35), on files built by hand.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/gguf_bytes.rs"]
mod gguf_bytes;

use std::fs;
use std::path::{Path, PathBuf};

use flux::domain::types::{Bytes, ModelKind};
use flux::gguf::GgufModels;
use flux::ports::Models;
use gguf_bytes::{ARRAY, F32, Gguf, Q8_0, STRING, string};
use tempfile::TempDir;

fn write(dir: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir
        .path()
        .join(name.replace('/', std::path::MAIN_SEPARATOR_STR));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

/// The sentence for these bytes, without the path at its end.
fn told(bytes: &[u8]) -> String {
    let dir = TempDir::new().unwrap();
    let path = write(&dir, "m.gguf", bytes);
    let error = GgufModels.inspect(&path).unwrap_err();
    let end = format!(": {}", path.display());
    error.headline.strip_suffix(&end).unwrap().to_owned()
}

/// Two F32 tensors of 8 and 16 values: 96 bytes of data.
fn small() -> Gguf {
    Gguf::model("llama", 1)
        .tensor("token_embd.weight", &[8], F32, 0)
        .tensor("output.weight", &[8, 2], F32, 32)
        .data(96)
}

#[test]
fn c29_big_endian_is_named() {
    assert_eq!(
        told(b"GGUF\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x01"),
        "big-endian GGUF v3: this machine cannot run it"
    );
}

#[test]
fn c29_v2_parses_and_v1_is_too_old() {
    let dir = TempDir::new().unwrap();
    let mut file = small();
    file.version = 2;
    let info = GgufModels
        .inspect(&write(&dir, "v2.gguf", &file.build()))
        .unwrap();
    assert_eq!((info.parameters, info.tensor_bytes), (24, Bytes(96)));
    file.version = 1;
    assert!(told(&file.build()).starts_with("GGUF v1 is too old"));
    file.version = 4;
    assert!(told(&file.build()).starts_with("GGUF v4 is newer"));
}

/// The first part holds no tensors; the other two hold 8 and 16 F32 values.
fn split(dir: &TempDir, folder: &str) -> Vec<PathBuf> {
    let part = |file: Gguf, no: u32| {
        let file = file.u32("split.no", no).u32("split.count", 3);
        file.u32("split.tensors.count", 2)
    };
    let parts = [
        part(Gguf::model("llama", 2).text("general.name", "Split"), 0),
        part(Gguf::new(), 1)
            .tensor("token_embd.weight", &[8], F32, 0)
            .data(32),
        part(Gguf::new(), 2)
            .tensor("output.weight", &[8, 2], F32, 0)
            .data(64),
    ];
    (1..)
        .zip(parts)
        .map(|(n, p)| write(dir, &format!("{folder}/m-{n:05}-of-00003.gguf"), &p.build()))
        .collect()
}

#[test]
fn c30_any_part_or_the_folder_is_the_whole_set() {
    let dir = TempDir::new().unwrap();
    let parts = split(&dir, "set");
    write(&dir, "set/mmproj-m.gguf", &Gguf::model("clip", 1).build());
    let size: u64 = parts.iter().map(|p| fs::metadata(p).unwrap().len()).sum();
    let whole = GgufModels.inspect(&parts[0]).unwrap();
    assert_eq!(whole.path, parts[0]);
    assert_eq!(whole.parts, parts);
    assert_eq!(whole.name, "Split");
    assert_eq!((whole.layers, whole.parameters), (Some(2), 24));
    assert_eq!(whole.tensor_bytes, Bytes(96));
    assert_eq!(whole.file_bytes, Bytes(size));
    for path in [&parts[1], &parts[2], &dir.path().join("set")] {
        assert_eq!(GgufModels.inspect(path).unwrap(), whole);
    }
}

#[test]
fn c30_a_missing_part_is_named() {
    let dir = TempDir::new().unwrap();
    let parts = split(&dir, "set");
    fs::remove_file(&parts[1]).unwrap();
    for path in [&parts[0], &parts[2]] {
        let error = GgufModels.inspect(path).unwrap_err();
        let told = format!("part 2 of 3 is missing: {}", parts[1].display());
        assert_eq!(error.headline, told);
    }
    let listed = GgufModels.list(dir.path()).unwrap();
    assert_eq!(listed.len(), 1);
    let problem = listed[0].problem.as_ref().unwrap();
    assert!(problem.starts_with("part 2 of 3 is missing"), "{problem}");
}

#[test]
fn c30_parts_of_another_model_are_refused() {
    let dir = TempDir::new().unwrap();
    let parts = split(&dir, "set");
    fs::copy(&parts[1], &parts[2]).unwrap();
    let error = GgufModels.inspect(&parts[0]).unwrap_err();
    let told = "named as part 3 of 3, but its header says part 2";
    assert!(error.headline.starts_with(told), "{}", error.headline);
    fs::write(&parts[2], small().build()).unwrap();
    let error = GgufModels.inspect(&parts[0]).unwrap_err();
    let told = "named as one of 3 parts, but its header says 1";
    assert!(error.headline.starts_with(told), "{}", error.headline);
}

#[test]
fn c30_a_renamed_part_is_not_a_whole_model() {
    let dir = TempDir::new().unwrap();
    let parts = split(&dir, "set");
    let renamed = dir.path().join("m.gguf");
    fs::rename(&parts[1], &renamed).unwrap();
    let error = GgufModels.inspect(&renamed).unwrap_err();
    let told = "one of 3 parts, but not named -0000N-of-00003.gguf";
    assert!(error.headline.starts_with(told), "{}", error.headline);
}

#[test]
fn c30_other_quants_are_other_models() {
    let dir = TempDir::new().unwrap();
    split(&dir, "set");
    write(&dir, "set/m-Q4_K_M.gguf", &small().build());
    write(&dir, "set/m-00001-of-00001.gguf", &small().build());
    let listed = GgufModels.list(dir.path()).unwrap();
    let names: Vec<_> = listed
        .iter()
        .map(|l| l.path.file_name().unwrap().to_str().unwrap())
        .collect();
    let expected = [
        "m-00001-of-00001.gguf",
        "m-00001-of-00003.gguf",
        "m-Q4_K_M.gguf",
    ];
    assert_eq!(names, expected);
    assert!(listed.iter().all(|l| l.model.is_some()));
    let error = GgufModels.inspect(&dir.path().join("set")).unwrap_err();
    assert!(error.headline.starts_with("folder holds 3 models"));
}

/// LFM2-1.2B: 6 of 16 layers have attention, 8 heads of 64.
#[test]
fn c31_head_count_kv_may_be_an_array() {
    let heads = [0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0];
    let file = Gguf::model("lfm2", 16)
        .u32("lfm2.embedding_length", 2048)
        .u32("lfm2.attention.head_count", 32)
        .i32s("lfm2.attention.head_count_kv", &heads)
        .tensor("a", &[8], F32, 0)
        .data(32);
    let dir = TempDir::new().unwrap();
    let info = GgufModels
        .inspect(&write(&dir, "lfm2.gguf", &file.build()))
        .unwrap();
    let per_token = info.kv_bytes_per_token_f16.unwrap();
    assert_eq!(per_token, Bytes(12_288));
    assert_eq!(Bytes(per_token.0 * 32_768), Bytes::mib(384));
}

#[test]
fn c31_an_array_of_another_length_is_refused() {
    let file = Gguf::model("lfm2", 3)
        .u32("lfm2.attention.head_count", 32)
        .i32s("lfm2.attention.head_count_kv", &[8, 8])
        .tensor("a", &[8], F32, 0)
        .data(32);
    assert_eq!(
        told(&file.build()),
        "lfm2.attention.head_count_kv has 2 entries for 3 layers"
    );
}

/// Nemotron 120B has 88 entries; a reader that keeps 64 gets it wrong. Here: 8 layers of 2 heads × 128.
#[test]
fn c31_all_88_entries_count() {
    let heads: Vec<i32> = (0..88).map(|l| if l % 11 == 10 { 2 } else { 0 }).collect();
    let file = Gguf::model("nemotron_h_moe", 88)
        .u32("nemotron_h_moe.attention.head_count", 32)
        .u32("nemotron_h_moe.attention.key_length", 128)
        .u32("nemotron_h_moe.attention.value_length", 128)
        .i32s("nemotron_h_moe.attention.head_count_kv", &heads)
        .tensor("a", &[8], F32, 0)
        .data(32);
    let dir = TempDir::new().unwrap();
    let info = GgufModels
        .inspect(&write(&dir, "n.gguf", &file.build()))
        .unwrap();
    // 8 layers × 2 heads × (128 + 128) × 2 bytes = 8192; × 32768 = 0.25 GiB.
    let per_token = info.kv_bytes_per_token_f16.unwrap();
    assert_eq!(Bytes(per_token.0 * 32_768), Bytes::mib(256));
}

#[test]
fn c33_unknown_types_are_sized_by_distance() {
    let file = Gguf::model("llama", 1)
        .tensor("a", &[64], 142, 0)
        .tensor("b", &[8], F32, 96)
        .tensor("removed", &[32], 31, 128)
        .data(200);
    let dir = TempDir::new().unwrap();
    let info = GgufModels
        .inspect(&write(&dir, "m.gguf", &file.build()))
        .unwrap();
    // a: 96 to the next offset; b: 8 × 4; removed: 200 − 128 to the file's end.
    assert_eq!(info.tensor_bytes, Bytes(96 + 32 + 72));
    assert_eq!(
        info.quant_mix,
        [
            ("type 142".to_owned(), Bytes(96)),
            ("type 31".to_owned(), Bytes(72)),
            ("F32".to_owned(), Bytes(32)),
        ]
    );
    assert_eq!(
        info.notices,
        [
            "tensor type 31 is unknown to Flux; this llama.cpp build decides",
            "tensor type 142 is unknown to Flux; this llama.cpp build decides",
        ]
    );
}

#[test]
fn c33_mxfp4_is_known() {
    let file = Gguf::model("gpt-oss", 1)
        .tensor("blk.0.ffn_up_exps.weight", &[64, 2], 39, 0)
        .data(96);
    let dir = TempDir::new().unwrap();
    let info = GgufModels
        .inspect(&write(&dir, "m.gguf", &file.build()))
        .unwrap();
    // 4 blocks of 32 values in 17 bytes.
    assert_eq!(info.quant_mix, [("MXFP4".to_owned(), Bytes(68))]);
    assert!(info.notices.is_empty());
}

#[test]
fn c34_a_string_longer_than_the_file() {
    let mut file = Gguf::model("llama", 1).raw("general.name", STRING, &(1u64 << 30).to_le_bytes());
    file.data = 0;
    let mut bytes = file.header();
    bytes.resize(160, 0);
    let message = told(&bytes);
    let start = "corrupt GGUF: value of general.name at byte ";
    assert!(message.starts_with(start), "{message}");
    assert!(message.contains("length 1073741824"), "{message}");
}

/// A sparse file of any length costs nothing to make: its header is not believed to be as long.
#[test]
fn c34_a_header_of_gigabytes_is_not_read() {
    let array = |kind: u32, count: u64| [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat();
    for (kind, value) in [
        (ARRAY, array(STRING, 1 << 32)),
        (ARRAY, array(F32, 1 << 32)),
        (STRING, (1u64 << 32).to_le_bytes().to_vec()),
    ] {
        let dir = TempDir::new().unwrap();
        let header = Gguf::model("llama", 1).raw("x", kind, &value).header();
        let path = write(&dir, "m.gguf", &header);
        let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.set_len(60 << 30).unwrap();
        let error = GgufModels.inspect(&path).unwrap_err();
        let start = "corrupt GGUF: value of x at byte ";
        assert!(error.headline.starts_with(start), "{error}");
        assert!(error.headline.contains("4294967296"), "{error}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_path_that_is_no_text_is_refused_and_named_exactly() {
    use std::os::unix::ffi::OsStrExt as _;
    let dir = TempDir::new().unwrap();
    let path = dir
        .path()
        .join(std::ffi::OsStr::from_bytes(b"bad\xff\xfe.gguf"));
    fs::write(&path, small().build()).unwrap();
    let error = GgufModels.inspect(&path).unwrap_err();
    assert!(error.headline.starts_with("the path is no Unicode text: "));
    assert!(error.headline.ends_with(r"bad\xff\xfe.gguf"), "{error}");
    assert_eq!(error.hint.as_deref(), Some("rename the file or its folder"));
}

#[test]
fn c34_alignment_must_be_a_small_power_of_two() {
    for bad in [0, 3, 1 << 17, 1 << 30] {
        let message = told(&small().u32("general.alignment", bad).build());
        let start = "corrupt GGUF: general.alignment at byte ";
        assert!(message.starts_with(start), "{message}");
    }
}

#[test]
fn c34_dimensions_zero_wrapping_or_too_many() {
    let with = |rank: u32, dims: &[u64]| {
        told(
            &Gguf::model("llama", 1)
                .entry("w", rank, dims, F32, 0)
                .data(64)
                .build(),
        )
    };
    let dimension = "corrupt GGUF: dimension of tensor w at byte ";
    let max = i64::MAX as u64;
    // (2^42 + 1) × 2^22 wraps to 2^22 in 64 bits.
    let wrapping: [&[u64]; 4] = [&[0], &[8, 0], &[(1 << 42) + 1, 1 << 22], &[max, 2, 1, 1]];
    for dims in wrapping {
        let message = with(dims.len() as u32, dims);
        assert!(message.starts_with(dimension), "{dims:?}: {message}");
    }
    for rank in [0, 5, 1_000_000, u32::MAX] {
        let message = with(rank, &[8]);
        let start = "corrupt GGUF: rank of tensor w at byte ";
        assert!(message.starts_with(start), "{rank}: {message}");
    }
    // 2^42 + 1 values alone do not wrap: they are just not there.
    assert!(with(1, &[(1 << 42) + 1]).starts_with("file is shorter"));
    assert!(with(1, &[max]).starts_with("corrupt GGUF: dimension of tensor w"));
}

#[test]
fn c34_counts_beyond_the_file() {
    for count in [2, 100_001, u64::MAX] {
        let mut file = Gguf::new();
        file.key_count = Some(count);
        let message = told(&file.header());
        let start = "corrupt GGUF: metadata count at byte 16: ";
        assert!(message.starts_with(start), "{message}");
        let mut file = Gguf::new();
        file.tensor_count = Some(count);
        let message = told(&file.header());
        let start = "corrupt GGUF: tensor count at byte 8: ";
        assert!(message.starts_with(start), "{message}");
    }
}

#[test]
fn c34_empty_names_nested_arrays_and_unknown_values() {
    let message = told(&Gguf::model("llama", 1).u32("", 1).build());
    assert!(
        message.starts_with("corrupt GGUF: name of key 3 at byte "),
        "{message}"
    );
    let message = told(
        &Gguf::model("llama", 1)
            .tensor("", &[8], F32, 0)
            .data(32)
            .build(),
    );
    assert!(
        message.starts_with("corrupt GGUF: name of tensor 1 at byte "),
        "{message}"
    );

    let nested = [
        ARRAY.to_le_bytes().as_slice(),
        &1u64.to_le_bytes(),
        &[0; 16],
    ]
    .concat();
    let message = told(&Gguf::model("llama", 1).raw("k", ARRAY, &nested).build());
    assert!(message.contains("value of k") && message.contains("arrays of arrays"));
    let message = told(&Gguf::model("llama", 1).raw("k", 99, &[0; 8]).build());
    assert!(
        message.contains("value type 99 does not exist"),
        "{message}"
    );

    let long = [STRING.to_le_bytes().as_slice(), &u64::MAX.to_le_bytes()].concat();
    let message = told(&Gguf::model("llama", 1).raw("k", ARRAY, &long).build());
    assert!(
        message.contains("18446744073709551615 elements"),
        "{message}"
    );
}

#[test]
fn c34_twice_the_same_name_and_overlapping_tensors() {
    let message = told(&Gguf::model("llama", 1).u32("llama.block_count", 2).build());
    assert!(
        message.contains("key llama.block_count at byte"),
        "{message}"
    );
    let twice = Gguf::model("llama", 1)
        .tensor("w", &[8], F32, 0)
        .tensor("w", &[8], F32, 32);
    assert!(told(&twice.data(64).build()).contains("tensor w at byte"));
    let overlap = Gguf::model("llama", 1)
        .tensor("a", &[16], F32, 0)
        .tensor("b", &[8], F32, 32);
    assert!(told(&overlap.data(64).build()).contains("offset of tensor b at byte"));
    let crooked = Gguf::model("llama", 1).tensor("a", &[8], F32, 8);
    assert!(told(&crooked.data(64).build()).contains("8 is no multiple of 32"));
    let rows = Gguf::model("llama", 1).tensor("a", &[33], Q8_0, 0);
    assert!(told(&rows.data(64).build()).contains("not whole blocks of Q8_0"));
}

#[test]
fn c34_a_bad_file_does_not_end_the_scan() {
    let dir = TempDir::new().unwrap();
    write(&dir, "a-bad.gguf", b"GGUF\x03\x00\x00\x00");
    write(&dir, "b.gguf", &small().build());
    write(&dir, "c-web-page.gguf", b"<!DOCTYPE html>");
    write(&dir, "notes.txt", b"not looked at");
    let listed = GgufModels.list(dir.path()).unwrap();
    assert_eq!(listed.len(), 3);
    assert!(
        listed[0]
            .problem
            .as_ref()
            .unwrap()
            .starts_with("corrupt GGUF: tensor count")
    );
    assert!(listed[1].model.is_some() && listed[1].problem.is_none());
    let repeats = |l: &&flux::domain::types::ModelListing| {
        let problem = l.problem.as_deref().unwrap_or_default();
        problem.contains(&l.path.display().to_string())
    };
    assert_eq!(
        listed.iter().find(repeats),
        None,
        "its path stands beside it"
    );
    assert!(
        listed[2]
            .problem
            .as_ref()
            .unwrap()
            .starts_with("not a GGUF file (it begins with 3c 21 44 4f)")
    );
}

#[test]
fn c35_projectors_and_vocabularies_are_no_models() {
    let dir = TempDir::new().unwrap();
    let projector = Gguf::model("clip", 27)
        .text("general.type", "mmproj")
        .tensor("v.patch_embd.weight", &[8], F32, 0)
        .data(32);
    let path = write(&dir, "mmproj-gemma.gguf", &projector.build());
    let info = GgufModels.inspect(&path).unwrap();
    assert_eq!(info.kind, ModelKind::Projector);
    assert_eq!(info.kv_bytes_per_token_f16, None);

    let vocabulary = Gguf::model("llama", 32).strings("tokenizer.ggml.tokens", &["a", "b"]);
    let info = GgufModels
        .inspect(&write(&dir, "ggml-vocab.gguf", &vocabulary.build()))
        .unwrap();
    assert_eq!(info.kind, ModelKind::VocabularyOnly);
    assert!(info.tokenizer);

    let adapter = Gguf::new()
        .text("general.architecture", "llama")
        .text("general.type", "adapter")
        .tensor("w", &[8], F32, 0)
        .data(32);
    let info = GgufModels
        .inspect(&write(&dir, "lora.gguf", &adapter.build()))
        .unwrap();
    assert_eq!(info.kind, ModelKind::VocabularyOnly);
    assert_eq!(
        info.notices,
        ["a file of type adapter, not a runnable model"]
    );
}

#[test]
fn a_truncated_file_says_how_much_is_missing() {
    let bytes = small().build();
    assert_eq!(
        told(&bytes[..bytes.len() - 10]),
        "file is shorter than its tensor table says: 10 bytes missing (download again)"
    );
}

#[test]
fn what_is_no_model_file_is_told_apart() {
    let dir = TempDir::new().unwrap();
    let headline = |path: &Path| GgufModels.inspect(path).unwrap_err().headline;
    let missing = dir.path().join("none.gguf");
    assert_eq!(
        headline(&missing),
        format!("no such model file: {}", missing.display())
    );
    assert_eq!(
        headline(dir.path()),
        format!("no GGUF file in folder: {}", dir.path().display())
    );
    assert_eq!(told(b""), "not a GGUF file (it is empty)");
    assert!(told(b"version https://git-lfs.github.com/spec/v1").contains("git lfs pull"));
    assert!(told(&Gguf::new().build()).contains("general.architecture is missing"));
    assert!(GgufModels.list(&missing).is_err());
    assert_eq!(string("ab").len(), 10);
}

#[cfg(unix)]
#[test]
fn a_link_back_to_its_own_folder_ends() {
    let dir = TempDir::new().unwrap();
    write(&dir, "sub/m.gguf", &small().build());
    std::os::unix::fs::symlink(dir.path(), dir.path().join("sub/loop")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("dangling.gguf")).unwrap();
    let listed = GgufModels.list(dir.path()).unwrap();
    assert_eq!(listed.len(), 2);
    assert!(
        listed[0]
            .problem
            .as_ref()
            .unwrap()
            .starts_with("no such model file")
    );
    assert!(listed[1].model.is_some());
}
