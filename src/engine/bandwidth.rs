//! What the machine's memories deliver: measured once, stored with its fingerprint, read by the planner.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::fingerprint::fingerprint;
use crate::domain::placement::bandwidth::{Bandwidth, BandwidthProfile};
use crate::domain::types::{Bytes, Fingerprint};
use crate::ports::{
    BandwidthProgress, BandwidthRequest, CancelToken, NoticeLevel, PortError, PortResult,
};

use super::Ports;
use super::install::{ended, to_json};
use super::job::{Ended, JobContext};
use super::lab;
use super::message::{JobError, USAGE};

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BandwidthAsked {
    /// Model, or folder of models, whose disk is measured; `None` takes the disk of the data folder.
    pub disk: Option<PathBuf>,
    /// Software renderers too.
    pub software: bool,
    /// Most bytes of one repetition.
    pub size: Bytes,
}

impl Default for BandwidthAsked {
    fn default() -> Self {
        Self {
            disk: None,
            software: false,
            size: BandwidthRequest::SIZE,
        }
    }
}

/// What was measured, and the key it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The machine's key.
    pub fingerprint: Fingerprint,
    /// What its memories deliver.
    pub profile: BandwidthProfile,
    /// Why it could not be stored.
    pub not_stored: Option<PortError>,
}

/// Measures this machine, which blocks for about ten seconds, and stores the profile.
///
/// # Errors
/// An exported machine; no such model or folder; another Flux measures, or the data folder cannot be written; cancelled.
pub fn measure(
    asked: &BandwidthAsked,
    ports: &Ports,
    cancel: &CancelToken,
    progress: &mut dyn FnMut(BandwidthProgress),
) -> Result<Measured, JobError> {
    let machine = ports.probe.machine();
    if machine.simulated {
        let headline = "bandwidths are measured on this machine, not on an exported one";
        return Err(JobError::new(USAGE, headline).hint("leave --machine or --bandwidth out"));
    }
    let disk = asked.disk.clone().unwrap_or_else(|| ports.data_dir.clone());
    if let Err(e) = disk.metadata() {
        let headline = format!("no such model or folder ({e}): {}", disk.display());
        return Err(JobError::new(USAGE, headline));
    }
    let _alone = ports.store.begin_measuring()?;
    let request = BandwidthRequest {
        at: ports.clock.now(),
        disk,
        scratch: ports.data_dir.clone(),
        ram_available: ports.probe.host().ram_available,
        size: asked.size,
        software: asked.software,
        seed: 0,
    };
    let profile = ports.bandwidth.measure(&request, cancel, progress)?;
    let fingerprint = fingerprint(&machine, None);
    let not_stored = ports.store.append_bandwidth(&fingerprint, &profile).err();
    Ok(Measured {
        fingerprint,
        profile,
        not_stored,
    })
}

/// The newest stored profile of a machine, with what its kernel labs say of reading its cards.
///
/// # Errors
/// The database cannot be read.
pub fn stored(ports: &Ports, fingerprint: &Fingerprint) -> PortResult<Option<BandwidthProfile>> {
    let labs = lab::stored(ports, fingerprint)?;
    let reads: Vec<Bandwidth> = lab::reads(&labs).collect();
    let measured = ports.store.bandwidth(&fingerprint.hash)?;
    let newest = labs.first().filter(|_| !reads.is_empty());
    let begun = newest.map(|lab| BandwidthProfile {
        measured_at: lab.report.measured_at,
        ..BandwidthProfile::default()
    });
    Ok(measured.or(begun).map(|mut profile| {
        profile.paths.extend(reads);
        profile
    }))
}

/// The job: the result is the profile.
///
/// # Errors
/// As [`measure`].
pub(super) fn perform(
    asked: &BandwidthAsked,
    ports: &Ports,
    context: &mut JobContext,
) -> Result<serde_json::Value, Ended> {
    context.started("bandwidth", None, Vec::new(), None);
    let cancel = context.cancel.clone();
    let measured = measure(asked, ports, &cancel, &mut |at| {
        context.progress(at.done, at.total, None, at.doing);
    })
    .map_err(|e| ended(e, context))?;
    if let Some(why) = measured.not_stored {
        let text = format!("the bandwidths are not remembered: {}", why.headline);
        context.notice(NoticeLevel::Warning, "bandwidth-not-stored", text);
    }
    to_json(&measured.profile)
}
