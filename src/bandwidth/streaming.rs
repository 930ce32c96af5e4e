//! Can weights be read from the disk while they are used? Two buffers go round between a thread that reads and one that
//! does what a matrix–vector product does to memory.

use std::hint::black_box;
use std::io;
use std::thread;
use std::time::Instant;

use crossbeam_channel::bounded;

use crate::domain::placement::bandwidth::Streaming;

use super::disk::{Aligned, BLOCK, Source, repetition_bytes};
use super::steps::{Steps, Stop};
use super::sum::sum;

/// Repetitions of the three; the first is no warm-up, the disk was read just before.
const REPETITIONS: u32 = 3;
/// While one is read, the other is used.
const BUFFERS: usize = 2;

/// Reads, sums, and does both at once.
pub(super) fn measure(
    source: &Source,
    size: u64,
    rate: f64,
    steps: &Steps,
) -> Result<Result<Streaming, String>, Stop> {
    let block = source.block(BLOCK.min(size));
    let bytes = repetition_bytes(rate, block, size, source.length);
    let blocks = bytes / block;
    // As large as what is streamed, so that no cache holds it.
    let weights = Aligned::new(bytes);
    let mut samples = Vec::new();
    for _ in 0..REPETITIONS {
        steps.check()?;
        source.forget();
        let read = stream(source, block, blocks, |_| {});
        let consume = alone(weights.get(), block);
        steps.check()?;
        source.forget();
        let consumer = |part: &[u8]| {
            black_box(sum(black_box(part)));
        };
        let together = stream(source, block, blocks, consumer);
        match (read, together) {
            (Ok(read), Ok(together)) => samples.push([read, consume, together]),
            (Err(e), _) | (_, Err(e)) => return Ok(Err(source.says(&e))),
        }
    }
    Ok(Ok(Streaming::of(bytes, samples)))
}

/// Seconds that the consumer takes when it waits for nobody.
fn alone(weights: &[u8], block: u64) -> f64 {
    let start = Instant::now();
    for part in weights.chunks_exact(block as usize) {
        black_box(sum(black_box(part)));
    }
    start.elapsed().as_secs_f64()
}

/// Hands every block to `consume` while the next one is read; the seconds that takes.
fn stream(source: &Source, block: u64, blocks: u64, consume: impl Fn(&[u8])) -> io::Result<f64> {
    let (give_back, empty) = bounded::<Aligned>(BUFFERS);
    let (hand_over, full) = bounded::<Aligned>(BUFFERS);
    for _ in 0..BUFFERS {
        // There is room for all of them.
        let _ = give_back.try_send(Aligned::new(block));
    }
    let read = move || {
        for (at, mut buffer) in (0..blocks).zip(empty.iter()) {
            source.read(buffer.get_mut(), at * block)?;
            if hand_over.send(buffer).is_err() {
                break;
            }
        }
        Ok(())
    };
    let start = Instant::now();
    thread::scope(|scope| {
        let reader = thread::Builder::new().spawn_scoped(scope, read)?;
        for buffer in full {
            consume(buffer.get());
            // The reader may have read its last block.
            let _ = give_back.try_send(buffer);
        }
        reader
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the reading thread panicked")))
    })?;
    Ok(start.elapsed().as_secs_f64())
}
