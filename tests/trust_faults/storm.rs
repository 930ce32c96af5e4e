//! Signals, closed terminals and suspended processes in random order, while the children misbehave as well.

use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::bench_runs::alive;
use super::running_tune::{End, Running, unbroken};
use super::world::World;

/// Disturbances of each of the four storms.
pub const EACH: usize = 24;
/// A disturbance comes after up to so many lines of stderr; a session has some 35.
const LINES: usize = 14;
/// And up to so long after: longer than a run takes.
const AFTER_LINE: Duration = Duration::from_millis(60);
/// How long something is suspended.
const SUSPENDED: Duration = Duration::from_millis(40);

/// What happens to Flux.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Terminate,
    Interrupt,
    InterruptTwice,
    HangUp,
    Quit,
    /// The terminal window is closed.
    TerminalGone,
    /// Nobody reads what it says any more.
    ReadersGone,
    /// Ctrl-Z and fg: the child goes on meanwhile.
    Suspended,
    /// The child stands still and goes on.
    ChildSuspended,
    /// The machine sleeps and wakes up.
    AllSuspended,
}

const FAULTS: &[Fault] = &[
    Fault::Kill,
    Fault::Kill,
    Fault::Terminate,
    Fault::Interrupt,
    Fault::InterruptTwice,
    Fault::HangUp,
    Fault::Quit,
    Fault::TerminalGone,
    Fault::ReadersGone,
    Fault::Suspended,
    Fault::ChildSuspended,
    Fault::AllSuspended,
];

/// What the children do besides.
const MOODS: &[&[&str]] = &[
    &[],
    &["\"ignore-sigterm\""],
    &["\"grandchild\""],
    &["\"daemon\""],
];

fn storm(seed: u64) {
    let unbroken = unbroken();
    let mut world = World::new(seed);
    while world.injections < EACH {
        let fault = FAULTS[world.random.usize(..FAULTS.len())];
        let mood = MOODS[world.random.usize(..MOODS.len())];
        world.children(mood);
        let lines = world.random.usize(..LINES);
        let after = AFTER_LINE.mul_f64(world.random.f64());
        let end = disturb(&world, fault, lines, after);
        world.check(&end);
    }
    world.ends_well(&unbroken);
}

/// Starts the tune, lets `fault` happen at its moment, and waits for the end.
fn disturb(world: &World, fault: Fault, lines: usize, after: Duration) -> End {
    if let Fault::TerminalGone = fault {
        return terminal_gone(world, lines, after);
    }
    let mut command = world.command();
    if let Fault::ReadersGone = fault {
        command.arg("-v").env("FLUX_LOG", "trace");
    }
    let mut running = Running::start(&mut command);
    running.hear(lines, after);
    let everyone = || alive(&world.bed.fake);
    let flux = running.child.id();
    match fault {
        Fault::Kill => running.signal(Signal::KILL),
        Fault::Terminate => running.signal(Signal::TERM),
        Fault::Interrupt => running.signal(Signal::INT),
        Fault::HangUp => running.signal(Signal::HUP),
        Fault::Quit => running.signal(Signal::QUIT),
        Fault::InterruptTwice => {
            running.signal(Signal::INT);
            running.hear(1, Duration::ZERO);
            running.signal(Signal::INT);
        }
        Fault::ReadersGone => {
            let mut running = running.unheard();
            let status = running.child.wait().unwrap();
            assert_eq!(status.code(), Some(0), "{}", running.heard.join("\n"));
            return End {
                status,
                stdout: String::new(),
                heard: running.heard,
            };
        }
        Fault::Suspended => suspended(&[flux]),
        Fault::AllSuspended => suspended(&everyone()),
        Fault::ChildSuspended => {
            let mut children = everyone();
            children.retain(|pid| *pid != flux);
            suspended(&children);
        }
        Fault::TerminalGone => {}
    }
    let end = running.end();
    if let Fault::Suspended | Fault::ChildSuspended | Fault::AllSuspended = fault {
        end.came_through();
    }
    end
}

fn suspended(processes: &[u32]) {
    let tell = |signal| {
        for pid in processes {
            let pid = Pid::from_raw(pid.cast_signed()).unwrap();
            // A child may have ended by now.
            let _ = kill_process(pid, signal);
        }
    };
    tell(Signal::STOP);
    std::thread::sleep(SUSPENDED);
    tell(Signal::CONT);
}

/// `script` plays the terminal; without it the terminal hangs up.
fn terminal_gone(world: &World, lines: usize, after: Duration) -> End {
    let tune = world.command();
    let words = std::iter::once(tune.get_program()).chain(tune.get_args());
    let words = words.map(|word| word.to_str().unwrap());
    let mut terminal = Command::new("script");
    terminal
        .args([
            "-qfec",
            &format!("exec {}", shell_words::join(words)),
            "/dev/null",
        ])
        // Plain lines, as without a terminal.
        .env("TERM", "dumb")
        .envs(
            tune.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let mut running = Running::start(&mut terminal);
    running.hear(lines, after);
    running.signal(Signal::KILL);
    running.end()
}

#[test]
fn storm_1() {
    storm(1);
}

#[test]
fn storm_2() {
    storm(2);
}

#[test]
fn storm_3() {
    storm(3);
}

#[test]
fn storm_4() {
    storm(4);
}
