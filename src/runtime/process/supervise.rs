//! Staying with a child: its lines handed on as they come, the clock and the cancel looked at between them.

use std::io;
use std::time::{Duration, Instant};

use crate::ports::CancelToken;
use crate::ports::sync::{Receiver, Sender, bounded};

use super::output::{Capture, Chunk, Pipe, Stream};

/// How often cancel, time limit and early stop are looked at while the child is silent.
const POLL: Duration = Duration::from_millis(20);
/// The same once both pipes are closed: the child is about to end.
const POLL_CLOSED: Duration = Duration::from_millis(1);
/// How long the pipes may stay open after the group was killed: a process that left the group can hold them for ever.
const PIPE_GRACE: Duration = Duration::from_secs(2);
/// Batches of lines in flight between the drains and the watcher; each holds at most one read.
const BATCHES: usize = 16;

/// What the watcher of a child is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// It runs, under this process id.
    Started(u32),
    /// A complete line, without its end.
    Line(Stream, &'a str),
    /// Nothing for a while, or after every batch of lines: look at the clock.
    Tick,
}

/// What the watcher answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Let it run.
    Continue,
    /// End it now.
    Stop,
}

/// Why a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// By itself.
    Exited,
    /// Its time limit passed.
    TimedOut,
    /// `CancelToken::is_now`.
    Cancelled,
    /// The watcher said stop.
    Stopped,
}

/// The watching side of the two drains.
pub(super) struct Watcher<'a> {
    chunks: Receiver<Chunk>,
    /// Keeps the channel connected, so that waiting on it waits also when both pipes are closed.
    _open: Sender<Chunk>,
    closed: usize,
    stop: bool,
    watch: &'a mut dyn FnMut(Event<'_>) -> Flow,
}

impl<'a> Watcher<'a> {
    /// Begins to drain the pipes of the child of this process id.
    pub(super) fn start(
        pid: u32,
        (stdout, stderr): (Option<impl Pipe>, Option<impl Pipe>),
        watch: &'a mut dyn FnMut(Event<'_>) -> Flow,
    ) -> io::Result<(Self, [Capture; 2])> {
        let (sender, chunks) = bounded(BATCHES);
        let stdout = Capture::start(Stream::Stdout, stdout, sender.clone())?;
        let stderr = Capture::start(Stream::Stderr, stderr, sender.clone())?;
        let watcher = Self {
            chunks,
            _open: sender,
            closed: 0,
            stop: watch(Event::Started(pid)) == Flow::Stop,
            watch,
        };
        Ok((watcher, [stdout, stderr]))
    }

    /// Stays with the child until there is a reason to end it, or it has ended.
    pub(super) fn supervise(
        &mut self,
        mut has_ended: impl FnMut() -> io::Result<bool>,
        cancel: &CancelToken,
        is_overdue: impl Fn() -> bool,
    ) -> io::Result<EndReason> {
        loop {
            if has_ended()? {
                return Ok(EndReason::Exited);
            }
            if self.stop {
                return Ok(EndReason::Stopped);
            }
            if cancel.is_now() {
                return Ok(EndReason::Cancelled);
            }
            if is_overdue() {
                return Ok(EndReason::TimedOut);
            }
            let poll = if self.is_closed() { POLL_CLOSED } else { POLL };
            self.wait(poll);
        }
    }

    fn is_closed(&self) -> bool {
        self.closed == 2
    }

    /// Waits for one batch, hands it on, and ticks. False when nothing came.
    fn wait(&mut self, timeout: Duration) -> bool {
        let chunk = self.chunks.recv_timeout(timeout).ok();
        let came = chunk.is_some();
        match chunk {
            Some(Chunk::Lines(stream, lines)) => {
                for line in &lines {
                    self.tell(Event::Line(stream, line));
                }
            }
            Some(Chunk::Closed) => self.closed += 1,
            None => {}
        }
        self.tell(Event::Tick);
        came
    }

    fn tell(&mut self, event: Event<'_>) {
        self.stop |= (self.watch)(event) == Flow::Stop;
    }

    /// Takes what is still in the pipes after the group was killed.
    pub(super) fn drain(&mut self) {
        let begun = Instant::now();
        while !self.is_closed() && begun.elapsed() < PIPE_GRACE {
            self.wait(POLL);
        }
    }
}
