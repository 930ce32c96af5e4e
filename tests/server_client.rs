//! Requests to a live server (design section 7): what is sent, what is read back, and everything that can go wrong in
//! between, each with a failure of its own and no process left.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use flux::domain::server::{
    AnswerReader, ChatMessage, CompletionRequest, Events, Prompt, Sampling,
};
use flux::domain::types::{Failure, FailureClass};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Everything a stream says, fed in pieces of `step` bytes.
fn read(stream: &[u8], step: usize) -> Result<(Vec<Value>, bool), Failure> {
    let (mut events, mut seen) = (Events::default(), Vec::new());
    let mut reader = AnswerReader::default();
    let mut tokens = false;
    for bytes in stream.chunks(step.max(1)) {
        events.bytes(bytes, &mut |event| {
            tokens |= reader.part(&event)?;
            seen.push(event);
            Ok(())
        })?;
    }
    Ok((seen, tokens))
}

/// As llama-server b11149 sent it, abridged: a chat.
const CHAT: &str = concat!(
    "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n",
    "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"content\":\"Tell\"},\"logprobs\":{\"content\":[",
    "{\"id\":54593,\"token\":\"Tell\",\"bytes\":[84],\"logprob\":-1.361,\"top_logprobs\":[{\"id\":54593,\"token\":\"Tell\",",
    "\"logprob\":-1.361},{\"id\":236820,\"token\":\"<\",\"logprob\":null}]}]}}]}\n\n: a comment\n\n",
    "data: {\"choices\":[{\"finish_reason\":\"length\",\"index\":0,\"delta\":{}}]}\n\n",
    "data: {\"choices\":[],\"usage\":{},\"timings\":{\"cache_n\":0,\"prompt_n\":28,\"prompt_ms\":441.73,\"predicted_n\":5,",
    "\"predicted_ms\":538.454}}\n\ndata: [DONE]\n\n"
);

#[test]
fn a_chat_is_read_whatever_the_pieces_it_comes_in() {
    let whole = read(CHAT.as_bytes(), usize::MAX).unwrap();
    assert_eq!(whole.0.len(), 4);
    for step in [1, 2, 7, 64] {
        assert_eq!(read(CHAT.as_bytes(), step).unwrap(), whole);
    }
    assert_eq!(
        read(CHAT.replace('\n', "\r\n").as_bytes(), 3).unwrap(),
        whole
    );
    let mut reader = AnswerReader::default();
    let brought: Vec<bool> = whole.0.iter().map(|e| reader.part(e).unwrap()).collect();
    assert_eq!(brought, [false, true, false, false], "the role is no token");
    let answer = reader.finish().unwrap();
    assert_eq!(
        (answer.text.as_str(), answer.finish.as_deref()),
        ("Tell", Some("length"))
    );
    assert_eq!(answer.timings.prompt_n, Some(28));
    let place = &answer.probs[0];
    assert_eq!(
        (place.chosen.id, place.chosen.logprob),
        (Some(54593), -1.361)
    );
    let impossible = place.top[1].logprob;
    assert!(impossible.is_infinite() && impossible < 0.0);
}

#[test]
fn a_completion_tells_its_tokens_and_an_error_is_the_servers_own_words() {
    let mut reader = AnswerReader::default();
    let part = json!({"index": 0, "content": "", "tokens": [600], "stop": false});
    assert!(reader.part(&part).unwrap(), "a token without text");
    reader
        .part(&json!({"content": "", "tokens": [], "stop": true, "stop_type": "limit", "new": 1}))
        .unwrap();
    let answer = reader.finish().unwrap();
    assert_eq!(
        (answer.tokens, answer.finish.as_deref()),
        (vec![600], Some("limit"))
    );

    let error = json!({"error": {"code": 400, "message": "context too small"}});
    let failure = AnswerReader::default().part(&error).unwrap_err();
    assert_eq!(failure.to_string(), "request refused: context too small");
    let old = read(b"error: {\"message\":\"slot gone\"}\n\n", 9).unwrap_err();
    assert_eq!(old.to_string(), "request refused: slot gone");
    let broken = AnswerReader::default().finish().unwrap_err();
    assert_eq!(broken.class, FailureClass::AnswerBroken);
}

