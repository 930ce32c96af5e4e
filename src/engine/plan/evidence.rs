//! What was measured before: records in files, and this fingerprint's runs in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::bench_record;
use crate::domain::placement::assignment::{ContextParams, Placement};
use crate::domain::placement::devices::Memories;
use crate::domain::placement::layout::ModelLayout;
use crate::domain::placement::learn;
use crate::domain::placement::memory::{Prompts, captured_graphs};
use crate::domain::placement::words::fitting;
use crate::domain::telemetry::{Metric, SeriesId};
use crate::domain::types::{
    Backend, BufferUse, Bytes, Fingerprint, RunOutcome, RunTelemetry, TestSamples,
};
use crate::ports::SessionFilter;

use super::super::Ports;
use super::super::message::JobError;
use super::super::settings::PLACEMENT;
use super::super::telemetry::DEFAULT_INTERVAL;

/// Sessions looked through: what was measured longest ago says least of today.
const SESSIONS: u32 = 100;

/// One run of the store.
#[cfg_attr(test, derive(Clone))]
pub(super) struct StoredTests {
    pub tests: Vec<TestSamples>,
    pub buffers: Vec<BufferUse>,
    /// Memory of the first GPU that the process took beside the buffers it told of.
    beside: Option<Beside>,
    /// Its placement, in words; `None` is stock's.
    placed: Option<String>,
    /// Something disturbed it, by its readings.
    is_doubtful: bool,
}

/// What a process took of a GPU beside its buffers.
#[cfg_attr(test, derive(Clone))]
struct Beside {
    session: i64,
    /// The GPU, as llama.cpp calls it.
    device: String,
    bytes: Bytes,
    /// The sensor cannot have missed it at its most.
    seen: bool,
}

impl StoredTests {
    pub fn tests(&self) -> Vec<TestSamples> {
        self.tests.clone()
    }

    /// Model and placement: runs with the same repeat each other.
    fn repeats(&self) -> (Option<String>, Option<String>) {
        let first = self.tests.first();
        let model = first.and_then(|t| t.record["model_filename"].as_str());
        (model.map(str::to_owned), self.placed.clone())
    }
}

/// Leaves out runs that something disturbed where others like them ran undisturbed; so many. A machine that is always busy is
/// learned from as it is.
pub(super) fn leave_out_disturbed(runs: &mut Vec<StoredTests>) -> usize {
    let undisturbed = runs.iter().filter(|run| !run.is_doubtful);
    let undisturbed: BTreeSet<_> = undisturbed.map(StoredTests::repeats).collect();
    let before = runs.len();
    runs.retain(|run| !(run.is_doubtful && undisturbed.contains(&run.repeats())));
    before - runs.len()
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
                let placed = head.planned.settings.0.get(PLACEMENT);
                // A run that fits itself tells of its trials' buffers too.
                let tells = placed.is_none_or(|placed| fitting(placed).is_none());
                let known = telemetry.zip(idle).filter(|_| tells);
                let taken = known.and_then(|(t, idle)| beside(&head.buffers, t, idle));
                found.push(StoredTests {
                    placed: placed.cloned(),
                    is_doubtful: telemetry.is_some_and(|t| !t.doubts.is_empty()),
                    beside: taken.map(|(device, bytes)| Beside {
                        session: line.id,
                        device,
                        bytes,
                        seen: is_seen(&tests),
                    }),
                    tests,
                    buffers: head.buffers,
                });
            }
        }
    }
    Ok(found)
}

/// What a process of this model takes of the first device beside its buffers and captured graphs: the median of its sessions
/// here, since other programs take and give back too. Of other models' sessions, with their graphs, where there are none; and
/// where the sensor may have missed every run at its most, the largest it read.
pub(super) fn beside_buffers(
    runs: &[StoredTests],
    layout: &ModelLayout,
    memories: &Memories,
) -> Option<Bytes> {
    let device = &memories.devices.first()?.id;
    beside_on(device, runs, |tests| graphs(tests, layout, memories))
}

/// The same of one device; `graphs` is what they took in a run of the model asked for, `None` for other models.
fn beside_on(
    device: &str,
    runs: &[StoredTests],
    graphs: impl Fn(&[TestSamples]) -> Option<Bytes>,
) -> Option<Bytes> {
    let all: Vec<(&StoredTests, &Beside)> = runs
        .iter()
        .filter_map(|run| Some((run, run.beside.as_ref()?)))
        .filter(|(_, taken)| taken.device == device)
        .collect();
    let seen = || all.iter().filter(|(_, taken)| taken.seen);
    let own = seen().filter_map(|(run, taken)| {
        let graphs = graphs(&run.tests)?;
        Some((taken.session, taken.bytes.saturating_sub(graphs)))
    });
    let any = || median_of_sessions(seen().map(|(_, taken)| (taken.session, taken.bytes)));
    let largest = || all.iter().map(|(_, taken)| taken.bytes).max();
    median_of_sessions(own).or_else(any).or_else(largest)
}

/// Each session counts once, however many runs it has.
fn median_of_sessions(taken: impl Iterator<Item = (i64, Bytes)>) -> Option<Bytes> {
    let mut sessions: BTreeMap<i64, Vec<Bytes>> = BTreeMap::new();
    for (session, bytes) in taken {
        sessions.entry(session).or_default().push(bytes);
    }
    median(sessions.into_values().filter_map(median).collect())
}

