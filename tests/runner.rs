//! The real runner against a real, scripted process: how runs end, and that nothing outlives them.
#![cfg(feature = "test-support")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;

use bench_runs::{CARD_TOML, alive, failed, failed_as, request, run, run_scripted, runner, valid};
use fake_runtime::FakeRuntime;
use flux::domain::types::{EarlyStop, FailureClass, RunOutcome, RunProgress, TestSpec};
use flux::ports::{CancelToken, Runner as _};

const PP: TestSpec = TestSpec::prompt(512);
const TG: TestSpec = TestSpec::generation(128);

/// A behaviour of the simulated tool.
fn doing(act: &str) -> String {
    format!("[[behaviour]]\ndo = {act}\n")
}

#[test]
fn a_stock_run_gives_the_true_rates() {
    let fake = FakeRuntime::new("");
    let run = run(&request(&fake));
    let tests = valid(&run);
    assert_eq!(tests.iter().map(|t| t.test).collect::<Vec<_>>(), [PP, TG]);
    assert!((tests[0].mean_rate() - 187.0).abs() < 1e-3);
    assert!((tests[1].mean_rate() - 22.81).abs() < 1e-3);
    assert_eq!(tests[0].samples_ns.len(), 3);
    assert_eq!(run.raw.exit_code, Some(0));
    assert_eq!(fake.processes(), 1, "a good run is one process");
    let argv = run.raw.argv[1..].join(" ");
    assert_eq!(
        argv,
        "-m simulated.gguf -o jsonl -r 3 --progress -p 512 -n 128"
    );
}

#[test]
fn tests_come_back_in_the_order_asked_for() {
    let fake = FakeRuntime::new("");
    let mut request = request(&fake);
    request.tests = vec![TG, TestSpec::prompt(2048), PP];
    let run = run(&request);
    let order: Vec<TestSpec> = valid(&run).iter().map(|t| t.test).collect();
    assert_eq!(order, request.tests);
}

#[test]
fn effects_reach_the_measured_rates() {
    let fake = FakeRuntime::new(
        "[[effect]]\nwhen = [\"env:GGML_VK_ALLOW_GRAPHICS_QUEUE\", \"n_ubatch=1024\"]\ntg = 2.0\n",
    );
    let mut request = request(&fake);
    request.launch.args = ["-ub", "1024"].map(String::from).to_vec();
    assert!((valid(&run(&request))[1].mean_rate() - 22.81).abs() < 1e-3);
    let env = &mut request.launch.env;
    env.insert("GGML_VK_ALLOW_GRAPHICS_QUEUE".into(), "1".into());
    assert!((valid(&run(&request))[1].mean_rate() - 45.62).abs() < 1e-3);
}

#[test]
fn a_builds_own_variables_reach_its_processes_and_a_setting_wins() {
    let fake = FakeRuntime::new("[[effect]]\nwhen = [\"env:GGML_CUDA_X=1\"]\ntg = 2.0\n");
    let mut request = request(&fake);
    let own = ("GGML_CUDA_X".to_owned(), "1".to_owned());
    request.runtime.env.extend([own.clone()]);
    let with = run(&request);
    assert!((valid(&with)[1].mean_rate() - 45.62).abs() < 1e-3);
    assert_eq!(with.raw.env.get("GGML_CUDA_X"), Some(&own.1));
    let env = &mut request.launch.env;
    env.insert(own.0, "2".to_owned());
    assert!((valid(&run(&request))[1].mean_rate() - 22.81).abs() < 1e-3);
}

#[test]
fn failures_get_their_class() {
    let class = |act: &str| failed(&run_scripted(&doing(act))).0.class;
    assert_eq!(class("\"oom\""), FailureClass::OutOfMemory);
    // Windows knows no signals: the simulated tool aborts instead.
    let killed = if cfg!(unix) {
        FailureClass::Killed
    } else {
        FailureClass::Crashed
    };
    assert_eq!(class("\"killed\""), killed);
    assert_eq!(class("\"device-lost\""), FailureClass::DeviceLostTimeout);
    assert_eq!(class("\"disk-full\""), FailureClass::DiskFull);
    assert_eq!(class("\"garbage\""), FailureClass::Unparsable);
    assert_eq!(class("\"wrong-tests\""), FailureClass::WrongTests);
    assert_eq!(class("\"print-nan\""), FailureClass::InvalidSample);
    assert_eq!(class("{ abort = \"assertion\" }"), FailureClass::Crashed);
}

