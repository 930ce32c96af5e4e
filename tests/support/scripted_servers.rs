//! llama-servers without processes: every one of them says the same.

use std::sync::Arc;
use std::time::Duration;

use flux::domain::server::output::ANSWER_TOKENS;
use flux::domain::server::{ChatMessage, Completion, CompletionRequest, TokenLogprob, TokenProbs};
use flux::domain::types::{Failure, RawOutput};
use flux::ports::{
    CancelToken, LiveServer, PortError, PortResult, RequestError, ServerClient, ServerLoading,
    ServerStart, Servers,
};

/// Starts servers that agree.
pub struct AgreeingServers;

struct Agrees;

impl Servers for AgreeingServers {
    fn start(
        &self,
        _: &ServerStart,
        _: &CancelToken,
        _: &mut dyn FnMut(ServerLoading),
    ) -> PortResult<Box<dyn LiveServer>> {
        Ok(Box::new(Agrees))
    }
}

impl LiveServer for Agrees {
    fn url(&self) -> String {
        "http://127.0.0.1:1".to_owned()
    }

    fn pid(&self) -> u32 {
        1
    }

    fn ended_within(&mut self, _: Duration) -> Option<PortError> {
        None
    }

    fn client(&self) -> Arc<dyn ServerClient> {
        Arc::new(Self)
    }

    fn vouch(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn why(&self, request: Failure) -> Failure {
        request
    }

    fn stop(self: Box<Self>) -> RawOutput {
        RawOutput::default()
    }
}

impl ServerClient for Agrees {
    fn complete(
        &self,
        _: &CompletionRequest,
        _: Duration,
        _: &CancelToken,
        _: &mut dyn FnMut(),
    ) -> Result<Completion, RequestError> {
        let token = TokenLogprob {
            id: Some(7),
            text: "yes".to_owned(),
            logprob: -0.1,
        };
        let place = TokenProbs {
            chosen: token.clone(),
            top: vec![token],
        };
        Ok(Completion {
            probs: vec![place; ANSWER_TOKENS as usize],
            ..Completion::default()
        })
    }

    fn tokenize(&self, _: &str, _: &CancelToken) -> Result<Vec<u32>, RequestError> {
        Ok(vec![7])
    }

    fn apply_template(
        &self,
        messages: &[ChatMessage],
        _: &CancelToken,
    ) -> Result<String, RequestError> {
        Ok(messages.iter().map(|m| m.content.as_str()).collect())
    }
}
