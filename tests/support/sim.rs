//! A simulated llama-bench in process: rates from a known truth, noise from a seed, failures on demand.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::{BTreeMap, BTreeSet};

use flux::domain::search::{
    Capabilities, Driver, Method, Offer, OfferRules, OfferedDimension, OfferedValue, PlanInput,
    SearchSpace, Step, TuneOutcome, TunePlan, Tuner,
};
use flux::domain::types::{
    Backend, BufferUse, Bytes, Failure, FailureClass, Features, Goal, PlannedRun, RawOutput, Run,
    RunOutcome, Settings, Stage, TestSamples, TestSpec, Timestamp,
};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Normal};

/// True rates of one setting, as shares of stock: prompt, generation.
pub type Effect = (f64, f64);

/// The noise of a machine, all relative.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    /// Standard deviation between processes.
    pub process: f64,
    /// Standard deviation between repetitions.
    pub repetition: f64,
    /// Share of its speed that the first repetition of a process loses.
    pub cold: f64,
    /// Change per run.
    pub drift: f64,
}

impl Noise {
    /// No noise but the smallest, so that intervals exist.
    pub const QUIET: Self = Self {
        process: 1e-4,
        repetition: 1e-4,
        cold: 0.0,
        drift: 0.0,
    };
    /// The study's: 1 % between processes, 0.3 % between repetitions, a cold first repetition.
    pub const STUDY: Self = Self {
        process: 0.01,
        repetition: 0.003,
        cold: 0.05,
        drift: 0.0,
    };
}

/// The machine's truth: what each setting does, alone and with others.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    /// Stock rates: prompt, generation.
    pub stock: Effect,
    /// By `dimension=value`.
    pub single: BTreeMap<String, Effect>,
    /// Settings that do something only together.
    pub together: Vec<(Vec<String>, Effect)>,
    /// Settings whose runs fail.
    pub failing: Vec<(String, FailureClass)>,
    /// Stock fails with this class.
    pub stock_fails: Option<FailureClass>,
    /// Device memory of the candidates that need more than stock's 4 GiB, by setting.
    pub memory: BTreeMap<String, u64>,
}

impl Truth {
    /// A machine at these stock rates on which nothing does anything.
    pub fn neutral(prompt: f64, generation: f64) -> Self {
        Self {
            stock: (prompt, generation),
            ..Self::default()
        }
    }

    pub fn with(mut self, setting: &str, prompt: f64, generation: f64) -> Self {
        self.single.insert(setting.to_owned(), (prompt, generation));
        self
    }

    pub fn pair(mut self, settings: &[&str], prompt: f64, generation: f64) -> Self {
        let settings = settings.iter().map(ToString::to_string).collect();
        self.together.push((settings, (prompt, generation)));
        self
    }

    pub fn failing(mut self, setting: &str, class: FailureClass) -> Self {
        self.failing.push((setting.to_owned(), class));
        self
    }

    /// The paper's Figure 2, as rates of each setting alone.
    pub fn rx580() -> Self {
        let (pp, tg) = (187.0, 22.81);
        Self::neutral(pp, tg)
            .with("graphics-queue=on", 197.9 / pp, 38.20 / tg)
            .with("flash-attn=on", 185.7 / pp, 22.78 / tg)
            .with("flash-attn=off", 192.9 / pp, 20.24 / tg)
            .with("ubatch=1024", 180.8 / pp, 22.70 / tg)
            .with("ubatch=256", 92.7 / pp, 1.0)
            .with("ubatch=128", 106.0 / pp, 1.0)
            .with("graph-optimize=off", 179.6 / pp, 21.75 / tg)
            .with("fusion=off", 1.0, 16.96 / tg)
            // Relative to flash attention on, which it needs.
            .with("kv-cache=q8_0", 179.5 / 185.7, 19.83 / 22.78)
    }

    /// True rates of settings: prompt, generation.
    pub fn rates(&self, settings: &Settings) -> Effect {
        let set: BTreeSet<String> = settings.0.iter().map(|(d, v)| format!("{d}={v}")).collect();
        let single = set.iter().filter_map(|s| self.single.get(s));
        let together = self
            .together
            .iter()
            .filter(|(all, _)| all.iter().all(|s| set.contains(s)))
            .map(|(_, effect)| effect);
        single.chain(together).fold(self.stock, |rate, effect| {
            (rate.0 * effect.0, rate.1 * effect.1)
        })
    }

