//! `flux plan`: where each tensor of a model should live on this machine, predicted from what was measured of it (paper
//! section 5).

pub mod bench;
mod document;
mod evidence;
mod history;
mod memories;
mod notices;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::fingerprint::fingerprint;
use crate::domain::placement::assignment::{ContextParams, Placement};
use crate::domain::placement::assumed::priors;
use crate::domain::placement::devices::{Memories, OffloadDevice};
use crate::domain::placement::fit::Fit;
use crate::domain::placement::layout::{ModelLayout, TensorClass};
use crate::domain::placement::learn;
use crate::domain::placement::memory::{Corrections, Difference, memory};
use crate::domain::placement::planner::{Ask, Candidate, MICRO_BATCHES, Planner};
use crate::domain::placement::pool::pooled;
use crate::domain::placement::words;
use crate::domain::search::plan;
use crate::domain::types::{Bytes, Fingerprint, Goal, Machine, RequestShape, Runtime, TestSpec};
use crate::ports::Notice;

use super::message::{JobError, USAGE};
use super::{Ports, bandwidth};

use notices::{beyond, foreign, info_all, off};

pub use bench::{ArmResult, BenchDocument};
pub use document::{
    CandidateDocument, ConstantDocument, FitDocument, MORE_ROOM, MemoryDocument, ModelRuns,
    PlanDocument,
};
pub use evidence::MeasuredPlacement;
pub use history::{PredictionError, error_words, told};

/// Context planned for unless told otherwise, tokens; shorter where the model ends earlier.
const CONTEXT: u64 = 4096;
/// Said wherever other machines are used.
pub const RPC_TRUST: &str = "RPC is for trusted networks only: llama.cpp's RPC servers ask nobody for a password, and whoever reaches one can use it; Flux opens no port itself";
/// Candidates of each tier that are shown.
const OF_EACH_TIER: usize = 3;
/// Reduced cache type that may be tried where the user allows it: the one nearest to exact.
const REDUCED_CACHE: &str = "q8_0";

/// What `flux plan` is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanRequest {
    /// Model file.
    pub model: PathBuf,
    /// Runtime name or folder; `None` takes the best known, and plans without one.
    pub runtime: Option<String>,
    /// Devices of the runtime to use, by their ids; empty takes all, `cpu` none.
    pub devices: Vec<String>,
    /// Tokens of context; `None` is 4096 or the model's own, whichever is less.
    pub context: Option<u64>,
    /// RPC servers whose devices are used too, `host:port`.
    #[serde(default)]
    pub rpc: Vec<String>,
    /// Most device memory to use, of each device.
    pub vram_limit: Option<Bytes>,
    /// Most RAM to use.
    pub ram_limit: Option<Bytes>,
    /// Device memory left free; `None` is [`crate::domain::settings::VRAM_RESERVE`].
    pub memory_reserve: Option<Bytes>,
    /// Reduced caches may be used.
    pub allow_kv_quant: bool,
    /// What must be fast.
    pub goal: Goal,
    /// The request of the request goal.
    pub request_shape: RequestShape,
    /// Files of llama-bench records to learn from.
    pub learn_from: Vec<PathBuf>,
    /// Placements to answer for exactly, in the words of [`words`].
    pub predict: Vec<String>,
    /// Processes per arm of each confirmation, instead of the planned number.
    pub processes: Option<u32>,
    /// Tokens of the prompt test; `None` is the method's own.
    #[serde(default)]
    pub prompt_tokens: Option<u32>,
    /// Tokens of the generation test; `None` is the method's own.
    #[serde(default)]
    pub generated_tokens: Option<u32>,
}

impl PlanRequest {
    /// A plan for `model` with all this machine has.
    pub fn new(model: PathBuf) -> Self {
        Self {
            model,
            runtime: None,
            devices: Vec::new(),
            rpc: Vec::new(),
            context: None,
            vram_limit: None,
            ram_limit: None,
            memory_reserve: None,
            allow_kv_quant: false,
            goal: Goal::Request,
            request_shape: RequestShape::default(),
            learn_from: Vec::new(),
            predict: Vec::new(),
            processes: None,
            prompt_tokens: None,
            generated_tokens: None,
        }
    }

