//! The engine's port over [`Server`].

use std::io;
use std::time::{Duration, Instant};

use crate::domain::server::{ServerState, load_limit};
use crate::ports::{
    CancelToken, LiveServer, PortError, PortResult, ServerLoading, ServerStart, Servers,
};
use crate::runtime::failure::classify;
use crate::runtime::process::Ended;

use super::{Server, ServerRequest, StartError, last_lines};

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
}

fn why(ended: io::Result<Ended>) -> PortError {
    match ended {
        Ok(ended) => {
            let failure = classify(&ended);
            PortError {
                headline: format!("llama-server ended by itself: {failure}"),
                hint: Some(failure.class.advice().to_owned()),
                cause: last_lines(&ended),
            }
        }
        Err(error) => PortError::caused("llama-server cannot be watched any more", &error),
    }
}