#[test]
fn a_late_status_is_a_crash_at_exit() {
    let run = run_scripted(&doing("{ exit = 3 }"));
    let (failure, salvaged) = failed(&run);
    assert_eq!(failure.class, FailureClass::CrashAtExit);
    assert_eq!(
        failure.detail,
        "llama-bench printed results but ended with status 3"
    );
    assert_eq!(salvaged, 2);
}

#[test]
fn a_behaviour_can_wait_for_its_process() {
    let fake = FakeRuntime::new("[[behaviour]]\ndo = \"oom\"\nprocess = 2\n");
    let request = request(&fake);
    valid(&run(&request));
    failed_as(&run(&request), FailureClass::OutOfMemory);
    valid(&run(&request));
}

#[test]
fn a_refused_argument_is_named() {
    let fake = FakeRuntime::new("");
    let mut request = request(&fake);
    request.launch.args = vec!["--nope".into(), "1".into()];
    let run = run(&request);
    let detail = failed_as(&run, FailureClass::InvalidArgument);
    assert!(detail.contains("--nope"), "{detail}");
}

#[test]
fn a_vague_failure_is_asked_again_with_a_log() {
    // Without `-v` llama-bench says only that the model failed to load; the log has the reason.
    let fake = FakeRuntime::new(&doing(
        "{ fail = \"\"\"alloc_tensor_range: failed to allocate Vulkan0 buffer\nllama_bench: error: failed to load model\"\"\" }\nprocess = 2\n\
         [[behaviour]]\ndo = { fail = \"llama_bench: error: failed to load model\" }",
    ));
    let run = run(&request(&fake));
    failed_as(&run, FailureClass::OutOfMemory);
    assert_eq!(fake.processes(), 2);
    assert!(run.raw.stderr.contains("run again with -v"));
    assert!(!run.raw.argv.contains(&"-v".to_owned()));
}

#[test]
fn a_program_that_is_gone_or_locked_is_not_started() {
    let fake = FakeRuntime::new("");
    let mut request = request(&fake);
    request.runtime.bench = Some(fake.dir().join("nothing"));
    let detail = failed_as(&run(&request), FailureClass::NotStarted).to_owned();
    assert!(detail.starts_with("the program is gone: "), "{detail}");
    request.runtime.bench = Some(fake.dir().join("fake-bench.toml"));
    let detail = failed_as(&run(&request), FailureClass::NotStarted).to_owned();
    let refused = if cfg!(unix) {
        "no permission to run it: "
    } else {
        "this is no program of this system: "
    };
    assert!(detail.starts_with(refused), "{detail}");
    request.runtime.bench = None;
    failed_as(&run(&request), FailureClass::NotStarted);
}

#[test]
fn a_set_of_tests_that_is_no_product_is_refused_before_it_runs() {
    let fake = FakeRuntime::new("");
    let mut request = request(&fake);
    request.tests = vec![PP, TG.at_depth(4096)];
    failed_as(&run(&request), FailureClass::InvalidArgument);
    assert_eq!(fake.processes(), 0);
}

#[test]
fn progress_names_test_and_repetition() {
    let fake = FakeRuntime::new("");
    let mut steps = Vec::new();
    runner().run(&request(&fake), &CancelToken::new(), &mut |p| steps.push(p));
    let step = |test: &str, repetition| RunProgress {
        test: test.to_owned(),
        repetition,
        repetitions: 3,
    };
    let wanted: Vec<_> = ["pp512", "tg128"]
        .into_iter()
        .flat_map(|t| (1..=3).map(move |r| step(t, r)))
        .collect();
    assert_eq!(steps, wanted);
}