#[test]
fn garbage_and_endless_answers_are_failures() {
    let class = |stream: &[u8]| read(stream, 4096).unwrap_err().class;
    for odd in [
        &b"<html>fine</html>\n"[..],
        b"data: {oops\n\n",
        b"data: 5\n\n",
        b"data: {\"a\":1}\n\n",
        b"\xff\xfe\n",
    ] {
        assert_eq!(class(odd), FailureClass::AnswerUnreadable);
    }
    let endless = [b"data: ".to_vec(), vec![b'x'; 2 * 1024 * 1024]].concat();
    assert_eq!(class(&endless), FailureClass::AnswerUnreadable);
    let part = json!({"content": "x".repeat(1024 * 1024)});
    let mut reader = AnswerReader::default();
    let ended = (0..6).find_map(|_| reader.part(&part).err()).unwrap();
    assert_eq!(ended.class, FailureClass::AnswerUnreadable);
}

proptest! {
    #[test]
    fn no_bytes_are_a_panic(stream in proptest::collection::vec(any::<u8>(), 0..400), step in 1_usize..50) {
        let _ = read(&stream, step);
    }

    #[test]
    fn no_part_is_a_panic(text in "\\PC{0,80}") {
        let odd = [json!({"choices": text}), json!({"content": {"a": text}, "tokens": text}),
            json!({"choices": [{"delta": text, "logprobs": {"content": [text]}}], "timings": text})];
        for part in odd {
            let mut reader = AnswerReader::default();
            let _ = reader.part(&part);
            let _ = reader.finish();
        }
    }
}

#[test]
fn each_endpoint_is_asked_in_its_own_words() {
    let chat = CompletionRequest {
        n_probs: 3,
        sampling: Sampling::greedy(),
        ..CompletionRequest::new(Prompt::Chat(vec![ChatMessage::user("hi")]), 40, 7)
    };
    assert_eq!(chat.path(), "/v1/chat/completions");
    let body = chat.body();
    assert_eq!(body["messages"], json!([{"role": "user", "content": "hi"}]));
    assert_eq!(
        (&body["max_tokens"], &body["top_logprobs"]),
        (&json!(40), &json!(3))
    );
    assert_eq!(
        (&body["temperature"], &body["cache_prompt"]),
        (&json!(0.0), &json!(false))
    );
    let plain = CompletionRequest::new(Prompt::Text("a b".to_owned()), 32, 7);
    assert_eq!(plain.path(), "/completion");
    let body = plain.body();
    assert_eq!(
        (&body["prompt"], &body["n_predict"]),
        (&json!("a b"), &json!(32))
    );
    assert_eq!(
        (&body["temperature"], &body["seed"]),
        (&json!(0.8), &json!(7))
    );
    assert_eq!(
        (&body["ignore_eos"], &body["stream"]),
        (&json!(true), &json!(true))
    );
}

/// The real client on the simulated server.
#[cfg(feature = "test-support")]
mod live {
    use std::path::PathBuf;
    use std::time::Duration;

    use flux::domain::types::{Bytes, Launch};
    use flux::ports::{
        CancelMode, CancelToken, LiveServer, RequestError, ServerStart, Servers as _,
    };
    use flux::runtime::server::LlamaServers;

