//! How many processes and repetitions a confirmation needs, from the spread of the baseline (T. Kalibera, R. Jones,
//! *Rigorous Benchmarking in Reasonable Time*, ISMM 2013): the run mean of r repetitions varies by `between + within/r`.

use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::student::upper_quantile;
use super::{
    CONFIDENCE, MAX_PROCESSES, MAX_REPETITIONS, MIN_EFFECT_PCT, MIN_PROCESSES, MIN_REPETITIONS,
    TARGET_HALF_WIDTH_PCT,
};

/// Confidence of the upper bound on the baseline's variance that a plan is made with. Three or four runs guess it badly:
/// planned with the estimate itself, one confirmation in six misses a true +3 % at 1 % process noise, and an 80 % bound
/// from three runs still falls short of 95 % power (calibration study).
pub const PLAN_CONFIDENCE: f64 = 0.9;
/// Probability with which the smallest effect of a plan is shown as improved.
pub const PLAN_POWER: f64 = 0.9;
/// Processes per arm grow in whole A-B-B-A blocks, in which the arms share one centre of time and drift cancels.
const PROCESS_STEP: usize = 2;
/// Where the target is out of reach, repetitions stop growing within this factor of the narrowest interval there is.
const GOOD_ENOUGH: f64 = 1.05;

/// What one more process and one more repetition cost, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunCost {
    /// Start, load and warm-up of one process.
    pub load_secs: f64,
    /// One repetition of every test of the process.
    pub repetition_secs: f64,
}

/// A confirmation's size, fixed before its first run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessPlan {
    /// Processes per arm.
    pub processes: usize,
    /// Repetitions inside each process.
    pub repetitions: u32,
    /// Half-width of the 95 % interval at the bound on the variance, percent of the baseline; infinite when the baseline
    /// (fewer than two runs) tells nothing.
    pub half_width_pct: f64,
    /// Smallest true change shown as improved with a probability of 90 % ([`PLAN_POWER`]) at the bound on the variance,
    /// percent: `1 + (t₀.₉₇₅ + t₀.₉₀)·SE`.
    pub smallest_effect_pct: f64,
}

/// Variance of the baseline in squared percent of its mean.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    /// Between processes.
    between: f64,
    /// Between repetitions of one process, around the mean of each repetition's place: a cold first one is no noise.
    within: f64,
    /// Degrees of freedom of the variance of run means.
    freedom: f64,
}

/// Plans a confirmation from the repetition rates of the baseline runs, one inner list per run: the number of processes
/// and repetitions that bring the interval's half-width to 1 % of the baseline in the least time, at an upper bound on the
/// variance ([`PLAN_CONFIDENCE`]).
pub fn plan(baseline: &[Vec<f64>], cost: RunCost) -> ProcessPlan {
    plan_at(baseline, cost, Some(PLAN_CONFIDENCE))
}

/// [`plan`] at another confidence of the bound; `None` takes the variance as estimated. The calibration study compares them.
pub fn plan_at(baseline: &[Vec<f64>], cost: RunCost, confidence: Option<f64>) -> ProcessPlan {
    let bounded = spread(baseline).and_then(|s| Some((s, bound(s.freedom, confidence)?)));
    let Some((spread, bound)) = bounded else {
        return ProcessPlan {
            processes: MAX_PROCESSES,
            repetitions: MIN_REPETITIONS,
            half_width_pct: f64::INFINITY,
            smallest_effect_pct: f64::INFINITY,
        };
    };
    let secs = |p: &ProcessPlan| {
        p.processes as f64 * (cost.load_secs + f64::from(p.repetitions) * cost.repetition_secs)
    };
    let reaching = (MIN_PROCESSES..=MAX_PROCESSES)
        .step_by(PROCESS_STEP)
        .flat_map(|n| sizes(spread, bound, n))
        .filter(|p| p.half_width_pct <= TARGET_HALF_WIDTH_PCT)
        .min_by(|x, y| secs(x).total_cmp(&secs(y)));
    reaching.unwrap_or_else(|| {
        let mut longest = sizes(spread, bound, MAX_PROCESSES);
        let narrowest = longest[longest.len() - 1].half_width_pct;
        longest.retain(|p| p.half_width_pct <= GOOD_ENOUGH * narrowest);
        longest[0]
    })
}

