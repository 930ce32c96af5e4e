//! The engine's port over [`Server`].

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::domain::server::{ServerState, identify, load_limit};
use crate::domain::types::{Failure, FailureClass, RawOutput};
use crate::ports::{
    CancelToken, LiveServer, PortError, PortResult, ServerClient, ServerLoading, ServerStart,
    Servers,
};
use crate::runtime::failure::classify;
use crate::runtime::process::Ended;

use super::client::Requests;
use super::http::Client;
use super::{Server, ServerRequest, StartError, last_lines};

/// How long a server that broke an answer off may take to be seen dead: its log is drained and it is reaped meanwhile.
const DYING: Duration = Duration::from_millis(500);

/// llama-servers as children of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct LlamaServers;

impl Servers for LlamaServers {
    fn start(
        &self,
        request: &ServerStart,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(ServerLoading),
    ) -> PortResult<Box<dyn LiveServer>> {
        let begun = Instant::now();
        let limit = load_limit(request.model_bytes);
        let asked = ServerRequest {
            runtime: &request.runtime,
            model: &request.model,
            model_bytes: request.model_bytes,
            launch: &request.launch,
            extra: &request.extra,
        };
        let started = Server::start(&asked, cancel, &mut |state| {
            progress(ServerLoading {
                listens: *state != ServerState::Starting,
                elapsed: begun.elapsed(),
                limit,
            });
        });
        match started {
            Ok(server) => Ok(Box::new(server)),
            Err(StartError::Cancelled) => Err(PortError::new("cancelled")),
            Err(StartError::Failed {
                failure,
                last_lines,
            }) => Err(PortError {
                headline: format!("llama-server did not start: {failure}"),
                hint: Some(failure.class.advice().to_owned()),
                cause: last_lines,
            }),
        }
    }
}

impl LiveServer for Server {
    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    fn pid(&self) -> u32 {
        self.pid()
    }

    fn ended_within(&mut self, limit: Duration) -> Option<PortError> {
        self.process.wait(limit).map(why)
    }

    fn client(&self) -> Arc<dyn ServerClient> {
        Arc::new(Requests { port: self.port })
    }

    fn vouch(&self) -> Result<(), Failure> {
        let client = Client::new(self.port);
        let (props, models) = (client.get("/props"), client.get("/v1/models"));
        // Looked at last: answers count only from a server that outlived them.
        if let Some(ended) = self.process.wait(Duration::ZERO) {
            return Err(death(ended));
        }
        identify(&props.json(), &models.json(), &self.model, self.port)
    }

    fn why(&self, request: Failure) -> Failure {
        self.process.wait(DYING).map_or(request, death)
    }

    fn stop(self: Box<Self>) -> RawOutput {
        let Self {
            process, mut raw, ..
        } = *self;
        if let Ok(ended) = process.end() {
            raw.exit_code = ended.exit_code;
            raw.signal = ended.signal;
            raw.stdout = ended.stdout;
            raw.stderr = ended.stderr;
        }
        raw
    }
}

fn death(ended: &io::Result<Ended>) -> Failure {
    match ended {
        Ok(ended) => classify(ended),
        Err(error) => Failure::new(FailureClass::Crashed, error.to_string()),
    }
}

fn why(ended: &io::Result<Ended>) -> PortError {
    match ended {
        Ok(ended) => {
            let failure = classify(ended);
            PortError {
                headline: format!("llama-server ended by itself: {failure}"),
                hint: Some(failure.class.advice().to_owned()),
                cause: last_lines(ended),
            }
        }
        Err(error) => PortError::caused("llama-server cannot be watched any more", error),
    }
}
