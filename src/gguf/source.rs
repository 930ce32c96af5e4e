//! A header as a stream: a fixed buffer, a position, and a hash of every byte consumed.
//! No length is believed before it is compared with the bytes left in the file (case C34).

use std::io::{ErrorKind, Read};

use sha2::{Digest, Sha256};

use crate::domain::text;

use super::error::Fault;

/// Bytes read from the file at a time; a 262,144-token vocabulary (6.5 MB) takes 25 reads.
const BUFFER_BYTES: usize = 256 * 1024;

pub(super) struct Source<'a, R> {
    inner: R,
    hash: &'a mut Sha256,
    buffer: Vec<u8>,
    /// Unconsumed bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Position of `buffer[start]` in the file.
    at: u64,
    size: u64,
}

impl<'a, R: Read> Source<'a, R> {
    /// `size` is the file's length.
    pub(super) fn new(inner: R, size: u64, hash: &'a mut Sha256) -> Self {
        let room = size.clamp(1, BUFFER_BYTES as u64) as usize;
        Self {
            inner,
            hash,
            buffer: vec![0; room],
            start: 0,
            end: 0,
            at: 0,
            size,
        }
    }

    /// Bytes consumed so far.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Bytes from here to the end of the file.
    pub(super) fn left(&self) -> u64 {
        self.size.saturating_sub(self.at)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (at, left) = (self.at, self.left());
        if left < N as u64 {
            return Err(Fault::bad(
                at,
                format!("{N} bytes needed, but the file ends after {left}"),
            ));
        }
        let mut out = [0; N];
        if self.end - self.start >= N {
            out.copy_from_slice(&self.buffer[self.start..self.start + N]);
            self.consume(N);
        } else {
            self.read_into(&mut out)?;
        }
        Ok(out)
    }

    /// A length-prefixed string; kept as text when no longer than `keep` bytes, else skipped.
    /// Returns its length and the text. Bytes that are no UTF-8 are replaced.
    pub(super) fn string(&mut self, keep: u64) -> Result<(u64, Option<String>), Fault> {
        let at = self.at;
        let len = self.u64()?;
        if len > self.left() {
            return Err(Fault::bad(
                at,
                format!(
                    "length {len}, more than the {} left",
                    text::count(self.left(), "byte")
                ),
            ));
        }
        if len > keep {
            self.skip(len)?;
            return Ok((len, None));
        }
        let mut bytes = vec![0; len as usize];
        self.read_into(&mut bytes)?;
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        Ok((len, Some(text)))
    }

    /// Passes over `count` strings without building them.
    pub(super) fn skip_strings(&mut self, count: u64) -> Result<(), Fault> {
        let mut left = count;
        while left > 0 {
            left -= self.skip_buffered_strings(left);
            if left > 0 {
                self.string(0)?;
                left -= 1;
            }
        }
        Ok(())
    }

    /// Passes over strings that lie whole in the buffer, `most` of them, without looking at each as if it were the last:
    /// vocabularies have hundreds of thousands. Returns how many.
    fn skip_buffered_strings(&mut self, most: u64) -> u64 {
        let room = (self.end - self.start).min(usize::try_from(self.left()).unwrap_or(usize::MAX));
        let buffered = &self.buffer[self.start..self.start + room];
        let (mut at, mut passed) = (0, 0);
        while passed < most
            && let Some((len, rest)) = buffered[at..].split_first_chunk()
            && let Ok(len) = usize::try_from(u64::from_le_bytes(*len))
            && len <= rest.len()
        {
            at = room - rest.len() + len;
            passed += 1;
        }
        self.consume(at);
        passed
    }

    /// Passes over `n` bytes.
    pub(super) fn skip(&mut self, mut n: u64) -> Result<(), Fault> {
        if n > self.left() {
            return Err(Fault::bad(
                self.at,
                format!(
                    "{} needed, more than the {} left",
                    text::count(n, "byte"),
                    self.left()
                ),
            ));
        }
        while n > 0 {
            if self.start == self.end {
                self.fill()?;
            }
            let step = n.min((self.end - self.start) as u64);
            self.consume(step as usize);
            n -= step;
        }
        Ok(())
    }

    /// Hashes what was consumed since the last refill; the header ends here.
    pub(super) fn finish(self) {
        self.hash.update(&self.buffer[..self.start]);
    }

    /// The caller has checked that the bytes are left.
    fn read_into(&mut self, mut out: &mut [u8]) -> Result<(), Fault> {
        while !out.is_empty() {
            if self.start == self.end {
                self.fill()?;
            }
            let step = out.len().min(self.end - self.start);
            let (now, later) = out.split_at_mut(step);
            now.copy_from_slice(&self.buffer[self.start..self.start + step]);
            self.consume(step);
            out = later;
        }
        Ok(())
    }

    fn consume(&mut self, n: usize) {
        self.start += n;
        self.at += n as u64;
    }

    /// Replaces the wholly consumed buffer.
    fn fill(&mut self) -> Result<(), Fault> {
        self.hash.update(&self.buffer[..self.start]);
        (self.start, self.end) = (0, 0);
        loop {
            match self.inner.read(&mut self.buffer) {
                Ok(0) => return Err(Fault::bad(self.at, "the file became shorter while read")),
                Ok(n) => {
                    self.end = n;
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Fault::Io(e)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives so many bytes at a time.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let n = self.1.min(into.len());
            self.0.read(&mut into[..n])
        }
    }

    #[test]
    fn strings_are_passed_over_wherever_a_read_ends() {
        let mut bytes = Vec::new();
        for len in [0_u64, 1, 5, 0, 13, 2] {
            bytes.extend(len.to_le_bytes());
            bytes.extend(vec![b'x'; len as usize]);
        }
        let end = bytes.len() as u64;
        bytes.extend(7_u32.to_le_bytes());
        let expected = Sha256::digest(&bytes);
        for piece in 1..=bytes.len() {
            let mut hash = Sha256::new();
            let mut source = Source::new(Pieces(&bytes, piece), bytes.len() as u64, &mut hash);
            source.skip_strings(6).unwrap();
            assert_eq!(source.at(), end, "{piece} bytes at a time");
            assert_eq!(source.u32().unwrap(), 7);
            source.finish();
            assert_eq!(hash.finalize(), expected);
        }
        // The file is said to end within the last string, and a length reaches beyond the file.
        let mut hash = Sha256::new();
        let mut source = Source::new(Pieces(&bytes, 100), end - 1, &mut hash);
        assert!(source.skip_strings(6).is_err());
        let mut hash = Sha256::new();
        let long = [u64::MAX.to_le_bytes(), [b'x'; 8]].concat();
        let mut source = Source::new(long.as_slice(), 16, &mut hash);
        assert!(source.skip_strings(1).is_err());
    }
}