/// Factor from a variance estimate to its upper confidence bound, `freedom / χ²(1 − confidence)`.
fn bound(freedom: f64, confidence: Option<f64>) -> Option<f64> {
    let Some(confidence) = confidence else {
        return Some(1.0);
    };
    let chi = ChiSquared::new(freedom).ok()?;
    Some(freedom / chi.inverse_cdf(1.0 - confidence))
}

/// Components of variance from the baseline runs. `None` below two runs or with a rate that is not a positive number.
fn spread(baseline: &[Vec<f64>]) -> Option<Spread> {
    let runs = baseline.len();
    let length = baseline.iter().map(Vec::len).min()?;
    let valid = |v: &f64| v.is_finite() && *v > 0.0;
    if runs < 2 || length == 0 || !baseline.iter().flatten().all(valid) {
        return None;
    }
    // Runs may differ in length; the shared first places compare like with like.
    let rows: Vec<&[f64]> = baseline.iter().map(|r| &r[..length]).collect();
    let mean = |values: &mut dyn Iterator<Item = f64>, n: usize| values.sum::<f64>() / n as f64;
    let of_run: Vec<f64> = rows
        .iter()
        .map(|r| mean(&mut r.iter().copied(), length))
        .collect();
    let of_place: Vec<f64> = (0..length)
        .map(|j| mean(&mut rows.iter().map(|r| r[j]), runs))
        .collect();
    let grand = mean(&mut of_run.iter().copied(), runs);
    let percent = |deviation: f64| (100.0 * deviation / grand).powi(2);
    let freedom = (runs - 1) as f64;
    let total = of_run.iter().map(|m| percent(m - grand)).sum::<f64>() / freedom;
    let mut within = 0.0;
    if length > 1 {
        for (row, run) in rows.iter().zip(&of_run) {
            for (rate, place) in row.iter().zip(&of_place) {
                within += percent(rate - run - place + grand);
            }
        }
        within /= freedom * (length - 1) as f64;
    }
    Some(Spread {
        between: (total - within / length as f64).max(0.0),
        within,
        freedom,
    })
}

