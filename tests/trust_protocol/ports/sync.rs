//! What `src/ports/sync.rs` names, of shuttle: every operation is a point at which another thread may go on. A timed wait may
//! end before or after what it waits for.
#![allow(
    dead_code,
    reason = "the protocol's sources need all of it, each a part"
)]

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use std::sync::PoisonError;
pub use std::sync::atomic::Ordering;

pub use shuttle::sync::Mutex;
pub use shuttle::sync::atomic::{AtomicBool, AtomicU8};

use shuttle::rand::{Rng as _, thread_rng};
use shuttle::sync::Condvar;

/// A thread with a name.
pub struct Builder(shuttle::thread::Builder);

/// A thread that can be asked whether it has ended.
pub struct JoinHandle<T> {
    thread: shuttle::thread::JoinHandle<T>,
    ended: Arc<AtomicBool>,
}

impl Builder {
    pub fn new() -> Self {
        Self(shuttle::thread::Builder::new())
    }

    pub fn name(self, name: String) -> Self {
        Self(self.0.name(name))
    }

    pub fn spawn<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let ended = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&ended);
        let thread = self.0.spawn(move || {
            let done = work();
            ends.store(true, Ordering::SeqCst);
            done
        })?;
        Ok(JoinHandle { thread, ended })
    }
}

impl<T> JoinHandle<T> {
    pub fn join(self) -> std::thread::Result<T> {
        self.thread.join()
    }

    pub fn is_finished(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

/// Looks of a timed wait at most.
const LOOKS: u32 = 4;

/// A bounded channel like crossbeam's.
struct Channel<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    capacity: usize,
}

struct State<T> {
    queue: VecDeque<T>,
    senders: usize,
    receivers: usize,
}

pub struct Sender<T>(Arc<Channel<T>>);
pub struct Receiver<T>(Arc<Channel<T>>);

/// The other side is gone.
#[derive(Debug)]
pub struct Gone;

pub enum SendTimeoutError<T> {
    Timeout(T),
    Disconnected(T),
}

pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let state = State {
        queue: VecDeque::new(),
        senders: 1,
        receivers: 1,
    };
    let channel = Arc::new(Channel {
        state: Mutex::new(state),
        changed: Condvar::new(),
        // Nothing here hands over without a place to lay it.
        capacity: capacity.max(1),
    });
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

impl<T> Sender<T> {
    fn offer(&self, value: T) -> Result<(), SendTimeoutError<T>> {
        let mut state = self.0.state.lock().unwrap();
        if state.receivers == 0 {
            return Err(SendTimeoutError::Disconnected(value));
        }
        if state.queue.len() >= self.0.capacity {
            return Err(SendTimeoutError::Timeout(value));
        }
        state.queue.push_back(value);
        self.0.changed.notify_all();
        Ok(())
    }

    pub fn try_send(&self, value: T) -> Result<(), Gone> {
        self.offer(value).map_err(|_| Gone)
    }

    pub fn send_timeout(&self, mut value: T, _: Duration) -> Result<(), SendTimeoutError<T>> {
        for _ in 0..thread_rng().gen_range(1..=LOOKS) {
            match self.offer(value) {
                Err(SendTimeoutError::Timeout(back)) => value = back,
                settled => return settled,
            }
            shuttle::thread::yield_now();
        }
        Err(SendTimeoutError::Timeout(value))
    }

    pub fn send(&self, value: T) -> Result<(), Gone> {
        let mut state = self.0.state.lock().unwrap();
        while state.receivers > 0 && state.queue.len() >= self.0.capacity {
            state = self.0.changed.wait(state).unwrap();
        }
        if state.receivers == 0 {
            return Err(Gone);
        }
        state.queue.push_back(value);
        self.0.changed.notify_all();
        Ok(())
    }
}

impl<T> Receiver<T> {
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(self)
    }

    pub fn recv(&self) -> Result<T, Gone> {
        let mut state = self.0.state.lock().unwrap();
        loop {
            if let Some(value) = state.queue.pop_front() {
                self.0.changed.notify_all();
                return Ok(value);
            }
            if state.senders == 0 {
                return Err(Gone);
            }
            state = self.0.changed.wait(state).unwrap();
        }
    }

    pub fn recv_timeout(&self, _: Duration) -> Result<T, Gone> {
        for _ in 0..thread_rng().gen_range(1..=LOOKS) {
            let mut state = self.0.state.lock().unwrap();
            if let Some(value) = state.queue.pop_front() {
                self.0.changed.notify_all();
                return Ok(value);
            }
            drop(state);
            shuttle::thread::yield_now();
        }
        Err(Gone)
    }
}

/// What comes until nobody can send any more.
pub struct Iter<'a, T>(&'a Receiver<T>);

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().unwrap().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().senders -= 1;
        self.0.changed.notify_all();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().receivers -= 1;
        self.0.changed.notify_all();
    }
}
