//! Power lost at random moments of a tune: the database and its log are taken as they are on the disk just then, with a
//! torn log as well, and opened elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::bench_runs::wait_until;
use super::flux_cli::document;
use super::running_tune::{Running, result_of, unbroken};
use super::world::{Row, World, of_session, rows};

/// Power cuts.
pub const CUTS: usize = 48;
/// Every so many of them, what is left is gone on with to its end.
const RESUMED: usize = 8;
/// A cut comes up to so long after a line: longer than a run takes.
const AFTER_LINE: Duration = Duration::from_millis(40);

/// What becomes of the end of the log, which was never promised to be on the disk.
#[derive(Debug, Clone, Copy)]
enum Tail {
    Whole,
    Cut,
    Zeros,
    Noise,
}

/// Files of a database.
const PARTS: [&str; 3] = ["flux.db", "flux.db-wal", "flux.db-shm"];

/// The folder as it is while no thread of Flux moves.
fn still(running: &Running, from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    running.signal(Signal::STOP);
    let pid = running.child.id();
    wait_until("every thread stands still", || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten();
        tasks.flatten().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // `pid (name) state`; a process that has ended already is a zombie.
            stat.rsplit_once(')')
                .is_none_or(|(_, rest)| rest.starts_with(" T") || rest.starts_with(" Z"))
        })
    });
    for part in PARTS {
        let _ = fs::copy(from.join(part), to.join(part));
    }
    running.signal(Signal::CONT);
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.len())
}

fn tear(log: &Path, promised: u64, tail: Tail, random: &mut fastrand::Rng) {
    let Ok(mut bytes) = fs::read(log) else { return };
    let promised = usize::try_from(promised).unwrap().min(bytes.len());
    let torn = random.usize(promised..=bytes.len());
    match tail {
        Tail::Whole => {}
        Tail::Cut => bytes.truncate(torn),
        Tail::Zeros => bytes[torn..].fill(0),
        Tail::Noise => random.fill(&mut bytes[torn..]),
    }
    fs::write(log, bytes).unwrap();
}

/// What a machine without power would find.
struct Left {
    dir: PathBuf,
    session: Option<i64>,
    announced: usize,
}

fn cut(world: &mut World, running: &mut Running, number: usize) -> Left {
    let lines = world.random.usize(..3);
    running.hear(lines, AFTER_LINE.mul_f64(world.random.f64()));
    let (session, announced) = running.announced();
    // What is announced lies before this.
    let promised = length(&world.bed.data.join(PARTS[1]));
    let dir = world.bed.fake.scratch().join(format!("cut-{number}"));
    still(running, &world.bed.data, &dir);
    if world.random.bool() {
        let _ = fs::remove_file(dir.join(PARTS[2]));
    }
    let tails = [Tail::Whole, Tail::Cut, Tail::Zeros, Tail::Noise];
    let tail = tails[world.random.usize(..tails.len())];
    tear(&dir.join(PARTS[1]), promised, tail, &mut world.random);
    Left {
        dir,
        session,
        announced,
    }
}

/// Everything promised is there, and as it was at the cut before.
fn holds(left: &Left, before: &[Row]) -> Vec<Row> {
    let found = rows(&left.dir);
    let same = before.len().min(found.len());
    assert_eq!(found[..same], before[..same]);
    if let Some(session) = left.session {
        let stored = of_session(&found, session);
        assert!(stored >= left.announced, "{stored} of {}", left.announced);
    }
    found
}

#[test]
fn power_lost_at_any_moment_loses_nothing_announced() {
    let unbroken = unbroken();
    let mut world = World::new(5);
    let mut running = world.start();
    let mut before = Vec::new();
    for number in 0..CUTS {
        if running.child.try_wait().unwrap().is_some() {
            running.end().came_through();
            running = Running::start(&mut world.bed.tune(super::running_tune::ONLY));
        }
        let left = cut(&mut world, &mut running, number);
        before = holds(&left, &before);
        if number % RESUMED == 0 && !before.is_empty() {
            let mut resume = world
                .bed
                .flux_in(&left.dir, &["tune", "--resume", "--json"]);
            let output = resume.output().unwrap();
            if output.status.success() {
                let result = serde_json::from_slice(&output.stdout).unwrap();
                assert_eq!(result_of(&result), unbroken);
            } else {
                // It had come to its end.
                let history = document(&mut world.bed.flux_in(&left.dir, &["history", "--json"]));
                assert_eq!(history["sessions"][0]["state"], "done");
            }
        }
        fs::remove_dir_all(&left.dir).unwrap();
    }
    let end = running.end();
    end.came_through();
    world.check(&end);
}