    /// The limits asked for, in words: `12.00 GiB of each device, 8.00 GiB of RAM`; `None` without any.
    pub fn limits(&self) -> Option<String> {
        let limits = [
            self.vram_limit.map(|b| format!("{b} of each device")),
            self.ram_limit.map(|b| format!("{b} of RAM")),
            self.memory_reserve
                .map(|b| format!("{b} of each device left free")),
        ];
        let limits: Vec<String> = limits.into_iter().flatten().collect();
        (!limits.is_empty()).then(|| limits.join(", "))
    }

    /// Tokens of the prompt test and of the generation test.
    pub fn tokens(&self) -> (u32, u32) {
        (
            self.prompt_tokens.unwrap_or(plan::PROMPT),
            self.generated_tokens.unwrap_or(plan::GENERATED),
        )
    }
}

/// Everything a plan rests on. It holds no port: pages and commands ask it as often as they like.
#[derive(Debug, Clone)]
pub struct PlanBase {
    /// The model.
    pub layout: ModelLayout,
    /// The machine.
    pub machine: Machine,
    /// Its memories.
    pub memories: Memories,
    /// The build planned for; `None` plans for llama.cpp in general.
    pub runtime: Option<Runtime>,
    /// RPC servers whose devices are among the memories.
    pub rpc: Vec<String>,
    /// Devices were named, or none was to be used: commands say so.
    pub are_devices_named: bool,
    /// Machine and build.
    pub fingerprint: Fingerprint,
    /// What is known of the machine's speed, and from what.
    pub fit: Fit,
    /// Benchmarks the fit rests on, by model, this one first.
    pub runs: Vec<(String, usize)>,
    /// Errors of the predictions of earlier benchmarks of this machine, the oldest first.
    pub errors: Vec<PredictionError>,
    /// What runs taught of compute buffers.
    pub corrections: Corrections,
    /// What is planned for.
    pub ask: Ask,
    /// Placements of this model that were measured here, newest first.
    pub measured: Vec<MeasuredPlacement>,
    /// What the user should know.
    pub notices: Vec<Notice>,
}

/// Reads the machine, the model and everything measured of it.
///
/// # Errors
/// No runnable model; an unknown build or device; a file of records that cannot be read; the database cannot be read.
pub fn base(request: &PlanRequest, ports: &Ports) -> Result<PlanBase, JobError> {
    base_on(&ports.probe.machine(), request, ports)
}

