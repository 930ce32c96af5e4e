//! Calibration study of the confirmation's rule and plan: 10,000 simulated sessions per noise model (design section 5).
//! `cargo test --release -- --ignored calibration --nocapture` prints the README's tables and asserts the bounds.
#![allow(
    clippy::print_stdout,
    reason = "the tables are what the study is run for"
)]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::fmt::Write as _;
use std::thread;

use flux::domain::stats::{
    Ordered, PLAN_CONFIDENCE, RunCost, compare, confirm, plan_at, upper_quantile,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, StandardNormal, StudentT};

/// Sessions per noise model, rule and truth.
const SESSIONS: usize = 10_000;
/// The true effect whose detection is asked for, percent.
const EFFECT_PCT: f64 = 3.0;
/// A process takes 2 s to load and 0.5 s per repetition: a 4B model on a fast disk.
const COST: RunCost = RunCost {
    load_secs: 2.0,
    repetition_secs: 0.5,
};
/// Run indices of the baseline before the confirmation: two at the start, one in the middle and one at the end of screening.
const BASELINE_AT: [usize; 4] = [0, 1, 11, 22];
/// Repetitions of a baseline run.
const BASELINE_REPETITIONS: u32 = 3;

/// How rates vary, percent of the rate.
#[derive(Clone, Copy)]
struct Model {
    name: &'static str,
    /// The rule's assumptions (independent normal run means of one variance, around a straight line) hold.
    assumptions_hold: bool,
    /// Standard deviation between processes.
    process: f64,
    /// Standard deviation between repetitions.
    repetition: f64,
    /// Change per run.
    drift: f64,
    /// Loss of a warm machine, approached with a time constant of five runs from the start of each stage.
    ramp: f64,
    /// Loss of the slow clock that three processes in ten run at.
    slow_clock: f64,
    /// Process noise is Student's t with 3 degrees of freedom (`process` is its scale).
    heavy: bool,
    /// Loss of the first repetition, itself varying by 1 %.
    cold: f64,
}

const QUIET: Model = Model {
    name: "",
    assumptions_hold: true,
    process: 0.0,
    repetition: 0.5,
    drift: 0.0,
    ramp: 0.0,
    slow_clock: 0.0,
    heavy: false,
    cold: 0.0,
};

const MODELS: [Model; 8] = [
    Model {
        name: "repetition noise only, 2 %",
        repetition: 2.0,
        ..QUIET
    },
    Model {
        name: "process noise 1 %",
        process: 1.0,
        ..QUIET
    },
    Model {
        name: "process noise 3 %",
        process: 3.0,
        ..QUIET
    },
    Model {
        name: "linear drift −0.3 % per run",
        process: 1.0,
        drift: -0.3,
        ..QUIET
    },
    Model {
        name: "thermal ramp −5 %",
        process: 0.5,
        ramp: -5.0,
        assumptions_hold: false,
        ..QUIET
    },
    Model {
        name: "bimodal clocks −4 %",
        process: 0.3,
        slow_clock: -4.0,
        assumptions_hold: false,
        ..QUIET
    },
    Model {
        name: "heavy tails (t₃, scale 1 %)",
        process: 1.0,
        heavy: true,
        assumptions_hold: false,
        ..QUIET
    },
    Model {
        name: "cold first repetition −25 %",
        process: 0.5,
        cold: -25.0,
        ..QUIET
    },
];

impl Model {
    /// Repetition rates of one process: run `at` of the session, run `since` of its stage, a true change of `effect` percent.
    fn run(
        &self,
        rng: &mut ChaCha8Rng,
        at: usize,
        since: usize,
        effect: f64,
        reps: u32,
    ) -> Vec<f64> {
        let share = |percent: f64| 1.0 + percent / 100.0;
        let noise: f64 = if self.heavy {
            StudentT::new(3.0).unwrap().sample(rng)
        } else {
            StandardNormal.sample(rng)
        };
        let slow = if rng.random_bool(0.3) {
            self.slow_clock
        } else {
            0.0
        };
        let warm = self.ramp * (1.0 - (-(since as f64) / 5.0).exp());
        let level = 100.0
            * share(effect)
            * share(self.drift * at as f64)
            * share(warm)
            * share(slow)
            * share(self.process * noise);
        (0..reps)
            .map(|j| {
                let noise: f64 = StandardNormal.sample(rng);
                let spread: f64 = StandardNormal.sample(rng);
                let cold = if j == 0 && self.cold < 0.0 {
                    self.cold + spread
                } else {
                    0.0
                };
                // A rate is positive whatever a heavy tail says.
                (level * share(cold) * share(self.repetition * noise)).max(1.0)
            })
            .collect()
    }
}

