//! Recorded sessions: the database they were kept in, and a runner that answers the engine with their runs, one by one.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::Mutex;

use flux::domain::types::{Run, RunOutcome, RunProgress, RunRequest};
use flux::ports::{CancelToken, Runner, Store as _, StoredRun};
use flux::store::{Access, SqliteStore};

/// Three sessions on one NVIDIA H200 (`tests/recorded/README.md`): 1 is a tuning that ends improved.
pub const H200: &str = "tests/recorded/h200-sessions.db.gz";

/// One session on two cores of a shared machine, with its sensors read: it ends inconclusive.
const CPU: &str = "tests/recorded/cpu-session.db.gz";

/// Two sessions on one NVIDIA H200 with its sensors read: 1 is a tuning for energy.
const ENERGY: &str = "tests/recorded/h200-energy.db.gz";

/// Seven sessions on one NVIDIA H200: five benchmarks of placements under forced budgets, CUDA against Vulkan, a tuning.
pub const PLANS: &str = "tests/recorded/h200-plans.db.gz";

/// Three sessions on two NVIDIA H200s of one host: how a model is split over them.
pub const PAIR: &str = "tests/recorded/h200-pair.db.gz";

/// Five finished benchmarks of placements under forced budgets on one NVIDIA H200.
pub const BUDGETS: &str = "tests/recorded/h200-budgets.db.gz";

/// Fifteen sessions on two NVIDIA H200s of one host: stock against stock eleven times, three tunings, a placement.
pub const TUNES: &str = "tests/recorded/h200-tunes.db.gz";

/// Stock against stock eleven times on the second of two NVIDIA H200s, while the first did the same.
pub const STOCK: &str = "tests/recorded/h200-aa.db.gz";

/// Seven sessions on one NVIDIA H200: four tunings on Vulkan and one on CUDA, a finished benchmark of a mixture's placements, one
/// of a dense model's that was killed.
pub const VULKAN: &str = "tests/recorded/h200-vulkan.db.gz";

/// Puts the sessions of the H200 into a data folder.
pub fn restore(data: &Path) {
    unpack(H200, data);
}

/// Puts the session of the CPU into a data folder.
pub fn restore_cpu(data: &Path) {
    unpack(CPU, data);
}

/// Puts the energy tuning of the H200 into a data folder.
pub fn restore_energy(data: &Path) {
    unpack(ENERGY, data);
}

/// Puts recorded sessions into a data folder.
pub fn unpack(recorded: &str, data: &Path) {
    let packed = fs::File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join(recorded)).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed)
        .read_to_end(&mut bytes)
        .unwrap();
    fs::create_dir_all(data).unwrap();
    fs::write(data.join("flux.db"), bytes).unwrap();
}

/// A recorded database, and the folder that it lies in.
pub fn opened(recorded: &str) -> (tempfile::TempDir, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    unpack(recorded, dir.path());
    let store = SqliteStore::open(dir.path(), Access::Look).unwrap();
    (dir, store)
}

/// The runs of a recorded session, in order.
pub fn runs(session: i64) -> Vec<StoredRun> {
    opened(H200).1.runs(session).unwrap()
}

type Hold = Box<dyn Fn(&CancelToken) + Send + Sync>;

/// Answers with a recording. What is asked must be what was recorded.
pub struct Replay {
    runs: Vec<StoredRun>,
    next: Mutex<usize>,
    hold: Option<(usize, Hold)>,
}

impl Replay {
    /// Of this session.
    pub fn new(session: i64) -> Self {
        Self {
            runs: runs(session),
            next: Mutex::new(0),
            hold: None,
        }
    }

    /// `hold` is called before run `at`, from 0: the test looks at the app meanwhile.
    #[must_use]
    pub fn held_at(
        mut self,
        at: usize,
        hold: impl Fn(&CancelToken) + Send + Sync + 'static,
    ) -> Self {
        self.hold = Some((at, Box::new(hold)));
        self
    }
}

impl Runner for Replay {
    fn run(
        &self,
        request: &RunRequest,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Run {
        let at = {
            let mut next = self.next.lock().unwrap();
            *next += 1;
            *next - 1
        };
        if let Some((_, hold)) = self.hold.as_ref().filter(|(place, _)| *place == at) {
            progress(RunProgress {
                test: request.tests[0].to_string(),
                repetition: 2,
                repetitions: request.repetitions,
            });
            hold(cancel);
        }
        let recorded = self
            .runs
            .get(at)
            .expect("asked for a run that was never recorded");
        assert_eq!(
            recorded.planned.repetitions, request.repetitions,
            "run {at}"
        );
        let mut run = recorded.run.clone();
        if cancel.is_now() {
            run.outcome = RunOutcome::Cancelled;
        }
        run
    }
}