    use super::fake_runtime::FakeRuntime;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn thread<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let named = std::thread::Builder::new().name("client".to_owned());
        named.spawn(work).unwrap()
    }

    fn start(fake: &FakeRuntime) -> flux::ports::PortResult<Box<dyn LiveServer>> {
        let request = ServerStart {
            runtime: fake.runtime(&[]),
            model: PathBuf::from("/m/a.gguf"),
            model_bytes: Bytes(1),
            launch: Launch::default(),
            extra: ["-np", "2"].map(str::to_owned).to_vec(),
        };
        LlamaServers.start(&request, &CancelToken::new(), &mut |_| {})
    }

    fn with(act: &str) -> FakeRuntime {
        FakeRuntime::new(&format!(
            "pp = 20000\ntg = 2000\n[[behaviour]]\ndo = {{ server = {act} }}\n"
        ))
    }

    fn request(prompt: Prompt) -> CompletionRequest {
        CompletionRequest::new(prompt, 40, 1)
    }

    fn ask(
        server: &dyn LiveServer,
        limit: Duration,
    ) -> Result<flux::domain::server::Completion, RequestError> {
        let prompt = Prompt::Text("one two three".to_owned());
        server
            .client()
            .complete(&request(prompt), limit, &CancelToken::new(), &mut || {})
    }

    /// The failure of the second answer, which is the first that a script spoils.
    fn failure(act: &str, limit: Duration) -> Failure {
        let fake = with(act);
        let server = start(&fake).unwrap();
        let pid = server.pid();
        ask(server.as_ref(), LIMIT).unwrap();
        let RequestError::Failed(failure) = ask(server.as_ref(), limit).unwrap_err() else {
            panic!("nobody cancelled")
        };
        let failure = server.why(failure);
        drop(server);
        assert!(!PathBuf::from(format!("/proc/{pid}")).exists(), "reaped");
        failure
    }

    #[test]
    fn answers_come_streamed_and_whole_and_are_timed_by_the_client() {
        let fake = FakeRuntime::new("pp = 20000\ntg = 2000\n");
        let server = start(&fake).unwrap();
        let (client, cancel) = (server.client(), CancelToken::new());
        let tokens = client.tokenize("a b c", &cancel).unwrap();
        assert_eq!(tokens.len(), 4, "a start token and three words");
        let chat = vec![ChatMessage::user("tell me of rivers")];
        let text = client.apply_template(&chat, &cancel).unwrap();
        assert_eq!(text, "<|user|> tell me of rivers <|assistant|>");
        for prompt in [Prompt::Chat(chat), Prompt::Text(text)] {
            let mut came = 0;
            let asked = request(prompt.clone());
            let answer = client
                .complete(&asked, LIMIT, &cancel, &mut || came += 1)
                .unwrap();
            assert_eq!(came, 40, "{prompt:?}");
            assert_eq!(answer.timings.decode(40).unwrap().tokens, 39);
            let first = answer.first_token.unwrap();
            assert!(
                first < answer.took && answer.took >= Duration::from_millis(19),
                "{answer:?}"
            );
            let whole = CompletionRequest {
                stream: false,
                n_probs: 2,
                ..asked
            };
            let same = client.complete(&whole, LIMIT, &cancel, &mut || {}).unwrap();
            assert_eq!((same.text, same.first_token), (answer.text, None));
            assert_eq!((same.probs.len(), same.probs[0].top.len()), (40, 2));
        }
        assert_eq!(server.vouch(), Ok(()));
        let raw = server.stop();
        assert!(raw.argv.contains(&"--port".to_owned()), "{raw:?}");
    }

    #[test]
    fn every_fault_has_a_class_of_its_own() {
        let class = |act: &str| failure(&format!("\"{act}\""), LIMIT).class;
        assert_eq!(
            class("dies"),
            FailureClass::DeviceLostTimeout,
            "told by its log"
        );
        assert_eq!(class("hangs-up"), FailureClass::AnswerBroken);
        assert_eq!(class("babbles"), FailureClass::AnswerUnreadable);
        assert_eq!(class("garbage"), FailureClass::AnswerUnreadable);
        assert_eq!(
            failure("\"refuses\"", LIMIT).to_string(),
            "request refused: the request exceeds the available context size"
        );
        let stalled = failure("\"stalls\"", Duration::from_secs(1));
        assert_eq!(stalled.to_string(), "timed out: no whole answer within 1 s");
    }

    #[test]
    fn a_server_that_takes_another_model_is_not_vouched_for() {
        let fake = with("\"switches\"");
        let server = start(&fake).unwrap();
        ask(server.as_ref(), LIMIT).unwrap();
        assert_eq!(server.vouch(), Ok(()));
        ask(server.as_ref(), LIMIT).unwrap();
        assert_eq!(
            server.vouch().unwrap_err().class,
            FailureClass::AnotherServer
        );
        let fake = with("{ model = \"/m/b.gguf\" }");
        let error = start(&fake).err().unwrap();
        assert!(
            error
                .headline
                .contains("its model is /m/b.gguf, not /m/a.gguf"),
            "{error:?}"
        );
    }

    #[test]
    fn a_cancel_ends_a_request_that_nobody_answers() {
        let fake = with("\"stalls\"");
        let server = start(&fake).unwrap();
        ask(server.as_ref(), LIMIT).unwrap();
        let cancel = CancelToken::new();
        let (client, token) = (server.client(), cancel.clone());
        let asked = request(Prompt::Text("x".to_owned()));
        let waiting = thread(move || client.complete(&asked, LIMIT, &token, &mut || {}));
        cancel.cancel(CancelMode::Now);
        assert_eq!(waiting.join().unwrap(), Err(RequestError::Cancelled));
    }

    #[test]
    fn clients_are_answered_beside_each_other() {
        let fake = FakeRuntime::new("pp = 20000\ntg = 400\n");
        let server = start(&fake).unwrap();
        let clients: Vec<_> = (0..2).map(|_| server.client()).collect();
        let asked: Vec<_> = clients
            .into_iter()
            .map(|client| {
                let asked = request(Prompt::Text("x".to_owned()));
                thread(move || client.complete(&asked, LIMIT, &CancelToken::new(), &mut || {}))
            })
            .collect();
        for one in asked {
            assert_eq!(one.join().unwrap().unwrap().timings.predicted_n, Some(40));
        }
    }
}

#[cfg(feature = "test-support")]
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
