//! llama-server as a job: started with the stored profile, watched until it is cancelled or ends by itself.

use std::time::Duration;

use crate::ports::{PortError, ServerLoading, ServerStart};

use super::Ports;
use super::job::{Ended, JobContext};
use super::message::{EventKind, JobError};
use super::run::{self, Choice, RunRequest};

/// How often a running server is asked whether it goes on, and the job whether it was cancelled.
const WATCH: Duration = Duration::from_millis(100);

/// Starts the server and stays with it. It ends with a cancel of either kind, or with the server.
///
/// # Errors
/// As `run::prepare`; the server did not start, or ended by itself; cancelled. Its process is reaped.
pub fn perform(
    request: &RunRequest,
    ports: &Ports,
    context: &mut JobContext,
) -> Result<serde_json::Value, Ended> {
    context.started("serve", None, Vec::new(), None);
    let choice = run::choose(request, ports)?;
    for notice in &choice.notices {
        context.emit(EventKind::Notice(notice.clone()));
    }
    let (model, profile) = (
        choice.model.name.clone(),
        choice.profile.as_ref().map(|p| p.id),
    );
    let start = start_of(choice, request);
    let cancel = context.cancel.clone();
    let started = ports
        .servers
        .start(&start, &cancel, &mut |at| loading(at, context));
    let mut server = started.map_err(|e| failed("server-not-started", e, context))?;
    context.emit(EventKind::Serving {
        url: server.url(),
        pid: server.pid(),
        model,
        profile,
    });
    while !context.cancel.is_cancelled() {
        if let Some(error) = server.ended_within(WATCH) {
            return Err(failed("server-ended", error, context));
        }
    }
    Err(cancelled())
}

fn start_of(choice: Choice, request: &RunRequest) -> ServerStart {
    ServerStart {
        runtime: choice.runtime,
        model: choice.model.path,
        model_bytes: choice.model.file_bytes,
        launch: choice.launch,
        extra: request.extra.clone(),
    }
}

/// llama-server does not tell how far it is: what is known is how long it may take.
fn loading(at: ServerLoading, context: &mut JobContext) {
    let doing = if at.listens {
        "loading the model"
    } else {
        "starting llama-server"
    };
    let (elapsed, limit) = (at.elapsed.as_secs(), at.limit.as_secs());
    context.progress(elapsed.min(limit), limit, None, doing);
}

fn failed(code: &str, error: PortError, context: &JobContext) -> Ended {
    if context.cancel.is_cancelled() {
        return cancelled();
    }
    let mut error = JobError::from(error);
    code.clone_into(&mut error.code);
    error.into()
}

fn cancelled() -> Ended {
    Ended::Cancelled {
        kept_runs: 0,
        session: None,
    }
}
