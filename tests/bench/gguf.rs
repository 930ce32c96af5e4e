//! What reading a model's header costs, against its bound and against the `gguf` package of Python on the same file, and
//! what a folder of 2,000 files costs:
//! `FLUX_BENCH_PYTHON=VENV/bin/python cargo bench --bench gguf`; without the variable only Flux is measured.
//! It prints and asserts no time: a loaded machine is no bug.
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark stops at the first surprise"
)]
#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use flux::gguf::GgufModels;
use flux::ports::{CancelToken, Models as _, SynthRequest};

/// Most the header of a model with about 150,000 tokens may take, milliseconds.
const BOUND_MS: f64 = 15.0;
/// Least times faster than Python's reader.
const BOUND_RATIO: f64 = 10.0;
/// Repetitions of which the median counts: of Flux, of the much slower Python.
const OURS: usize = 101;
/// Most a folder of [`FILES`] files may take, seconds.
const FOLDER_BOUND_SECS: f64 = 2.0;
/// Files in the folder, half of them with the whole header of a 4B model.
const FILES: usize = 2_000;
const THEIRS: usize = 7;
/// Reads the file once to warm the page cache, then prints the milliseconds of each repetition.
const SCRIPT: &str = "\
import sys, time
from gguf import GGUFReader
path, count = sys.argv[1], int(sys.argv[2])
for n in range(count + 1):
    start = time.perf_counter()
    GGUFReader(path)
    if n: print((time.perf_counter() - start) * 1000)
";

fn main() {
    // `cargo test --benches` and friends list a target's tests; there are none.
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let python = std::env::var("FLUX_BENCH_PYTHON").ok();
    println!(
        "{:<16} {:>8} {:>12} {:>9} {:>12} {:>8} {:>7}",
        "shape", "header", "Flux, median", "bound", "Python", "ratio", "bound"
    );
    // Gemma's 262,144 tokens are beyond what the bound is for.
    let bound = format!("{BOUND_MS:.0} ms");
    for (shape, bound) in [
        ("qwen3-4b", bound.as_str()),
        ("qwen3-235b-a22b", bound.as_str()),
        ("gemma3-12b", "-"),
    ] {
        let path = dir.path().join(format!("{shape}.gguf"));
        synthesise(shape, &path);
        let header = flux::gguf::Model::open(&path).unwrap().headers[0].header_bytes;
        let ours = median((0..OURS).map(|_| read(&path)).collect());
        let theirs = python.as_deref().map(|python| with_python(python, &path));
        let theirs = theirs.map_or_else(
            || format!("{:>12} {:>8}", "-", "-"),
            |ms| format!("{ms:>9.1} ms {:>6.0} x", ms / ours),
        );
        println!(
            "{shape:<16} {:>5.1} MB {ours:>9.2} ms {bound:>9} {theirs} {BOUND_RATIO:>5.0} x",
            header as f64 / 1e6
        );
    }
    folder();
}

/// A collection as disks really hold it: large models, small ones, a model in 100 parts, and every kind of broken file.
fn folder() {
    let dir = tempfile::tempdir().unwrap();
    let make = |name: String| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    let (large, small) = (make("a/4b.gguf".to_owned()), make("a/tiny.gguf".to_owned()));
    synthesise("qwen3-4b", &large);
    synthesise("tiny", &small);
    let header = fs::read(&small).unwrap();
    let broken = FILES / 20;
    for n in 2..FILES {
        let path = make(format!("{}/model-{n}.gguf", n % 40));
        match n {
            // One name more of the same file: its header is read again, and is in the page cache as it would be.
            _ if n < FILES / 2 => fs::hard_link(&large, path).unwrap(),
            _ if n < FILES - broken => fs::hard_link(&small, path).unwrap(),
            _ if n % 5 == 0 => fs::write(path, b"").unwrap(),
            _ if n % 5 == 1 => fs::write(path, &header[..header.len().min(n)]).unwrap(),
            _ if n % 5 == 2 => fs::write(path, [b"GGUF".as_slice(), &[255; 60]].concat()).unwrap(),
            _ if n % 5 == 3 => fs::write(path, vec![b'x'; 100_000]).unwrap(),
            _ => fs::write(make(format!("parts/lone-{n}-00001-of-00100.gguf")), &header).unwrap(),
        }
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(dir.path(), make("7/loop".to_owned())).unwrap();
        std::os::unix::fs::symlink("nowhere", make("7/dangling.gguf".to_owned())).unwrap();
    }
    let start = Instant::now();
    let found = GgufModels.list(dir.path()).unwrap();
    let secs = start.elapsed().as_secs_f64();
    let bad = found.iter().filter(|l| l.problem.is_some()).count();
    assert_eq!(bad, broken + usize::from(cfg!(unix)));
    println!(
        "folder of {} files, {bad} of them marked as broken: {secs:.2} s, bound {FOLDER_BOUND_SECS:.0} s",
        found.len()
    );
}

fn synthesise(shape: &str, path: &Path) {
    let request = SynthRequest {
        shape: shape.to_owned(),
        output: path.to_owned(),
        sparse: true,
        seed: 1,
    };
    GgufModels
        .synthesise(&request, &CancelToken::new(), &mut |_, _| {})
        .unwrap();
}

/// Milliseconds of one reading, the identity's digest among it.
fn read(path: &Path) -> f64 {
    let start = Instant::now();
    GgufModels.layout(path).unwrap();
    start.elapsed().as_secs_f64() * 1e3
}

fn with_python(python: &str, path: &Path) -> f64 {
    let mut command = Command::new(python);
    command
        .args(["-c", SCRIPT])
        .arg(path)
        .arg(THEIRS.to_string());
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    median(text.lines().map(|line| line.parse().unwrap()).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
