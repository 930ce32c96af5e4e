//! Sensors of this machine (design section 6). A further kind of GPU is a further [`TelemetrySource`] in [`Sensors`].

mod host;

use crate::ports::{Telemetry, TelemetrySource};

pub use host::HostSource;

/// Every sensor Flux can read here.
#[derive(Debug, Clone, Copy)]
pub struct Sensors;

impl Telemetry for Sensors {
    fn sources(&self) -> Vec<Box<dyn TelemetrySource>> {
        HostSource::open()
            .map(|source| Box::new(source) as Box<dyn TelemetrySource>)
            .into_iter()
            .collect()
    }
}