/// The same on a machine that was read before: asking drivers takes a third of a second.
///
/// # Errors
/// As [`base`].
fn base_on(exported: &Machine, request: &PlanRequest, ports: &Ports) -> Result<PlanBase, JobError> {
    if request.goal == Goal::Energy {
        return Err(JobError::new(USAGE, "a plan predicts speed, not energy")
            .hint("plan for another goal, then `flux tune --goal energy` on what it chose"));
    }
    let layout = ports.models.layout(&request.model)?;
    let mut runtime = runtime(exported, request, ports)?;
    if let Some(build) = runtime.as_mut().filter(|_| !request.rpc.is_empty()) {
        build.devices = ports.runtimes.devices_with(build, &request.rpc)?;
    }
    let machine = Machine {
        runtimes: runtime.iter().cloned().collect(),
        ..exported.clone()
    };
    let key = fingerprint(&machine, runtime.as_ref());
    let mut own = evidence::stored(&key, machine.simulated, &request.rpc, ports)?;
    let disturbed = evidence::leave_out_disturbed(&mut own);
    let with = |beside| memories::memories(exported, runtime.as_ref(), request, beside);
    let beside = evidence::beside_buffers(&own, &layout, &with(Bytes(0))?);
    let mut notices = info_all("layout", &layout.notices);
    notices.extend(beside.and_then(|taken| notices::beside(taken, request)));
    let mut memories = with(beside.unwrap_or_default())?;
    if let Some(projector) = ports.models.projector(&request.model) {
        let said = memories::make_room(&mut memories, &projector);
        notices.extend(info_all("projector", &[said]));
    }
    if request.devices.is_empty() {
        notices.extend(notices::software(&memories, &machine));
    }
    notices.extend(notices::trust(request));
    let profile = bandwidth::stored(ports, &fingerprint(&machine, None))?;
    let profile = profile.filter(|_| !machine.simulated);
    let windows = machine.host.os.to_ascii_lowercase().contains("windows");
    let priors = priors(&memories, profile.as_ref(), windows);
    let mut records = evidence::from_files(&request.learn_from)?;
    notices.extend(foreign(&records, &machine));
    records.extend(own.iter().flat_map(evidence::StoredTests::tests));
    let others = evidence::other_models(&records, &layout, ports);
    // A limit on RAM is the plan's: the runs were not held to it.
    let mut real = memories.clone();
    real.host.usable = memories::host(&machine, None).usable;
    let learned = pooled(&records, &layout, &others, &real, &priors);
    notices.extend(notices::of_learning(&learned, disturbed));
    let (corrections, difference) = corrections(&own, &layout, &memories);
    notices.extend(difference.as_ref().map(off));
    notices.extend(beyond(request, &layout));
    Ok(PlanBase {
        fit: learned.fit,
        runs: learned.runs,
        errors: history::errors(ports.store.fits(&key.hash)?),
        corrections,
        ask: ask(request, &layout),
        measured: evidence::measured(&records, &layout),
        fingerprint: key,
        rpc: request.rpc.clone(),
        are_devices_named: !request.devices.is_empty(),
        layout,
        machine,
        memories,
        runtime,
        notices,
    })
}

fn runtime(
    exported: &Machine,
    request: &PlanRequest,
    ports: &Ports,
) -> Result<Option<Runtime>, JobError> {
    if let Some(name) = &request.runtime {
        return Ok(Some(ports.runtimes.resolve(name)?));
    }
    // As a search chooses: the best that can measure; for an exported machine its own builds.
    let known = if exported.simulated && !exported.runtimes.is_empty() {
        exported.runtimes.clone()
    } else {
        ports.runtimes.list()
    };
    let measures = known.iter().find(|r| r.bench.is_some());
    Ok(measures.or(known.first()).cloned())
}

fn ask(request: &PlanRequest, layout: &ModelLayout) -> Ask {
    let longest = layout.info.context_length.unwrap_or(u64::MAX);
    let context = request.context.unwrap_or_else(|| CONTEXT.min(longest));
    let (prompt, generated) = request.tokens();
    let reduced = request.allow_kv_quant.then(|| REDUCED_CACHE.to_owned());
    Ask {
        context: ContextParams {
            context,
            ..ContextParams::default()
        },
        micro_batches: MICRO_BATCHES.to_vec(),
        cache_types: reduced.into_iter().collect(),
        goal: request.goal,
        request: request.request_shape,
        prompt: TestSpec::prompt(prompt),
        generation: TestSpec::generation(generated),
    }
}

/// What the buffer lines of this model's runs here teach of compute buffers, and where they differ most from the prediction.
fn corrections(
    runs: &[evidence::StoredTests],
    layout: &ModelLayout,
    memories: &Memories,
) -> (Corrections, Option<Difference>) {
    let mut learned = Corrections::default();
    let mut differences = Vec::new();
    for run in runs.iter().filter(|r| !r.buffers.is_empty()) {
        let first = run.tests.first();
        let Some(first) = first.filter(|t| learn::is_of(&t.record, layout)) else {
            continue;
        };
        let Ok(placement) = learn::placement(&first.record, layout) else {
            continue;
        };
        let tokens = run.tests.iter().map(|t| t.test.tokens() + t.test.n_depth);
        let context = ContextParams {
            context: tokens.max().map_or(CONTEXT, u64::from),
            ..learn::context(&first.record)
        };
        let plain = Corrections::default();
        let predicted = memory(layout, &placement, &context, memories, &plain);
        differences.extend(Difference::of(&predicted, memories, &run.buffers));
        learned = learned.with_run(&predicted, memories, &run.buffers);
    }
    let largest = |a: &Difference, b: &Difference| a.share().total_cmp(&b.share());
    (learned, differences.into_iter().max_by(largest))
}

