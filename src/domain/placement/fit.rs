//! Recalibration: the constants of the speed model from benchmarks, by non-negative least squares on relative errors
//! (paper section 5). Which constants the data can identify is decided first; the rest keep what was measured or assumed.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::domain::text::count;

use super::speed::{Constant, Constants, Known, Status, Work};

/// A constant is identified only by runs in at least one of which it makes up this share of the time: below, the error of
/// the run, a few percent, is a large part of what it would be blamed for.
const IDENTIFYING_SHARE: f64 = 1.0 / 3.0;
/// … and only if this share of its column (as a length) is not a combination of the columns before it: below, another
/// constant explains the same differences.
const INDEPENDENT_SHARE: f64 = 0.1;
/// Sweeps of coordinate descent; it ends far earlier on well-posed columns.
const MAX_SWEEPS: usize = 10_000;
/// Times the weights follow the prediction; they move by a tenth of a percent after three.
const REWEIGHTINGS: usize = 6;
/// Change of a scaled coefficient at which descent has arrived.
const ARRIVED: f64 = 1e-12;

/// One benchmark: what it took of each constant, and for how long.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Name, for residuals: the run, or the placement with the test.
    pub name: String,
    /// The model's name.
    pub model: String,
    /// What one repetition took.
    pub work: Work,
    /// Tokens of one repetition.
    pub tokens: f64,
    /// Seconds of one repetition, from the run's mean rate.
    pub seconds: f64,
    /// A prompt test.
    pub prompt: bool,
}

/// How far the fitted model is from one benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Residual {
    /// The benchmark's name.
    pub name: String,
    /// A prompt test.
    pub prompt: bool,
    /// Measured rate, tokens per second.
    pub measured: f64,
    /// Predicted rate, tokens per second.
    pub predicted: f64,
    /// Predicted rate ÷ measured rate − 1, percent.
    pub error_pct: f64,
}

/// A fit, with what it can and cannot say.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Every constant, fitted or as before.
    pub constants: Constants,
    /// One per benchmark, in order.
    pub residuals: Vec<Residual>,
    /// What the data could not identify and why, each a sentence part by constant.
    pub kept: Vec<(Constant, String)>,
}

