//! A live server's states, identity and timings (cases C07, C08, C09).
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::time::Duration;

use flux::domain::server::{
    Answer, Child, Observation, ServerState, Timings, identify, load_limit,
};
use flux::domain::types::{Bytes, FailureClass};
use serde_json::{Value, json};

const UP: Answer = Answer::Status(200);
const BUSY: Answer = Answer::Status(503);
const SECOND: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(350);

fn state(health: Answer, props: Answer, elapsed: Duration) -> ServerState {
    let seen = Observation {
        child: Child::Alive,
        health,
        props,
    };
    ServerState::of(&seen, elapsed, LIMIT)
}

#[test]
fn c07_ready_takes_health_and_props_and_a_living_child() {
    let none = Answer::NoAnswer;
    assert_eq!(state(Answer::Refused, none, SECOND), ServerState::Starting);
    assert_eq!(state(none, none, SECOND), ServerState::Loading);
    assert_eq!(state(BUSY, none, SECOND), ServerState::Loading);
    assert_eq!(state(UP, BUSY, SECOND), ServerState::Loading);
    assert_eq!(state(UP, none, SECOND), ServerState::Loading);
    assert_eq!(state(UP, UP, SECOND), ServerState::Ready);
    let dead = Observation {
        child: Child::Exited {
            code: Some(1),
            signal: None,
            last_lines: vec!["exiting due to model loading error".to_owned()],
        },
        health: UP,
        props: UP,
    };
    let exited = ServerState::Exited {
        code: Some(1),
        signal: None,
        last_lines: vec!["exiting due to model loading error".to_owned()],
    };
    assert_eq!(ServerState::of(&dead, SECOND, LIMIT), exited);
    assert_eq!(ServerState::of(&dead, LIMIT + SECOND, LIMIT), exited);
}

#[test]
fn c07_loading_past_a_limit_that_knows_the_file_is_stuck() {
    // 300 s for shaders, and 2.5 GB or 40 GB at 50 MB/s.
    assert_eq!(load_limit(Bytes(2_500_000_000)), LIMIT);
    assert_eq!(
        load_limit(Bytes(40_000_000_000)),
        Duration::from_secs(300 + 800)
    );
    assert_eq!(state(BUSY, Answer::NoAnswer, LIMIT), ServerState::Loading);
    let late = LIMIT + SECOND;
    assert_eq!(state(BUSY, Answer::NoAnswer, late), ServerState::Stuck);
    assert_eq!(state(UP, BUSY, late), ServerState::Stuck);
    assert_eq!(
        state(Answer::Refused, Answer::NoAnswer, late),
        ServerState::Stuck
    );
    assert_eq!(state(UP, UP, late), ServerState::Ready);
}

/// What llama-server answers, abridged.
fn props(model: &str) -> Value {
    json!({"total_slots": 4, "model_path": model, "build_info": "b11669"})
}

fn models(owner: &str) -> Value {
    json!({"object": "list", "data": [{"id": "a", "object": "model", "owned_by": owner}]})
}

#[test]
fn c08_identity_is_the_model_path_and_the_owner() {
    let told = |props: &Value, models: &Value| {
        let failure = identify(props, models, "/m/a.gguf", 8080).unwrap_err();
        assert_eq!(failure.class, FailureClass::AnotherServer);
        failure.detail
    };
    let (a, llama) = (props("/m/a.gguf"), models("llamacpp"));
    assert_eq!(identify(&a, &llama, "/m/a.gguf", 8080), Ok(()));
    assert_eq!(
        told(&props("/m/b.gguf"), &llama),
        "another program answers on port 8080: its model is /m/b.gguf, not /m/a.gguf"
    );
    assert_eq!(
        told(&a, &models("vllm")),
        "another program answers on port 8080: it is no llama-server"
    );
    for odd in [Value::Null, json!([]), json!({"data": []}), json!("ok")] {
        told(&odd, &llama);
        told(&a, &odd);
    }
}

