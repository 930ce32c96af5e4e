//! The kernel lab as a job (paper sections 4.2 and 4.3): measured once, stored as a session of its own kind, read by the
//! planner and by `flux run --explain`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::doctor::{Facts, MemoryBus};
use crate::domain::fingerprint::fingerprint;
use crate::domain::lab::{Card, Kernel, LabEvent, LabReport, Outcome, QueueFindings};
use crate::domain::machine::{Gpu, gpus};
use crate::domain::placement::bandwidth::{Bandwidth, Path};
use crate::domain::text::{bandwidth_words, capitalised};
use crate::domain::types::{
    Backend, Bytes, DeviceKind, Fingerprint, Goal, Machine, ModelInfo, ModelKind, PciAddress,
    Runtime, RuntimeOrigin,
};
use crate::ports::{
    CancelMode, LabRequest, NewSession, NoticeLevel, PortError, PortResult, SessionEnd,
    SessionFilter, SessionKind, SessionState, Standing,
};

use super::Ports;
use super::install::to_json;
use super::job::{Ended, JobContext};
use super::message::{JobError, USAGE};
use super::report::SCHEMA;

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabAsked {
    /// The card: its number in Vulkan's order, a part of its name, its PCI address, or llama.cpp's name for it; `None` takes
    /// the first discrete one.
    pub device: Option<String>,
    /// Fewer sizes and repetitions.
    pub quick: bool,
    /// Most bytes of one buffer.
    pub largest: Bytes,
}

impl Default for LabAsked {
    fn default() -> Self {
        let LabRequest {
            device,
            quick,
            largest,
            ..
        } = LabRequest::default();
        Self {
            device,
            quick,
            largest,
        }
    }
}

/// The fastest reading kernel at the largest size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestRead {
    /// Kernel.
    #[serde(flatten)]
    pub kernel: Kernel,
    /// Bytes it read.
    pub size: Bytes,
    /// Median of the repetitions.
    pub bytes_per_sec: f64,
    /// Share of the theoretical peak, where that is known.
    pub share_of_peak: Option<f64>,
}

/// The document of `flux lab --json`, and the result of a lab's session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabDocument {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The stored session.
    pub session: Option<i64>,
    /// Key of the machine.
    pub fingerprint: String,
    /// Everything measured.
    #[serde(flatten)]
    pub report: LabReport,
    /// What decoding can get of the card's memory at best.
    pub best_read: Option<BestRead>,
    /// What the queue families cost.
    pub queues: Option<QueueFindings>,
}

impl LabDocument {
    fn new(session: Option<i64>, fingerprint: &Fingerprint, report: LabReport) -> Self {
        let peak = report.card.as_ref().and_then(|c| c.peak);
        let best_read = report.best_read().map(|(result, rate)| BestRead {
            kernel: result.kernel,
            size: result.size,
            bytes_per_sec: rate.median,
            share_of_peak: peak.map(|peak| rate.median / peak),
        });
        Self {
            schema: SCHEMA,
            session,
            fingerprint: fingerprint.hash.clone(),
            best_read,
            queues: report.queues(),
            report,
        }
    }

    /// The result in a sentence or two.
    pub fn sentence(&self) -> String {
        let mut sentences = Vec::new();
        if let Some(fault) = &self.report.fault {
            sentences.push(format!("The card failed: {}.", fault.detail));
        }
        if let Some(best) = &self.best_read {
            let share = best.share_of_peak.map_or_else(String::new, |share| {
                format!(", {:.0} % of the theoretical peak", 100.0 * share)
            });
            sentences.push(format!(
                "Reading reached {}{share} ({}, {}).",
                bandwidth_words(best.bytes_per_sec),
                best.kernel,
                best.size
            ));
        }
        if let Some(queues) = &self.queues {
            sentences.push(format!("{}.", capitalised(&queues.verdict)));
        }
        if sentences.is_empty() {
            sentences.push("Nothing was measured.".to_owned());
        }
        sentences.join(" ")
    }
}

