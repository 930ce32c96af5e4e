//! Settings written out for one model on one build: those of the search space, and the placement, which is a setting too but
//! needs the model's own tensor names.

use std::collections::BTreeMap;

use crate::domain::placement::assignment::ContextParams;
use crate::domain::placement::flags::{self, Known};
use crate::domain::placement::layout::ModelLayout;
use crate::domain::placement::words;
use crate::domain::search::{SearchSpace, Tool};
use crate::domain::types::{Launch, Runtime, Settings};

use super::message::JobError;

/// Name of the placement among settings; its value is in the words of [`words`], or [`words::FIT`].
pub const PLACEMENT: &str = "placement";

/// Device memory that llama.cpp's own fitting leaves free, MiB: its default.
const FIT_MARGIN: &str = "1024";

/// The settings without a placement.
pub fn of_space(settings: &Settings) -> Settings {
    settings.without(PLACEMENT)
}

/// Settings as arguments and environment of one tool.
///
/// # Errors
/// A setting the space does not know; a placement that is none, or that the model has no tensors for.
pub fn launch(
    settings: &Settings,
    space: &SearchSpace,
    tool: Tool,
    runtime: &Runtime,
    layout: impl FnOnce() -> Result<ModelLayout, JobError>,
) -> Result<Launch, JobError> {
    let wrong = |e: String| JobError::new("settings", e);
    let own = space
        .launch(&of_space(settings), tool)
        .map_err(|e| wrong(e.to_string()))?;
    let Some(text) = settings.0.get(PLACEMENT) else {
        return Ok(own);
    };
    let mut args = if let Some(margin) = words::fitting(text) {
        fit_args(tool, margin)
    } else {
        let read = words::parse(text, &ContextParams::default()).map_err(wrong)?;
        let flags = match tool {
            Tool::Bench => &runtime.bench_flags,
            Tool::Server => &runtime.server_flags,
        };
        let known = Known { tool, flags };
        flags::args(&read.placement, &read.context, &layout()?, known)
            .map_err(|e| wrong(e.to_string()))?
    };
    // What the space sets comes last and so wins: the search tunes on the placement.
    args.extend(own.args);
    Ok(Launch { args, env: own.env })
}

/// llama-server fits by itself unless told otherwise.
fn fit_args(tool: Tool, margin: Option<&str>) -> Vec<String> {
    match (tool, margin) {
        (Tool::Server, None) => Vec::new(),
        (_, margin) => vec!["-fitt".to_owned(), margin.unwrap_or(FIT_MARGIN).to_owned()],
    }
}

/// Do these settings leave work to a GPU? A placement may keep everything in RAM.
pub fn offloads(settings: &Settings) -> bool {
    let Some(text) = settings
        .0
        .get(PLACEMENT)
        .filter(|t| words::fitting(t).is_none())
    else {
        return true;
    };
    let read = words::parse(text, &ContextParams::default());
    read.map_or(true, |w| w.placement.n_gpu_layers != Some(0))
}

/// Record fields that must read back for a placement.
///
/// # Errors
/// A placement that is none.
pub fn expectations(
    settings: &Settings,
    space: &SearchSpace,
) -> Result<BTreeMap<String, serde_json::Value>, JobError> {
    let mut fields = space
        .expectations(&of_space(settings))
        .map_err(|e| JobError::new("settings", e.to_string()))?;
    let placed = settings
        .0
        .get(PLACEMENT)
        .filter(|t| words::fitting(t).is_none());
    if let Some(text) = placed {
        let read = words::parse(text, &ContextParams::default())
            .map_err(|e| JobError::new("settings", e))?;
        let mut expect = |field: &str, value: serde_json::Value| {
            fields.entry(field.to_owned()).or_insert(value);
        };
        if let Some(layers) = read.placement.n_gpu_layers {
            expect("n_gpu_layers", layers.into());
        }
        expect("n_ubatch", read.context.micro_batch.into());
        expect("type_k", read.context.type_k.into());
        expect("type_v", read.context.type_v.into());
    }
    Ok(fields)
}
