//! What a dispatch and a submission cost on each queue family (paper section 4.2), by least squares and Welch's intervals.

use serde::{Deserialize, Serialize};

use crate::domain::stats::{CONFIDENCE, Summary, difference, upper_quantile};
use crate::domain::text::{decimals_for, plus_minus, signed};

use super::Family;

/// One timed series: `submissions` command buffers of `dispatches` dispatches each, handed over one by one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DispatchSample {
    /// Vulkan's index of the queue family.
    pub family: u32,
    /// Round of the interleaved schedule, from 0.
    pub round: u32,
    /// A barrier after each dispatch.
    pub barriers: bool,
    /// Submissions.
    pub submissions: u32,
    /// Dispatches in each.
    pub dispatches: u32,
    /// Seconds from the first hand-over to knowing that all was done.
    pub host_secs: f64,
    /// Seconds between the device's timestamps around all of it.
    pub device_secs: Option<f64>,
}

/// Whose clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// The host's.
    Host,
    /// The device's.
    Device,
}

/// A mean over rounds with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Mean, microseconds.
    pub mean_us: f64,
    /// Half of the interval, microseconds; `None` below two rounds.
    pub half_width_us: Option<f64>,
    /// Rounds.
    pub rounds: u32,
}

impl Estimate {
    /// Of one value per round, seconds.
    fn of(secs: &[f64]) -> Self {
        let us: Vec<f64> = secs.iter().map(|s| s * 1e6).collect();
        let summary = Summary::of(&us);
        let half_width = summary.sd.and_then(|sd| {
            let t = upper_quantile(f64::midpoint(1.0, CONFIDENCE), (us.len() - 1) as f64)?;
            Some(t * sd / (us.len() as f64).sqrt())
        });
        Self {
            mean_us: summary.mean,
            half_width_us: half_width,
            rounds: us.len() as u32,
        }
    }

    /// `3.2 ± 0.1`, in microseconds.
    pub fn words(&self) -> String {
        match self.half_width_us {
            Some(half) => plus_minus(self.mean_us, half),
            None => format!("{:.1}", self.mean_us),
        }
    }
}

/// Costs on one family, one clock, with or without barriers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Family.
    pub family: Family,
    /// Barriers between dispatches.
    pub barriers: bool,
    /// Clock.
    pub clock: Clock,
    /// Of one submission more, with as many dispatches.
    pub submission: Estimate,
    /// Of one dispatch more, in as many submissions.
    pub dispatch: Estimate,
}

/// What the compute-only family costs more than the universal one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Barriers between dispatches.
    pub barriers: bool,
    /// Clock.
    pub clock: Clock,
    /// Per submission, microseconds.
    pub submission_us: f64,
    /// Its 95 % interval (Welch); `None` without spread.
    pub submission_ci95_us: Option<[f64; 2]>,
    /// Per dispatch, microseconds.
    pub dispatch_us: f64,
    /// Its 95 % interval.
    pub dispatch_ci95_us: Option<[f64; 2]>,
}

/// Everything that the dispatches of a card say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueFindings {
    /// Costs, by family.
    pub costs: Vec<Costs>,
    /// The compute-only family against the universal one; empty with only one.
    pub differences: Vec<Finding>,
    /// In a sentence.
    pub verdict: String,
}

/// Seconds per submission and per dispatch of every round.
struct Rounds {
    submission: Vec<f64>,
    dispatch: Vec<f64>,
}

impl QueueFindings {
    /// `None` without samples.
    pub fn of(families: &[Family], samples: &[DispatchSample]) -> Option<Self> {
        let mut costs = Vec::new();
        let mut differences = Vec::new();
        for barriers in [true, false] {
            for clock in [Clock::Host, Clock::Device] {
                let rounds_of = |family: &Family| rounds(samples, family.index, barriers, clock);
                for family in families {
                    costs.extend(rounds_of(family).map(|rounds| Costs {
                        family: *family,
                        barriers,
                        clock,
                        submission: Estimate::of(&rounds.submission),
                        dispatch: Estimate::of(&rounds.dispatch),
                    }));
                }
                let pair = pair(families).and_then(|(universal, compute)| {
                    Some((rounds_of(&universal)?, rounds_of(&compute)?))
                });
                differences.extend(pair.map(|(a, b)| finding(barriers, clock, &a, &b)));
            }
        }
        if costs.is_empty() {
            return None;
        }
        let verdict = verdict(families, &differences);
        Some(Self {
            costs,
            differences,
            verdict,
        })
    }
}

/// The universal and the compute-only family, the first of each.
fn pair(families: &[Family]) -> Option<(Family, Family)> {
    let first = |graphics| families.iter().find(|f| f.graphics == graphics).copied();
    Some((first(true)?, first(false)?))
}

