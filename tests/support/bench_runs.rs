//! Requests to and runs of the simulated llama-bench through the real runner, and a look at who is still alive.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flux::domain::types::{
    Bytes, Failure, FailureClass, Launch, LiveAsk, Run, RunOutcome, RunRequest, TestSamples,
    TestSpec, Timestamp,
};
use flux::ports::{CancelToken, Clock, Runner as _};
use flux::runtime::bench::BenchRunner;

use super::fake_runtime::FakeRuntime;

/// The card of the paper, as the simulated build lists it.
pub const CARD: (&str, &str) = ("Vulkan0", "AMD Radeon RX 580 2048SP");
/// The same in the simulated build's script.
pub const CARD_TOML: &str = "[[device]]\nid = \"Vulkan0\"\nname = \"AMD Radeon RX 580 2048SP\"\ntotal_mib = 8192\nfree_mib = 7900\n";
/// A variable that marks a test's children and theirs.
pub const MARK: &str = "FAKE_MARK";
/// How long a test waits for another process before it gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// The machine's monotonic clock.
pub struct RealClock(pub Instant);

impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp(1)
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// pp512 and tg128, three repetitions, a minute.
pub fn request(fake: &FakeRuntime) -> RunRequest {
    RunRequest {
        runtime: fake.runtime(&[CARD]),
        model: PathBuf::from("simulated.gguf"),
        tests: vec![TestSpec::prompt(512), TestSpec::generation(128)],
        repetitions: 3,
        launch: Launch {
            args: Vec::new(),
            env: BTreeMap::from([(MARK.to_owned(), mark(fake.dir()))]),
        },
        expect: BTreeMap::new(),
        gpu_required: false,
        time_limit_secs: 60.0,
        early_stop: None,
        log_buffers: false,
        live: LiveAsk {
            seed: 1,
            text: flux::domain::types::TextKind::Words,
            clients: 1,
            model_bytes: Bytes(1),
        },
    }
}

/// The mark of a test's processes: its runtime's folder.
pub fn mark(dir: &Path) -> String {
    dir.to_string_lossy().into_owned()
}

/// Runs it to its end.
pub fn run(request: &RunRequest) -> Run {
    runner().run(request, &CancelToken::new(), &mut |_| {})
}

/// A runner on the machine's clock.
pub fn runner() -> BenchRunner {
    BenchRunner::new(Arc::new(RealClock(Instant::now())))
}

/// Runs a request to a runtime scripted like this.
pub fn run_scripted(config_toml: &str) -> Run {
    run(&request(&FakeRuntime::new(config_toml)))
}

/// The samples of a valid run.
pub fn valid(run: &Run) -> &[TestSamples] {
    match &run.outcome {
        RunOutcome::Valid { tests } => tests,
        other => panic!("not valid: {other:?}\n{}", run.raw.stderr),
    }
}

/// The failure of a failed run, and how many records were salvaged.
pub fn failed(run: &Run) -> (&Failure, usize) {
    match &run.outcome {
        RunOutcome::Failed { failure, salvaged } => (failure, salvaged.len()),
        other => panic!("not failed: {other:?}"),
    }
}

/// Asserts the class of a failed run and returns the evidence.
pub fn failed_as(run: &Run, class: FailureClass) -> &str {
    let (failure, _) = failed(run);
    assert_eq!(failure.class, class, "{failure}");
    &failure.detail
}

/// Living processes this test's runs started, grandchildren included.
#[cfg(target_os = "linux")]
pub fn alive(fake: &FakeRuntime) -> Vec<u32> {
    let needle = format!("{MARK}={}\0", mark(fake.dir()));
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            // A zombie has no environment left: it is dead, its new parent has yet to notice.
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&environ).contains(&needle)
        })
        .collect()
}

/// Living processes of the runtime's programs: elsewhere their environment is not to be had.
#[cfg(not(target_os = "linux"))]
pub fn alive(fake: &FakeRuntime) -> Vec<u32> {
    use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

    let mut system = System::new().unwrap();
    let what = ProcessRefreshKind::nothing().with_exe(UpdateKind::Always);
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, what);
    // The folder's last parts: before them there are several ways to write it.
    let parts: Vec<_> = fake.dir().iter().rev().take(2).collect();
    let folder: PathBuf = parts.into_iter().rev().collect();
    let is_there = |exe: &Path| exe.parent().is_some_and(|dir| dir.ends_with(&folder));
    let processes = system.processes().values();
    let found = processes.filter(|p| p.exe().is_some_and(is_there));
    found.map(|p| p.pid().as_u32()).collect()
}

/// Runs this test again in a process of its own, with these variables, and returns false; true inside that process.
pub fn is_alone(test: &str, env: &[(&str, &str)]) -> bool {
    const ALONE: &str = "FLUX_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(ALONE, "1")
        .envs(env.iter().copied())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    false
}

/// Waits until `done`, or fails.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