/// What confirmations of so many processes per arm can see, by repetitions from [`MIN_REPETITIONS`] to [`MAX_REPETITIONS`].
fn sizes(spread: Spread, bound: f64, processes: usize) -> Vec<ProcessPlan> {
    // Degrees of freedom of the trend-free rule with equal arms.
    let freedom = (2 * processes - 3) as f64;
    let quantile = |p| upper_quantile(p, freedom).unwrap_or(f64::INFINITY);
    let two_sided = quantile(f64::midpoint(1.0, CONFIDENCE));
    let detected = two_sided + quantile(PLAN_POWER);
    (MIN_REPETITIONS..=MAX_REPETITIONS)
        .map(|repetitions| {
            let variance = bound * (spread.between + spread.within / f64::from(repetitions));
            let error = (2.0 * variance / processes as f64).sqrt();
            ProcessPlan {
                processes,
                repetitions,
                half_width_pct: two_sided * error,
                smallest_effect_pct: MIN_EFFECT_PCT + detected * error,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP_LOAD: RunCost = RunCost {
        load_secs: 0.1,
        repetition_secs: 1.0,
    };
    const DEAR_LOAD: RunCost = RunCost {
        load_secs: 100.0,
        repetition_secs: 1.0,
    };

    /// Runs whose means are 99, 100, 101 and whose repetitions lie `within` around them, after a first one 20 % slower.
    fn baseline(within: f64) -> Vec<Vec<f64>> {
        let pattern = [[1.0, -1.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 1.0, -1.0]];
        let run = |(mean, noise): (f64, [f64; 3])| {
            let rates = noise.map(|n| mean + within * n);
            vec![rates[0] - 20.0, rates[1] + 10.0, rates[2] + 10.0]
        };
        [99.0, 100.0, 101.0]
            .into_iter()
            .zip(pattern)
            .map(run)
            .collect()
    }

    /// By hand: run means 99, 100, 101 give a variance of 1 %²; the residual mean square around run and place is
    /// 6·within²/(2·2), so between = 1 − within²/2; the cold first repetition adds nothing.
    #[test]
    fn components_of_variance_by_hand() {
        let got = spread(&baseline(1.0));
        let want = Spread {
            between: 0.5,
            within: 1.5,
            freedom: 2.0,
        };
        let near = |x: f64, y: f64| (x - y).abs() < 1e-9;
        assert!(got.is_some_and(|s| near(s.between, want.between)
            && near(s.within, want.within)
            && near(s.freedom, want.freedom)));
    }

    /// By hand: χ² with 2 degrees of freedom has quantile −2·ln(1 − p), so the 80 % bound is 2/(−2·ln 0.8) = 4.4814.
    #[test]
    fn the_bound_by_hand() {
        assert!(bound(2.0, Some(0.8)).is_some_and(|b| (b - 4.481_420).abs() < 1e-5));
        assert_eq!(bound(2.0, None), Some(1.0));
    }

    /// By hand, variance 1 %² and 12 processes: SE = √(2/12) = 0.408248, t₀.₉₇₅ and t₀.₉₀ at 21 df are 2.079614, 1.323188.
    #[test]
    fn half_width_and_smallest_effect_by_hand() {
        let one = Spread {
            between: 1.0,
            within: 0.0,
            freedom: 3.0,
        };
        let got = sizes(one, 1.0, 12)[0];
        assert!((got.half_width_pct - 0.848_999).abs() < 1e-5);
        assert!((got.smallest_effect_pct - (1.0 + 0.848_999 + 0.540_189)).abs() < 1e-5);
    }

    #[test]
    fn a_quiet_machine_gets_the_smallest_plan_and_a_loud_one_the_largest() {
        let quiet: Vec<Vec<f64>> = [100.0, 100.1, 99.9, 100.0]
            .map(|m| vec![m - 20.0, m + 10.0, m + 10.0])
            .to_vec();
        let plan_of_quiet = plan(&quiet, CHEAP_LOAD);
        assert_eq!((plan_of_quiet.processes, plan_of_quiet.repetitions), (4, 3));
        assert!(plan_of_quiet.half_width_pct <= 1.0);
        let loud: Vec<Vec<f64>> = [95.0, 103.0, 99.0].map(|m| vec![m; 3]).to_vec();
        let plan_of_loud = plan(&loud, CHEAP_LOAD);
        assert_eq!((plan_of_loud.processes, plan_of_loud.repetitions), (12, 3));
        assert!(plan_of_loud.smallest_effect_pct > 3.0);
    }

    #[test]
    fn repetitions_replace_processes_where_loading_is_dear() {
        // Nearly all spread is within processes.
        let runs: Vec<Vec<f64>> = vec![
            vec![99.0, 101.0, 100.2],
            vec![101.0, 99.0, 99.9],
            vec![100.0, 100.0, 100.1],
            vec![100.0, 99.2, 100.8],
        ];
        let (dear, cheap) = (plan(&runs, DEAR_LOAD), plan(&runs, CHEAP_LOAD));
        assert!(dear.processes <= cheap.processes);
        assert!(dear.repetitions >= cheap.repetitions);
        let secs = |p: ProcessPlan| p.processes as f64 * (100.0 + f64::from(p.repetitions));
        assert!(secs(dear) <= secs(cheap));
    }

    #[test]
    fn without_a_baseline_the_plan_is_the_largest() {
        let bad = vec![vec![100.0], vec![f64::NAN]];
        for runs in [vec![], vec![vec![100.0, 101.0]], bad, vec![vec![], vec![]]] {
            let got = plan(&runs, CHEAP_LOAD);
            assert_eq!((got.processes, got.repetitions), (12, 3));
            assert!(got.half_width_pct.is_infinite());
        }
    }
}
