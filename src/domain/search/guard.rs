//! The guard and the memory rule: a faster candidate is rejected when it costs something else (paper section 3, rule 5).

use std::collections::BTreeMap;

use crate::domain::stats::GUARD_LOSS_PCT;
use crate::domain::text::{change, change_with_interval};
use crate::domain::types::{Backend, BufferUse, Bytes, Comparison, TestSpec, Verdict};

use super::confirmation::{Confirmation, MemoryUse, Rejection};
use super::goal::Objective;

/// Rejects an improved candidate whose other metrics are, or may be, more than 2 % worse.
pub(super) fn apply_guards(confirmation: &mut Confirmation, objective: &Objective) {
    if confirmation.verdict != Verdict::Improved || confirmation.rejected.is_some() {
        return;
    }
    let judged = |test: &TestSpec| {
        let metric = confirmation.metrics.get(&test.to_string())?;
        verdict_of(*test, &metric.confirmed)
    };
    let worst = objective
        .guards()
        .iter()
        .filter_map(judged)
        .min_by_key(|(rejection, _)| *rejection != Rejection::GuardRegressed);
    if let Some((rejection, reason)) = worst {
        confirmation.rejected = Some(rejection);
        confirmation.reason = reason;
    }
}

/// Why a guarded metric rejects; `None` where it does not.
fn verdict_of(test: TestSpec, c: &Comparison) -> Option<(Rejection, String)> {
    if c.change_pct >= -GUARD_LOSS_PCT {
        return None;
    }
    let what = if test.is_prompt() {
        "prompt speed"
    } else {
        "generation speed"
    };
    let measured = change_with_interval(c.change_pct, c.ci95_pct);
    match c.ci95_pct {
        Some([_, high]) if high < 0.0 => Some((
            Rejection::GuardRegressed,
            format!("rejected: {what} got worse, {test} {measured}"),
        )),
        Some([low, high]) => Some((
            Rejection::GuardUnproven,
            format!(
                "not saved: {what} could not be shown to be unharmed, {test} {measured}; \
                 about {} runs per arm would settle it",
                runs_to_settle(c, high - low)
            ),
        )),
        None => Some((
            Rejection::GuardUnproven,
            format!(
                "not saved: {what} could not be shown to be unharmed, {test} {} ({})",
                change(c.change_pct, 1),
                c.reason
            ),
        )),
    }
}

/// Runs per arm at which the interval would no longer reach from the change to zero: its half-width shrinks with the
/// root of their number.
fn runs_to_settle(c: &Comparison, width_pct: f64) -> u64 {
    let n = c.baseline.n.min(c.candidate.n) as f64;
    let factor = width_pct / 2.0 / c.change_pct.abs();
    (n * factor.powi(2)).ceil().max(n + 1.0) as u64
}

/// What llama.cpp calls several devices that share every tensor (`--split-mode tensor`); the size it tells is the largest
/// share of one of them.
const EACH_DEVICE: &str = "Meta(";

/// Device memory against the limits: buffers of GPU devices only.
pub(super) fn memory_use(
    buffers: &[BufferUse],
    limits: &BTreeMap<String, Bytes>,
) -> Vec<MemoryUse> {
    let mut used: BTreeMap<&str, Bytes> = BTreeMap::new();
    for buffer in buffers {
        let gpu = Backend::of_device(&buffer.device).is_some_and(|b| b != Backend::Cpu);
        if gpu {
            used.entry(&buffer.device).or_default().0 += buffer.total().0;
        } else if buffer.device.starts_with(EACH_DEVICE) {
            for device in limits.keys() {
                used.entry(device).or_default().0 += buffer.total().0;
            }
        }
    }
    let with_limit = used.into_iter().filter_map(|(device, used)| {
        Some(MemoryUse {
            device: device.to_owned(),
            used,
            limit: *limits.get(device)?,
        })
    });
    with_limit.collect()
}

/// The sentence for a device that is over its limit; `None` where all fit.
pub(super) fn over_limit(memory: &[MemoryUse]) -> Option<String> {
    let over = memory.iter().find(|m| m.used > m.limit)?;
    Some(format!(
        "rejected: it needs {} on {}, and {} are free after the reserve",
        over.used, over.device, over.limit
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log of an H200 pair under `--split-mode tensor`: what `Meta()` took, each of the two took.
    #[test]
    fn what_several_devices_share_counts_on_each() {
        let buffer = |device: &str, mib| BufferUse {
            device: device.to_owned(),
            model: Bytes::mib(mib),
            context: Bytes(0),
            compute: Bytes(0),
        };
        let buffers = [
            buffer("CUDA_Host", 17),
            buffer("Meta()", 2569),
            buffer("CPU_Mapped", 334),
        ];
        let limits = ["CUDA0", "CUDA1"].map(|d| (d.to_owned(), Bytes::gib(2)));
        let used = memory_use(&buffers, &limits.into());
        let told: Vec<(&str, Bytes)> = used.iter().map(|m| (m.device.as_str(), m.used)).collect();
        assert_eq!(
            told,
            [("CUDA0", Bytes::mib(2569)), ("CUDA1", Bytes::mib(2569))]
        );
        assert!(over_limit(&used).unwrap().contains("on CUDA0"));
    }
}
