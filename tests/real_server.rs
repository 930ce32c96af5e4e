//! The live-server check on a real llama-server with the real Gemma 3 270M (`.ci/test` brings both; where the package
//! registry does not deliver the model, a synthetic one stands in), and the artefact that varied prompts are there for.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use assert_cmd::Command;
use flux::domain::server::output::{
    OutputCheck, OutputStatus, PROMPTS, compare, output_request, places,
};
use flux::domain::server::speculation::{self, DRAFT};
use flux::domain::server::{
    ChatMessage, Completion, CompletionRequest, LiveRequest, Prompt, Sampling, TokenProbs,
    exact_text,
};
use flux::domain::types::{Bytes, FailureClass, Launch, Runtime, TestSpec, TextKind};
use flux::ports::{CancelToken, LiveServer, ServerStart, Servers as _};
use flux::runtime::server::LlamaServers;
use serde_json::Value;
use tempfile::TempDir;

/// One build is enough here: `real_runtime` goes through all.
fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-runtimes");
    let mut builds: Vec<PathBuf> = std::fs::read_dir(&root)
        .map(|dir| dir.map(|e| e.unwrap().path()).collect())
        .unwrap_or_default();
    builds.sort();
    builds.pop().unwrap_or_else(|| {
        panic!(
            "no llama.cpp in {}: run `.ci/test` once, it brings one",
            root.display()
        )
    })
}

fn json(data: &TempDir, arguments: &[&str]) -> Value {
    let mut flux = Command::cargo_bin("flux").unwrap();
    flux.arg("--data-dir")
        .arg(data.path())
        .arg("--json")
        .args(arguments);
    serde_json::from_slice(&flux.assert().success().get_output().stdout).unwrap()
}

/// The real model's file, as `.ci/test` names it.
const GEMMA: &str = "gemma-3-270m-q4_k_m.gguf";

fn model(data: &TempDir) -> PathBuf {
    let gemma = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/test-models")
        .join(GEMMA);
    if gemma.exists() {
        return gemma;
    }
    synthetic(data)
}

fn synthetic(data: &TempDir) -> PathBuf {
    let made = data.path().join("tiny.gguf");
    if !made.exists() {
        let mut flux = Command::cargo_bin("flux").unwrap();
        flux.arg("--data-dir")
            .arg(data.path())
            .args(["model", "synth", "tiny", "-o"])
            .arg(&made)
            .assert()
            .success();
    }
    made
}

fn start(data: &TempDir, extra: &[&str]) -> Box<dyn LiveServer> {
    let added = json(data, &["runtime", "add", &build().display().to_string()]);
    let runtime: Runtime = serde_json::from_value(added["runtime"].clone()).unwrap();
    let path = model(data);
    let request = ServerStart {
        runtime,
        model_bytes: Bytes(path.metadata().unwrap().len()),
        model: path,
        launch: Launch::default(),
        extra: ["-dev", "none", "-c", "1024", "-np", "1", "-t", "1"]
            .iter()
            .chain(extra)
            .map(ToString::to_string)
            .collect(),
    };
    LlamaServers
        .start(&request, &CancelToken::new(), &mut |_| {})
        .unwrap()
}

/// Requests of this shape are what a naive check and Flux's own look at.
const ASKED: u32 = 256;
const ANSWER: u32 = 32;

fn ask() -> LiveRequest {
    let first = TestSpec {
        n_gen: 1,
        ..TestSpec::prompt(ASKED)
    };
    LiveRequest {
        prompt: ASKED,
        generated: ANSWER,
        tests: vec![first, TestSpec::generation(ANSWER).at_depth(ASKED)],
    }
}

/// A text of so many tokens that only this seed has.
fn prompt(server: &dyn LiveServer, seed: u64) -> Prompt {
    let (client, cancel) = (server.client(), CancelToken::new());
    let made = exact_text(TextKind::Words, seed, ASKED, &mut |text| {
        let whole = client.apply_template(&[ChatMessage::user(text)], &cancel)?;
        Ok::<u32, flux::ports::RequestError>(client.tokenize(&whole, &cancel)?.len() as u32)
    });
    Prompt::Chat(vec![ChatMessage::user(made.unwrap().unwrap())])
}

