//! What was measured before: records in files, and this fingerprint's runs in the store.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::bench_record;
use crate::domain::placement::assignment::{ContextParams, Placement};
use crate::domain::placement::devices::Memories;
use crate::domain::placement::layout::ModelLayout;
use crate::domain::placement::learn;
use crate::domain::placement::memory::{Prompts, captured_graphs};
use crate::domain::telemetry::{Metric, SeriesId};
use crate::domain::types::{
    Backend, BufferUse, Bytes, Fingerprint, RunOutcome, RunTelemetry, TestSamples,
};
use crate::ports::SessionFilter;

use super::super::Ports;
use super::super::message::JobError;
use super::super::settings::PLACEMENT;

/// Sessions looked through: what was measured longest ago says least of today.
const SESSIONS: u32 = 100;

/// One run of the store.
pub(super) struct StoredTests {
    pub tests: Vec<TestSamples>,
    pub buffers: Vec<BufferUse>,
    /// Memory of the first GPU that the process took beside the buffers it told of.
    pub beside: Option<Bytes>,
}

impl StoredTests {
    pub fn tests(&self) -> Vec<TestSamples> {
        self.tests.clone()
    }
}

/// Records of llama-bench output.
///
/// # Errors
/// A file that cannot be read or holds no record.
pub(super) fn from_files(files: &[PathBuf]) -> Result<Vec<TestSamples>, JobError> {
    let mut all = Vec::new();
    for file in files {
        let shown = file.display();
        let text = std::fs::read(file)
            .map_err(|e| JobError::new("records", format!("cannot read records ({e}): {shown}")))?;
        let parsed = bench_record::parse(&text);
        if parsed.records.is_empty() {
            let headline = format!("no llama-bench record is in {shown}");
            return Err(
                JobError::new("records", headline).hint("give output of `llama-bench -o jsonl`")
            );
        }
        all.extend(parsed.records.into_iter().map(|record| TestSamples {
            test: record.test,
            samples_ns: record.samples_ns,
            record: record.raw,
            energy: None,
        }));
    }
    Ok(all)
}

/// Valid runs of this machine and build without settings other than a placement.
///
/// # Errors
/// The database cannot be read.
pub(super) fn stored(
    key: &Fingerprint,
    simulated: bool,
    rpc: &[String],
    ports: &Ports,
) -> Result<Vec<StoredTests>, JobError> {
    let filter = SessionFilter {
        fingerprint: Some(key.hash.clone()),
        limit: SESSIONS,
        ..SessionFilter::default()
    };
    let mut found = Vec::new();
    for line in ports.store.find_sessions(&filter)?.lines {
        if line.simulated != simulated {
            continue;
        }
        // With other machines' devices the same words mean other placements.
        if servers(line.id, ports)? != rpc {
            continue;
        }
        // Runs follow each other: the first alone has readings of the machine before it.
        let mut idle = None;
        for head in ports.store.run_heads_with(line.id, PLACEMENT)? {
            let telemetry = head.telemetry.as_deref();
            idle = telemetry.and_then(taken_before).or(idle);
            if let RunOutcome::Valid { tests } = head.outcome
                // A live server's context and buffers are others than llama-bench's.
                && tests.iter().all(|t| t.record["source"] != "llama-server")
            {
                let known = telemetry.zip(idle);
                found.push(StoredTests {
                    beside: known.and_then(|(t, idle)| beside(&head.buffers, t, idle)),
                    tests,
                    buffers: head.buffers,
                });
            }
        }
    }
    Ok(found)
}

/// What a process of this model takes of a GPU beside its buffers and captured graphs: the median of its runs here, since
/// other programs take and give back too, and a test shorter than the sensor's pace is not seen at its most. Of other models'
/// runs, with their graphs, where there are none.
pub(super) fn beside_buffers(
    runs: &[StoredTests],
    layout: &ModelLayout,
    memories: &Memories,
) -> Option<Bytes> {
    let own = runs.iter().filter_map(|run| {
        let graphs = graphs(&run.tests, layout, memories)?;
        Some(run.beside?.saturating_sub(graphs))
    });
    median(own.collect()).or_else(|| median(runs.iter().filter_map(|run| run.beside).collect()))
}

fn median(mut taken: Vec<Bytes>) -> Option<Bytes> {
    taken.sort_unstable();
    taken.get(taken.len() / 2).copied()
}

/// What CUDA's captured graphs took in a run of the model; `None` for other models and for placements that are not told.
fn graphs(tests: &[TestSamples], layout: &ModelLayout, memories: &Memories) -> Option<Bytes> {
    let record = &tests
        .first()
        .filter(|t| learn::is_of(&t.record, layout))?
        .record;
    let placement = learn::placement(record, layout).ok()?;
    let context = learn::context(record);
    let longest = tests.iter().map(|t| u64::from(t.test.n_prompt)).max()?;
    let prompts = Prompts::of(longest, &context);
    Some(captured_graphs(
        layout, &placement, &context, memories, prompts,
    ))
}

/// The sensor of a run's GPU memory.
fn memory_taken(telemetry: &RunTelemetry) -> Option<SeriesId> {
    Some(SeriesId {
        source: telemetry.device.clone()?,
        metric: Metric::VramUsed,
    })
}

/// Bytes of its GPU that were taken before a run began.
fn taken_before(telemetry: &RunTelemetry) -> Option<f64> {
    Some(telemetry.before(&memory_taken(telemetry)?)?.min)
}