fn c09_timings() -> Timings {
    Timings::parse(&json!({
        "prompt_n": 20016, "prompt_ms": 54790.061, "prompt_per_second": 365.32,
        "predicted_n": 1, "predicted_ms": 0.001, "predicted_per_second": 1_000_000.0, "cache_n": 0
    }))
}

#[test]
fn c09_one_token_is_no_decode_sample_while_the_prompt_is_one() {
    let timings = c09_timings();
    // 20016 / 54.790061 s.
    let prefill = timings.prefill(20_016).unwrap();
    assert!((prefill.rate() - 365.32).abs() < 0.005);
    assert_eq!(prefill.tokens, 20_016);
    for n_predict in [1, 128] {
        let failure = timings.decode(n_predict).unwrap_err();
        assert_eq!(failure.class.words(), "too few tokens");
    }
}

#[test]
fn c09_a_decode_sample_has_32_tokens_and_those_asked_for() {
    let of = |n: u32, ms: f64| Timings {
        predicted_n: Some(n),
        predicted_ms: Some(ms),
        ..Timings::default()
    };
    // The first token is the prompt's: 31 were timed in 1.55 s.
    assert!((of(32, 1550.0).decode(32).unwrap().rate() - 20.0).abs() < 1e-9);
    let class = |timings: Timings, n_predict| timings.decode(n_predict).unwrap_err().class;
    assert_eq!(class(of(31, 1550.0), 31), FailureClass::TooFewTokens);
    assert_eq!(class(of(100, 1550.0), 128), FailureClass::TooFewTokens);
    assert_eq!(class(of(129, 1550.0), 128), FailureClass::WrongTests);
    for ms in [0.0, -1.0, 0.001, f64::NAN, f64::INFINITY] {
        assert_eq!(class(of(128, ms), 128), FailureClass::InvalidSample);
    }
    assert_eq!(class(Timings::default(), 128), FailureClass::Unparsable);
}

#[test]
fn c09_a_prefill_sample_computed_its_whole_prompt() {
    let of = |cache: Option<u32>, n: u32| Timings {
        cache_n: cache,
        prompt_n: Some(n),
        prompt_ms: Some(1000.0),
        ..Timings::default()
    };
    let class = |timings: Timings| timings.prefill(1500).unwrap_err().class;
    // A prompt that is wholly in the cache has its last token computed.
    let cached = of(Some(1499), 1).prefill(1500).unwrap_err();
    assert_eq!(cached.class.words(), "prompt served from cache");
    assert_eq!(class(of(Some(1), 1499)), FailureClass::PromptFromCache);
    // Builds that do not report the cache: the count tells. 1 % of 1500 is 15.
    assert!(of(None, 1500).prefill(1500).is_ok());
    assert!(of(Some(0), 1485).prefill(1500).is_ok());
    assert_eq!(class(of(None, 1484)), FailureClass::TooFewTokens);
    assert_eq!(class(of(Some(0), 1516)), FailureClass::WrongTests);
    assert!(of(Some(0), 10).prefill(8).is_ok());
    assert_eq!(
        of(Some(0), 0).prefill(0).unwrap_err().class,
        FailureClass::TooFewTokens
    );
}

#[test]
fn c09_timings_of_any_shape_are_read_and_never_believed() {
    for odd in [
        json!(null),
        json!([1]),
        json!({}),
        json!({"prompt_n": -1, "prompt_ms": "1", "predicted_n": 1.5, "predicted_ms": null, "cache_n": "0"}),
        json!({"prompt_n": 4_294_967_296_u64}),
    ] {
        assert_eq!(Timings::parse(&odd), Timings::default());
    }
}

/// The real supervisor, with shell scripts in llama-server's place and scripted answers on its port.
#[cfg(all(unix, feature = "test-support"))]
mod live {
    use std::collections::BTreeMap;
    use std::path::Path;

