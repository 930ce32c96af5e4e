//! Sensors too slow for a tick: a thread of their own reads them, a tick takes what was read last.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};

/// What a thread read last. Dropping it ends the thread, which takes one reading at most.
pub(super) struct Latest<T> {
    last: Arc<Mutex<Option<T>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Clone + Send + 'static> Latest<T> {
    /// Starts the thread. `open` runs on it, since some sensors stay where they were opened; then they are read again and
    /// again with a `pause` between. `None` where the system gives no thread.
    pub fn of<R: FnMut() -> Option<T>>(
        name: &str,
        pause: Duration,
        open: impl FnOnce() -> Option<R> + Send + 'static,
    ) -> Option<Self> {
        let last = Arc::new(Mutex::new(None));
        let (stop, stopped) = bounded::<()>(0);
        let told = Arc::clone(&last);
        let work = move || {
            let Some(mut read) = open() else {
                return;
            };
            loop {
                let value = read();
                *told.lock().unwrap_or_else(PoisonError::into_inner) = value;
                // Nothing is ever sent: the other side goes away.
                if stopped
                    .recv_timeout(pause)
                    .is_err_and(|e| e.is_disconnected())
                {
                    return;
                }
            }
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .ok()?;
        Some(Self {
            last,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// What was read last; `None` before the first reading and while it cannot be read.
    pub fn get(&self) -> Option<T> {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl<T> Drop for Latest<T> {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_takes_what_was_read_last_and_the_thread_ends_with_its_owner() {
        let (read, seen) = bounded(0);
        let (ended, end) = bounded::<()>(0);
        let latest = Latest::of("test-sensors", Duration::ZERO, move || {
            let mut n = 0;
            Some(move || {
                let _ended = &ended;
                n += 1;
                // Hands each over, so that the test knows how far it is.
                read.send(n).ok().map(|()| n)
            })
        })
        .unwrap();
        assert_eq!(latest.get(), None);
        assert_eq!((seen.recv(), seen.recv()), (Ok(1), Ok(2)));
        // The second is handed over before it is stored.
        assert!(matches!(latest.get(), Some(1 | 2)));
        drop(seen);
        drop(latest);
        assert!(end.recv().is_err(), "its reader is gone");
    }

    #[test]
    fn sensors_that_do_not_open_tell_nothing() {
        let latest: Option<Latest<u8>> =
            Latest::of(
                "test-sensors",
                Duration::ZERO,
                || None::<fn() -> Option<u8>>,
            );
        assert_eq!(latest.unwrap().get(), None);
    }
}