/// How the number of processes is planned.
#[derive(Clone, Copy)]
enum Planning {
    /// `plan_at` from so many baseline runs, at a confidence of the bound on their variance.
    From(usize, Option<f64>),
    /// Always so many processes, three repetitions.
    Fixed(usize),
}

/// How a confirmation is judged.
#[derive(Clone, Copy)]
enum Rule {
    Plain,
    TrendFree,
    Blocks,
}

/// The rule and the plan that Flux uses.
const CHOSEN: (Rule, Planning) = (Rule::TrendFree, Planning::From(4, Some(PLAN_CONFIDENCE)));

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// One session's runs: the baseline, the plan, the interleaved confirmation.
fn session(
    model: &Model,
    planning: Planning,
    effect: f64,
    rng: &mut ChaCha8Rng,
) -> [Vec<Ordered>; 2] {
    let baseline: Vec<Vec<f64>> = BASELINE_AT
        .iter()
        .map(|&at| model.run(rng, at, at, 0.0, BASELINE_REPETITIONS))
        .collect();
    let (processes, reps) = match planning {
        // Three runs are those of a search cut short: start, start, end.
        Planning::From(3, confidence) => {
            let three = [0, 1, 3].map(|i| baseline[i].clone());
            let plan = plan_at(&three, COST, confidence);
            (plan.processes, plan.repetitions)
        }
        Planning::From(_, confidence) => {
            let plan = plan_at(&baseline, COST, confidence);
            (plan.processes, plan.repetitions)
        }
        Planning::Fixed(processes) => (processes, BASELINE_REPETITIONS),
    };
    let mut arms = [Vec::new(), Vec::new()];
    for place in 0..2 * processes {
        // A-B-B-A, then B-A-A-B.
        let side = [0, 1, 1, 0, 1, 0, 0, 1][place % 8];
        let at = BASELINE_AT[3] + 1 + place;
        let rates = model.run(rng, at, place, effect * side as f64, reps);
        arms[side].push(Ordered {
            position: place as f64,
            value: mean(&rates),
        });
    }
    arms
}

/// Interval of the relative change by a rule, and whether the verdict is *improved*.
fn judge(rule: Rule, [a, b]: &[Vec<Ordered>; 2]) -> (Option<[f64; 2]>, bool) {
    let values = |runs: &[Ordered]| runs.iter().map(|r| r.value).collect::<Vec<_>>();
    let improved = |ci: Option<[f64; 2]>| ci.is_some_and(|ci| ci[0] > 1.0);
    let comparison = match rule {
        Rule::Plain => compare(&values(a), &values(b)),
        Rule::TrendFree => confirm(a, b),
        Rule::Blocks => {
            let interval = block_interval(&values(a), &values(b));
            return (interval, improved(interval));
        }
    };
    let steady = [&comparison.baseline, &comparison.candidate]
        .iter()
        .all(|arm| arm.cv_pct.is_some_and(|cv| cv <= 10.0));
    (comparison.ci95_pct, steady && improved(comparison.ci95_pct))
}

/// Fieller for paired means of A-B-B-A blocks (two runs per arm): the ratios ρ at which the mean of `b − ρa` over blocks
/// is within t·SE of zero, df = blocks − 1.
fn block_interval(a: &[f64], b: &[f64]) -> Option<[f64; 2]> {
    let means = |values: &[f64]| values.chunks(2).map(mean).collect::<Vec<_>>();
    let (a, b) = (means(a), means(b));
    let n = a.len() as f64;
    let (x, y) = (mean(&a), mean(&b));
    let product = |u: &[f64], u0: f64, v: &[f64], v0: f64| {
        let sum: f64 = u.iter().zip(v).map(|(u, v)| (u - u0) * (v - v0)).sum();
        sum / (n - 1.0) / n
    };
    let t2 = upper_quantile(0.975, n - 1.0)?.powi(2);
    let q = x * x - t2 * product(&a, x, &a, x);
    let h = x * y - t2 * product(&a, x, &b, y);
    let c = y * y - t2 * product(&b, y, &b, y);
    let root = (h * h - q * c).max(0.0).sqrt();
    (q > 0.0).then(|| {
        [
            100.0 * ((h - root) / q - 1.0),
            100.0 * ((h + root) / q - 1.0),
        ]
    })
}

/// What the sessions of one cell came to, percent of sessions.
#[derive(Clone, Copy, Default)]
struct Outcome {
    false_improved: f64,
    coverage_null: f64,
    coverage_effect: f64,
    power: f64,
    processes: f64,
}

