//! `flux doctor`: what would spoil a measurement now.

use std::path::Path;

use crate::domain::doctor::{self, Finding};

use super::Ports;
use super::message::JobError;
use super::models;

/// Looks at the machine and advises, the worst first; with a model, also whether it fits into the RAM that is free.
///
/// # Errors
/// The model asked about cannot be read.
pub fn findings(model: Option<&Path>, ports: &Ports) -> Result<Vec<Finding>, JobError> {
    let mut facts = ports.probe.facts(&ports.data_dir);
    for source in &mut ports.telemetry.sources() {
        facts.readings.extend(source.sample());
        facts.absent_sensors.extend(source.absent());
        facts.critical.extend(source.critical());
        source.tell(&mut facts);
    }
    if let Some(model) = model {
        facts.model_needs = Some(models::needs(&ports.models.inspect(model)?).0);
    }
    Ok(doctor::findings(&ports.probe.machine(), &facts))
}
