//! The whole job on real llama.cpp builds with a small synthetic model. `.ci/test` brings the builds.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use flux::domain::server::{CompletionRequest, Prompt, ServerState};
use flux::domain::types::{Bytes, Launch, Runtime};
use flux::ports::{CancelToken, LiveServer};
use flux::runtime::server::{Server, ServerRequest};
use serde_json::Value;
use tempfile::TempDir;

/// Where `.ci/test` unpacks or builds llama.cpp.
fn builds() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-runtimes");
    let listed = std::fs::read_dir(&root).map(|dir| dir.map(|e| e.unwrap().path()).collect());
    let builds: Vec<PathBuf> = listed.unwrap_or_default();
    let shown = root.display();
    assert!(
        !builds.is_empty(),
        "no llama.cpp in {shown}: run `.ci/test` once, it brings one"
    );
    builds
}

fn flux(data: &TempDir, arguments: &[&str]) -> assert_cmd::assert::Assert {
    Command::cargo_bin("flux")
        .unwrap()
        .arg("--data-dir")
        .arg(data.path())
        .args(arguments)
        .assert()
}

fn json(data: &TempDir, arguments: &[&str]) -> Value {
    let output = flux(data, &[&["--json"], arguments].concat()).success();
    serde_json::from_slice(&output.get_output().stdout).unwrap()
}

fn tiny(dir: &TempDir) -> String {
    let model = dir
        .path()
        .join("it's a \"model\" & 100% (v1) #2.gguf")
        .display()
        .to_string();
    flux(dir, &["model", "synth", "tiny", "-o", &model]).success();
    model
}

#[test]
fn every_build_is_known_by_running_it() {
    let data = TempDir::new().unwrap();
    for build in builds() {
        let folder = build.display().to_string();
        let added = json(&data, &["runtime", "add", &folder]);
        let text = added.to_string();
        assert!(text.contains("\"cpu\""), "{text}");
    }
    let listed = json(&data, &["runtime", "list"]);
    let runtimes = listed["runtimes"].as_array().unwrap();
    assert!(runtimes.len() >= builds().len(), "{listed}");
    let digests: std::collections::BTreeSet<&str> = runtimes
        .iter()
        .map(|r| r["digest"].as_str().unwrap())
        .collect();
    assert_eq!(
        digests.len(),
        runtimes.len(),
        "a digest names one build: {listed}"
    );
}

#[test]
fn a_session_on_every_build_ends_with_a_verdict_and_every_sample_stored() {
    for build in builds() {
        let data = TempDir::new().unwrap();
        let model = tiny(&data);
        let folder = build.display().to_string();
        let result = json(
            &data,
            &[
                "tune",
                "-m",
                &model,
                "--runtime",
                &folder,
                "--device",
                "cpu",
                "--only",
                "poll",
                "--processes",
                "4",
                "--prompt-tokens",
                "32",
                "--gen-tokens",
                "8",
            ],
        );
        assert_eq!(result["schema"], 1);
        let verdict = result["verdict"].as_str().unwrap();
        assert!(["improved", "regressed", "unchanged", "inconclusive"].contains(&verdict));
        // A profile exactly when the verdict is improved and nothing rejected it.
        assert!(
            result["profile"].is_null() || verdict == "improved",
            "{result}"
        );
        let session = result["session"].to_string();
        let exported = json(&data, &["export", &session]);
        let runs = exported["runs"].as_array().unwrap();
        assert!(runs.len() >= 6, "{exported}");
        for run in runs {
            let state = &run["run"]["outcome"]["state"];
            // On a machine that is busy with other tests a candidate may look hopeless.
            if run["planned"]["stage"] == "screening" && state == "stopped-early" {
                continue;
            }
            assert_eq!(state, "valid", "{run}");
            for test in run["run"]["outcome"]["tests"].as_array().unwrap() {
                let asked = run["planned"]["repetitions"].as_u64().unwrap();
                assert_eq!(test["samples_ns"].as_array().unwrap().len() as u64, asked);
            }
        }
        flux(
            &data,
            &["run", "-m", &model, "--runtime", &folder, "--print"],
        )
        .success();
    }
}

#[test]
fn a_server_on_every_build_gets_ready_answers_and_leaves_no_process() {
    let data = TempDir::new().unwrap();
    let model = PathBuf::from(tiny(&data));
    for build in builds() {
        let added = json(&data, &["runtime", "add", &build.display().to_string()]);
        let runtime: Runtime = serde_json::from_value(added["runtime"].clone()).unwrap();
        let request = ServerRequest {
            runtime: &runtime,
            model: &model,
            model_bytes: Bytes(model.metadata().unwrap().len()),
            launch: &Launch::default(),
            // Another address is overruled.
            extra: &["-c", "256", "--port", "1"].map(String::from),
        };
        let mut states = Vec::new();
        let server = Server::start(&request, &CancelToken::new(), &mut |state| {
            states.push(state.clone());
        })
        .unwrap();
        assert_eq!(states.pop(), Some(ServerState::Ready));
        let before = [ServerState::Starting, ServerState::Loading];
        assert!(states.iter().all(|s| before.contains(s)), "{states:?}");

        let cancel = CancelToken::new();
        let client = LiveServer::client(&server);
        let text = "one two three four five six seven";
        let tokens = client.tokenize(text, &cancel).unwrap().len() as u32;
        let asked = CompletionRequest::new(Prompt::Text(text.to_owned()), 64, 1);
        let mut came = 0;
        let limit = std::time::Duration::from_mins(2);
        let answer = client
            .complete(&asked, limit, &cancel, &mut || came += 1)
            .unwrap();
        assert_eq!(answer.timings.prompt_n, Some(tokens), "{answer:?}");
        assert_eq!(answer.timings.decode(64).unwrap().tokens, 63);
        // Some builds hold the last token back until its text is whole.
        assert!((63..=64).contains(&came), "each as it comes: {came}");
        assert_eq!(answer.tokens.len(), came);
        assert!(answer.first_token.unwrap() < answer.took);
        server.vouch().unwrap();

        let process = PathBuf::from(format!("/proc/{}", server.pid()));
        assert!(process.exists() || !cfg!(target_os = "linux"));
        assert!(server.is_alive());
        server.stop().unwrap();
        assert!(!process.exists(), "reaped");
    }
}
