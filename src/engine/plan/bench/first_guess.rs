//! What a first prediction rests on: bandwidths of this machine, measured before its first benchmark.

use crate::domain::fingerprint::fingerprint;
use crate::domain::types::Machine;
use crate::engine::Ports;
use crate::engine::bandwidth::{self, BandwidthAsked};
use crate::engine::install::ended;
use crate::engine::job::{Ended, JobContext};
use crate::engine::plan::PlanRequest;
use crate::ports::NoticeLevel;

/// Measures the machine's bandwidths where nobody has: predictions from assumed ones were 54 % off on two H200s, those from
/// measured ones 6 to 17 % on one. Ten seconds, of a benchmark of minutes. Were they measured?
///
/// # Errors
/// Cancelled, or the database cannot be read. Bandwidths that cannot be measured stay assumed, and a notice says why.
pub(super) fn measure_bandwidths(
    machine: &Machine,
    request: &PlanRequest,
    ports: &Ports,
    context: &mut JobContext,
) -> Result<bool, Ended> {
    let key = fingerprint(machine, None);
    if machine.simulated || ports.store.bandwidth(&key.hash)?.is_some() {
        return Ok(false);
    }
    let told = "nothing is known of this machine's bandwidths: they are measured first, which takes ten seconds";
    context.notice(NoticeLevel::Info, "bandwidth", told);
    let asked = BandwidthAsked {
        disk: Some(request.model.clone()),
        ..BandwidthAsked::default()
    };
    let cancel = context.cancel.clone();
    let measured = bandwidth::measure(&asked, ports, &cancel, &mut |_| {});
    let why = match measured.map_err(|e| ended(e, context)) {
        Ok(measured) => measured.not_stored.map(|e| e.headline),
        Err(Ended::Failed(e)) => Some(e.headline),
        Err(cancelled) => return Err(cancelled),
    };
    if let Some(why) = &why {
        let told = format!("the bandwidths stay assumed: {why}");
        context.notice(NoticeLevel::Warning, "bandwidth", told);
    }
    Ok(why.is_none())
}
