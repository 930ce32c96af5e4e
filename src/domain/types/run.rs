//! One fresh process of one arm, asked for and done.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    Bytes, Failure, Launch, RunTelemetry, Runtime, Settings, TestEnergy, TestSpec, Timestamp,
};

/// Where in the method a run belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Discarded: fills shader and pipeline caches (case C41).
    WarmUp,
    /// The stock runtime, at the start, the middle and the end of screening.
    Baseline,
    /// One candidate of the coordinate search.
    Screening,
    /// Two settings together.
    Pairs,
    /// The winner with one setting taken out.
    DropOne,
    /// Interleaved A-B-B-A.
    Confirmation,
    /// Several clients at once.
    Clients,
}

impl Stage {
    /// The stage in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::WarmUp => "warm-up",
            Self::Baseline => "baseline",
            Self::Screening => "screening",
            Self::Pairs => "pairs",
            Self::DropOne => "drop-one check",
            Self::Confirmation => "confirmation",
            Self::Clients => "several clients",
        }
    }
}

/// Which side of an interleaved comparison a run is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Side {
    /// The baseline.
    A,
    /// The candidate.
    B,
}

/// A run is ended early when one repetition of a test takes longer than its limit: such a candidate is hopeless.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EarlyStop {
    /// Per test: seconds one repetition may take.
    pub max_repetition_secs: Vec<(TestSpec, f64)>,
}

/// What the method asks for next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedRun {
    /// Stage.
    pub stage: Stage,
    /// Side, in a confirmation.
    pub side: Option<Side>,
    /// Settings of the arm.
    pub settings: Settings,
    /// Repetitions inside the process.
    pub repetitions: u32,
    /// Early-stop limits, for candidates in screening.
    pub early_stop: Option<EarlyStop>,
    /// Ask the runtime to log its buffers (costs output, so only where they are needed: warm-ups).
    pub log_buffers: bool,
    /// Why this run, in a few words for people: `graphics-queue=on`, `baseline 2 of 4`.
    pub purpose: String,
    /// Clients that ask a live server at the same time, where it is not one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub clients: u32,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_one(n: &u32) -> bool {
    *n == 1
}

/// What prompts are made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextKind {
    /// Words in no order: nothing in them can be guessed.
    #[default]
    Words,
    /// Sentences.
    Prose,
    /// A program.
    Code,
}

impl TextKind {
    /// Its name.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Words => "words",
            Self::Prose => "prose",
            Self::Code => "code",
        }
    }
}

/// What requests to a live server are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveAsk {
    /// Seed of the prompts: no two runs share one.
    pub seed: u64,
    /// What text.
    pub text: TextKind,
    /// Clients that ask at the same time.
    pub clients: u32,
    /// Bytes of all the model's parts: how long loading may take.
    pub model_bytes: Bytes,
}

/// Everything a runner needs to start one process.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The build.
    pub runtime: Runtime,
    /// Model file given to it.
    pub model: PathBuf,
    /// Tests of the process, in order.
    pub tests: Vec<TestSpec>,
    /// Repetitions of each.
    pub repetitions: u32,
    /// The arm's arguments and environment for llama-bench, device and placement included.
    pub launch: Launch,
    /// Values a returned record must carry, by record field (`n_ubatch` → `1024`): the effective settings.
    pub expect: BTreeMap<String, serde_json::Value>,
    /// A GPU must be seen at work (case C21).
    pub gpu_required: bool,
    /// The whole process must end within this many seconds.
    pub time_limit_secs: f64,
    /// Early stop of a hopeless candidate.
    pub early_stop: Option<EarlyStop>,
    /// Ask for the buffer lines of the log.
    pub log_buffers: bool,
    /// How it is measured through llama-server; unused by llama-bench.
    pub live: LiveAsk,
}

/// A moment inside a run, for progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunProgress {
    /// Label of the test being run.
    pub test: String,
    /// Repetition in progress, from 1.
    pub repetition: u32,
    /// Repetitions in all.
    pub repetitions: u32,
}

/// The samples of one test of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestSamples {
    /// The test.
    pub test: TestSpec,
    /// Nanoseconds of every repetition, in order.
    pub samples_ns: Vec<u64>,
    /// The record as the tool printed it.
    pub record: serde_json::Value,
    /// Energy of the repetitions, where a sensor tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<TestEnergy>,
}

impl TestSamples {
    /// Tokens per second of every repetition, recomputed from nanoseconds (`samples_ts` is printed with 6 digits).
    pub fn rates(&self) -> Vec<f64> {
        let tokens = f64::from(self.test.tokens());
        self.samples_ns
            .iter()
            .map(|&ns| tokens * 1e9 / ns as f64)
            .collect()
    }

    /// The run's mean rate, the method's sampling unit: the mean over repetitions of tokens per second.
    pub fn mean_rate(&self) -> f64 {
        let rates = self.rates();
        rates.iter().sum::<f64>() / rates.len() as f64
    }
}

/// Device memory a run allocated, from the buffer lines of its log; the largest context of the process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BufferUse {
    /// Device name of the runtime: `CUDA0`, `Vulkan0`, `CPU_Mapped`.
    pub device: String,
    /// Model weights.
    pub model: Bytes,
    /// KV cache and other context state.
    pub context: Bytes,
    /// Compute buffers.
    pub compute: Bytes,
}

impl BufferUse {
    /// All of it.
    pub fn total(&self) -> Bytes {
        Bytes(self.model.0 + self.context.0 + self.compute.0)
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum RunOutcome {
    /// Every test asked for, every sample valid.
    Valid {
        /// Samples by test, in the order asked for.
        tests: Vec<TestSamples>,
    },
    /// Stopped early as hopeless: no samples, and the record says after what.
    StoppedEarly {
        /// The test that was too slow.
        test: TestSpec,
        /// Seconds its repetition had taken when it was stopped.
        repetition_secs: f64,
        /// The limit it had passed.
        limit_secs: f64,
    },
    /// No valid samples. Records that were printed are kept as evidence.
    Failed {
        /// Why.
        failure: Failure,
        /// Complete records found in the output, never used as samples.
        salvaged: Vec<serde_json::Value>,
    },
    /// Ended by the user: no samples.
    Cancelled,
}

/// What the process left behind, kept as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawOutput {
    /// The argument list, program first.
    pub argv: Vec<String>,
    /// Environment set by Flux.
    pub env: BTreeMap<String, String>,
    /// Standard output.
    pub stdout: String,
    /// Standard error; the middle of a very long log is cut, and says so.
    pub stderr: String,
    /// Exit status, where it exited.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
}

/// One run, done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When it began.
    pub started_at: Timestamp,
    /// Seconds from start to reaped.
    pub wall_secs: f64,
    /// How it ended.
    pub outcome: RunOutcome,
    /// Buffers it allocated, where asked for.
    pub buffers: Vec<BufferUse>,
    /// What it left behind.
    pub raw: RawOutput,
    /// What the sensors said around it, where any did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Box<RunTelemetry>>,
}
