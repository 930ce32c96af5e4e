//! Requests to a ready server: streamed or whole, cancelled at any moment, timed as the bytes come.

use std::io::Read as _;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use serde_json::{Value as Json, json};

use crate::domain::server::{
    AnswerReader, ChatMessage, Completion, CompletionRequest, Events, refused, unreadable,
};
use crate::domain::types::{Failure, FailureClass};
use crate::ports::{CancelToken, RequestError, ServerClient};

use super::http::agent;

/// How often a waiting request looks whether its job is to end at once.
const POLL: Duration = Duration::from_millis(20);
/// Bytes per read.
const READ: usize = 16 * 1024;
/// Reads waiting for the reader of the answer; a server that is faster waits.
const READS_WAITING: usize = 64;
/// Longest answer that is no stream, bytes: a whole answer with log-probabilities has a tenth of it.
const MAX_WHOLE: usize = 64 * 1024 * 1024;
/// Longest wait for tokens or a template: no model has a part in them.
const SHORT_LIMIT: Duration = Duration::from_secs(20);

/// Asks the server on one port of 127.0.0.1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Requests {
    pub(super) port: u16,
}

/// What the thread that reads an answer tells.
enum Part {
    /// The status, once its head has come.
    Status(u16),
    /// Bytes, and when they came.
    Bytes(Instant, Vec<u8>),
    /// The body is over.
    End(Instant),
    Broken(Failure),
}

impl Requests {
    /// Sends `body`; the answer is read on a thread of its own, so that waiting for it can be given up. The thread ends with
    /// the connection, at the latest after `limit`.
    fn send(self, path: &str, body: &Json, limit: Duration) -> Result<Receiver<Part>, Failure> {
        let (sender, parts) = bounded(READS_WAITING);
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let body = body.to_string();
        std::thread::Builder::new()
            .name("llama-server answer".to_owned())
            .spawn(move || {
                if let Err(failure) = read(&url, body, limit, &sender) {
                    // Whoever asked may have given up.
                    let _ = sender.send(Part::Broken(failure));
                }
            })
            .map_err(|e| Failure::new(FailureClass::NotStarted, e.to_string()))?;
        Ok(parts)
    }

    /// A question whose answer is one short JSON document.
    fn ask(self, path: &str, body: &Json, cancel: &CancelToken) -> Result<Json, RequestError> {
        let parts = self.send(path, body, SHORT_LIMIT)?;
        let (status, whole, _) = whole(&parts, 0, SHORT_LIMIT, cancel)?;
        document(status, &whole)
    }
}

impl ServerClient for Requests {
    fn complete(
        &self,
        request: &CompletionRequest,
        limit: Duration,
        cancel: &CancelToken,
        on_token: &mut dyn FnMut(),
    ) -> Result<Completion, RequestError> {
        let sent = Instant::now();
        let parts = self.send(request.path(), &request.body(), limit)?;
        let Part::Status(status) = next(&parts, limit, cancel)? else {
            return Err(unreadable("it has no status").into());
        };
        let mut reader = AnswerReader::default();
        if !request.stream || status != OK {
            let (status, body, ended) = whole(&parts, status, limit, cancel)?;
            reader.part(&document(status, &body)?)?;
            let mut answer = reader.finish()?;
            answer.took = ended.saturating_duration_since(sent);
            return Ok(answer);
        }
        let (mut events, mut first) = (Events::default(), None);
        let ended = loop {
            match next(&parts, limit, cancel)? {
                Part::Bytes(at, bytes) => events.bytes(&bytes, &mut |event| {
                    if reader.part(&event)? {
                        first.get_or_insert(at);
                        on_token();
                    }
                    Ok(())
                })?,
                Part::End(at) => break at,
                Part::Broken(failure) => return Err(failure.into()),
                Part::Status(_) => {}
            }
        };
        // A last line without its end is looked at too.
        events.bytes(b"\n\n", &mut |event| reader.part(&event).map(drop))?;
        let mut answer = reader.finish()?;
        answer.first_token = first.map(|at| at.saturating_duration_since(sent));
        answer.took = ended.saturating_duration_since(sent);
        Ok(answer)
    }