fn median(mut taken: Vec<Bytes>) -> Option<Bytes> {
    taken.sort_unstable();
    taken.get(taken.len() / 2).copied()
}

/// Did a prompt test last as long as the sensor's pace? A shorter one, in which a process takes most, can fall between two
/// readings. In its first repetition graphs are not captured yet.
fn is_seen(tests: &[TestSamples]) -> bool {
    let pace = DEFAULT_INTERVAL.as_nanos();
    let lasted = |t: &TestSamples| t.samples_ns.iter().map(|ns| u128::from(*ns)).sum::<u128>();
    let prompts = tests.iter().filter(|t| t.test.n_prompt > 0);
    prompts
        .filter(|t| t.samples_ns.len() > 1)
        .any(|t| lasted(t) >= pace)
}

/// What CUDA's captured graphs took in a run of the model; `None` for other models and for placements that are not told.
fn graphs(tests: &[TestSamples], layout: &ModelLayout, memories: &Memories) -> Option<Bytes> {
    let record = &tests
        .first()
        .filter(|t| learn::is_of(&t.record, layout))?
        .record;
    let placement = learn::placement(record, layout).ok()?;
    let context = learn::context(record);
    // A depth is read as a prompt is.
    let read = |t: &TestSamples| u64::from(t.test.n_prompt.max(t.test.n_depth));
    let longest = tests.iter().map(read).max()?;
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
fn beside(buffers: &[BufferUse], telemetry: &RunTelemetry, idle: f64) -> Option<(String, Bytes)> {
    let taken = telemetry.timed(&memory_taken(telemetry)?)?.max - idle;
    let on_gpu = |b: &&BufferUse| Backend::of_device(&b.device).is_some_and(|b| b != Backend::Cpu);
    let first = buffers.iter().filter(on_gpu).map(|b| &b.device).min()?;
    let told = buffers.iter().filter(|b| b.device == *first);
    let told: u64 = told.map(|b| b.total().0).sum();
    let bytes = Bytes(taken.max(0.0) as u64).saturating_sub(Bytes(told));
    Some((first.clone(), bytes))
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
    use crate::domain::types::{Spread, TestSpec};

    /// A run with three prompts of so many milliseconds.
    fn run(session: i64, device: &str, mib: u64, prompt_ms: u64) -> StoredTests {
        let tests = vec![TestSamples {
            test: TestSpec::prompt(512),
            samples_ns: vec![prompt_ms * 1_000_000; 3],
            record: serde_json::Value::Null,
            energy: None,
        }];
        StoredTests {
            placed: None,
            is_doubtful: false,
            beside: Some(Beside {
                session,
                device: device.to_owned(),
                bytes: Bytes::mib(mib),
                seen: is_seen(&tests),
            }),
            tests,
            buffers: Vec::new(),
        }
    }

    /// On an H200 most prompts of a 0.6B, of 20 ms, fell between two readings: 347 MiB in the median, where 607 were taken.
    #[test]
    fn what_the_sensor_may_have_missed_is_no_evidence_of_little() {
        let other_model = |_: &[TestSamples]| None;
        let mut runs = vec![run(1, "CUDA0", 344, 20); 9];
        runs.push(run(1, "CUDA0", 607, 20));
        let beside = |runs: &[StoredTests]| beside_on("CUDA0", runs, other_model);
        assert_eq!(beside(&runs), Some(Bytes::mib(607)));
        // One that lasted its quarter of a second says more than all of these.
        runs.push(run(2, "CUDA0", 611, 90));
        assert_eq!(beside(&runs), Some(Bytes::mib(611)));
        assert_eq!(beside_on("Vulkan0", &runs, other_model), None);
        // Of the model itself, less its graphs.
        let own = |_: &[TestSamples]| Some(Bytes::mib(2));
        assert_eq!(beside_on("CUDA0", &runs, own), Some(Bytes::mib(609)));
    }

    /// A browser opened in the third session takes 900 MiB of each of its many runs.
    #[test]
    fn a_session_counts_once_however_many_runs_it_has() {
        let mut runs = vec![run(1, "CUDA0", 609, 100), run(2, "CUDA0", 611, 100)];
        runs.extend(vec![run(3, "CUDA0", 1509, 100); 30]);
        let beside = beside_on("CUDA0", &runs, |_| None);
        assert_eq!(beside, Some(Bytes::mib(611)));
    }

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
        let taken = Some(("CUDA0".to_owned(), Bytes::mib(609)));
        assert_eq!(beside(&buffers, &told, 0.0), taken);
        let processor = RunTelemetry {
            device: None,
            ..told
        };
        assert_eq!(beside(&buffers, &processor, 0.0), None);
    }

    /// A run that something disturbed is no evidence beside one like it that nothing disturbed, and better than none.
    #[test]
    fn disturbed_runs_are_left_out_where_others_like_them_are_not() {
        let of = |placed: Option<&str>, is_doubtful| StoredTests {
            placed: placed.map(str::to_owned),
            is_doubtful,
            ..run(1, "CUDA0", 700, 1000)
        };
        let nine = Some("ngl=9");
        let mut runs = vec![of(None, true), of(None, false), of(nine, true)];
        assert_eq!(leave_out_disturbed(&mut runs), 1);
        let left = runs.iter().map(|r| (r.placed.as_deref(), r.is_doubtful));
        assert_eq!(left.collect::<Vec<_>>(), [(None, false), (nine, true)]);
    }
}
