//! Reading RAM: each thread reads the buffer that it touched first itself, so that its pages are on its own node.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::steps::{Steps, Stop};
use super::sum::sum;

/// Repetitions that count, after one that warms up.
const REPETITIONS: u32 = 7;
/// How much larger than the caches the buffers are: what they keep between two rounds is then a few percent at most.
const CACHES: u64 = 16;
/// The buffers together are this many times the size of one transfer: RAM is the fastest path of the host.
const TRANSFERS: u64 = 4;
/// Each thread reads whole cache lines.
const LINE: u64 = 64;

/// Bytes to read, with last-level caches of `caches` bytes.
pub(super) fn size(transfer: u64, caches: u64) -> u64 {
    let wanted = transfer.saturating_mul(TRANSFERS);
    // A small transfer asks for a quick look, not for an exact one.
    wanted.max(caches.saturating_mul(CACHES).min(wanted.saturating_mul(2)))
}

/// Bytes that all threads together read in one repetition.
pub(super) fn moved(threads: u32, bytes: u64) -> u64 {
    each(threads, bytes) * u64::from(threads)
}

fn each(threads: u32, bytes: u64) -> u64 {
    bytes / u64::from(threads) / LINE * LINE
}

/// Bytes per second of every repetition.
pub(super) fn read(
    threads: u32,
    bytes: u64,
    steps: &Steps,
) -> Result<Result<Vec<f64>, String>, Stop> {
    let length = each(threads, bytes);
    if length == 0 {
        return Ok(Err("too little of it is free".to_owned()));
    }
    thread::scope(|scope| {
        let (done, dones) = bounded(threads as usize);
        let mut begins = Vec::new();
        for _ in 0..threads {
            let (begin, begun) = bounded::<()>(1);
            let done = done.clone();
            let started =
                thread::Builder::new().spawn_scoped(scope, move || reader(length, &begun, &done));
            if let Err(e) = started {
                return Ok(Err(format!("no thread could be started: {e}")));
            }
            begins.push(begin);
        }
        // Threads that have died are noticed, not waited for.
        drop(done);
        rounds(&begins, &dones, moved(threads, bytes), steps)
    })
}

/// One thread: its buffer, then one reading of it for every `begun`.
fn reader(length: u64, begun: &Receiver<()>, done: &Sender<bool>) {
    let mut buffer: Vec<u8> = Vec::new();
    let room = buffer.try_reserve_exact(length as usize).is_ok();
    if room {
        // Not zeros: pages never written may all be the same one.
        buffer.resize(length as usize, 1);
    }
    let mut go_on = done.send(room).is_ok() && room;
    while go_on && begun.recv().is_ok() {
        black_box(sum(black_box(&buffer)));
        go_on = done.send(true).is_ok();
    }
}

fn rounds(
    begins: &[Sender<()>],
    dones: &Receiver<bool>,
    bytes: u64,
    steps: &Steps,
) -> Result<Result<Vec<f64>, String>, Stop> {
    let all_done = || begins.iter().all(|_| dones.recv() == Ok(true));
    if !all_done() {
        return Ok(Err("the memory could not be had".to_owned()));
    }
    let mut samples = Vec::new();
    for repetition in 0..=REPETITIONS {
        steps.check()?;
        let start = Instant::now();
        let all_begun = begins.iter().all(|begin| begin.send(()).is_ok());
        if !all_begun || !all_done() {
            return Ok(Err("a thread ended early".to_owned()));
        }
        if repetition > 0 {
            samples.push(bytes as f64 / start.elapsed().as_secs_f64());
        }
    }
    Ok(Ok(samples))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{CancelMode, CancelToken};

    #[test]
    fn every_repetition_counts_and_every_byte_is_shared_out() {
        let token = CancelToken::new();
        let mut silent = |_| {};
        let steps = Steps::new(&token, &mut silent);
        let samples = read(2, 1 << 16, &steps).unwrap().unwrap();
        assert_eq!(samples.len(), 7);
        assert!(samples.iter().all(|s| s.is_finite() && *s > 0.0));
        assert_eq!(moved(2, 1 << 16), 1 << 16);
        // 1000 bytes in three: 333 each, of which five whole lines are read.
        assert_eq!(moved(3, 1000), 3 * 320);
        assert!(read(2, 100, &steps).unwrap().is_err());
    }

    #[test]
    fn a_cancel_ends_it_between_repetitions() {
        let token = CancelToken::new();
        token.cancel(CancelMode::AfterSample);
        let mut silent = |_| {};
        assert_eq!(
            read(2, 1 << 16, &Steps::new(&token, &mut silent)),
            Err(Stop)
        );
    }

    #[test]
    fn buffers_are_far_larger_than_the_caches() {
        const MIB: u64 = 1 << 20;
        // 4 × 256 MiB is 32 times an L3 of 32 MiB; four sockets' worth of 96 MiB ask for more.
        assert_eq!(size(256 * MIB, 32 * MIB), 1024 * MIB);
        assert_eq!(size(256 * MIB, 96 * MIB), 1536 * MIB);
        assert_eq!(size(256 * MIB, 4096 * MIB), 2048 * MIB);
        assert_eq!(size(MIB, 0), 4 * MIB);
    }
}