    use flux::domain::types::{Launch, Runtime};
    use flux::ports::{CancelMode, CancelToken};
    use flux::runtime::server::{Server, ServerRequest, StartError};

    use super::bench_runs::{self, alive};
    use super::fake_runtime::FakeRuntime;
    use super::scripted_http::{quiet_port, serve, times};
    use super::shell_runtime::program;
    use super::*;

    /// A child that lives, and listens nowhere.
    const SLEEPS: &str = "exec sleep 600";

    struct Setting {
        fake: FakeRuntime,
        runtime: Runtime,
        launch: Launch,
    }

    impl Setting {
        fn new(script: &str) -> Self {
            let fake = FakeRuntime::new("");
            let mut runtime = fake.runtime(&[]);
            let path = fake.scratch().join("llama-server.sh");
            program(&path, &format!("#!/bin/sh\n{script}\n"));
            runtime.server = Some(path);
            let mark = (bench_runs::MARK.to_owned(), bench_runs::mark(fake.dir()));
            let launch = Launch {
                args: Vec::new(),
                env: BTreeMap::from([mark]),
            };
            Self {
                fake,
                runtime,
                launch,
            }
        }

        fn start_on(
            &self,
            port: u16,
            cancel: &CancelToken,
            progress: &mut dyn FnMut(&ServerState),
        ) -> Result<Server, StartError> {
            let request = ServerRequest {
                runtime: &self.runtime,
                model: Path::new("/m/a.gguf"),
                model_bytes: Bytes(1),
                launch: &self.launch,
                extra: &[],
            };
            Server::start_on(&request, port, cancel, progress)
        }

        /// Why there is no server on this port, after a check that no process is left.
        fn failure(&self, port: u16) -> (FailureClass, String, Vec<String>) {
            let ended = self.start_on(port, &CancelToken::new(), &mut |_| {});
            assert_eq!(alive(&self.fake), [0_u32; 0]);
            match ended.err().unwrap() {
                StartError::Failed {
                    failure,
                    last_lines,
                } => (failure.class, failure.detail, last_lines),
                StartError::Cancelled => panic!("nobody cancelled"),
            }
        }
    }

    #[test]
    fn c07_refused_then_503_then_health_alone_then_ready() {
        let setting = Setting::new(SLEEPS);
        let port = quiet_port();
        let mut states = Vec::new();
        let server = setting
            .start_on(port, &CancelToken::new(), &mut |state| {
                states.push(state.clone());
                if states.len() == 3 {
                    let loading = r#"{"error":{"message":"Loading model","code":503}}"#;
                    let health = [times(4, 503, loading), times(1, 200, "{}")].concat();
                    let props = props("/m/a.gguf").to_string();
                    let props = [times(2, 503, loading), times(1, 200, &props)].concat();
                    let models = times(1, 200, &models("llamacpp").to_string());
                    serve(
                        port,
                        BTreeMap::from([
                            ("/health", health),
                            ("/props", props),
                            ("/v1/models", models),
                        ]),
                    );
                }
            })
            .unwrap();
        let count = |state: ServerState| states.iter().filter(|s| **s == state).count();
        assert_eq!(count(ServerState::Starting), 3);
        assert_eq!(count(ServerState::Loading), 6, "4 × 503, 2 × props 503");
        assert_eq!(states.len(), 10);
        assert_eq!(states.last(), Some(&ServerState::Ready));
        assert_eq!(alive(&setting.fake), [server.pid()]);
        assert!(server.is_alive());
        // Nine looks before the ready one, 50 ms apart: waiting is in the load time.
        assert!(server.load_time() >= Duration::from_millis(450));
        drop(server);
        assert_eq!(alive(&setting.fake), [0_u32; 0]);
    }

