//! The disk full at random writes: a file system of its own that the test fills up where the system lets it mount one, and
//! everywhere files that may not grow, which the system answers with another error.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::running_tune::{End, Running, unbroken};
use super::world::World;

/// Full disks of each kind.
pub const EACH: usize = 14;
/// A disk fills up after up to so many lines of stderr.
const LINES: usize = 14;
const AFTER_LINE: Duration = Duration::from_millis(30);
/// Pages left on it at most; a run takes some five of the log.
const PAGES: u64 = 16;
const PAGE: u64 = 4096;

/// A file system in memory, in a name space of its own that goes with the process that holds it.
struct Disk {
    holder: Child,
    dir: PathBuf,
}

impl Disk {
    /// `None` where the system does not let one be mounted.
    fn mount(world: &World) -> Option<Self> {
        let at = &world.bed.data;
        fs::create_dir(at).unwrap();
        let script = "mount -t tmpfs -o size=4m none \"$0\" && echo mounted && exec sleep 3600";
        let mut holder = Command::new("unshare")
            .args(["-Urm", "sh", "-c", script])
            .arg(at)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .ok()?;
        let mut said = String::new();
        let mut out = BufReader::new(holder.stdout.take().unwrap());
        out.read_line(&mut said).unwrap();
        let dir = PathBuf::from(format!("/proc/{}/root{}", holder.id(), at.display()));
        if said.trim() == "mounted" && fs::read_dir(&dir).is_ok() {
            return Some(Self { holder, dir });
        }
        let _ = holder.kill();
        let _ = holder.wait();
        None
    }

    fn ballast(&self) -> PathBuf {
        self.dir.join("ballast")
    }

    /// Fills it up but for so many pages.
    fn fill(&self, left: u64) {
        let mut file = File::create(self.ballast()).unwrap();
        let page = [1; PAGE as usize];
        while file.write_all(&page).is_ok() {}
        let full = file.metadata().unwrap().len();
        file.set_len(full.saturating_sub(left * PAGE)).unwrap();
    }

    fn free(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// One sentence that names the place, what was kept, and how to go on; or the disk sufficed.
fn is_told(world: &World, end: &End, what: &str) {
    if end.status.success() {
        return end.came_through();
    }
    assert_eq!(end.status.code(), Some(1), "{}", end.words());
    let error = end.error();
    assert!(error.starts_with(what), "{}", end.words());
    assert!(error.contains(world.bed.data.to_str().unwrap()), "{error}");
    let hint = end.heard.iter().find(|line| line.starts_with("hint: "));
    assert!(
        hint.is_some_and(|hint| hint.contains("free space")),
        "{}",
        end.words()
    );
    if let (Some(session), runs) = end.announced() {
        let resume = world.bed.hinted(&format!("tune --resume {session}"));
        assert!(hint.unwrap().contains(&resume), "{}", end.words());
        assert!(runs == 0 || end.words().contains("kept"), "{}", end.words());
    }
}

#[test]
fn a_disk_that_fills_up_at_any_write_is_told_and_the_tune_goes_on_with_space() {
    let unbroken = unbroken();
    let mut world = World::new(6);
    let Some(disk) = Disk::mount(&world) else {
        return limited(&mut world, &unbroken, 2 * EACH);
    };
    world.bed.within = Some(disk.holder.id());
    while world.injections < EACH {
        let mut running = world.start();
        let lines = world.random.usize(..LINES);
        running.hear(lines, AFTER_LINE.mul_f64(world.random.f64()));
        disk.fill(world.random.u64(..PAGES));
        let end = running.end();
        is_told(&world, &end, "the disk is full");
        disk.free();
        world.check(&end);
    }
    world.ends_well(&unbroken);
}

#[test]
fn a_file_that_may_not_grow_is_told_and_the_tune_goes_on_without_the_limit() {
    let unbroken = unbroken();
    limited(&mut World::new(7), &unbroken, EACH);
}

fn limited(world: &mut World, unbroken: &[serde_json::Value; 4], times: usize) {
    while world.injections < times {
        let tune = world.command();
        // From a database that cannot be made to one that has room for a few runs more, in blocks of 512 bytes.
        let longest = ["flux.db", "flux.db-wal"].map(|name| {
            let path = world.data().join(name);
            fs::metadata(path).map_or(0, |m| m.len())
        });
        let room = world.random.u64(..300);
        let blocks = longest[0].max(longest[1]) / 512 + room;
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -f {blocks} && exec \"$0\" \"$@\"")])
            .arg(tune.get_program())
            .args(tune.get_args())
            .envs(
                tune.get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        let end = Running::start(&mut command).end();
        is_told(world, &end, "the disk");
        world.check(&end);
    }
    world.ends_well(unbroken);
}