impl PlanBase {
    /// A planner over it.
    pub fn planner(&self) -> Planner<'_> {
        Planner::new(
            &self.layout,
            &self.memories,
            &self.fit.constants,
            &self.corrections,
        )
    }

    /// Benchmarks the fit rests on, of any model.
    pub fn benchmarks(&self) -> usize {
        self.runs.iter().map(|(_, runs)| runs).sum()
    }

    /// The fastest candidates of each tier, the plan first.
    pub fn best(&self) -> Vec<Candidate> {
        self.planner().best(&self.ask, OF_EACH_TIER)
    }

    /// Exactly the placement that `text` names.
    ///
    /// # Errors
    /// Words that name none.
    pub fn predict(&self, text: &str) -> Result<Candidate, JobError> {
        let wrong = |why| JobError::new(USAGE, why).hint("for example --predict \"ngl=24 ub=512\"");
        let mut read = words::parse(text, &self.ask.context).map_err(wrong)?;
        self.must_match(&read.placement).map_err(wrong)?;
        let devices = &self.memories.devices;
        if devices.len() > 1 && read.placement.tensor_split.is_empty() {
            // As llama.cpp splits by itself: by the memory that is free.
            let share = |d: &OffloadDevice| d.usable.as_mib().round();
            read.placement.tensor_split = devices.iter().map(share).collect();
        }
        let mut ask = self.ask.clone();
        let depth = read.depth.unwrap_or(0);
        if let Some(tokens) = read.prompt_tokens.filter(|n| *n > 0) {
            ask.prompt = TestSpec::prompt(tokens);
        }
        if let Some(tokens) = read.generated_tokens.filter(|n| *n > 0) {
            ask.generation = TestSpec::generation(tokens);
        }
        ask.prompt = ask.prompt.at_depth(depth);
        ask.generation = ask.generation.at_depth(depth);
        Ok(self.planner().judge(&read.placement, &read.context, &ask))
    }

    /// A rule that moves no tensor is refused, as one that matches none (case C39).
    fn must_match(&self, placement: &Placement) -> Result<(), String> {
        let experts = self.layout.experts.is_some();
        let layers = self.layout.n_layer();
        for kept in &placement.host_tensors {
            let of_experts = kept.class == TensorClass::Experts;
            let word = if of_experts { "experts" } else { "ffn" };
            if of_experts && !experts {
                return Err(format!("{word}=…: this model has no experts"));
            }
            if let Some(layer) = kept.layers.iter().find(|l| **l >= layers) {
                return Err(format!(
                    "{word}={layer}: this model has the layers 0 to {}",
                    layers - 1
                ));
            }
        }
        if placement.n_cpu_moe > 0 && !experts {
            let n = placement.n_cpu_moe;
            return Err(format!("ncmoe={n}: this model has no experts"));
        }
        Ok(())
    }

    /// What was measured of a placement.
    pub fn measured_of(
        &self,
        placement: &Placement,
        context: &ContextParams,
    ) -> Option<&MeasuredPlacement> {
        self.measured
            .iter()
            .find(|m| m.is(placement, context, &self.layout))
    }
}

/// The plan as `flux plan --json` prints it.
///
/// # Errors
/// As [`base`]; a placement to predict that is none; one whose rules match nothing.
pub fn predicted(request: &PlanRequest, ports: &Ports) -> Result<PlanDocument, JobError> {
    let base = base(request, ports)?;
    PlanDocument::of(&base, &request.predict)
}