impl Fit {
    /// Mean absolute error of the generation (or prompt) tests, percent of the measured rate; `None` without any.
    pub fn mean_abs_error_pct(&self, prompt: bool) -> Option<f64> {
        let errors = self.residuals.iter().filter(|r| r.prompt == prompt);
        let errors: Vec<f64> = errors.map(|r| r.error_pct.abs()).collect();
        (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
    }
}

/// Fits constants to benchmarks, generation first: what prompts share with it is then given. `priors` are the measured and
/// assumed values.
pub fn fit(observations: &[Observation], priors: &Constants) -> Fit {
    let mut constants = priors.clone();
    let mut kept = Vec::new();
    for prompt in [false, true] {
        let rows: Vec<&Observation> = observations
            .iter()
            .filter(|o| o.prompt == prompt && o.seconds > 0.0)
            .collect();
        if !rows.is_empty() {
            kept.extend(fit_kind(&rows, prompt, &mut constants));
        }
    }
    let residuals = observations
        .iter()
        .map(|o| {
            let predicted = o.work.seconds(&constants);
            Residual {
                name: o.name.clone(),
                prompt: o.prompt,
                measured: o.tokens / o.seconds,
                predicted: o.tokens / predicted,
                error_pct: (o.seconds / predicted - 1.0) * 100.0,
            }
        })
        .collect();
    Fit {
        constants,
        residuals,
        kept,
    }
}

/// Fits the constants that tests of one kind can show; returns those that stay as they were.
fn fit_kind(
    rows: &[&Observation],
    prompt: bool,
    constants: &mut Constants,
) -> Vec<(Constant, String)> {
    let used: BTreeSet<Constant> = rows.iter().flat_map(|o| o.work.0.keys().copied()).collect();
    let mut unseen: Vec<(Constant, String)> = Vec::new();
    let mut leaders: Vec<Constant> = Vec::new();
    loop {
        let joined: Vec<Observation> = rows
            .iter()
            .map(|o| joined(o, &leaders, constants))
            .collect();
        let rows: Vec<&Observation> = joined.iter().collect();
        let mut kept = unseen.clone();
        let columns = candidates(&rows, prompt, constants, &mut kept);
        let solved = solve(&rows, &columns, constants);
        // The weakest one of those that no run shows leaves; the others are judged anew without it.
        let weakest = columns
            .iter()
            .zip(&solved)
            .map(|(c, value)| (*c, largest_share(&rows, *c, *value)))
            .filter(|(_, share)| *share < IDENTIFYING_SHARE)
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let mut lost = kept.iter().map(|(c, _)| *c).chain(weakest.map(|w| w.0));
        if let Some(leader) = lost.find_map(|c| leader(c, &rows)) {
            leaders.push(leader);
            unseen.clear();
            continue;
        }
        if let Some((constant, share)) = weakest {
            let share = share * 100.0;
            let why = format!("it is at most {share:.0} % of the time of any run");
            unseen.push((constant, why));
            continue;
        }
        let origin = format!("fitted to {}", runs_of(&rows));
        let priors = constants.clone();
        for (leader, seconds) in columns.iter().zip(solved) {
            let tied = leaders.contains(leader);
            let with_it = |c: &&Constant| *c == leader || tied && c.of_each_device(*leader);
            for constant in used.iter().filter(with_it) {
                let known = Known {
                    seconds: seconds * ratio(*constant, *leader, &priors),
                    status: Status::Fitted,
                    origin: origin.clone(),
                };
                constants.insert(*constant, known);
            }
        }
        let fitted = |c: Constant| {
            let leader = leaders.iter().find(|l| c.of_each_device(**l));
            used.contains(&c) && leader.is_some_and(|l| columns.contains(l))
        };
        kept.retain(|(constant, _)| !fitted(*constant));
        return kept;
    }
}

/// The constant that stands for all devices where the runs cannot tell this one from the other devices' of its kind: then
/// they are faster or slower than known before by the same factor. Left as it was, one alone could take longer than whole
/// runs do.
fn leader(constant: Constant, rows: &[&Observation]) -> Option<Constant> {
    let used = |c: Constant| rows.iter().any(|o| o.work.0.contains_key(&c));
    if !used(constant) {
        return None;
    }
    let all = rows.iter().flat_map(|o| o.work.0.keys());
    let mut others: Vec<Constant> = all
        .copied()
        .filter(|c| c.of_each_device(constant))
        .collect();
    others.sort();
    let first = *others.first()?;
    (others.last() != Some(&first)).then_some(first)
}

/// A run with the work of all devices counted as the leader's, each by what is known of it.
fn joined(run: &Observation, leaders: &[Constant], known: &Constants) -> Observation {
    let mut work = Work::default();
    for (&constant, amount) in &run.work.0 {
        let leader = leaders.iter().find(|l| constant.of_each_device(**l));
        let leader = leader.copied().unwrap_or(constant);
        *work.0.entry(leader).or_insert(0.0) += amount * ratio(constant, leader, known);
    }
    Observation {
        work,
        ..run.clone()
    }
}

/// Seconds of a constant in those of its leader.
fn ratio(constant: Constant, leader: Constant, known: &Constants) -> f64 {
    let seconds = |c| known.get(&c).map_or(0.0, |k: &Known| k.seconds);
    let ratio = seconds(constant) / seconds(leader);
    if ratio.is_finite() && ratio > 0.0 {
        ratio
    } else {
        1.0
    }
}

/// `8 runs of Qwen3 4B, 1 run of Qwen3 8B`.
fn runs_of(rows: &[&Observation]) -> String {
    let mut counts: Vec<(&str, u64)> = Vec::new();
    for row in rows {
        match counts.iter_mut().find(|(model, _)| *model == row.model) {
            Some((_, count)) => *count += 1,
            None => counts.push((&row.model, 1)),
        }
    }
    let told = counts
        .into_iter()
        .map(|(model, n)| format!("{} of {model}", count(n, "run")));
    told.collect::<Vec<_>>().join(", ")
}

/// Constants in the order in which they may explain the runs, those left out that no run has or others already explain.
fn candidates(
    rows: &[&Observation],
    prompt: bool,
    constants: &Constants,
    kept: &mut Vec<(Constant, String)>,
) -> Vec<Constant> {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    let mut columns = Vec::new();
    let given: Vec<Constant> = kept.iter().map(|(c, _)| *c).collect();
    let of_kind = |c: &&Constant| {
        c.is_decode() != prompt && **c != Constant::ExpertSpread && !given.contains(*c)
    };
    for &constant in constants.keys().filter(of_kind) {
        let column = column(rows, constant);
        let length = norm(&column);
        if length == 0.0 {
            kept.push((constant, "no run uses it".to_owned()));
            continue;
        }
        let mut rest: Vec<f64> = column.iter().map(|v| v / length).collect();
        for axis in &basis {
            let along: f64 = axis.iter().zip(&rest).map(|(a, b)| a * b).sum();
            rest.iter_mut().zip(axis).for_each(|(r, a)| *r -= along * a);
        }
        let independent = norm(&rest);
        if columns.len() >= rows.len() || independent < INDEPENDENT_SHARE {
            let why = "the runs cannot tell it from the others".to_owned();
            kept.push((constant, why));
            continue;
        }
        for value in &mut rest {
            *value /= independent;
        }
        basis.push(rest);
        columns.push(constant);
    }
    columns
}

/// Amounts of a constant in every run, as a share of the run's time per unit of the constant.
fn column(rows: &[&Observation], constant: Constant) -> Vec<f64> {
    rows.iter()
        .map(|o| o.work.0.get(&constant).copied().unwrap_or(0.0) / o.seconds)
        .collect()
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|v| v * v).sum::<f64>().sqrt()
}

