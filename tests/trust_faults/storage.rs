//! The database locked, damaged, deleted or made read-only by others while a tune needs it.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};

use super::bench_runs::alive;
use super::flux_cli::document;
use super::running_tune::{ONLY, Running, nothing_survives, unbroken};
use super::world::World;

const LINES: usize = 14;
const AFTER_LINE: Duration = Duration::from_millis(30);
/// Times each of these happens.
const LOCKS: usize = 10;
const DAMAGES: usize = 10;
const DELETIONS: usize = 12;
const KILLED_CHILDREN: usize = 10;
/// All of them.
pub const DISTURBANCES: usize = LOCKS + DAMAGES + DELETIONS + KILLED_CHILDREN;
/// Longer than a run, far shorter than Flux waits.
const LOCKED: Duration = Duration::from_millis(80);
/// User and group "nobody".
const NOBODY: u32 = 65534;

fn somewhere(world: &mut World, running: &mut Running) {
    let lines = world.random.usize(..LINES);
    running.hear(lines, AFTER_LINE.mul_f64(world.random.f64()));
}

fn path(world: &World) -> PathBuf {
    world.bed.data.join("flux.db")
}

#[test]
fn a_database_that_others_write_to_is_waited_for() {
    let mut world = World::new(8);
    // Made before, so that there is something to lock.
    drop(world.bed.store());
    while world.injections < LOCKS {
        let mut running = world.start();
        somewhere(&mut world, &mut running);
        let mut other = Connection::open(path(&world)).unwrap();
        other.busy_timeout(Duration::from_secs(10)).unwrap();
        let lock = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate);
        let lock = lock.unwrap();
        std::thread::sleep(LOCKED);
        drop(lock);
        drop(other);
        let end = running.end();
        end.came_through();
        world.check(&end);
    }
}

#[test]
fn a_database_that_is_never_let_go_of_is_told() {
    let unbroken = unbroken();
    let mut world = World::new(9);
    let mut running = world.start();
    running.hear_of("  run 4");
    let mut other = Connection::open(path(&world)).unwrap();
    other.busy_timeout(Duration::from_secs(10)).unwrap();
    let lock = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate);
    let lock = lock.unwrap();
    let end = running.end();
    drop(lock);
    drop(other);
    let place = path(&world);
    let expected = format!(
        "the database is held by another program: {}",
        place.display()
    );
    assert_eq!(end.error(), expected);
    assert_eq!(end.status.code(), Some(1));
    world.check(&end);
    world.ends_well(&unbroken);
}

#[test]
fn a_database_that_another_flux_is_opening_for_ever_is_told() {
    let world = World::new(10);
    fs::create_dir(&world.bed.data).unwrap();
    let turn = world.bed.data.join("open.lock");
    let turn = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(turn)
        .unwrap();
    turn.lock().unwrap();
    let end = world.start().end();
    assert_eq!(end.status.code(), Some(1));
    assert!(
        end.error()
            .starts_with("another Flux is opening the database"),
        "{}",
        end.words()
    );
    nothing_survives(&world.bed);
}

/// Overwrites a page of the database in the middle of it.
fn damage(world: &mut World) {
    let file = OpenOptions::new().write(true).open(path(world));
    let Ok(file) = file else { return };
    let pages = file.metadata().unwrap().len() / 4096;
    if pages > 0 {
        let mut noise = [0; 4096];
        world.random.fill(&mut noise);
        file.write_all_at(&noise, world.random.u64(..pages) * 4096)
            .unwrap();
    }
}

/// Databases set aside so far.
fn aside(dir: &Path) -> usize {
    let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name());
    names
        .filter(|name| {
            let name = name.to_str().unwrap();
            name.starts_with("flux.db.damaged-") && name.ends_with('Z')
        })
        .count()
}

#[test]
fn a_damaged_page_is_told_and_the_database_set_aside_whole() {
    let mut world = World::new(11);
    let mut set_aside = 0;
    for number in 0..DAMAGES {
        let mut running = world.start();
        somewhere(&mut world, &mut running);
        let is_alive = number % 2 == 0;
        if !is_alive {
            running.signal(Signal::KILL);
            running.child.wait().unwrap();
        }
        damage(&mut world);
        let end = running.end();
        nothing_survives(&world.bed);
        if is_alive && !end.status.success() {
            assert!(
                end.error().starts_with("the database is damaged: "),
                "{}",
                end.words()
            );
        }
        // The next one measures in any case.
        let next = Running::start(&mut world.bed.tune(ONLY)).end();
        next.came_through();
        let warned = next
            .heard
            .iter()
            .any(|line| line.starts_with("warning: the database was damaged"));
        set_aside += usize::from(warned);
        assert_eq!(aside(&world.bed.data), set_aside, "{}", next.words());
        world.begins_anew();
        world.check(&next);
    }
    assert!(set_aside > DAMAGES / 4, "{set_aside}");
}

