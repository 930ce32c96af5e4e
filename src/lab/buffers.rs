//! The memory a lab works in, and how data gets into it.

use crate::domain::lab::Format;
use crate::vulkan::{Buffer, Gpu, GpuError, Kind, Queue};

use super::data::COLUMNS;

/// Less than this tests caches alone.
const LEAST: u64 = 1 << 20;
/// Room for the vector, partial sums and whatever else is small.
const SMALL: u64 = 1 << 20;

/// Two large buffers, and small ones for the vector, the result, and the way from and to the host.
pub(super) struct Buffers {
    /// A matrix, or what is copied and read.
    pub(super) source: Buffer,
    /// What is copied or written to, or a matrix's scales.
    pub(super) target: Buffer,
    /// The vector.
    pub(super) x: Buffer,
    /// The result, partial sums.
    pub(super) y: Buffer,
    up: Buffer,
    down: Buffer,
    /// Bytes of each of the two large ones.
    pub(super) size: u64,
}

impl Buffers {
    /// Takes at most `most` bytes of device memory in all, and less where the driver does not give that: halves until it
    /// does.
    pub(super) fn new(gpu: &Gpu, largest: u64, most: u64) -> Result<Self, GpuError> {
        let room = most.saturating_sub(2 * SMALL) / 2;
        // The result of a matrix of the smallest rows comes with it.
        let room = room - room / 256;
        let mut size = largest.min(room).min(gpu.physical.max_binding) / 16 * 16;
        loop {
            match Self::of(gpu, size) {
                Err(GpuError::OutOfDeviceMemory(_)) if size / 2 >= LEAST => size = size / 32 * 16,
                made => return made,
            }
        }
    }

    fn of(gpu: &Gpu, size: u64) -> Result<Self, GpuError> {
        let rows = size / Format::Q4.row_bytes(COLUMNS);
        let result = (4 * rows).max(SMALL);
        Ok(Self {
            source: Buffer::new(gpu, Kind::Device, size)?,
            target: Buffer::new(gpu, Kind::Device, size)?,
            x: Buffer::new(gpu, Kind::Device, SMALL)?,
            y: Buffer::new(gpu, Kind::Device, result)?,
            up: Buffer::new(gpu, Kind::Upload, SMALL)?,
            down: Buffer::new(gpu, Kind::Download, result)?,
            size,
        })
    }

    /// Fills the source with a tile, over and over.
    pub(super) fn fill_source(&mut self, queue: &mut Queue, tile: &[u8]) -> Result<(), GpuError> {
        self.up.write(tile)?;
        repeat(queue, &self.up, tile.len() as u64, &self.source, self.size)
    }

    /// Fills the target with a tile, over and over.
    pub(super) fn fill_target(&mut self, queue: &mut Queue, tile: &[u8]) -> Result<(), GpuError> {
        self.up.write(tile)?;
        repeat(queue, &self.up, tile.len() as u64, &self.target, self.size)
    }

    /// Puts the vector in its place.
    pub(super) fn set_x(&mut self, queue: &mut Queue, x: &[u8]) -> Result<(), GpuError> {
        self.up.write(x)?;
        let bytes = x.len() as u64;
        repeat(queue, &self.up, bytes, &self.x, bytes)
    }

    /// The first bytes of the result.
    pub(super) fn result(&self, queue: &mut Queue, bytes: u64) -> Result<Vec<u8>, GpuError> {
        queue.submit(|r| r.copy((&self.y, 0), (&self.down, 0), bytes))?;
        self.down.read(bytes as usize)
    }
}

/// Copies a tile from the host, then what is there already behind itself, twice as much each time.
fn repeat(
    queue: &mut Queue,
    from: &Buffer,
    tile: u64,
    to: &Buffer,
    size: u64,
) -> Result<(), GpuError> {
    let mut there = tile.min(size);
    queue.submit(|r| r.copy((from, 0), (to, 0), there))?;
    while there < size {
        let more = there.min(size - there);
        queue.submit(|r| r.copy((to, 0), (to, there), more))?;
        there += more;
    }
    Ok(())
}
