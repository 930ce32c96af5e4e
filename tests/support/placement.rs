//! Layouts and memories for the tests of the planner.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::fs;
use std::path::Path;

use flux::domain::bench_record;
use flux::domain::placement::devices::{CpuLayout, HostMemory, Memories, OffloadDevice};
use flux::domain::placement::layout::ModelLayout;
use flux::domain::types::{Backend, Bytes, TestSamples};
use flux::gguf::GgufModels;
use flux::ports::{CancelToken, Models, SynthRequest};

/// A shape of `assets/shapes.toml` as a file without its data.
pub fn sparse(shape: &str, output: &Path) {
    let request = SynthRequest {
        shape: shape.to_owned(),
        output: output.to_owned(),
        sparse: true,
        seed: 1,
    };
    GgufModels
        .synthesise(&request, &CancelToken::new(), &mut |_, _| {})
        .unwrap();
}

/// The layout of a shape, from a file that is gone again.
pub fn layout(shape: &str) -> ModelLayout {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("model.gguf");
    sparse(shape, &output);
    GgufModels.layout(&output).unwrap()
}

/// A card that has all of its memory free.
pub fn card(id: &str, backend: Backend, memory: Bytes) -> OffloadDevice {
    OffloadDevice {
        id: id.to_owned(),
        name: id.to_owned(),
        backend,
        total: memory,
        usable: memory,
        shares_ram: false,
        captures_graphs: backend == Backend::Cuda,
        max_buffer: None,
        max_tensor: None,
    }
}

/// Cards beside so much RAM.
pub fn memories(devices: Vec<OffloadDevice>, ram: Bytes) -> Memories {
    Memories {
        devices,
        host: HostMemory {
            total: ram,
            usable: ram,
            used_by_others: Bytes(0),
            layout: CpuLayout::File,
        },
    }
}

/// Records of a fixture whose run `wanted` names.
pub fn records(file: &str, wanted: impl Fn(&str) -> bool) -> Vec<TestSamples> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/placement")
        .join(file);
    let parsed = bench_record::parse(&fs::read(path).unwrap());
    assert!(parsed.problems.is_empty());
    let records = parsed.records.into_iter();
    records
        .filter(|r| wanted(r.raw["run"].as_str().unwrap()))
        .map(|r| TestSamples {
            test: r.test,
            samples_ns: r.samples_ns,
            record: r.raw,
            energy: None,
        })
        .collect()
}