/// Measures, stores, and ends with the document.
///
/// # Errors
/// An exported machine; no Vulkan or no such card; another Flux measures; the store cannot be written; cancelled.
pub(super) fn perform(
    asked: &LabAsked,
    ports: &Ports,
    context: &mut JobContext,
) -> Result<serde_json::Value, Ended> {
    let machine = ports.probe.machine();
    if machine.simulated {
        let headline = "the kernel lab measures this machine, not an exported one";
        return Err(JobError::new(USAGE, headline)
            .hint("leave --machine out")
            .into());
    }
    let _alone = ports.store.begin_measuring()?;
    let request = LabRequest {
        device: asked.device.as_ref().map(|wanted| called(wanted, &machine)),
        quick: asked.quick,
        largest: asked.largest,
        ..LabRequest::default()
    };
    let memories = memories(ports);
    let mut work = Work {
        asked,
        memories,
        fingerprint: fingerprint(&machine, None),
        machine,
        ports,
        report: LabReport::begun(ports.clock.now()),
        session: None,
        failed: None,
    };
    let cancel = context.cancel.clone();
    let measured = ports
        .lab
        .measure(&request, &cancel, &mut |event| work.heard(event, context));
    work.ended(measured, context)
}

struct Work<'a> {
    asked: &'a LabAsked,
    memories: Vec<MemoryBus>,
    machine: Machine,
    fingerprint: Fingerprint,
    ports: &'a Ports,
    report: LabReport,
    session: Option<i64>,
    /// The store could not be written.
    failed: Option<PortError>,
}