    #[test]
    fn c07_a_child_that_ends_while_loading_leaves_its_code_and_last_lines() {
        let setting = Setting::new("echo 'error loading model: bad magic' >&2; exit 7");
        let (class, detail, lines) = setting.failure(quiet_port());
        assert_eq!(class, FailureClass::ModelLoad);
        assert_eq!(detail, "error loading model: bad magic");
        assert_eq!(lines, ["error loading model: bad magic"]);
        let setting = Setting::new("exit 7");
        let (class, detail, _) = setting.failure(quiet_port());
        assert_eq!(class, FailureClass::ExitStatus);
        assert_eq!(detail, "ended with status 7");
    }

    #[test]
    fn c07_cancelling_while_it_loads_ends_the_child() {
        let setting = Setting::new(SLEEPS);
        let cancel = CancelToken::new();
        let ended = setting.start_on(quiet_port(), &cancel, &mut |state| {
            assert_eq!(*state, ServerState::Starting);
            cancel.cancel(CancelMode::AfterSample);
        });
        assert_eq!(ended.err(), Some(StartError::Cancelled));
        assert_eq!(alive(&setting.fake), [0_u32; 0]);
    }

    #[test]
    fn c08_another_program_on_the_port_ends_the_start_and_the_child() {
        let port = quiet_port();
        let other = BTreeMap::from([
            ("/health", times(1, 200, "{}")),
            ("/props", times(1, 200, &props("/m/b.gguf").to_string())),
            ("/v1/models", times(1, 200, &models("llamacpp").to_string())),
        ]);
        serve(port, other);
        let (class, detail, _) = Setting::new(SLEEPS).failure(port);
        assert_eq!(class, FailureClass::AnotherServer);
        assert_eq!(
            detail,
            format!(
                "another program answers on port {port}: its model is /m/b.gguf, not /m/a.gguf"
            )
        );
    }

    #[test]
    fn c08_a_web_page_with_a_health_page_is_no_server() {
        let port = quiet_port();
        let page = times(1, 200, "<html>fine</html>");
        serve(port, BTreeMap::from([("/health", page)]));
        let (class, detail, _) = Setting::new(SLEEPS).failure(port);
        assert_eq!(class, FailureClass::AnotherServer);
        assert_eq!(
            detail,
            format!("another program answers on port {port}: /props gives status 404")
        );
    }

    #[test]
    fn c08_a_child_that_cannot_bind_never_gets_the_others_answers() {
        let port = quiet_port();
        let own_like = BTreeMap::from([
            ("/health", times(1, 200, "{}")),
            ("/props", times(1, 200, &props("/m/a.gguf").to_string())),
            ("/v1/models", times(1, 200, &models("llamacpp").to_string())),
        ]);
        serve(port, own_like);
        let line = "start: couldn't bind HTTP server socket, hostname: 127.0.0.1";
        let setting = Setting::new(&format!("echo \"{line}\" >&2; exit 1"));
        let (class, detail, lines) = setting.failure(port);
        assert_eq!(class, FailureClass::AnotherServer);
        assert_eq!(
            detail,
            format!("another program answers on port {port}: {line}")
        );
        assert_eq!(lines, [line]);
    }

    #[test]
    fn without_a_program_nothing_is_started() {
        let mut setting = Setting::new(SLEEPS);
        setting.runtime.server = Some(setting.fake.scratch().join("gone"));
        let (class, detail, _) = setting.failure(quiet_port());
        assert_eq!(class, FailureClass::NotStarted);
        assert!(detail.ends_with("/gone"), "{detail}");
        setting.runtime.server = None;
        assert_eq!(setting.failure(1).0, FailureClass::NotStarted);
    }
}

#[cfg(all(unix, feature = "test-support"))]
#[path = "support/bench_runs.rs"]
mod bench_runs;
#[cfg(all(unix, feature = "test-support"))]
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[cfg(all(unix, feature = "test-support"))]
#[path = "support/scripted_http.rs"]
mod scripted_http;
#[cfg(all(unix, feature = "test-support"))]
#[path = "support/shell_runtime.rs"]
mod shell_runtime;
