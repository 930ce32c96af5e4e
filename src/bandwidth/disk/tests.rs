use std::fs;
use std::io::Write as _;
use std::path::Path as FilePath;

use crate::ports::CancelToken;

use super::*;

const MIB: u64 = 1 << 20;

/// Runs `work` with nobody watching and nobody cancelling.
fn quietly<T>(work: impl FnOnce(&Steps) -> Result<T, Stop>) -> T {
    let token = CancelToken::new();
    let mut silent = |_| {};
    let steps = Steps::new(&token, &mut silent);
    work(&steps).unwrap()
}

fn find(path: &FilePath, scratch: &FilePath) -> Result<Source, String> {
    quietly(|steps| Source::find(path, scratch, MIB, 0, steps))
}

/// Notices that depend on the file system the tests run on are left out.
fn said(source: &Source) -> Vec<String> {
    let own = |n: &&String| !n.contains("page cache") && !n.contains("kept in RAM");
    source.notices.iter().filter(own).cloned().collect()
}

fn files(dir: &FilePath) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn a_repetition_is_a_quarter_second_in_whole_blocks() {
    // A quarter of 1 GB is 29.8 blocks of 8 MiB.
    assert_eq!(
        repetition_bytes(1e9, BLOCK, 256 * MIB, 512 * MIB),
        29 * BLOCK
    );
    assert_eq!(
        repetition_bytes(7e9, BLOCK, 256 * MIB, 512 * MIB),
        256 * MIB
    );
    assert_eq!(repetition_bytes(7e9, BLOCK, 256 * MIB, 100 * MIB), 96 * MIB);
    assert_eq!(repetition_bytes(1e6, BLOCK, 256 * MIB, 512 * MIB), BLOCK);
    assert_eq!(repetition_bytes(f64::NAN, MIB, 4 * MIB, 4 * MIB), MIB);
}

#[test]
fn a_buffer_starts_where_direct_reads_want_it() {
    for length in [4096, 8192, MIB] {
        let mut buffer = Aligned::new(length);
        assert_eq!(buffer.get().as_ptr().align_offset(ALIGN), 0);
        assert_eq!(buffer.get_mut().len() as u64, length);
    }
}

#[test]
fn a_model_of_real_bytes_is_read_itself() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("it's a model.gguf");
    let bytes: Vec<u8> = (0..3 * MIB + 5).map(|i| (i * i % 251) as u8).collect();
    let mut file = fs::File::create(&model).unwrap();
    file.write_all(&bytes).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let source = find(&model, dir.path()).unwrap();
    assert_eq!(said(&source), [""; 0]);
    assert_eq!(source.length, 3 * MIB);
    let mut buffer = Aligned::new(8192);
    source.read(buffer.get_mut(), 2 * MIB).unwrap();
    assert_eq!(buffer.get(), &bytes[2 * MIB as usize..][..8192]);
    assert_eq!(files(dir.path()), 1);
}

#[test]
fn small_models_and_models_with_holes_are_no_measure_of_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small.gguf");
    fs::write(&small, "GGUF").unwrap();
    let holes = dir.path().join("holes.gguf");
    fs::File::create(&holes).unwrap().set_len(4 * MIB).unwrap();
    let mut cases = vec![(&small, "the model is too small to measure its disk with")];
    if cfg!(unix) {
        cases.push((
            &holes,
            "the model has holes or is compressed by its file system",
        ));
    }
    for (model, why) in cases {
        let source = find(model, dir.path()).unwrap();
        assert_eq!(
            said(&source),
            [format!(
                "{why}, a temporary file was read: {}",
                model.display()
            )]
        );
        assert_eq!(source.length, MIB);
        // Where files can be nameless, nothing shows even while it is read.
        assert_eq!(files(dir.path()), if cfg!(unix) { 2 } else { 3 });
        drop(source);
        assert_eq!(files(dir.path()), 2);
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_replaced_by_another_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("gone");
    let source = find(&gone.join("model.gguf"), dir.path()).unwrap();
    let [refused, instead] = &said(&source)[..] else {
        panic!("{:?}", source.notices)
    };
    assert!(refused.starts_with("no temporary file can be made there ("));
    assert!(
        refused.ends_with(&format!(": {}", gone.display())),
        "{refused}"
    );
    assert_eq!(
        *instead,
        format!(
            "the disk of this folder was measured instead: {}",
            dir.path().display()
        )
    );
    let error = find(&gone.join("model.gguf"), &gone).map(drop).unwrap_err();
    assert_eq!(error.matches("no temporary file").count(), 1, "{error}");
}

#[test]
fn both_orders_keep_every_repetition() {
    let dir = tempfile::tempdir().unwrap();
    let source = find(dir.path(), dir.path()).unwrap();
    let in_order = quietly(|steps| sequential(&source, MIB, steps)).unwrap();
    assert_eq!((in_order.samples.len(), in_order.bytes), (5, MIB));
    let at_random = quietly(|steps| random(&source, MIB / 16, 1e12, 1, steps)).unwrap();
    assert_eq!(
        (at_random.samples.len(), at_random.bytes, at_random.threads),
        (5, MIB / 16, 4)
    );
    for rate in in_order.samples.iter().chain(&at_random.samples) {
        assert!(rate.is_finite() && *rate > 0.0);
    }
}

#[test]
fn a_disk_that_fails_ends_the_reading_with_its_words() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = find(dir.path(), dir.path()).unwrap();
    // As if the file had been cut short meanwhile.
    source.length *= 4;
    let error = quietly(|steps| sequential(&source, 4 * MIB, steps)).unwrap_err();
    assert!(error.starts_with("it cannot be read ("), "{error}");
    assert!(quietly(|steps| random(&source, 4 * MIB, 1e12, 0, steps)).is_err());
    let streamed =
        quietly(|steps| crate::bandwidth::streaming::measure(&source, 4 * MIB, 1e12, steps));
    assert!(streamed.is_err());
}
