//! Who answers on a port: the server Flux started, or another program (case C08).

use serde_json::Value as Json;

use crate::domain::types::{Failure, FailureClass};

/// What llama-server says of its models in `/v1/models`.
const OWNER: &str = "llamacpp";

/// Checks that the answers of `/props` and `/v1/models` are those of a llama-server that was started with `model`, the
/// path exactly as it was passed: llama-server repeats it.
///
/// # Errors
/// [`FailureClass::AnotherServer`]; nothing measured on this port may be kept.
pub fn identify(props: &Json, models: &Json, model: &str, port: u16) -> Result<(), Failure> {
    let owners: Vec<&str> = models
        .get("data")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .map(|m| m.get("owned_by").and_then(Json::as_str).unwrap_or(""))
        .collect();
    if owners.is_empty() || owners.iter().any(|o| *o != OWNER) {
        return Err(another_program(port, "it is no llama-server"));
    }
    match props.get("model_path").and_then(Json::as_str) {
        Some(path) if path == model => Ok(()),
        Some(path) => Err(another_program(
            port,
            &format!("its model is {path}, not {model}"),
        )),
        None => Err(another_program(port, "it names no model")),
    }
}

/// The failure of a port on which another program answers, and what told.
pub fn another_program(port: u16, why: &str) -> Failure {
    Failure::new(
        FailureClass::AnotherServer,
        format!("another program answers on port {port}: {why}"),
    )
}