    fn tokenize(&self, text: &str, cancel: &CancelToken) -> Result<Vec<u32>, RequestError> {
        let body = json!({"content": text, "add_special": true, "parse_special": true});
        let answer = self.ask("/tokenize", &body, cancel)?;
        let tokens = answer.get("tokens").and_then(Json::as_array);
        let ids = tokens.map(|all| {
            all.iter()
                .map(|t| t.as_u64().and_then(|n| u32::try_from(n).ok()))
                .collect::<Option<Vec<u32>>>()
        });
        ids.flatten()
            .ok_or_else(|| unreadable("/tokenize names no tokens").into())
    }

    fn apply_template(
        &self,
        messages: &[ChatMessage],
        cancel: &CancelToken,
    ) -> Result<String, RequestError> {
        let messages: Vec<Json> = messages.iter().map(ChatMessage::body).collect();
        let answer = self.ask("/apply-template", &json!({"messages": messages}), cancel)?;
        let text = answer.get("prompt").and_then(Json::as_str);
        text.map(str::to_owned)
            .ok_or_else(|| unreadable("/apply-template writes no prompt").into())
    }
}

const OK: u16 = 200;

/// Reads one answer and tells of it as it comes.
fn read(url: &str, body: String, limit: Duration, parts: &Sender<Part>) -> Result<(), Failure> {
    let sent = agent(limit)
        .post(url)
        .content_type("application/json")
        .send(body);
    let mut response = sent.map_err(|e| broken(&e, limit))?;
    // A receiver that is gone has given up: so does this thread.
    let tell = |part| parts.send(part).is_ok();
    if !tell(Part::Status(response.status().as_u16())) {
        return Ok(());
    }
    let mut body = response.body_mut().as_reader();
    let mut buffer = vec![0; READ];
    loop {
        let read = match body.read(&mut buffer) {
            Ok(read) => read,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(broken(&ureq::Error::from(e), limit)),
        };
        let now = Instant::now();
        let part = match read {
            0 => Part::End(now),
            n => Part::Bytes(now, buffer[..n].to_vec()),
        };
        if !tell(part) || read == 0 {
            return Ok(());
        }
    }
}

fn broken(error: &ureq::Error, limit: Duration) -> Failure {
    match error {
        ureq::Error::Timeout(_) => late(limit),
        other => Failure::new(FailureClass::AnswerBroken, other.to_string()),
    }
}

fn late(limit: Duration) -> Failure {
    Failure::new(
        FailureClass::TimedOut,
        format!("no whole answer within {:.0} s", limit.as_secs_f64()),
    )
}

/// The next part; given up when the job is to end at once.
fn next(
    parts: &Receiver<Part>,
    limit: Duration,
    cancel: &CancelToken,
) -> Result<Part, RequestError> {
    let begun = Instant::now();
    loop {
        if cancel.is_now() {
            return Err(RequestError::Cancelled);
        }
        match parts.recv_timeout(POLL) {
            Ok(Part::Broken(failure)) => return Err(failure.into()),
            Ok(part) => return Ok(part),
            // The thread has a limit of its own; this one is for a thread that hangs in name resolution or the like.
            Err(RecvTimeoutError::Timeout) if begun.elapsed() < limit + SHORT_LIMIT => {}
            Err(RecvTimeoutError::Timeout) => return Err(late(limit).into()),
            Err(RecvTimeoutError::Disconnected) => {
                let detail = "the connection ended";
                return Err(Failure::new(FailureClass::AnswerBroken, detail).into());
            }
        }
    }
}

/// The rest of an answer: its status, its body and when it ended.
fn whole(
    parts: &Receiver<Part>,
    mut status: u16,
    limit: Duration,
    cancel: &CancelToken,
) -> Result<(u16, Vec<u8>, Instant), RequestError> {
    let mut body = Vec::new();
    loop {
        match next(parts, limit, cancel)? {
            Part::Status(came) => status = came,
            Part::Bytes(_, bytes) => body.extend(bytes),
            Part::End(at) => return Ok((status, body, at)),
            Part::Broken(failure) => return Err(failure.into()),
        }
        if body.len() > MAX_WHOLE {
            return Err(unreadable("it does not end").into());
        }
    }
}

/// A body as JSON; a status that is none of success is what the server says against the request.
fn document(status: u16, body: &[u8]) -> Result<Json, RequestError> {
    let json: Result<Json, _> = serde_json::from_slice(body);
    if status != OK {
        let said = json.ok().and_then(|j| j.get("error").cloned());
        let said = said.unwrap_or_else(|| json!(format!("status {status}")));
        return Err(refused(&said).into());
    }
    json.map_err(|_| unreadable("it is no JSON").into())
}
