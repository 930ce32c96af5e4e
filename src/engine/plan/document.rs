//! The plan as `flux plan --json` prints it (design section 2): bytes, tokens per second, and how each number is known.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::domain::placement::assignment::HostTensors;
use crate::domain::placement::fit::Residual;
use crate::domain::placement::flags::{self, Known, RuleError};
use crate::domain::placement::memory::{DeviceMemory, HOST_ID};
use crate::domain::placement::planner::{Candidate, Predicted, Tier};
use crate::domain::placement::speed::Status;
use crate::domain::search::Tool;
use crate::ports::Notice;

use super::super::message::JobError;
use super::super::report::{ModelDocument, SCHEMA};
use super::{BenchDocument, MeasuredPlacement, PlanBase, PredictionError};

/// `flux plan --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanDocument {
    /// Version of the document.
    pub schema: u32,
    /// The machine planned for.
    pub machine: MachineDocument,
    /// The model.
    pub model: ModelDocument,
    /// What is known of the machine's speed.
    pub fit: FitDocument,
    /// The best of each tier, the fastest first.
    pub candidates: Vec<CandidateDocument>,
    /// Answers to `--predict`, in order.
    pub predictions: Vec<CandidateDocument>,
    /// The plan; `None` where nothing fits.
    pub chosen: Option<CandidateDocument>,
    /// Why there is none, each a sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nothing_fits: Vec<String>,
    /// What benchmarking came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bench: Option<BenchDocument>,
    /// What the user should know.
    pub notices: Vec<Notice>,
}

/// The machine planned for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineDocument {
    /// Its key, with the build.
    pub fingerprint: String,
    /// An exported machine.
    pub simulated: bool,
    /// The build, where one is known.
    pub runtime: Option<String>,
    /// Variables kept with the build.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Devices, by id and name.
    pub devices: Vec<(String, String)>,
    /// The processor.
    pub cpu: String,
}

/// What is known of the machine's speed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FitDocument {
    /// Every constant with how it is known.
    pub constants: Vec<ConstantDocument>,
    /// Mean absolute error of generation, percent of the measured rate; `None` without runs.
    pub mean_abs_error_pct: Option<f64>,
    /// The same of prompts.
    pub prompt_mean_abs_error_pct: Option<f64>,
    /// Benchmarks of this machine it rests on.
    pub runs: usize,
    /// Of which models they are, this one first.
    pub models: Vec<ModelRuns>,
    /// Predicted against measured, benchmark by benchmark of this model.
    pub residuals: Vec<Residual>,
    /// Errors of the predictions of earlier benchmarks of this machine, the oldest first.
    pub history: Vec<PredictionError>,
}

/// Benchmarks of a model that the fit rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRuns {
    /// The model's name.
    pub model: String,
    /// Benchmarks of it.
    pub runs: usize,
}

/// A constant of the speed model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConstantDocument {
    /// Name.
    pub name: String,
    /// Value in its unit; `None` where it limits nothing.
    pub value: Option<f64>,
    /// Unit.
    pub unit: String,
    /// Measured, fitted or assumed.
    pub status: Status,
    /// Where from; of one that the runs could not tell, why.
    pub origin: String,
}

/// One candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateDocument {
    /// Tier.
    pub tier: Tier,
    /// Placement.
    pub placement: PlacementDocument,
    /// Arguments per tool.
    pub args: ArgsDocument,
    /// Devices in order, then the host.
    pub memory: Vec<MemoryDocument>,
    /// Predicted speed.
    pub predicted: Predicted,
    /// Measured speed.
    pub measured: Option<MeasuredDocument>,
    /// Weights are read from the disk for every token.
    pub streams: bool,
    /// Why it cannot run, each a sentence.
    pub problems: Vec<String>,
}

/// A placement with its context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlacementDocument {
    /// Blocks + output offloaded.
    pub n_gpu_layers: u32,
    /// Layers whose experts stay in RAM.
    pub n_cpu_moe: u32,
    /// Further tensors that stay in RAM.
    pub host_tensors: Vec<HostTensors>,
    /// Shares per device.
    pub tensor_split: Vec<f64>,
    /// The KV cache stays in RAM.
    pub kv_on_host: bool,
    /// Tokens of context.
    pub context: u64,
    /// Tokens of a micro-batch.
    pub micro_batch: u64,
    /// Type of the K cache.
    pub type_k: String,
    /// Type of the V cache.
    pub type_v: String,
}