#[test]
fn a_hopeless_candidate_is_stopped_early() {
    let fake = FakeRuntime::new("sleep_ms_per_rep = 60000\n");
    let mut request = request(&fake);
    request.early_stop = Some(EarlyStop {
        max_repetition_secs: vec![(PP, 0.05)],
    });
    let run = run(&request);
    match run.outcome {
        RunOutcome::StoppedEarly {
            test,
            repetition_secs,
            limit_secs,
        } => {
            assert_eq!(test, PP);
            assert!(repetition_secs > limit_secs && repetition_secs < 20.0);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(alive(&fake), [] as [u32; 0]);
}

#[test]
fn a_quick_candidate_is_not_stopped() {
    let fake = FakeRuntime::new("");
    let mut request = request(&fake);
    request.early_stop = Some(EarlyStop {
        max_repetition_secs: vec![(PP, 30.0), (TG, 30.0)],
    });
    valid(&run(&request));
}

#[test]
fn buffers_are_read_and_the_largest_context_counts() {
    let fake = FakeRuntime::new(CARD_TOML);
    let mut request = request(&fake);
    request.log_buffers = true;
    request.gpu_required = true;
    let run = run(&request);
    valid(&run);
    let card = run.buffers.iter().find(|b| b.device == "Vulkan0").unwrap();
    // 512 tokens × 144 KiB = 72 MiB; the second context has 256 tokens only.
    assert!((card.context.as_mib() - 72.0).abs() < 1e-6);
    assert!((card.model.as_mib() - 2375.91).abs() < 1e-6);
    assert!((card.compute.as_mib() - 301.75).abs() < 1e-6);
}

#[cfg(target_os = "linux")]
mod no_orphans {
    use std::process::Command;
    use std::time::Instant;

    use flux::ports::CancelMode;

    use super::bench_runs::{is_alone, wait_until};
    use super::*;

    #[test]
    fn cancel_ends_and_reaps() {
        let fake = FakeRuntime::new("sleep_ms_per_rep = 60000\n");
        let cancel = CancelToken::new();
        let run = runner().run(&request(&fake), &cancel, &mut |_| {
            assert_eq!(alive(&fake).len(), 1);
            cancel.cancel(CancelMode::Now);
        });
        assert_eq!(run.outcome, RunOutcome::Cancelled);
        assert_eq!(run.raw.signal, Some(9));
        assert_eq!(alive(&fake), [] as [u32; 0]);
    }

    #[test]
    fn a_gentle_cancel_lets_the_run_end() {
        let fake = FakeRuntime::new("");
        let cancel = CancelToken::new();
        cancel.cancel(CancelMode::AfterSample);
        valid(&runner().run(&request(&fake), &cancel, &mut |_| {}));
    }

    #[test]
    fn a_hang_that_ignores_sigterm_ends_at_its_limit() {
        let fake = FakeRuntime::new(&(doing("\"ignore-sigterm\"") + &doing("\"hang\"")));
        let mut request = request(&fake);
        request.time_limit_secs = 0.2;
        let begun = Instant::now();
        let run = run(&request);
        failed_as(&run, FailureClass::TimedOut);
        assert_eq!(run.raw.signal, Some(9));
        assert!(begun.elapsed().as_secs_f64() < 20.0);
        assert_eq!(alive(&fake), [] as [u32; 0]);
    }

    #[test]
    fn a_grandchild_goes_with_its_parent() {
        for then in ["\"hang\"", "{ exit = 0 }"] {
            let fake = FakeRuntime::new(&(doing("\"grandchild\"") + &doing(then)));
            let mut request = request(&fake);
            request.time_limit_secs = 0.5;
            run(&request);
            wait_until("the grandchild is gone", || alive(&fake).is_empty());
        }
    }

    #[test]
    fn a_watcher_that_panics_leaves_no_child() {
        let fake = FakeRuntime::new("sleep_ms_per_rep = 60000\n");
        let panicking = std::panic::AssertUnwindSafe(|| {
            runner().run(&request(&fake), &CancelToken::new(), &mut |_| {
                panic!("on purpose")
            })
        });
        assert!(std::panic::catch_unwind(panicking).is_err());
        assert_eq!(alive(&fake), [] as [u32; 0]);
    }

    /// Started again as a Flux of its own, which the test then kills.
    #[test]
    fn a_killed_flux_takes_its_child_along() {
        const INNER: &str = "FLUX_TEST_INNER_DIR";
        let fake = FakeRuntime::new(&doing("\"hang\""));
        if let Ok(mark) = std::env::var(INNER) {
            let mut request = request(&fake);
            request.launch.env.insert("FAKE_MARK".into(), mark);
            run(&request);
            return;
        }
        let mut inner = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "no_orphans::a_killed_flux_takes_its_child_along"])
            .env(INNER, fake.dir())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the child runs", || alive(&fake).len() == 1);
        inner.kill().unwrap();
        inner.wait().unwrap();
        wait_until("the child is gone", || alive(&fake).is_empty());
    }

    /// Peak memory of this process, KiB.
    fn peak_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn a_200_mb_log_does_not_grow_memory() {
        if !is_alone("no_orphans::a_200_mb_log_does_not_grow_memory", &[]) {
            return;
        }
        let fake = FakeRuntime::new(&doing("{ flood-mib = 200 }"));
        let before = peak_kib();
        let run = run(&request(&fake));
        valid(&run);
        let grown = peak_kib() - before;
        assert!(grown < 16 * 1024, "{grown} KiB");
        assert!(run.raw.stderr.len() < 300 * 1024);
        assert!(run.raw.stderr.contains("bytes cut"));
        assert!(
            run.raw.stderr.contains("llama-bench: benchmark 2/2"),
            "the tail is kept"
        );
    }
}