/// Fits every round by itself: rounds are what is independent, not the series inside one.
fn rounds(samples: &[DispatchSample], family: u32, barriers: bool, clock: Clock) -> Option<Rounds> {
    let of = |s: &&DispatchSample| s.family == family && s.barriers == barriers;
    let last = samples.iter().filter(of).map(|s| s.round).max()?;
    let mut found = Rounds {
        submission: Vec::new(),
        dispatch: Vec::new(),
    };
    for round in 0..=last {
        let points: Option<Vec<[f64; 3]>> = samples
            .iter()
            .filter(of)
            .filter(|s| s.round == round)
            .map(|s| {
                let secs = match clock {
                    Clock::Host => Some(s.host_secs),
                    Clock::Device => s.device_secs,
                };
                let (m, n) = (f64::from(s.submissions), f64::from(s.dispatches));
                secs.map(|secs| [m, m * n, secs])
            })
            .collect();
        let (submission, dispatch) = least_squares(&points?)?;
        found.submission.push(submission);
        found.dispatch.push(dispatch);
    }
    Some(found)
}

/// Slopes a, b of `t = c + a·m + b·k` over points `[m, k, t]`: the normal equations of the centred values. `None` where the
/// points do not tell the two apart.
fn least_squares(points: &[[f64; 3]]) -> Option<(f64, f64)> {
    let n = points.len() as f64;
    let mean = |at: usize| points.iter().map(|p| p[at]).sum::<f64>() / n;
    let means = [mean(0), mean(1), mean(2)];
    let product = |i: usize, j: usize| -> f64 {
        let of = |p: &[f64; 3]| (p[i] - means[i]) * (p[j] - means[j]);
        points.iter().map(of).sum()
    };
    let (mm, kk, mk) = (product(0, 0), product(1, 1), product(0, 1));
    let (mt, kt) = (product(0, 2), product(1, 2));
    let determinant = mm * kk - mk * mk;
    // As far as rounding lets it be told from zero.
    let is_told = determinant > f64::EPSILON * mm * kk;
    is_told.then(|| {
        (
            (mt * kk - kt * mk) / determinant,
            (kt * mm - mt * mk) / determinant,
        )
    })
}

fn finding(barriers: bool, clock: Clock, universal: &Rounds, compute: &Rounds) -> Finding {
    const MICRO: f64 = 1e6;
    let of = |a: &[f64], b: &[f64]| {
        let change = Summary::of(b).mean - Summary::of(a).mean;
        let interval = difference(a, b);
        (change * MICRO, interval.map(|ci| ci.map(|v| v * MICRO)))
    };
    let (submission_us, submission_ci95_us) = of(&universal.submission, &compute.submission);
    let (dispatch_us, dispatch_ci95_us) = of(&universal.dispatch, &compute.dispatch);
    Finding {
        barriers,
        clock,
        submission_us,
        submission_ci95_us,
        dispatch_us,
        dispatch_ci95_us,
    }
}

/// Judged by the host's clock, with barriers: that is how llama.cpp waits for its tokens.
fn verdict(families: &[Family], differences: &[Finding]) -> String {
    if pair(families).is_none() {
        return match families {
            [] => "no queue family computes".to_owned(),
            [only] => format!("only one queue family computes: {}", only.words()),
            [first, ..] => {
                let kind = if first.graphics {
                    "draws too"
                } else {
                    "is compute only"
                };
                format!("every queue family that computes {kind}: there is nothing to choose")
            }
        };
    }
    let judged = differences
        .iter()
        .find(|f| f.barriers && f.clock == Clock::Host);
    let Some(judged) = judged else {
        return "too little was measured to compare the queue families".to_owned();
    };
    let submission = judged_words(
        judged.submission_us,
        judged.submission_ci95_us,
        "submission",
    );
    let dispatch = judged_words(judged.dispatch_us, judged.dispatch_ci95_us, "dispatch");
    match (submission, dispatch) {
        (Some(submission), Some(dispatch)) => {
            format!("this driver costs {submission} and {dispatch} on the compute-only family")
        }
        (Some(one), None) | (None, Some(one)) => {
            format!("this driver costs {one} on the compute-only family")
        }
        (None, None) => {
            let range = judged.submission_ci95_us.map_or_else(String::new, |ci| {
                let [lo, hi] = interval_words(ci);
                format!(
                    ": per submission, the compute-only family costs between {lo} and {hi} µs more (95 % interval)"
                )
            });
            format!("no difference between the queue families was found{range}")
        }
    }
}

/// `1.2 µs more per submission (95 % interval 1.1 to 1.3)`; `None` where the interval holds zero, or there is none.
fn judged_words(us: f64, ci95: Option<[f64; 2]>, per: &str) -> Option<String> {
    let [lo, hi] = ci95?;
    if lo <= 0.0 && hi >= 0.0 {
        return None;
    }
    let (word, lo, hi) = if us > 0.0 {
        ("more", lo, hi)
    } else {
        ("less", -hi, -lo)
    };
    let decimals = decimals_for((hi - lo) / 2.0);
    Some(format!(
        "{:.decimals$} µs {word} per {per} (95 % interval {lo:.decimals$} to {hi:.decimals$})",
        us.abs()
    ))
}

/// Both ends of an interval in the digits it carries.
fn interval_words([lo, hi]: [f64; 2]) -> [String; 2] {
    let decimals = decimals_for((hi - lo) / 2.0);
    [signed(lo, decimals), signed(hi, decimals)]
}