/// What a process took of its first GPU beside its buffers, by the GPU's own sensor, with `idle` bytes taken before: the
/// driver's context, pools and graphs.
fn beside(buffers: &[BufferUse], telemetry: &RunTelemetry, idle: f64) -> Option<Bytes> {
    let taken = telemetry.timed(&memory_taken(telemetry)?)?.max - idle;
    let on_gpu = |b: &&BufferUse| Backend::of_device(&b.device).is_some_and(|b| b != Backend::Cpu);
    let first = buffers.iter().filter(on_gpu).map(|b| &b.device).min()?;
    let told = buffers.iter().filter(|b| b.device == *first);
    let told: u64 = told.map(|b| b.total().0).sum();
    Some(Bytes(taken.max(0.0) as u64).saturating_sub(Bytes(told)))
}

/// RPC servers a session used.
fn servers(session: i64, ports: &Ports) -> Result<Vec<String>, JobError> {
    let config = ports.store.config(session)?;
    let named = config.and_then(|c| c.pointer("/target/rpc").cloned());
    Ok(named
        .and_then(|v| serde_json::from_value(v).ok())
        .unwrap_or_default())
}

/// Further models that records were made with, as far as their files are still where llama-bench read them.
pub(super) fn other_models(
    records: &[TestSamples],
    own: &ModelLayout,
    ports: &Ports,
) -> Vec<ModelLayout> {
    let mut tried: Vec<&str> = Vec::new();
    let mut found: Vec<ModelLayout> = Vec::new();
    for samples in records {
        let of = |layout: &ModelLayout| learn::is_of(&samples.record, layout);
        let Some(path) = samples.record["model_filename"].as_str() else {
            continue;
        };
        if of(own) || tried.contains(&path) || found.iter().any(of) {
            continue;
        }
        tried.push(path);
        found.extend(ports.models.layout(path.as_ref()).ok().filter(of));
    }
    found
}

/// Run means of one placement, by test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredPlacement {
    /// Placement.
    pub placement: Placement,
    /// Context, as far as llama-bench's record tells it.
    pub context: ContextParams,
    /// Generation, tokens per second, a mean per run.
    pub tg: Vec<f64>,
    /// Prompt, tokens per second, a mean per run.
    pub pp: Vec<f64>,
}

impl MeasuredPlacement {
    /// Is it this placement, with this micro-batch and these cache types?
    pub fn is(&self, placement: &Placement, context: &ContextParams, layout: &ModelLayout) -> bool {
        let all = layout.n_layer() + 1;
        let offloaded = |p: &Placement| p.n_gpu_layers.map_or(all, |n| n.min(all));
        let same = |a: &Placement, b: &Placement| {
            let plain = |p: &Placement| Placement {
                n_gpu_layers: None,
                ..p.clone()
            };
            offloaded(a) == offloaded(b) && plain(a) == plain(b)
        };
        same(&self.placement, placement)
            && self.context.micro_batch == context.micro_batch
            && self.context.type_k == context.type_k
            && self.context.type_v == context.type_v
    }
}

/// Records of this model by placement; the default test lengths and an empty context alone.
pub(super) fn measured(records: &[TestSamples], layout: &ModelLayout) -> Vec<MeasuredPlacement> {
    let mut found: Vec<MeasuredPlacement> = Vec::new();
    for samples in records.iter().filter(|s| s.test.n_depth == 0) {
        if !learn::is_of(&samples.record, layout) {
            continue;
        }
        let Ok(placement) = learn::placement(&samples.record, layout) else {
            continue;
        };
        let context = learn::context(&samples.record);
        let at = found
            .iter()
            .position(|m| m.is(&placement, &context, layout));
        let at = at.unwrap_or_else(|| {
            found.push(MeasuredPlacement {
                placement,
                context,
                tg: Vec::new(),
                pp: Vec::new(),
            });
            found.len() - 1
        });
        let rates = if samples.test.is_prompt() {
            &mut found[at].pp
        } else {
            &mut found[at].tg
        };
        rates.push(samples.mean_rate());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::types::Spread;

    /// A run of an H200: stock Qwen3 8B, 4,832 MiB of buffers on CUDA0, 5,441 MiB by the sensor, 0 before.
    #[test]
    fn what_a_process_takes_beside_its_buffers_is_the_sensors_figure_less_those() {
        let buffer = |device: &str, mib| BufferUse {
            device: device.to_owned(),
            model: Bytes::mib(mib),
            context: Bytes(0),
            compute: Bytes(0),
        };
        let buffers = [
            buffer("CUDA_Host", 18),
            buffer("CUDA0", 4832),
            buffer("CPU_Mapped", 333),
        ];
        let series = SeriesId {
            source: "0000:00:06.0".to_owned(),
            metric: Metric::VramUsed,
        };
        let always = |mib: u64| {
            let value = Bytes::mib(mib).0 as f64;
            Spread {
                min: value,
                mean: value,
                max: value,
            }
        };
        let told = RunTelemetry {
            device: Some(series.source.clone()),
            timed: vec![(series.clone(), always(5441))],
            before: vec![(series, always(0))],
            doubts: vec![],
        };
        assert_eq!(taken_before(&told), Some(0.0));
        assert_eq!(beside(&buffers, &told, 0.0), Some(Bytes::mib(609)));
        let processor = RunTelemetry {
            device: None,
            ..told
        };
        assert_eq!(beside(&buffers, &processor, 0.0), None);
    }
}