/// The paper's artefact (section 6): the same request each round, with the server's cache on, gives a gain beyond 100 % to
/// settings that are the very same. Flux takes none of it for a sample.
#[test]
fn the_same_request_each_round_gives_a_huge_gain_that_is_none_and_is_caught() {
    let data = TempDir::new().unwrap();
    let server = start(&data, &[]);
    let (client, cancel) = (server.client(), CancelToken::new());
    let answer = |prompt: Prompt, cache_prompt: bool| {
        let asked = CompletionRequest {
            cache_prompt,
            ..CompletionRequest::new(prompt, ANSWER, 1)
        };
        client
            .complete(&asked, Duration::from_mins(2), &cancel, &mut || {})
            .unwrap()
    };
    let mean = |secs: &[f64]| secs.iter().sum::<f64>() / secs.len() as f64;
    let mut honest = Vec::new();
    for seed in 1..=2 {
        let got = answer(prompt(server.as_ref(), seed), false);
        assert_eq!(
            (got.timings.cache_n, got.timings.prompt_n),
            (Some(0), Some(ASKED)),
            "exactly as long as asked"
        );
        let samples = ask().samples(&got).unwrap();
        honest.push(samples[0] as f64 / 1e9);
    }
    let same = prompt(server.as_ref(), 9);
    answer(same.clone(), true);
    let mut naive = Vec::new();
    for _ in 0..2 {
        let got = answer(same.clone(), true);
        naive.push(got.first_token.unwrap().as_secs_f64());
        let refused = ask().samples(&got).unwrap_err();
        assert_eq!(refused.class, FailureClass::PromptFromCache, "{refused}");
    }
    let gain_pct = 100.0 * (mean(&honest) / mean(&naive) - 1.0);
    let shown = format!("first token {honest:?} s, the same request again {naive:?} s");
    assert!(gain_pct > 100.0, "{gain_pct:.0} %: {shown}");
}

/// A check on the processor, as small as can be judged.
fn check(data: &TempDir, arguments: &[&str]) -> Value {
    let (build, model) = (build(), model(data));
    let (build, model) = (build.to_str().unwrap(), model.to_str().unwrap());
    let on = [
        "serve-check",
        "-m",
        model,
        "--runtime",
        build,
        "--device",
        "cpu",
    ];
    let size = "--gen-tokens 32 --reps 1 --processes 3".split(' ');
    json(
        data,
        &on.into_iter()
            .chain(size)
            .chain(arguments.iter().copied())
            .collect::<Vec<_>>(),
    )
}