    fn failure(&self, settings: &Settings) -> Option<FailureClass> {
        if settings.is_stock() {
            return self.stock_fails;
        }
        let holds = |s: &str| settings.0.iter().any(|(d, v)| format!("{d}={v}") == s);
        self.failing.iter().find(|(s, _)| holds(s)).map(|f| f.1)
    }
}

/// A machine that runs what it is asked to.
#[derive(Debug, Clone)]
pub struct Bench {
    pub truth: Truth,
    pub noise: Noise,
    tests: Vec<TestSpec>,
    random: ChaCha8Rng,
    runs: u32,
}

impl Bench {
    pub fn new(truth: Truth, noise: Noise, tests: &[TestSpec], seed: u64) -> Self {
        Self {
            truth,
            noise,
            tests: tests.to_vec(),
            random: ChaCha8Rng::seed_from_u64(seed),
            runs: 0,
        }
    }

    fn normal(&mut self, deviation: f64) -> f64 {
        1.0 + Normal::new(0.0, deviation)
            .expect("a finite deviation")
            .sample(&mut self.random)
    }

    pub fn run(&mut self, planned: &PlannedRun) -> Run {
        self.runs += 1;
        if let Some(class) = self.truth.failure(&planned.settings) {
            return failed(class);
        }
        let rates = self.truth.rates(&planned.settings);
        let drift = 1.0 + self.noise.drift * f64::from(self.runs);
        let mut tests = Vec::new();
        for test in self.tests.clone() {
            let truth = if test.is_prompt() { rates.0 } else { rates.1 };
            let rate = truth * drift * self.normal(self.noise.process);
            let mut samples_ns = Vec::new();
            for i in 0..planned.repetitions {
                let cold = if i == 0 { 1.0 - self.noise.cold } else { 1.0 };
                let secs =
                    f64::from(test.tokens()) / (rate * cold * self.normal(self.noise.repetition));
                let mut limits = planned
                    .early_stop
                    .iter()
                    .flat_map(|e| &e.max_repetition_secs);
                if let Some(&(_, limit_secs)) =
                    limits.find(|(t, limit)| *t == test && secs > *limit)
                {
                    return run(
                        RunOutcome::StoppedEarly {
                            test,
                            repetition_secs: secs,
                            limit_secs,
                        },
                        2.0 + secs,
                    );
                }
                samples_ns.push((secs * 1e9) as u64);
            }
            tests.push(TestSamples {
                test,
                samples_ns,
                record: serde_json::Value::Null,
                energy: None,
            });
        }
        let ns: u64 = tests.iter().flat_map(|t| &t.samples_ns).sum();
        let mut run = run(RunOutcome::Valid { tests }, 2.0 + ns as f64 / 1e9);
        if planned.log_buffers {
            run.buffers = self.buffers(&planned.settings);
        }
        run
    }

    fn buffers(&self, settings: &Settings) -> Vec<BufferUse> {
        let memory = settings
            .0
            .iter()
            .find_map(|(d, v)| self.truth.memory.get(&format!("{d}={v}")));
        let buffer = |device: &str, bytes| BufferUse {
            device: device.to_owned(),
            model: bytes,
            ..BufferUse::default()
        };
        vec![
            buffer("Vulkan0", Bytes(memory.copied().unwrap_or(4 << 30))),
            buffer("Vulkan_Host", Bytes(64 << 30)),
            buffer("CPU_Mapped", Bytes(64 << 30)),
        ]
    }
}

/// A run with this outcome.
pub fn run(outcome: RunOutcome, wall_secs: f64) -> Run {
    Run {
        started_at: Timestamp(0),
        wall_secs,
        outcome,
        buffers: Vec::new(),
        raw: RawOutput::default(),
        telemetry: None,
    }
}

/// A failed run.
pub fn failed(class: FailureClass) -> Run {
    run(
        RunOutcome::Failed {
            failure: Failure::new(class, "as scripted"),
            salvaged: Vec::new(),
        },
        1.0,
    )
}

/// Runs a session to its end; every planned run, in order, and the outcome.
pub fn finish<M: Method>(
    driver: &mut Driver<M>,
    mut bench: impl FnMut(&PlannedRun) -> Run,
) -> (Vec<(PlannedRun, Run)>, M::Outcome) {
    let mut done = Vec::new();
    loop {
        match driver.next() {
            Step::Run(planned) => {
                let run = bench(&planned);
                driver.record(&run);
                done.push((*planned, run));
            }
            Step::Done(outcome) => return (done, *outcome),
        }
    }
}

/// A whole search.
pub fn tune(
    plan: &TunePlan,
    truth: Truth,
    noise: Noise,
    seed: u64,
) -> (Vec<(PlannedRun, Run)>, TuneOutcome) {
    let mut bench = Bench::new(truth, noise, plan.tests(), seed);
    finish(&mut Tuner::new(plan.clone()), |p| bench.run(p))
}

