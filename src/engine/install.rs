//! Jobs that bring something onto the machine: a llama.cpp build, a synthetic model.

use std::fs;

use crate::domain::types::Backend;
use crate::ports::SynthRequest;

use super::Ports;
use super::job::{Ended, JobContext};
use super::message::JobError;
use super::models::models_dir;

/// Steps of an installation are shown in thousandths: it has no natural count.
const INSTALL_TOTAL: u64 = 1000;

/// Installs a build for `backend`; the result is the runtime.
///
/// # Errors
/// As `ports::Runtimes::install`; cancelled.
pub fn install(
    backend: Backend,
    ports: &Ports,
    context: &mut JobContext,
) -> Result<serde_json::Value, Ended> {
    context.started("install", None, Vec::new(), None);
    let cancel = context.cancel.clone();
    let runtime = ports
        .runtimes
        .install(backend, &cancel, &mut |at| {
            let done = at.fraction.map_or(0, |f| (f * INSTALL_TOTAL as f64) as u64);
            context.progress(done, INSTALL_TOTAL, None, &at.step);
        })
        .map_err(|e| ended(e, context))?;
    to_json(&runtime)
}

/// Writes a synthetic model; the result is what its header says.
///
/// # Errors
/// As `ports::Models::synthesise`; cancelled.
pub fn synthesise(
    request: &SynthRequest,
    ports: &Ports,
    context: &mut JobContext,
) -> Result<serde_json::Value, Ended> {
    context.started("synth", None, Vec::new(), None);
    let own_dir = models_dir(&ports.data_dir);
    if request.output.parent() == Some(&own_dir) {
        fs::create_dir_all(&own_dir).map_err(|e| {
            let at = own_dir.display();
            JobError::new(
                "models",
                format!("cannot make the folder for models: {e}: {at}"),
            )
        })?;
    }
    let cancel = context.cancel.clone();
    let model = ports
        .models
        .synthesise(request, &cancel, &mut |done, total| {
            context.progress(done, total, None, "writing random weights");
        })
        .map_err(|e| ended(e, context))?;
    to_json(&model)
}

/// An adapter that was cancelled says so with an error; the protocol says so with an outcome.
pub(super) fn ended(error: impl Into<Ended>, context: &JobContext) -> Ended {
    if context.cancel.is_cancelled() {
        Ended::Cancelled {
            kept_runs: 0,
            session: None,
        }
    } else {
        error.into()
    }
}

/// A result document from a serialisable value.
pub(super) fn to_json(value: &impl serde::Serialize) -> Result<serde_json::Value, Ended> {
    serde_json::to_value(value).map_err(|e| {
        JobError::new("result", format!("the result could not be written: {e}")).into()
    })
}