fn largest_share(rows: &[&Observation], constant: Constant, seconds: f64) -> f64 {
    let shares = column(rows, constant).into_iter().map(|a| a * seconds);
    shares.fold(0.0, f64::max)
}

/// Seconds per unit of each constant in `columns`, the others as in `constants`: minimises the squared relative errors of
/// the predicted rates, Σ (measured time ÷ predicted time − 1)², by reweighting with the last prediction.
fn solve(rows: &[&Observation], columns: &[Constant], constants: &Constants) -> Vec<f64> {
    let matrix: Vec<Vec<f64>> = columns.iter().map(|c| column(rows, *c)).collect();
    let given = given(rows, columns, constants);
    let mut weights = vec![1.0; rows.len()];
    let mut x = Vec::new();
    for _ in 0..REWEIGHTINGS {
        let weighted =
            |v: &[f64]| -> Vec<f64> { v.iter().zip(&weights).map(|(a, w)| a * w).collect() };
        let mut weighted_columns: Vec<Vec<f64>> = matrix.iter().map(|c| weighted(c)).collect();
        let mut target = weighted(&given);
        for (index, prior) in columns
            .iter()
            .map(|c| earlier_fit(*c, constants))
            .enumerate()
        {
            for (column, values) in weighted_columns.iter_mut().enumerate() {
                let own = prior.filter(|_| column == index);
                values.push(own.map_or(0.0, |seconds| 1.0 / seconds));
            }
            target.push(f64::from(u8::from(prior.is_some())));
        }
        x = nnls(&weighted_columns, &target);
        for (row, weight) in weights.iter_mut().enumerate() {
            let own: f64 = matrix.iter().zip(&x).map(|(c, x)| c[row] * x).sum();
            let predicted = 1.0 - given[row] + own;
            if predicted > 0.0 {
                *weight = 1.0 / predicted;
            }
        }
    }
    x
}

/// What an earlier fit made of a constant: it weighs as much as one run that the constant alone explains.
fn earlier_fit(constant: Constant, constants: &Constants) -> Option<f64> {
    let known = constants.get(&constant)?;
    (known.status == Status::Fitted && known.seconds > 0.0).then_some(known.seconds)
}

/// What is left of each run's time for `columns`, as a share of it.
fn given(rows: &[&Observation], columns: &[Constant], constants: &Constants) -> Vec<f64> {
    rows.iter()
        .map(|o| {
            let other = |(c, amount): (&Constant, &f64)| match constants.get(c) {
                Some(known) if !columns.contains(c) => known.seconds * amount,
                _ => 0.0,
            };
            1.0 - o.work.0.iter().map(other).sum::<f64>() / o.seconds
        })
        .collect()
}

/// Non-negative least squares: x ≥ 0 that minimises ‖Σ xⱼ columnⱼ − target‖², by coordinate descent on the normal
/// equations of unit columns (C. Lawson, R. Hanson, *Solving Least Squares Problems*, 1974, chapter 23, for the optimality
/// conditions it ends in).
pub fn nnls(columns: &[Vec<f64>], target: &[f64]) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(x, y)| x * y).sum() };
    let products: Vec<Vec<f64>> = columns
        .iter()
        .map(|a| columns.iter().map(|b| dot(a, b)).collect())
        .collect();
    let wanted: Vec<f64> = columns.iter().map(|c| dot(c, target)).collect();
    let mut x = vec![0.0; columns.len()];
    for _ in 0..MAX_SWEEPS {
        let mut largest: f64 = 0.0;
        for j in 0..columns.len() {
            let square = products[j][j];
            if square == 0.0 {
                continue;
            }
            let next = (x[j] + (wanted[j] - dot(&products[j], &x)) / square).max(0.0);
            let step = next - x[j];
            x[j] = next;
            largest = largest.max(step.abs() * square.sqrt());
        }
        if largest < ARRIVED {
            break;
        }
    }
    x
}