/// An offer of plain values: `[("ubatch", &["1024"])]`.
pub fn offer(dimensions: &[(&str, &[&str])]) -> Offer {
    let value = |id: &&str| OfferedValue {
        id: (*id).to_owned(),
        fallback: false,
        requires: BTreeMap::new(),
        conflicts: BTreeMap::new(),
    };
    Offer {
        dimensions: dimensions
            .iter()
            .map(|(id, values)| OfferedDimension {
                id: (*id).to_owned(),
                prompt_bound: false,
                values: values.iter().map(value).collect(),
            })
            .collect(),
        refused: Vec::new(),
    }
}

/// A generation search over plain values.
pub fn plan(dimensions: &[(&str, &[&str])]) -> TunePlan {
    TunePlan::new(offer(dimensions), PlanInput::new(Goal::Generation)).expect("a plan")
}

/// llama-bench b11149's flags.
pub fn b11149_flags() -> BTreeSet<String> {
    [
        "--batch-size",
        "--ubatch-size",
        "--cache-type-k",
        "--cache-type-v",
        "--threads",
        "--cpu-strict",
        "--poll",
        "--flash-attn",
        "--load-mode",
        "--split-mode",
        "--no-kv-offload",
        "--no-op-offload",
        "--no-host",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect()
}

/// The paper's card: no half precision, no 8-bit dot product, no matrix units.
pub fn rx580() -> Capabilities {
    Capabilities {
        backend: Backend::Vulkan,
        features: Some(Features::default()),
        software_device: false,
        partial_offload: false,
        devices: 1,
        physical_cores: Some(6),
        logical_cores: 12,
        bench_flags: b11149_flags(),
        bench_defaults: BTreeMap::new(),
        fixed_env: BTreeSet::new(),
    }
}

/// The whole search on the paper's card.
pub fn rx580_plan() -> TunePlan {
    let rules = OfferRules {
        allow_kv_quant: true,
        ..OfferRules::default()
    };
    let offer = SearchSpace::default()
        .offer(&rx580(), &rules)
        .expect("known names");
    TunePlan::new(offer, PlanInput::new(Goal::Generation)).expect("a plan")
}

/// A search on a scripted machine, and what it must run in which order.
pub struct OrderTest {
    pub plan: TunePlan,
    pub truth: Truth,
}

impl OrderTest {
    /// Four processes per arm, so that a confirmation reads A-B-B-A B-A-A-B.
    pub fn new(dimensions: &[(&str, &[&str])]) -> Self {
        let mut plan = plan(dimensions);
        plan.processes = Some(4);
        Self {
            plan,
            truth: Truth::neutral(1000.0, 100.0),
        }
    }

    pub fn truth(mut self, change: impl FnOnce(Truth) -> Truth) -> Self {
        self.truth = change(self.truth);
        self
    }

    pub fn plan(mut self, change: impl FnOnce(&mut TunePlan)) -> Self {
        change(&mut self.plan);
        self
    }

    /// One word per run: stage letter and settings; a run of a confirmation is its side alone.
    pub fn run(self) -> (Vec<String>, TuneOutcome) {
        let (runs, outcome) = tune(&self.plan, self.truth, Noise::QUIET, 7);
        (runs.iter().map(|(p, _)| word(p)).collect(), outcome)
    }

    pub fn expect(self, order: &[&str]) -> TuneOutcome {
        let (words, outcome) = self.run();
        let mut wanted = Vec::new();
        for line in order {
            if line.chars().all(|c| c == 'A' || c == 'B') {
                wanted.extend(line.chars().map(String::from));
            } else {
                wanted.push((*line).to_owned());
            }
        }
        assert_eq!(words, wanted);
        outcome
    }
}

pub fn word(planned: &PlannedRun) -> String {
    let stage = match planned.stage {
        Stage::WarmUp => "warm",
        Stage::Baseline => "base",
        Stage::Screening => "screen",
        Stage::Pairs => "pair",
        Stage::DropOne => "drop",
        Stage::Confirmation => return format!("{:?}", planned.side.expect("a side")),
        Stage::Clients => "clients",
    };
    format!("{stage} {}", planned.settings)
}

pub fn settings(text: &str) -> Settings {
    let pairs = text
        .split_whitespace()
        .map(|w| w.split_once('=').expect("name=value"));
    Settings(pairs.map(|(d, v)| (d.to_owned(), v.to_owned())).collect())
}
