//! Short questions to a server on loopback.

use std::io;
use std::time::Duration;

use serde_json::Value as Json;

use crate::domain::server::Answer;

/// Longest wait for one answer: a machine busy loading a model answers late, a hung server never does.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// What came back.
pub(super) struct Reply {
    pub(super) answer: Answer,
    body: String,
}

impl Reply {
    /// For a question that was not asked.
    pub(super) fn none() -> Self {
        Self {
            answer: Answer::NoAnswer,
            body: String::new(),
        }
    }

    /// The body; `null` where it is no JSON.
    pub(super) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// What asks a server on loopback; every question ends within `limit`.
pub(super) fn agent(limit: Duration) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        // A proxy of the environment has no business on loopback.
        .proxy(None)
        // An idle connection may be one to a server that is gone.
        .max_idle_connections(0)
        .build();
    ureq::Agent::new_with_config(config)
}

/// Asks one server.
#[derive(Clone)]
pub(super) struct Client {
    agent: ureq::Agent,
    port: u16,
}

impl Client {
    pub(super) fn new(port: u16) -> Self {
        Self {
            agent: agent(ANSWER_LIMIT),
            port,
        }
    }

    pub(super) fn get(&self, path: &str) -> Reply {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let reply = self.agent.get(url).call().and_then(|mut response| {
            Ok(Reply {
                answer: Answer::Status(response.status().as_u16()),
                body: response.body_mut().read_to_string()?,
            })
        });
        reply.unwrap_or_else(|error| Reply {
            answer: match error {
                ureq::Error::ConnectionFailed => Answer::Refused,
                ureq::Error::Io(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                    Answer::Refused
                }
                _ => Answer::NoAnswer,
            },
            body: String::new(),
        })
    }
}