/// Arguments per tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgsDocument {
    /// For llama-bench; empty where this build's cannot run the placement.
    pub bench: Vec<String>,
    /// For llama-server.
    pub server: Vec<String>,
}

/// What a placement takes of one memory, bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryDocument {
    /// Device id, `Host` for RAM.
    pub device: String,
    /// Weights.
    pub weights: u64,
    /// KV cache and recurrent state.
    pub kv: u64,
    /// Compute buffers, graphs that CUDA captures, and logits on the host.
    pub compute: u64,
    /// All of it.
    pub total: u64,
    /// What a plan may use.
    pub usable: u64,
    /// There is room for it.
    pub fits: bool,
}

/// Measured speed: means over runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredDocument {
    /// Generated tokens per second.
    pub tg: Option<f64>,
    /// Prompt tokens per second.
    pub pp: Option<f64>,
    /// Runs of the generation test.
    pub runs: usize,
}

impl From<&MeasuredPlacement> for MeasuredDocument {
    fn from(measured: &MeasuredPlacement) -> Self {
        let mean = |rates: &[f64]| {
            (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
        };
        Self {
            tg: mean(&measured.tg),
            pp: mean(&measured.pp),
            runs: measured.tg.len(),
        }
    }
}

impl From<&DeviceMemory> for MemoryDocument {
    fn from(memory: &DeviceMemory) -> Self {
        Self {
            device: memory.id.clone(),
            weights: memory.model().0,
            kv: memory.kv.0,
            compute: memory.working().0,
            total: memory.total().0,
            usable: memory.usable.0,
            fits: memory.fits(),
        }
    }
}

impl PlanDocument {
    /// The plan, and answers for `predict`.
    ///
    /// # Errors
    /// A placement to predict that is none, or whose rules match nothing.
    pub fn of(base: &PlanBase, predict: &[String]) -> Result<Self, JobError> {
        let candidates: Vec<CandidateDocument> = base
            .best()
            .iter()
            .map(|c| CandidateDocument::of(c, base))
            .collect::<Result<_, _>>()?;
        let predictions = predict
            .iter()
            .map(|text| CandidateDocument::of(&base.predict(text)?, base))
            .collect::<Result<_, JobError>>()?;
        let devices = base.memories.devices.iter();
        Ok(Self {
            schema: SCHEMA,
            machine: MachineDocument {
                fingerprint: base.fingerprint.hash.clone(),
                simulated: base.machine.simulated,
                runtime: base.runtime.as_ref().map(|r| r.name.clone()),
                env: base
                    .runtime
                    .as_ref()
                    .map(|r| r.env.clone())
                    .unwrap_or_default(),
                devices: devices.map(|d| (d.id.clone(), d.name.clone())).collect(),
                cpu: base.machine.host.cpu.clone(),
            },
            model: ModelDocument {
                name: base.layout.info.name.clone(),
                path: base.layout.info.path.clone(),
                digest: Some(base.layout.info.digest.clone()),
            },
            fit: FitDocument::of(base),
            chosen: candidates.first().cloned(),
            nothing_fits: why_nothing(base, candidates.is_empty()),
            candidates,
            predictions,
            bench: None,
            notices: base.notices.clone(),
        })
    }
}

/// What to do where no placement fits.
pub const MORE_ROOM: &str = "allow more memory, choose a smaller model, or plan for `--device cpu`";

/// Why no placement fits: what the one that needs least of the devices lacks.
pub(super) fn why_nothing(base: &PlanBase, is_so: bool) -> Vec<String> {
    let least = base.predict("ngl=0 repack=0").ok().filter(|_| is_so);
    least.map_or_else(Vec::new, |c| c.misfits)
}

impl FitDocument {
    /// What a plan's base knows.
    pub fn of(base: &PlanBase) -> Self {
        let fit = &base.fit;
        let constants = fit.constants.iter().map(|(constant, known)| {
            let value = constant.shown(known.seconds);
            let unseen = fit.kept.iter().find(|(c, _)| c == constant);
            ConstantDocument {
                name: constant.name(&base.memories),
                value: value.is_finite().then_some(value),
                unit: constant.unit().to_owned(),
                status: known.status,
                origin: unseen.map_or_else(
                    || known.origin.clone(),
                    |(_, why)| format!("{}; {why}", known.origin),
                ),
            }
        });
        Self {
            constants: constants.collect(),
            mean_abs_error_pct: fit.mean_abs_error_pct(false),
            prompt_mean_abs_error_pct: fit.mean_abs_error_pct(true),
            runs: base.benchmarks(),
            models: base
                .runs
                .iter()
                .map(|(model, runs)| ModelRuns {
                    model: model.clone(),
                    runs: *runs,
                })
                .collect(),
            residuals: fit.residuals.clone(),
            history: base.errors.clone(),
        }
    }
}

impl CandidateDocument {
    /// A candidate of `base`.
    ///
    /// # Errors
    /// Rules that match no tensor (case C39).
    pub fn of(candidate: &Candidate, base: &PlanBase) -> Result<Self, JobError> {
        let (placement, context) = (&candidate.placement, &candidate.context);
        let all = base.layout.n_layer() + 1;
        let mut memory: Vec<MemoryDocument> = candidate.memory.iter().map(Into::into).collect();
        if let Some(host) = memory.iter_mut().find(|m| m.device == HOST_ID) {
            host.fits = !candidate.streams && host.fits;
        }
        Ok(Self {
            tier: candidate.tier,
            placement: PlacementDocument {
                n_gpu_layers: placement.offloaded(all - 1, base.memories.devices.len()),
                n_cpu_moe: placement.n_cpu_moe,
                host_tensors: placement.host_tensors.clone(),
                tensor_split: placement.tensor_split.clone(),
                kv_on_host: placement.kv_on_host,
                context: context.context,
                micro_batch: context.micro_batch,
                type_k: context.type_k.clone(),
                type_v: context.type_v.clone(),
            },
            args: ArgsDocument {
                bench: match args(candidate, base, Tool::Bench) {
                    Err(e) if e.code == UNABLE => Vec::new(),
                    args => args?,
                },
                server: args(candidate, base, Tool::Server)?,
            },
            memory,
            predicted: candidate.predicted,
            measured: base.measured_of(placement, context).map(Into::into),
            streams: candidate.streams,
            problems: candidate.misfits.clone(),
        })
    }
}

/// Code of the error that a build's tool lacks a flag which the placement needs.
const UNABLE: &str = "build-lacks-flag";

/// The arguments of a candidate for one tool of the base's build; without a build, for llama.cpp as of b11149.
///
/// # Errors
/// Rules that match no tensor; the build has no flag for it ([`UNABLE`]).
pub fn args(candidate: &Candidate, base: &PlanBase, tool: Tool) -> Result<Vec<String>, JobError> {
    let usual: BTreeSet<String> = ["--n-cpu-moe", "--fit", "--repack", "--no-repack"]
        .map(str::to_owned)
        .into();
    let flags = base.runtime.as_ref().map_or(&usual, |r| match tool {
        Tool::Bench => &r.bench_flags,
        Tool::Server => &r.server_flags,
    });
    let own = flags::args(
        &candidate.placement,
        &candidate.context,
        &base.layout,
        Known { tool, flags },
    )
    .map_err(|e| match e {
        RuleError::Repacks(_) => JobError::new(UNABLE, e.to_string())
            .hint("the placement can be served all the same (`flux plan` prints the command); a newer build can measure it"),
        _ => JobError::new("placement", e.to_string()).hint("choose layers that the model has"),
    })?;
    let mut args = Vec::new();
    if base.are_devices_named {
        let ids: Vec<String> = base.memories.devices.iter().map(|d| d.id.clone()).collect();
        let none = vec!["none".to_owned()];
        let ids = if ids.is_empty() { none } else { ids };
        args.extend(["-dev".to_owned(), tool.devices(&ids)]);
    }
    if !base.rpc.is_empty() {
        args.extend(["--rpc".to_owned(), base.rpc.join(",")]);
    }
    args.extend(own);
    Ok(args)
}