#[test]
fn a_database_deleted_or_replaced_under_a_tune_is_told() {
    let mut world = World::new(12);
    let mut told_times = 0;
    while world.injections < DELETIONS {
        let mut running = world.start();
        running.hear_of(" began");
        somewhere(&mut world, &mut running);
        let data = world.bed.data.clone();
        let gone = match world.random.usize(..4) {
            0 => &["flux.db"][..],
            1 => &["flux.db-wal"],
            2 => &["flux.db", "flux.db-wal", "flux.db-shm", "measure.lock"],
            _ => &[],
        };
        if running.child.try_wait().unwrap().is_some() {
            running.end().came_through();
            continue;
        }
        for name in gone {
            let _ = fs::remove_file(data.join(name));
        }
        if gone.is_empty() {
            fs::rename(
                &data,
                data.with_extension(format!("moved-{}", world.injections)),
            )
            .unwrap();
        }
        let (_, before) = running.announced();
        let end = running.end();
        // One may be under way, and one be said already and not heard.
        let (_, announced) = end.announced();
        assert!(announced <= before + 2, "{before} before\n{}", end.words());
        if !end.status.success() {
            assert_eq!(end.status.code(), Some(1), "{}", end.words());
            let told = end
                .error()
                .starts_with("the database was deleted or replaced while Flux used it");
            assert!(told, "{}", end.words());
            told_times += 1;
        }
        nothing_survives(&world.bed);
        // The next one begins in a new one.
        fs::create_dir_all(&data).unwrap();
        let _ = fs::remove_file(data.join("flux.db-wal"));
        let _ = fs::remove_file(data.join("flux.db-shm"));
        let _ = fs::remove_file(data.join("flux.db"));
        world.begins_anew();
        let next = Running::start(&mut world.bed.tune(ONLY)).end();
        next.came_through();
        world.check(&next);
    }
    assert!(told_times > DELETIONS / 2, "{told_times}");
}

#[test]
fn a_child_that_is_killed_costs_its_run_and_nothing_else() {
    let mut world = World::new(13);
    while world.injections < KILLED_CHILDREN {
        let mut running = world.start();
        running.hear_of(" began");
        somewhere(&mut world, &mut running);
        let flux = running.child.id();
        let mut children = alive(&world.bed.fake);
        children.retain(|pid| {
            let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            *pid != flux && exe.starts_with(world.bed.fake.dir())
        });
        for pid in &children {
            let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
        }
        let end = running.end();
        if end.status.code() != Some(0) {
            end.error();
            assert_eq!(end.status.code(), Some(1), "{}", end.words());
        }
        world.check(&end);
        // A session that ended without a baseline is not gone on with.
        let next = Running::start(&mut world.bed.tune(ONLY)).end();
        next.came_through();
    }
}

#[test]
fn what_became_read_only_is_told_and_left_as_it_is() {
    let unbroken = unbroken();
    let mut world = World::new(14);
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    mode(world.bed.fake.scratch(), 0o777);
    let mut running = world.start();
    running.hear_of("  run 6");
    running.signal(Signal::KILL);
    let end = running.end();
    world.check(&end);
    let entries = || {
        fs::read_dir(&world.bed.data)
            .unwrap()
            .map(|e| e.unwrap().path())
    };
    entries().for_each(|path| mode(&path, 0o444));
    mode(&world.bed.data, 0o555);
    let unprivileged = |args: &[&str]| {
        let mut command = world.bed.flux(args);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    };
    let refused = Running::start(&mut unprivileged(&["tune", "--resume", "--json"])).end();
    assert_eq!(refused.status.code(), Some(1), "{}", refused.words());
    assert!(
        refused.error().contains(world.bed.data.to_str().unwrap()),
        "{}",
        refused.words()
    );
    let history = document(&mut unprivileged(&["history", "--json"]));
    assert_eq!(history["sessions"].as_array().unwrap().len(), 1);
    entries().for_each(|path| mode(&path, 0o644));
    mode(&world.bed.data, 0o755);
    world.ends_well(&unbroken);
}