impl Work<'_> {
    fn heard(&mut self, mut event: LabEvent, context: &mut JobContext) {
        if let LabEvent::Card(card) = &mut event {
            card.peak = card.peak.or_else(|| self.peak(&card.name));
        }
        match &event {
            LabEvent::Card(card) => match self.begin(card) {
                Ok(session) => {
                    self.session = Some(session);
                    context.started("lab", Some(session), Vec::new(), None);
                }
                Err(error) => {
                    self.failed = Some(error);
                    context.cancel.cancel(CancelMode::Now);
                }
            },
            LabEvent::Step { done, total, doing } => context.progress(*done, *total, None, doing),
            LabEvent::Notice(text) => {
                context.notice(NoticeLevel::Info, "lab", text.clone());
            }
            LabEvent::Fault(fault) => {
                let text = format!("the card failed: {}", fault.detail);
                context.notice(NoticeLevel::Warning, "lab-fault", text);
            }
            LabEvent::Kernel(_) | LabEvent::Dispatches(_) => {}
        }
        self.report.record(event);
    }

    /// Theoretical bandwidth of a card of this name; of several, one is like the other.
    fn peak(&self, name: &str) -> Option<f64> {
        let entries = self.machine.vulkan.entries.iter();
        // A second card of the same name bears a number after it.
        let mut same = entries.filter(|entry| name.starts_with(&entry.name));
        let memory = same.find_map(|entry| self.memories.iter().find(|m| Some(m.pci) == entry.pci));
        memory.map(MemoryBus::bytes_per_sec)
    }

    fn begin(&self, card: &Card) -> PortResult<i64> {
        let config = serde_json::to_value(self.asked)
            .map_err(|e| PortError::caused("the lab's request could not be written", &e))?;
        self.ports.store.begin_session(&NewSession {
            kind: SessionKind::Lab,
            started_at: self.report.measured_at,
            fingerprint: self.fingerprint.clone(),
            machine: self.machine.clone(),
            runtime: kernels(),
            model: card_as_model(card),
            goal: Goal::Generation,
            config,
            simulated: false,
            flux_version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    /// Stores what there is, whatever became of the rest.
    fn ended(
        self,
        measured: PortResult<()>,
        context: &mut JobContext,
    ) -> Result<serde_json::Value, Ended> {
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        let document = LabDocument::new(self.session, &self.fingerprint, self.report);
        let result = to_json(&document)?;
        let cancelled = context.cancel.is_cancelled();
        let state = match (&measured, cancelled) {
            (_, true) => SessionState::Cancelled,
            (Ok(()), _) => SessionState::Done,
            (Err(_), _) => SessionState::Failed,
        };
        if let Some(session) = self.session {
            self.ports.store.end_session(
                session,
                &SessionEnd {
                    ended_at: self.ports.clock.now(),
                    state,
                    verdict: None,
                    result: result.clone(),
                },
            )?;
        }
        if cancelled {
            return Err(Ended::Cancelled {
                kept_runs: 0,
                session: self.session,
            });
        }
        measured?;
        Ok(result)
    }
}

/// Names of the GPUs that are no software renderers, as the lab knows them: those of one name bear a number from the second
/// on, `NAME`, `NAME (2)`.
pub fn names(gpus: &[Gpu]) -> Vec<String> {
    let real = gpus.iter().filter(|g| g.kind != DeviceKind::Software);
    let mut seen: Vec<&str> = Vec::new();
    real.map(|gpu| {
        let twins = seen.iter().filter(|name| **name == gpu.name).count();
        seen.push(&gpu.name);
        match twins {
            0 => gpu.name.clone(),
            n => format!("{} ({})", gpu.name, n + 1),
        }
    })
    .collect()
}

/// The lab's name of a card that is called as elsewhere: by PCI address, or as llama.cpp calls it.
fn called(wanted: &str, machine: &Machine) -> String {
    let gpus = gpus(machine);
    let real: Vec<&Gpu> = gpus
        .iter()
        .filter(|g| g.kind != DeviceKind::Software)
        .collect();
    let address = wanted.parse::<PciAddress>().ok();
    let is = |gpu: &&Gpu| {
        let mut indices = gpu.drivers.iter().filter_map(|d| d.llama_index);
        (address.is_some() && gpu.pci == address)
            || indices.any(|n| format!("Vulkan{n}").eq_ignore_ascii_case(wanted))
    };
    let at = real.iter().position(is);
    at.and_then(|at| names(&gpus).into_iter().nth(at))
        .unwrap_or_else(|| wanted.to_owned())
}

/// Clocks and widths of the cards' memories, as far as their sensors' owners tell them.
fn memories(ports: &Ports) -> Vec<MemoryBus> {
    let mut facts = Facts::default();
    for source in &mut ports.telemetry.sources() {
        // A reading opens what is asked.
        source.sample();
        source.tell(&mut facts);
    }
    facts.memories
}

/// What stands in a lab's session for the build measured: Flux's own kernels.
fn kernels() -> Runtime {
    let version = env!("CARGO_PKG_VERSION");
    Runtime {
        name: "Flux's kernels".to_owned(),
        dir: PathBuf::new(),
        bench: None,
        server: None,
        build_number: 0,
        build_commit: String::new(),
        version_text: format!("Flux {version}"),
        digest: format!("flux-kernels-{version}"),
        backends: BTreeSet::from([Backend::Vulkan]),
        cpu_variant: None,
        devices: Vec::new(),
        bench_flags: BTreeSet::new(),
        server_flags: BTreeSet::new(),
        bench_defaults: BTreeMap::new(),
        origin: RuntimeOrigin::Found,
        env: BTreeMap::new(),
    }
}

/// What stands in it for the model: the card.
fn card_as_model(card: &Card) -> ModelInfo {
    ModelInfo {
        path: PathBuf::new(),
        parts: Vec::new(),
        digest: format!("card {}", card.name),
        kind: ModelKind::Model,
        architecture: String::new(),
        name: card.name.clone(),
        parameters: 0,
        tensor_bytes: Bytes(0),
        file_bytes: Bytes(0),
        layers: None,
        context_length: None,
        experts: 0,
        quant_mix: Vec::new(),
        tokenizer: false,
        kv_bytes_per_token_f16: None,
        notices: Vec::new(),
    }
}

/// Sessions looked through: one lab per card and now and then.
const SESSIONS: u32 = 20;

/// The newest lab of every card of the machine with this key, the newest first; those that ended early are left out.
///
/// # Errors
/// The database cannot be read.
pub fn stored(ports: &Ports, fingerprint: &Fingerprint) -> PortResult<Vec<LabDocument>> {
    let filter = SessionFilter {
        kind: Some(SessionKind::Lab),
        standing: Some(Standing::Ended(SessionState::Done)),
        fingerprint: Some(fingerprint.hash.clone()),
        limit: SESSIONS,
        ..SessionFilter::default()
    };
    let mut found: Vec<LabDocument> = Vec::new();
    let mut seen = BTreeSet::new();
    for line in ports.store.find_sessions(&filter)?.lines {
        let end = ports.store.session(line.id)?.and_then(|s| s.end);
        let document = end.and_then(|end| serde_json::from_value(end.result).ok());
        // A document of another Flux is left to `flux show`.
        let Some(document): Option<LabDocument> = document else {
            continue;
        };
        if seen.insert(line.model) {
            found.push(document);
        }
    }
    Ok(found)
}

/// What the newest kernel lab of this machine found of its queue families, in words.
///
/// # Errors
/// The database cannot be read.
pub fn queue_verdict(ports: &Ports) -> PortResult<Option<String>> {
    let key = fingerprint(&ports.probe.machine(), None);
    let found = stored(ports, &key)?.into_iter().find_map(|lab| {
        let (card, queues) = (lab.report.card?, lab.queues?);
        Some((lab.session?, card.name, queues.verdict))
    });
    Ok(found.map(|(session, card, verdict)| format!("{card}: {verdict} (session {session})")))
}

/// What the labs say of reading their cards' memory, as the planner's bandwidth profile has it; only sizes beyond any cache
/// count, and a software renderer reads RAM.
pub(super) fn reads(labs: &[LabDocument]) -> impl Iterator<Item = Bandwidth> {
    labs.iter().filter_map(|lab| {
        let card = lab.report.card.as_ref().filter(|card| !card.software)?;
        let (best, _) = lab.report.best_read()?;
        let Outcome::Measured {
            samples,
            moved,
            dispatches,
        } = &best.outcome
        else {
            return None;
        };
        (best.size >= BEYOND_CACHES_AT_LEAST).then(|| Bandwidth {
            path: Path::DeviceRead,
            device: Some(card.name.clone()),
            samples: samples.clone(),
            bytes: moved * u64::from(*dispatches),
            threads: 1,
        })
    })
}

/// A lab on a card with little free memory reads less than [`crate::domain::lab::BEYOND_CACHES`]; this is still twice the
/// largest cache of a card with so little, the 128 MiB of AMD's RX 6900.
const BEYOND_CACHES_AT_LEAST: Bytes = Bytes(256 << 20);

#[cfg(test)]
mod tests {
    use super::*;

    fn exported(name: &str) -> Machine {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/machines")
            .join(name)
            .join("machine.json");
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
    }

    #[test]
    fn a_card_may_be_called_as_elsewhere() {
        let machine = exported("rx580-2048sp");
        let name = "AMD Radeon RX 580 2048SP";
        for wanted in ["0000:01:00.0", "Vulkan0", "vulkan0"] {
            assert_eq!(called(wanted, &machine), name);
        }
        // Anything else is the lab's own to find.
        for wanted in ["RX 580", "0", "Vulkan7", "0000:02:00.0"] {
            assert_eq!(called(wanted, &machine), wanted);
        }
    }

    #[test]
    fn twins_are_told_apart_as_the_lab_does() {
        let mut found = gpus(&exported("rx580-2048sp"));
        found.extend(found.clone());
        let name = "AMD Radeon RX 580 2048SP";
        assert_eq!(names(&found), [name.to_owned(), format!("{name} (2)")]);
    }
}
