//! The numbers under every verdict (paper section 3, design section 5): summaries, Welch, Fieller, Hedges' g, the
//! verdict's order, the confirmation's rule and its plan. The sampling unit is one run (process) everywhere.

mod confirm;
mod plan;
mod student;
mod verdict;
mod welch;

pub use confirm::{Ordered, confirm, drift_pct};
pub use plan::{PLAN_CONFIDENCE, PLAN_POWER, ProcessPlan, RunCost, plan, plan_at};
pub use student::{two_sided_p, upper_quantile};
pub use verdict::{compare, judge};
pub use welch::{Summary, Welch, difference, fieller, hedges_g, welch};

/// Smallest effect worth a claim, percent: below it settings differ by less than a machine's own moods (paper section 3).
pub const MIN_EFFECT_PCT: f64 = 1.0;
/// Largest coefficient of variation of an arm's run means, percent: above it the machine is too unsteady to judge.
pub const MAX_CV_PCT: f64 = 10.0;
/// Largest loss of the guarded metric, percent (design section 5).
pub const GUARD_LOSS_PCT: f64 = 2.0;
/// Fewest runs per arm for any verdict: two leave one degree of freedom, whose interval says nothing.
pub const MIN_RUNS: usize = 3;
/// Confidence of every interval shown.
pub const CONFIDENCE: f64 = 0.95;
/// Fewest processes per arm in a confirmation: one A-B-B-A B-A-A-B.
pub const MIN_PROCESSES: usize = 4;
/// Most processes per arm in a confirmation: what a user waits for.
pub const MAX_PROCESSES: usize = 12;
/// Fewest repetitions inside a process: the first is often cold (fixtures: 10.6k, 14.1k, 14.1k t/s).
pub const MIN_REPETITIONS: u32 = 3;
/// Most repetitions inside a process: beyond them only more processes help.
pub const MAX_REPETITIONS: u32 = 10;
/// Half-width of the 95 % interval a confirmation is planned for, percent of the baseline.
pub const TARGET_HALF_WIDTH_PCT: f64 = 1.0;
