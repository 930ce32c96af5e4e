//! How long one llama-bench process may take before it counts as hung (design section 4; cases C04, C41).

use super::types::TestSpec;

/// Slowest loading worth waiting for, bytes per second: a network or USB 2 disk.
pub const LOAD_BYTES_PER_SEC: f64 = 50e6;
/// Shader compilation after a driver or build change: three minutes were reported (case C41), on a fast CPU.
pub const COMPILE_SECS: f64 = 300.0;
/// Slowest prompt processing taken for alive, tokens per second.
pub const PROMPT_FLOOR: f64 = 5.0;
/// Slowest generation taken for alive, tokens per second: half an 8B model streamed from a SATA disk reads 0.27 (paper section 6).
pub const GENERATION_FLOOR: f64 = 0.2;
/// A run that takes this many times what its like took is hung, not slow.
pub const SLOW_FACTOR: f64 = 10.0;

/// Seconds a process may take: loading `model_bytes`, compiling shaders, and the work. The work is `expected_secs`, the
/// measured time of a like run, with a wide margin, or every repetition and the tool's own warm-up at floor speeds.
pub fn time_limit_secs(
    model_bytes: u64,
    tests: &[TestSpec],
    repetitions: u32,
    expected_secs: Option<f64>,
) -> f64 {
    let load = model_bytes as f64 / LOAD_BYTES_PER_SEC;
    let work = match expected_secs {
        Some(expected) => expected * SLOW_FACTOR,
        None => tests.iter().map(|t| floor_secs(*t)).sum::<f64>() * f64::from(repetitions + 1),
    };
    load + COMPILE_SECS + work
}

/// One repetition of a test at floor speeds, its depth filled first.
fn floor_secs(test: TestSpec) -> f64 {
    f64::from(test.n_prompt + test.n_depth) / PROMPT_FLOOR
        + f64::from(test.n_gen) / GENERATION_FLOOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_knows_model_and_work() {
        // 2.5 GB at 50 MB/s = 50 s; 300 s; 4 × (512 / 5 + 128 / 0.2) = 4 × 742.4 s.
        let tests = [TestSpec::prompt(512), TestSpec::generation(128)];
        let limit = time_limit_secs(2_500_000_000, &tests, 3, None);
        assert!((limit - (50.0 + 300.0 + 2969.6)).abs() < 1e-9);
    }

    #[test]
    fn a_measured_like_run_tightens_it() {
        let limit = time_limit_secs(0, &[TestSpec::prompt(512)], 3, Some(7.0));
        assert!((limit - 370.0).abs() < 1e-9);
    }
}
