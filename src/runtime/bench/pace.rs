//! Times the repetitions of a running llama-bench from its `--progress` lines: progress for people, and the early
//! stop of a hopeless candidate (design section 5, screening).

use std::time::Duration;

use crate::domain::types::{EarlyStop, RunOutcome, RunProgress, TestSpec};

/// How llama-bench marks its progress lines.
const PREFIX: &str = "llama-bench: benchmark ";

/// What one progress line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// A timed repetition begins: benchmark (from 1), repetition, repetitions.
    Repetition(usize, u32, u32),
    /// Anything else: starting, warm-up, filling the depth.
    Other,
}

/// `benchmark 1/2: prompt run 1/3` and its kin; `None` for other lines.
fn mark(line: &str) -> Option<Mark> {
    let rest = line.strip_prefix(PREFIX)?;
    let (of, what) = rest.split_once(": ")?;
    let benchmark = of.split_once('/')?.0.parse().ok()?;
    let count = what
        .strip_prefix("prompt run ")
        .or_else(|| what.strip_prefix("generation run "));
    let repetition = count.and_then(|c| {
        let (now, all) = c.split_once('/')?;
        Some((now.parse().ok()?, all.trim().parse().ok()?))
    });
    Some(match repetition {
        Some((now, all)) => Mark::Repetition(benchmark, now, all),
        None => Mark::Other,
    })
}

/// A repetition under way.
struct Running {
    test: TestSpec,
    repetition: u32,
    since: Duration,
    limit_secs: Option<f64>,
}

/// The stopwatch of one process. Times are the clock's monotonic ones.
pub(super) struct Pace {
    order: Vec<TestSpec>,
    limits: Vec<(TestSpec, f64)>,
    running: Option<Running>,
    stopped: Option<RunOutcome>,
}

impl Pace {
    /// For tests in the tool's own order.
    pub(super) fn new(order: Vec<TestSpec>, early_stop: Option<&EarlyStop>) -> Self {
        Self {
            order,
            limits: early_stop
                .map(|e| e.max_repetition_secs.clone())
                .unwrap_or_default(),
            running: None,
            stopped: None,
        }
    }

    /// Takes a line of stderr; a repetition that begins is progress.
    pub(super) fn line(&mut self, line: &str, now: Duration) -> Option<RunProgress> {
        let mark = mark(line)?;
        let Mark::Repetition(benchmark, repetition, repetitions) = mark else {
            self.repetition_ended(now);
            return None;
        };
        let test = *self.order.get(benchmark.checked_sub(1)?)?;
        let continues = |r: &Running| r.test == test && r.repetition == repetition;
        // A prompt-and-generation test prints two lines per repetition.
        if !self.running.as_ref().is_some_and(continues) {
            self.repetition_ended(now);
            self.running = Some(Running {
                test,
                repetition,
                since: now,
                limit_secs: self.limit_of(test),
            });
        }
        Some(RunProgress {
            test: test.to_string(),
            repetition,
            repetitions,
        })
    }

    /// The repetition under way, if any, is over: a record was printed or another line came.
    pub(super) fn repetition_ended(&mut self, now: Duration) {
        self.check(now);
        self.running = None;
    }

    /// Has a repetition passed its limit? Once it has, it stays so.
    pub(super) fn check(&mut self, now: Duration) -> bool {
        if self.stopped.is_none()
            && let Some(running) = &self.running
            && let Some(limit_secs) = running.limit_secs
        {
            let repetition_secs = now.saturating_sub(running.since).as_secs_f64();
            if repetition_secs > limit_secs {
                self.stopped = Some(RunOutcome::StoppedEarly {
                    test: running.test,
                    repetition_secs,
                    limit_secs,
                });
            }
        }
        self.stopped.is_some()
    }

    /// The outcome of a process that was stopped.
    pub(super) fn into_stopped(self) -> Option<RunOutcome> {
        self.stopped
    }

    fn limit_of(&self, test: TestSpec) -> Option<f64> {
        let found = self.limits.iter().find(|(t, _)| *t == test);
        found.map(|(_, limit)| *limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PP: TestSpec = TestSpec::prompt(512);
    const TG: TestSpec = TestSpec::generation(128);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn pace() -> Pace {
        let stop = EarlyStop {
            max_repetition_secs: vec![(TG, 2.0)],
        };
        Pace::new(vec![PP, TG], Some(&stop))
    }

    #[test]
    fn the_tools_lines_are_read() {
        assert_eq!(
            mark("llama-bench: benchmark 2/4: generation run 1/3"),
            Some(Mark::Repetition(2, 1, 3))
        );
        for other in [
            "starting",
            "warmup prompt run",
            "depth run 2/2 (cached)",
            "prompt run x",
        ] {
            let line = format!("llama-bench: benchmark 1/2: {other}");
            assert_eq!(mark(&line), Some(Mark::Other), "{other}");
        }
        assert_eq!(mark("load_tensors: offloaded 1/2"), None);
    }

    #[test]
    fn only_the_limited_tests_repetitions_are_stopped() {
        let mut pace = pace();
        let progress = pace.line("llama-bench: benchmark 1/2: prompt run 1/3", at(0));
        assert_eq!(progress.unwrap().test, "pp512");
        assert!(!pace.check(at(60_000)), "pp512 has no limit");
        pace.line("llama-bench: benchmark 2/2: starting", at(60_000));
        pace.line(
            "llama-bench: benchmark 2/2: warmup generation run",
            at(60_001),
        );
        assert!(!pace.check(at(90_000)), "a warm-up is not timed");
        pace.line("llama-bench: benchmark 2/2: generation run 1/3", at(90_000));
        assert!(!pace.check(at(92_000)));
        assert!(pace.check(at(92_500)));
        assert_eq!(
            pace.into_stopped(),
            Some(RunOutcome::StoppedEarly {
                test: TG,
                repetition_secs: 2.5,
                limit_secs: 2.0
            })
        );
    }

    #[test]
    fn a_repetition_that_ended_too_late_is_hopeless_too() {
        let mut pace = pace();
        pace.line("llama-bench: benchmark 2/2: generation run 1/3", at(0));
        pace.line("llama-bench: benchmark 2/2: generation run 2/3", at(2_100));
        assert!(pace.check(at(2_100)));
    }

    #[test]
    fn a_printed_record_ends_the_repetition() {
        let mut pace = pace();
        pace.line("llama-bench: benchmark 2/2: generation run 3/3", at(0));
        pace.repetition_ended(at(1_000));
        assert!(!pace.check(at(60_000)));
    }

    #[test]
    fn a_mixed_test_is_timed_from_its_prompt() {
        let mixed = TestSpec {
            n_prompt: 512,
            n_gen: 128,
            n_depth: 0,
        };
        let stop = EarlyStop {
            max_repetition_secs: vec![(mixed, 2.0)],
        };
        let mut pace = Pace::new(vec![mixed], Some(&stop));
        pace.line("llama-bench: benchmark 1/1: prompt run 1/3", at(0));
        pace.line("llama-bench: benchmark 1/1: generation run 1/3", at(1_500));
        assert!(pace.check(at(2_100)));
    }
}
