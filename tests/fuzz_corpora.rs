//! What the fuzz targets in `tests/fuzz` have found worth keeping, each file once, without a fuzzer.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

#[test]
fn every_kept_input_ends_well() {
    for (name, target) in targets::TARGETS {
        let corpus = Path::new("tests/fuzz/corpus").join(name);
        let files = fs::read_dir(&corpus).unwrap();
        let files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() > 5, "{}", corpus.display());
        for file in files {
            let bytes = fs::read(&file).unwrap();
            let ended = catch_unwind(|| target(&bytes));
            assert!(ended.is_ok(), "{}", file.display());
        }
    }
}