fn study(model: usize, planning: Planning, rules: &[Rule]) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::default(); rules.len()];
    let share = 100.0 / SESSIONS as f64;
    for (stream, effect) in [0.0, EFFECT_PCT].into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(20_261_129);
        rng.set_stream((2 * model + stream) as u64);
        for _ in 0..SESSIONS {
            let arms = session(&MODELS[model], planning, effect, &mut rng);
            for (&rule, outcome) in rules.iter().zip(&mut outcomes) {
                let (interval, improved) = judge(rule, &arms);
                let covers = interval.is_some_and(|ci| ci[0] <= effect && effect <= ci[1]);
                outcome.processes += arms[0].len() as f64 / (2 * SESSIONS) as f64;
                let (hits, covered) = if stream == 0 {
                    (&mut outcome.false_improved, &mut outcome.coverage_null)
                } else {
                    (&mut outcome.power, &mut outcome.coverage_effect)
                };
                *hits += share * f64::from(u8::from(improved));
                *covered += share * f64::from(u8::from(covers));
            }
        }
    }
    outcomes
}

const HEAD: &str = "false *improved* at 0 % | coverage at 0 % | coverage at +3 % | power at +3 % | processes per arm |\n|---|---|--:|--:|--:|--:|--:|\n";

fn row(table: &mut String, model: &Model, what: &str, o: &Outcome) {
    writeln!(
        table,
        "| {} | {what} | {:.2} % | {:.1} % | {:.1} % | {:.1} % | {:.1} |",
        model.name, o.false_improved, o.coverage_null, o.coverage_effect, o.power, o.processes
    )
    .unwrap();
}

/// Every cell of `jobs` (model, planning, rules), on all processors.
fn all(jobs: &[(usize, Planning, Vec<Rule>)]) -> Vec<Vec<Outcome>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut results: Vec<(usize, Vec<Outcome>)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|first| {
                scope.spawn(move || {
                    let own = jobs.iter().enumerate().skip(first).step_by(threads);
                    own.map(|(i, (model, planning, rules))| (i, study(*model, *planning, rules)))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|w| w.join().unwrap())
            .collect()
    });
    results.sort_unstable_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, outcomes)| outcomes).collect()
}

#[test]
#[ignore = "minutes of simulation: cargo test --release -- --ignored calibration"]
fn calibration_of_rules_and_plans() {
    let rules = [
        (Rule::Plain, "plain Welch"),
        (Rule::TrendFree, "**trend removed**"),
        (Rule::Blocks, "A-B-B-A block contrasts"),
    ];
    let plans = [
        (Planning::From(3, None), "estimate from 3 runs"),
        (Planning::From(4, None), "estimate from 4 runs"),
        (Planning::From(4, Some(0.8)), "80 % bound from 4 runs"),
        (
            Planning::From(3, Some(PLAN_CONFIDENCE)),
            "90 % bound from 3 runs",
        ),
        (CHOSEN.1, "**90 % bound from 4 runs**"),
        (Planning::Fixed(8), "always 8"),
        (Planning::Fixed(12), "always 12"),
    ];
    let judging = |m| (m, CHOSEN.1, rules.map(|r| r.0).to_vec());
    let sizing = |m| plans.map(|p| (m, p.0, vec![CHOSEN.0]));
    let by_rule: Vec<_> = (0..MODELS.len()).map(judging).collect();
    let by_plan: Vec<_> = (0..MODELS.len()).flat_map(sizing).collect();

    let mut table = format!("| noise model | rule | {HEAD}");
    let judged = all(&by_rule);
    for (model, outcomes) in MODELS.iter().zip(&judged) {
        for ((_, name), outcome) in rules.iter().zip(outcomes) {
            row(&mut table, model, name, outcome);
        }
    }
    write!(table, "\n| noise model | plan | {HEAD}").unwrap();
    let planned = all(&by_plan);
    for (i, outcomes) in planned.iter().enumerate() {
        let (model, (_, name)) = (&MODELS[i / plans.len()], plans[i % plans.len()]);
        row(&mut table, model, name, &outcomes[0]);
    }
    println!("{table}");

    for (i, model) in MODELS.iter().enumerate() {
        // The chosen rule with the chosen plan, and with the three baseline runs of a shorter search.
        for outcome in [&judged[i][1], &planned[i * plans.len() + 3][0]] {
            hold_the_bounds(model, outcome);
        }
    }
}

fn hold_the_bounds(model: &Model, outcome: &Outcome) {
    let name = model.name;
    assert!(outcome.false_improved <= 0.5, "{name}: false improved");
    if model.assumptions_hold {
        for coverage in [outcome.coverage_null, outcome.coverage_effect] {
            assert!(
                (94.0..=96.0).contains(&coverage),
                "{name}: coverage {coverage}"
            );
        }
    }
    // +3 % among 1 % of process noise, with and without drift.
    if model.process <= 1.0 && !model.heavy && model.slow_clock == 0.0 {
        assert!(outcome.power >= 95.0, "{name}: power {}", outcome.power);
    }
}
