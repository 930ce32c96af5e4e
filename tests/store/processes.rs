//! Other processes: a writer killed at any moment, two that want to measure, one that may not write.

use std::collections::BTreeMap;
#[cfg(unix)]
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flux::domain::types::Stage;
#[cfg(unix)]
use flux::ports::SessionFilter;
use flux::ports::Store;
use flux::store::{Access, MeasureLock, SqliteStore};

use crate::sample::*;
#[cfg(unix)]
use crate::{damage::refusal, history::page};

/// Set in a child of this test binary: the data folder it works in.
const CHILD: &str = "FLUX_STORE_TEST_DIR";

/// A child of this test binary that runs `test` alone, told `dir`.
pub fn child(exe: &Path, test: &str, dir: &Path) -> Command {
    let mut command = Command::new(exe);
    command
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, dir);
    command
}

pub fn child_dir() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// What the second to measure is told. Windows does not let the first one's id be read.
fn held_by(pid: u32, dir: &Path) -> String {
    let process = if cfg!(windows) {
        String::new()
    } else {
        format!(" (process {pid})")
    };
    let dir = dir.display();
    format!("another Flux{process} is measuring with this data folder: {dir}")
}

/// A child's part: says `lock`, then the id of its session, then every run it was told is stored.
fn write_until_killed(dir: &Path) {
    #[expect(clippy::print_stdout, reason = "the parent reads it")]
    let say = |line: String| println!("\n{line}");
    let _lock = MeasureLock::acquire(dir).unwrap();
    say("lock".to_owned());
    let store = measuring(dir);
    let session = store.begin_session(&new_session()).unwrap();
    say(format!("session {session}"));
    for seq in 0..10_000 {
        let plan = planned(Stage::Screening, graphics_queue());
        store
            .append_run(session, seq, &plan, &valid(u64::from(seq)))
            .unwrap();
        say(format!("stored {seq}"));
    }
}

#[test]
fn a_killed_writer_loses_nothing_it_was_told_is_stored() {
    /// Kills, each at a random moment.
    const KILLS: u32 = 24;
    if let Some(dir) = child_dir() {
        return write_until_killed(&dir);
    }
    let dir = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let test = "processes::a_killed_writer_loses_nothing_it_was_told_is_stored";
    let mut random = fastrand::Rng::with_seed(11);
    let mut sessions = BTreeMap::new();
    for _ in 0..KILLS {
        let mut writer = child(&exe, test, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let mut said = lines
            .map(Result::unwrap)
            .filter(|l| l == "lock" || l.starts_with("session ") || l.starts_with("stored "));
        // From before the database is open to within the twelfth run, and a random moment on from there.
        let mut heard: Vec<String> = said.by_ref().take(random.usize(1..14)).collect();
        let held = MeasureLock::acquire(dir.path()).unwrap_err();
        assert_eq!(held.headline, held_by(writer.id(), dir.path()));
        let since = Instant::now();
        let wait = Duration::from_micros(random.u64(0..15_000));
        while since.elapsed() < wait {
            std::hint::spin_loop();
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        heard.extend(said);

        drop(MeasureLock::acquire(dir.path()).unwrap());
        let store = measuring(dir.path());
        assert_eq!(store.opened().notices, [], "the database is whole");
        if let Some(id) = heard.get(1) {
            let id: i64 = id.strip_prefix("session ").unwrap().parse().unwrap();
            sessions.insert(id, heard.len() - 2);
        }
        for (&id, &stored) in &sessions {
            let runs = store.runs(id).unwrap();
            // One more may have been stored than was said; none is half there.
            assert!(
                (stored..=stored + 1).contains(&runs.len()),
                "{} of {stored}",
                runs.len()
            );
            for (seq, run) in (0..).zip(&runs) {
                assert_eq!((run.seq, &run.run), (seq, &valid(u64::from(seq))));
            }
        }
    }
    assert!(sessions.len() > 10, "most were killed while writing runs");
}

#[test]
fn one_measures_at_a_time_and_others_look() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("new");
    let lock = MeasureLock::acquire(&folder).unwrap();
    let error = MeasureLock::acquire(&folder).unwrap_err();
    assert_eq!(error.headline, held_by(std::process::id(), &folder));
    assert_eq!(
        error.hint.as_deref(),
        Some("wait for it: two measurements at once measure each other")
    );
    let store = SqliteStore::open(&folder, Access::Look).unwrap();
    assert_eq!(store.sessions(1).unwrap(), []);
    drop(lock);
    drop(MeasureLock::acquire(&folder).unwrap());
}

/// After a Flux that was killed, who looks has to ask for the lock; who measures must not take that for a measurement.
#[cfg(unix)]
#[test]
fn asking_whether_somebody_measures_refuses_nobody() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), Access::Look).unwrap();
    let killed = || fs::write(dir.path().join("measure.lock"), "4242").unwrap();
    killed();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                store.is_measured();
            }
        });
        let taken: Vec<_> = (0..50)
            .map(|_| {
                let lock = MeasureLock::acquire(dir.path());
                killed();
                lock.map(|_| ())
            })
            .collect();
        done.store(true, Ordering::SeqCst);
        assert!(taken.iter().all(Result::is_ok), "{taken:?}");
    });
}

