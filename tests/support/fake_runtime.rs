//! A runtime folder for tests: the simulated llama-bench under the names of llama.cpp, with its script beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use flux::domain::types::{Backend, Bytes, Runtime, RuntimeDevice, RuntimeOrigin};

/// A temporary folder, removed with the value.
pub struct FakeRuntime {
    dir: tempfile::TempDir,
    program_dir: PathBuf,
}

impl FakeRuntime {
    /// A runtime that behaves as `config_toml` scripts (`tests/support/fake_config.rs` has the words).
    pub fn new(config_toml: &str) -> Self {
        Self::in_folder("runtime", config_toml)
    }

    /// The same in a folder of this name.
    pub fn in_folder(name: &str, config_toml: &str) -> Self {
        // Beside the build, so that the links below stay on one file system.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let program_dir = dir.path().join(name);
        fs::create_dir(&program_dir).unwrap();
        let suffix = std::env::consts::EXE_SUFFIX;
        for tool in ["llama-bench", "llama-server"] {
            let to = program_dir.join(format!("{tool}{suffix}"));
            let from = env!("CARGO_BIN_EXE_fake-llama-bench");
            // A link spares a copy, and the "text file busy" of a copy that is started at once.
            fs::hard_link(from, &to)
                .or_else(|_| fs::copy(from, &to).map(drop))
                .unwrap();
        }
        fs::write(program_dir.join("fake-bench.toml"), config_toml).unwrap();
        Self { dir, program_dir }
    }

    /// The runtime's folder.
    #[allow(dead_code, reason = "not every test file needs it")]
    pub fn dir(&self) -> &Path {
        &self.program_dir
    }

    /// A folder around it that goes with it, for the test's own files.
    #[allow(dead_code, reason = "not every test file needs it")]
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// Benchmark processes started so far.
    #[allow(dead_code, reason = "not every test file needs it")]
    pub fn processes(&self) -> u64 {
        fs::metadata(self.program_dir.join("fake-bench.count")).map_or(0, |m| m.len())
    }

    /// The runtime as identification would describe it, with these devices.
    #[allow(dead_code, reason = "not every test file needs it")]
    pub fn runtime(&self, devices: &[(&str, &str)]) -> Runtime {
        let suffix = std::env::consts::EXE_SUFFIX;
        let flags = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        Runtime {
            name: "fake".to_owned(),
            dir: self.program_dir.clone(),
            bench: Some(self.program_dir.join(format!("llama-bench{suffix}"))),
            server: Some(self.program_dir.join(format!("llama-server{suffix}"))),
            build_number: 0,
            build_commit: "unknown".to_owned(),
            version_text: "version: 0.5.0-dev (build 0, commit unknown)".to_owned(),
            digest: "fake".to_owned(),
            backends: BTreeSet::from([Backend::Cpu, Backend::Vulkan]),
            cpu_variant: None,
            devices: devices
                .iter()
                .map(|(id, name)| RuntimeDevice {
                    id: (*id).to_owned(),
                    name: (*name).to_owned(),
                    total: Bytes::mib(8192),
                    free: Bytes::mib(7900),
                })
                .collect(),
            bench_flags: flags(&["--progress", "--verbose", "--flash-attn", "--ubatch-size"]),
            server_flags: BTreeSet::new(),
            bench_defaults: BTreeMap::new(),
            origin: RuntimeOrigin::Added,
            env: BTreeMap::new(),
        }
    }
}
