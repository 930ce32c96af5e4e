//! The real `flux` on a simulated runtime and a tiny model, in folders of its own.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use flux::domain::placement::bandwidth::BandwidthProfile;
use flux::domain::types::Fingerprint;
use flux::gguf::GgufModels;
use flux::ports::{CancelToken, Models as _, Store as _, SynthRequest};
use flux::store::{Access, SqliteStore};

use super::bench_runs::{MARK, mark};
use super::fake_runtime::FakeRuntime;

/// Flash attention is 30 % faster, between noisy processes: a search of it alone ends with `improved`.
pub const FLASH_WINS: &str = "process_sd = 0.004\nrepetition_sd = 0.01\n\
    [[effect]]\nwhen = [\"flash_attn=1\"]\npp = 1.1\ntg = 1.3\n";

/// A search of flash attention alone.
pub const ONLY_FLASH: &[&str] = &["--only", "flash-attn", "--processes", "4"];

/// A data folder, a model and a runtime that go away together.
pub struct Bed {
    pub fake: FakeRuntime,
    pub model: PathBuf,
    pub data: PathBuf,
    /// A process whose name spaces `flux` is to run in.
    pub within: Option<u32>,
}

impl Bed {
    /// A command as hints say it: with this bed's data folder.
    pub fn hinted(&self, words: &str) -> String {
        format!("`flux --data-dir {} {words}`", self.data.display())
    }

    /// With a runtime that behaves as `config_toml` scripts.
    pub fn new(config_toml: &str) -> Self {
        let fake = FakeRuntime::new(config_toml);
        let model = fake.scratch().join("tiny.gguf");
        let request = SynthRequest {
            shape: "tiny".to_owned(),
            output: model.clone(),
            sparse: false,
            seed: 0,
        };
        GgufModels
            .synthesise(&request, &CancelToken::new(), &mut |_, _| {})
            .unwrap();
        let data = fake.scratch().join("data");
        Self {
            fake,
            model,
            data,
            within: None,
        }
    }

    /// One whose first session, [`ONLY_FLASH`], kept flash attention.
    pub fn tuned() -> Self {
        let bed = Self::new(FLASH_WINS);
        let result = document(&mut bed.tune(ONLY_FLASH));
        assert_eq!(result["verdict"], "improved");
        bed
    }

    /// `flux` with this data folder, without a home; it and its children bear the mark.
    pub fn flux(&self, args: &[&str]) -> Command {
        self.flux_in(&self.data, args)
    }

    /// The same with another data folder.
    pub fn flux_in(&self, data: &Path, args: &[&str]) -> Command {
        let flux = env!("CARGO_BIN_EXE_flux");
        let mut command = match self.within {
            None => Command::new(flux),
            Some(pid) => {
                let mut command = Command::new("nsenter");
                command.args(["--user", "--mount", "--preserve-credentials", "--target"]);
                command.args([&pid.to_string(), flux]);
                command
            }
        };
        command
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("HOME", self.fake.scratch())
            .env(MARK, mark(self.fake.dir()))
            .arg("--data-dir")
            .arg(data)
            .args(args);
        command
    }

    /// `flux tune` of the model on the runtime.
    pub fn tune(&self, args: &[&str]) -> Command {
        let mut command = self.flux(&["tune", "--json", "--runtime"]);
        command.arg(self.fake.dir()).arg("-m").arg(&self.model);
        command.args(args);
        command
    }

    /// `flux serve-check` of the model on the runtime, with tests of a moment.
    pub fn serve_check(&self, args: &[&str]) -> Command {
        let mut command = self.flux(&["serve-check", "--json", "--runtime"]);
        command.arg(self.fake.dir()).arg("-m").arg(&self.model);
        let small = "--prompt-tokens 300 --gen-tokens 64 --reps 2";
        command.args(small.split(' ')).args(args);
        command
    }

    /// What the first session is exported as.
    pub fn export(&self, args: &[&str]) -> String {
        let output = self.flux(&["export", "1"]).args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// As if this machine's bandwidths had been measured, with nothing found: a benchmark of placements does not begin with it.
    pub fn knows_bandwidths(&self) {
        let scan = document(&mut self.flux(&["scan", "--json"]));
        let of = Fingerprint {
            hash: scan["fingerprint"]["hash"].as_str().unwrap().to_owned(),
            fields: Vec::new(),
        };
        let store = SqliteStore::open(&self.data, Access::Look).unwrap();
        store
            .append_bandwidth(&of, &BandwidthProfile::default())
            .unwrap();
    }

    /// The store, for looking.
    pub fn store(&self) -> SqliteStore {
        SqliteStore::open(&self.data, Access::Look).unwrap()
    }

    /// Files of the data folder, by name.
    pub fn files(&self) -> Vec<String> {
        names(&self.data)
    }
}

/// What a folder holds; nothing where there is none.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The document of a command that must end with 0.
pub fn document(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], 1);
    document
}

/// Asserts that a command failed with this status, nothing on stdout but the same error as JSON, and exactly one
/// `error:`; returns the sentence after it.
pub fn refused(output: &Output, status: i32) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    let errors: Vec<&str> = stderr
        .lines()
        .filter_map(|line| line.strip_prefix("error: "))
        .collect();
    assert_eq!(errors.len(), 1, "{stderr}");
    if !output.stdout.is_empty() {
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["schema"], 1);
        assert_eq!(document["error"]["headline"], errors[0]);
    }
    errors[0].to_owned()
}