#[test]
fn a_check_of_one_setting_counts_only_whole_new_prompts() {
    let data = TempDir::new().unwrap();
    let found = check(
        &data,
        &["--settings", "threads=1", "--prompt-tokens", "128"],
    );
    let verdict = found["verdict"].as_str().unwrap();
    assert!(["improved", "regressed", "unchanged", "inconclusive"].contains(&verdict));
    assert_eq!(found["live"]["chat_template"], true);
    let exported = json(&data, &["export", &found["session"].to_string()]);
    let runs = exported["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 8, "two warm-ups, three servers per arm");
    for run in runs {
        assert_eq!(run["run"]["outcome"]["state"], "valid", "{run}");
        let requests = &run["run"]["outcome"]["tests"][0]["record"]["requests"];
        let [request] = &requests.as_array().unwrap()[..] else {
            panic!("{run}")
        };
        let count = |name: &str| request[name].as_u64().unwrap();
        assert_eq!(
            (count("cache_n"), count("prompt_n"), count("predicted_n")),
            (0, 128, 32)
        );
        let ms = |name: &str| request[name].as_f64().unwrap();
        // The client waits for all that the server computes, and for the way.
        assert!(ms("first_token_ms") >= ms("prompt_ms"), "{request}");
        assert!(ms("first_token_ms") < ms("request_ms"), "{request}");
    }
    let told = runs[0]["run"]["buffers"].as_array();
    assert!(
        told.is_some_and(|b| !b.is_empty()),
        "a warm-up tells its memory"
    );
}

#[test]
fn two_clients_are_answered_by_one_server() {
    let data = TempDir::new().unwrap();
    let found = check(
        &data,
        &[
            "--settings",
            "threads=1",
            "--clients",
            "2",
            "--prompt-tokens",
            "128",
        ],
    );
    let rows = found["live"]["clients"].as_array().unwrap();
    let [row] = &rows[..] else { panic!("{found}") };
    assert_eq!(
        (&row["clients"], &row["total"]["n"], &row["failures"]),
        (&2.into(), &3.into(), &Value::Array(Vec::new()))
    );
    for name in ["total", "each", "first_token_ms", "request_secs"] {
        assert!(row[name]["mean"].as_f64().unwrap() > 0.0, "{row}");
    }
}

/// Greedy answers of one server to the output check's prompts.
fn outputs(extra: &[&str]) -> Vec<Vec<TokenProbs>> {
    let server = start(&TempDir::new().unwrap(), extra);
    let (client, cancel) = (server.client(), CancelToken::new());
    let answer = |text: &str| {
        let asked = output_request(text);
        let limit = Duration::from_mins(3);
        let answer = client.complete(&asked, limit, &cancel, &mut || {});
        places(&answer.unwrap()).unwrap().to_vec()
    };
    PROMPTS.iter().map(|(_, text)| answer(text)).collect()
}

/// Case C42 with real kernels: what rounding does to the output of a real model passes, what a coarse cache does to it is
/// measured, and a model that is computed wrongly is found.
#[test]
fn the_output_check_tells_rounding_from_a_wrong_model() {
    let stock = outputs(&[]);
    let judged = |extra: &[&str], smaller: &[&str]| {
        let answers = outputs(extra);
        let each = PROMPTS.iter().zip(stock.iter().zip(&answers));
        let each = each
            .map(|((name, _), (a, b))| compare(name, a, b))
            .collect();
        let smaller: Vec<String> = smaller.iter().map(ToString::to_string).collect();
        OutputCheck::of(each, &smaller)
    };
    for rounded in [&["-fa", "off"], &["-ub", "16"]] {
        let check = judged(rounded, &[]);
        assert_eq!(
            check.status,
            OutputStatus::Same,
            "{rounded:?}: {}",
            check.reason
        );
    }
    let cache = ["-fa", "on", "-ctk", "q4_0", "-ctv", "q4_0"];
    let coarse = judged(&cache, &["q4_0"]);
    assert!(
        coarse.passes() && coarse.mean.unwrap() > 0.0,
        "{}",
        coarse.reason
    );
    assert!(
        coarse.reason.contains("a KV cache of q4_0"),
        "{}",
        coarse.reason
    );
    if model(&TempDir::new().unwrap()).ends_with(GEMMA) {
        assert_eq!(coarse.status, OutputStatus::Diverges, "{}", coarse.reason);
        // Positions the model was not trained for stand in for a kernel that is wrong.
        let wrong = judged(&["--rope-freq-base", "500"], &[]);
        assert_eq!(wrong.status, OutputStatus::Differs, "{}", wrong.reason);
    }
}

/// A model that drafts for itself: what it finds likeliest it guesses right, and what is sampled, as a check asks, counts.
#[test]
fn a_real_draft_model_guesses_and_the_answer_counts() {
    let data = TempDir::new().unwrap();
    let draft = speculation::args(&format!("{DRAFT} {}", model(&data).display()));
    let draft: Vec<&str> = draft.iter().map(String::as_str).collect();
    let server = start(&data, &draft);
    let answer = |sampling: Option<Sampling>, seed: u64| {
        let asked = CompletionRequest::new(prompt(server.as_ref(), seed), ANSWER, 1);
        let asked = CompletionRequest {
            sampling: sampling.unwrap_or(asked.sampling),
            ..asked
        };
        let (limit, cancel) = (Duration::from_mins(5), CancelToken::new());
        let client = server.client();
        client.complete(&asked, limit, &cancel, &mut || {}).unwrap()
    };
    let guesses = |got: &Completion| {
        let drafted = got.timings.draft_n.unwrap();
        (drafted, got.timings.draft_n_accepted.unwrap())
    };
    let (drafted, accepted) = guesses(&answer(Some(Sampling::greedy()), 5));
    // The two may round a near tie differently: they compute in batches of another size.
    assert!(
        drafted >= 16 && 10 * accepted >= 9 * drafted,
        "{accepted} of {drafted}"
    );
    let sampled = answer(None, 6);
    let (drafted, accepted) = guesses(&sampled);
    assert!(drafted > 0 && accepted < drafted, "{accepted} of {drafted}");
    let samples = ask().samples(&sampled).unwrap();
    assert!(samples.iter().all(|ns| *ns > 0), "{samples:?}");
}

/// The whole check of a draft model with real servers: a pair that takes little time, whatever its guesses are worth.
#[test]
fn a_draft_model_is_checked_from_end_to_end() {
    let data = TempDir::new().unwrap();
    let tiny = synthetic(&data);
    let (build, tiny) = (build(), tiny.to_str().unwrap());
    let found = json(
        &data,
        &[
            "serve-check",
            "--runtime",
            build.to_str().unwrap(),
            "--device",
            "cpu",
            "-m",
            tiny,
            "--draft",
            tiny,
            // Two models that each wait on all processors stand in each other's way.
            "--settings",
            "threads=1",
            "--prompt-tokens",
            "256",
            "--gen-tokens",
            "32",
            "--reps",
            "1",
            "--processes",
            "3",
        ],
    );
    let rows = found["live"]["speculation"].as_array().unwrap();
    let texts: Vec<&str> = rows.iter().map(|r| r["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["code", "prose"]);
    for row in rows {
        assert_eq!(row["kind"], DRAFT);
        assert!(row["verdict"].is_string(), "{row}");
        // A warm-up and three servers, a request each.
        assert_eq!(row["acceptance"]["requests"], 4);
        assert!(row["acceptance"]["drafted"].as_u64().unwrap() > 0, "{row}");
    }
    let exported = json(&data, &["export", &found["session"].to_string()]);
    for run in exported["runs"].as_array().unwrap() {
        assert_eq!(run["run"]["outcome"]["state"], "valid", "{run}");
        let argv = run["run"]["raw"]["argv"].to_string();
        let drafts = argv.contains("--model-draft");
        assert_eq!(drafts, run["planned"]["side"] == "B", "{argv}");
    }
}

/// The paper's second artefact (section 6): n-gram speculation on the request before. Every guess is right, and none of it
/// is a sample.
#[test]
fn speculation_on_a_request_said_again_guesses_all_of_it_and_is_caught() {
    let server = start(&TempDir::new().unwrap(), &["--spec-type", "ngram-mod"]);
    let (client, cancel) = (server.client(), CancelToken::new());
    let story = format!("Go on with this story: {}", PROMPTS[0].1);
    let asked = CompletionRequest {
        sampling: Sampling::greedy(),
        ..CompletionRequest::new(Prompt::Chat(vec![ChatMessage::user(story)]), 96, 1)
    };
    let limit = Duration::from_mins(5);
    let answer = || client.complete(&asked, limit, &cancel, &mut || {}).unwrap();
    answer();
    let again = answer();
    assert_eq!(again.timings.cache_n, Some(0), "the prompt is computed");
    let drafted = again.timings.draft_n.unwrap();
    assert!(drafted >= 16, "{again:?}");
    assert_eq!(again.timings.draft_n_accepted, Some(drafted), "{again:?}");
    let request = LiveRequest {
        prompt: again.timings.prompt_n.unwrap(),
        generated: 96,
        tests: vec![TestSpec::generation(96).at_depth(ASKED)],
    };
    let refused = request.samples(&again).unwrap_err();
    assert_eq!(refused.class, FailureClass::AnswerReplayed, "{refused}");
}
