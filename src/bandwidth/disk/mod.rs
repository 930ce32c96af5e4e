//! Reading the model's disk: in order, and blocks at random, past the page cache.

#[cfg_attr(unix, path = "direct_unix.rs")]
#[cfg_attr(windows, path = "direct_windows.rs")]
mod direct;
mod source;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use crate::domain::placement::bandwidth::{Bandwidth, Path};

use super::steps::{Steps, Stop};

pub(super) use source::Source;

/// Reads in order ask for so much at once: the system cuts it into as many requests as keep a fast disk busy.
pub(super) const BLOCK: u64 = 8 << 20;
/// Reads at random ask for so much: the order of an expert's matrix, or of the read-ahead of a mapped file.
const RANDOM_BLOCK: u64 = 1 << 20;
/// Readers at random: solid-state disks want several requests at once.
const RANDOM_READERS: u32 = 4;
/// Through the page cache threads share stripes of so much: the order of a layer's matrix.
const STRIPE: u64 = 4 << 20;
/// … and read pieces of so much, small against the system's read-ahead as the page faults of a mapped file are.
const PIECE: u64 = 64 << 10;
/// What direct reads want buffers, offsets and lengths to be a multiple of: the largest sector in use.
pub(super) const ALIGN: usize = 4096;
/// Repetitions that count, after one that warms up and says how much to read.
const REPETITIONS: u32 = 5;
/// Seconds that one repetition should take on a slow disk.
pub(super) const REPETITION_SECS: f64 = 0.25;
/// Bytes of the repetition that warms up: quick on any disk.
const WARM_UP: u64 = 16 << 20;

/// A buffer for direct reads.
pub(super) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    pub(super) fn new(length: u64) -> Self {
        // Not zeros: pages never written may all be the same one.
        let bytes = vec![1; length as usize + ALIGN];
        let start = bytes.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self {
            bytes,
            start,
            length: length as usize,
        }
    }

    pub(super) fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    pub(super) fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// Bytes of one repetition on a path of this rate: a whole number of blocks, at least one, at most `size` and the file.
pub(super) fn repetition_bytes(rate: f64, block: u64, size: u64, length: u64) -> u64 {
    let wanted = (rate * REPETITION_SECS) as u64;
    let most = size.min(length).max(block);
    wanted.clamp(block, most) / block * block
}

/// Reads the source in order, each repetition where the one before it ended.
pub(super) fn sequential(
    source: &Source,
    size: u64,
    steps: &Steps,
) -> Result<Result<Bandwidth, String>, Stop> {
    let block = source.block(BLOCK.min(size));
    let mut buffer = Aligned::new(block);
    let mut at = 0;
    let mut samples = Vec::new();
    let mut bytes = repetition_bytes(f64::INFINITY, block, size.min(WARM_UP), source.length);
    for repetition in 0..=REPETITIONS {
        steps.check()?;
        source.forget();
        let start = Instant::now();
        for _ in 0..bytes / block {
            if at + block > source.length {
                at = 0;
            }
            if let Err(e) = source.read(buffer.get_mut(), at) {
                return Ok(Err(source.says(&e)));
            }
            at += block;
        }
        let rate = bytes as f64 / start.elapsed().as_secs_f64();
        if repetition == 0 {
            bytes = repetition_bytes(rate, block, size, source.length);
        } else {
            samples.push(rate);
        }
    }
    Ok(Ok(Bandwidth {
        path: Path::DiskSequential,
        device: None,
        samples,
        bytes,
        threads: 1,
    }))
}

/// Reads blocks of the source in a shuffled order with several threads; a block comes again only when all were read.
pub(super) fn random(
    source: &Source,
    size: u64,
    rate: f64,
    seed: u64,
    steps: &Steps,
) -> Result<Result<Bandwidth, String>, Stop> {
    let block = source.block(RANDOM_BLOCK.min(size));
    let mut order: Vec<u64> = (0..source.length / block).map(|i| i * block).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    let bytes = repetition_bytes(rate, block, size, source.length);
    let blocks = (bytes / block) as usize;
    let mut rounds = order.iter().copied().cycle();
    let mut samples = Vec::new();
    for repetition in 0..=REPETITIONS {
        steps.check()?;
        source.forget();
        let now: Vec<u64> = rounds.by_ref().take(blocks).collect();
        match scattered(source, block, &now) {
            Ok(secs) if repetition > 0 => samples.push(bytes as f64 / secs),
            Ok(_) => {}
            Err(e) => return Ok(Err(source.says(&e))),
        }
    }
    Ok(Ok(Bandwidth {
        path: Path::DiskRandom,
        device: None,
        samples,
        bytes,
        threads: RANDOM_READERS,
    }))
}

/// Reads the source in order through the page cache with `threads` threads, each its part of every stripe.
pub(super) fn buffered(
    source: &Source,
    size: u64,
    rate: f64,
    threads: u32,
    steps: &Steps,
) -> Result<Result<Bandwidth, String>, Stop> {
    let stripe = source.block(STRIPE.min(size));
    let bytes = repetition_bytes(rate, stripe, size, source.length);
    let mut stripes = (0..source.length / stripe).map(|i| i * stripe).cycle();
    source.through_cache(|forget| {
        let mut samples = Vec::new();
        for repetition in 0..=REPETITIONS {
            steps.check()?;
            forget();
            let now: Vec<u64> = stripes.by_ref().take((bytes / stripe) as usize).collect();
            match striped(source, stripe, threads, &now) {
                Ok(secs) if repetition > 0 => samples.push(bytes as f64 / secs),
                Ok(_) => {}
                Err(e) => return Ok(Err(source.says(&e))),
            }
        }
        Ok(Ok(Bandwidth {
            path: Path::DiskBuffered,
            device: None,
            samples,
            bytes,
            threads,
        }))
    })
}

/// Seconds that reading these stripes takes, each thread its part of each.
fn striped(source: &Source, stripe: u64, threads: u32, offsets: &[u64]) -> io::Result<f64> {
    let count = u64::from(threads);
    let part = |thread: u64| stripe * thread / count..stripe * (thread + 1) / count;
    in_threads(threads, |thread| {
        let mut buffer = Aligned::new(PIECE);
        for &offset in offsets {
            let part = part(u64::from(thread));
            for at in part.clone().step_by(PIECE as usize) {
                let length = PIECE.min(part.end - at) as usize;
                source.read(&mut buffer.get_mut()[..length], offset + at)?;
            }
        }
        Ok(())
    })
}

/// Seconds that reading the blocks at these offsets takes.
fn scattered(source: &Source, block: u64, offsets: &[u64]) -> io::Result<f64> {
    let next = AtomicUsize::new(0);
    in_threads(RANDOM_READERS, |_| {
        let mut buffer = Aligned::new(block);
        while let Some(&offset) = offsets.get(next.fetch_add(1, Ordering::Relaxed)) {
            source.read(buffer.get_mut(), offset)?;
        }
        Ok(())
    })
}

/// Seconds that `threads` readers take, each told its number.
fn in_threads(threads: u32, read: impl Fn(u32) -> io::Result<()> + Sync) -> io::Result<f64> {
    let read = &read;
    let start = Instant::now();
    thread::scope(|scope| {
        let readers: Vec<_> = (0..threads)
            .map(|number| thread::Builder::new().spawn_scoped(scope, move || read(number)))
            .collect();
        for reader in readers {
            match reader?.join() {
                Ok(done) => done?,
                Err(_) => return Err(io::Error::other("a reading thread panicked")),
            }
        }
        Ok(())
    })?;
    Ok(start.elapsed().as_secs_f64())
}