#[cfg(unix)]
fn look_at_read_only(dir: &Path) {
    let cannot = format!("the data folder cannot be used: {}", dir.display());
    assert_eq!(refusal(dir, Access::Measure).headline, cannot);
    let store = SqliteStore::open(dir, Access::Look).unwrap();
    let [notice] = store.opened().notices.as_slice() else {
        panic!("{:?}", store.opened().notices)
    };
    assert_eq!(notice.code, "store-read-only");
    assert_eq!(
        notice.text,
        format!(
            "nothing will be remembered: {cannot} (allow writing there, or use another --data-dir)"
        )
    );
    let sessions = usize::from(dir.join("flux.db").exists());
    assert_eq!(store.sessions(10).unwrap().len(), sessions);
    assert_eq!(store.profiles().unwrap().len(), sessions);
    let hash = &new_session().fingerprint.hash;
    assert_eq!(store.bandwidth(hash).unwrap(), None);
    assert_eq!(store.placements(hash, None).unwrap(), []);
    assert_eq!(store.fits(hash).unwrap(), []);
    let page = page(&store, &SessionFilter::default());
    assert_eq!(
        (page.total, page.samples),
        (sessions as u64, 8 * sessions as u64)
    );
    let error = store.begin_session(&new_session()).unwrap_err();
    assert_eq!(error.headline, cannot);
    assert!(MeasureLock::acquire(dir).is_err());
}

#[cfg(unix)]
#[test]
fn a_read_only_folder_can_be_looked_at() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    /// `nobody`: root may write anywhere, so the child is made an ordinary user.
    const NOBODY: u32 = 65_534;
    if let Some(dir) = child_dir() {
        return look_at_read_only(&dir);
    }
    let dir = tempfile::tempdir().unwrap();
    let allow =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let exe = dir.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    let [full, old, second, empty] =
        ["full", "old", "second", "empty"].map(|name| dir.path().join(name));
    fill(&measuring(&full));
    // It cannot be brought to today's format there, and is read as if it were.
    fs::create_dir(&old).unwrap();
    fs::copy(v1(), old.join("flux.db")).unwrap();
    fs::create_dir(&second).unwrap();
    v2(&second.join("flux.db"));
    // As on a medium made read-only from the start: no lock files either.
    fs::remove_file(full.join("open.lock")).unwrap();
    fs::create_dir(&empty).unwrap();
    for path in [
        &full,
        &old,
        &second,
        &empty,
        &exe,
        &dir.path().to_path_buf(),
    ] {
        allow(path, 0o555);
    }
    for folder in [&full, &old, &second, &empty] {
        let mut command = child(
            &exe,
            "processes::a_read_only_folder_can_be_looked_at",
            folder,
        );
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    for path in [&full, &old, &second, &empty, &dir.path().to_path_buf()] {
        allow(path, 0o755);
    }
}
