//! A child's lines, its end, and a stop that comes from outside.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shuttle::sync::atomic::AtomicBool;

use super::output::Stream;
use super::supervise::{EndReason, Event, Flow, Watcher};
use crate::ports::sync::{Receiver, Sender, bounded};
use crate::ports::{CancelMode, CancelToken};
use crate::{in_any_order, in_fair_order};

/// Lines that the child writes to each of its pipes.
const LINES: usize = 3;

/// The reading end of a pipe: closed when the child, and whoever has it from there, is gone.
struct Pipe {
    from: Receiver<u8>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.from.recv() {
            Ok(number) => {
                let line = format!("line {number}\n");
                buffer[..line.len()].copy_from_slice(line.as_bytes());
                Ok(line.len())
            }
            Err(_) => Ok(0),
        }
    }
}

/// A process that writes its lines and ends, or ends in the middle of them when it is killed.
struct Child {
    killed: Arc<AtomicBool>,
    gone: Arc<AtomicBool>,
    thread: shuttle::thread::JoinHandle<()>,
}

fn child(endless: bool) -> (Child, Option<Pipe>, Option<Pipe>) {
    let ((out, from_out), (err, from_err)) = (bounded(2), bounded(2));
    let (killed, gone) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (is_killed, is_gone) = (Arc::clone(&killed), Arc::clone(&gone));
    let thread = shuttle::thread::spawn(move || {
        live(&out, &err, endless, &is_killed);
        drop((out, err));
        is_gone.store(true, Ordering::SeqCst);
    });
    let child = Child {
        killed,
        gone,
        thread,
    };
    (
        child,
        Some(Pipe { from: from_out }),
        Some(Pipe { from: from_err }),
    )
}

fn live(out: &Sender<u8>, err: &Sender<u8>, endless: bool, killed: &AtomicBool) {
    let mut number = 0;
    while endless || usize::from(number) < LINES {
        for pipe in [out, err] {
            if killed.load(Ordering::SeqCst) || pipe.send(number).is_err() {
                return;
            }
        }
        number = number.wrapping_add(1);
    }
}

impl Child {
    /// What the process group does with it at the end of every run.
    fn end(self) {
        self.killed.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
    }
}

/// Lines of a pipe, in order.
fn of(lines: &[(Stream, String)], stream: Stream) -> Vec<String> {
    let own = lines.iter().filter(|(from, _)| *from == stream);
    own.map(|(_, line)| line.clone()).collect()
}

fn first(n: usize) -> Vec<String> {
    (0..n).map(|number| format!("line {number}")).collect()
}

#[test]
fn a_child_that_ends_by_itself_is_heard_to_its_last_line() {
    in_any_order(|| {
        let (child, out, err) = child(false);
        let gone = Arc::clone(&child.gone);
        let mut lines = Vec::new();
        let mut watch = |event: Event<'_>| {
            if let Event::Line(stream, line) = event {
                lines.push((stream, line.to_owned()));
            }
            Flow::Continue
        };
        let (mut watcher, kept) = Watcher::start(7, (out, err), &mut watch).unwrap();
        let has_ended = || Ok(gone.load(Ordering::SeqCst));
        let reason = watcher.supervise(has_ended, &CancelToken::new(), || false);
        assert_eq!(reason.unwrap(), EndReason::Exited);
        child.end();
        watcher.drain();
        drop(watcher);
        assert_eq!(of(&lines, Stream::Stdout), first(LINES));
        assert_eq!(of(&lines, Stream::Stderr), first(LINES));
        for kept in kept {
            assert_eq!(kept.text(), first(LINES).join("\n") + "\n");
        }
    });
}

#[test]
fn a_cancel_ends_a_child_that_would_never_end() {
    in_fair_order(|| {
        let (child, out, err) = child(true);
        let gone = Arc::clone(&child.gone);
        let cancel = CancelToken::new();
        let user = cancel.clone();
        let user = shuttle::thread::spawn(move || {
            user.cancel(CancelMode::AfterSample);
            user.cancel(CancelMode::Now);
        });
        let mut watch = |_: Event<'_>| Flow::Continue;
        let (mut watcher, _kept) = Watcher::start(7, (out, err), &mut watch).unwrap();
        let has_ended = || Ok(gone.load(Ordering::SeqCst));
        let reason = watcher.supervise(has_ended, &cancel, || false);
        assert_eq!(reason.unwrap(), EndReason::Cancelled);
        child.killed.store(true, Ordering::SeqCst);
        watcher.drain();
        drop(watcher);
        child.end();
        user.join().unwrap();
    });
}

#[test]
fn a_watcher_that_stops_or_is_given_up_leaves_no_drain_behind() {
    in_fair_order(|| {
        let (child, out, err) = child(true);
        let mut heard = 0;
        let mut watch = |event: Event<'_>| {
            heard += usize::from(matches!(event, Event::Line(..)));
            if heard == 2 {
                Flow::Stop
            } else {
                Flow::Continue
            }
        };
        let (mut watcher, _kept) = Watcher::start(7, (out, err), &mut watch).unwrap();
        let reason = watcher.supervise(|| Ok(false), &CancelToken::new(), || false);
        assert_eq!(reason.unwrap(), EndReason::Stopped);
        // As after an error or a panic: the pipes are drained on, into nothing, until the child is gone.
        drop(watcher);
        child.end();
    });
}
