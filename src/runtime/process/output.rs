//! One pipe of a child: drained on its own thread, kept head and tail within a fixed size, split into lines.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;

use crate::ports::sync::{Builder, Mutex, PoisonError, Sender};

/// Bytes kept from the start of a pipe: banners, device lists and load lines stand there.
const KEEP_HEAD: usize = 64 * 1024;
/// Bytes kept from its end: errors stand there. Both hold all of a normal run; a 2 GB log stays this small.
const KEEP_TAIL: usize = 192 * 1024;
/// Bytes per read, also the most one batch of lines holds.
const READ: usize = 64 * 1024;
/// Longest line handed on; the rest of a longer one is only in the kept text.
const MAX_LINE: usize = 64 * 1024;

/// Which pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a drain reports.
pub(super) enum Chunk {
    /// Complete lines.
    Lines(Stream, Vec<String>),
    /// The pipe is closed.
    Closed,
}

/// What a child writes into.
pub(super) trait Pipe: Read + Send + 'static {}

impl<P: Read + Send + 'static> Pipe for P {}

/// The kept text of one pipe, filled by its drain.
pub(super) struct Capture(Arc<Mutex<Kept>>);

impl Capture {
    /// Starts the drain of `pipe`. The thread ends when the pipe closes, whoever still listens.
    pub(super) fn start(
        stream: Stream,
        pipe: Option<impl Pipe>,
        chunks: Sender<Chunk>,
    ) -> io::Result<Self> {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let shared = Arc::clone(&kept);
        let name = match stream {
            Stream::Stdout => "child-stdout",
            Stream::Stderr => "child-stderr",
        };
        Builder::new().name(name.to_owned()).spawn(move || {
            if let Some(pipe) = pipe {
                drain(stream, pipe, &shared, &chunks);
            }
            // Nobody listens once the run was given up.
            let _ = chunks.send(Chunk::Closed);
        })?;
        Ok(Self(kept))
    }

    /// The text kept so far.
    pub(super) fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).text()
    }
}

fn drain(stream: Stream, mut pipe: impl Read, kept: &Mutex<Kept>, chunks: &Sender<Chunk>) {
    let mut buffer = vec![0; READ];
    let mut lines = Lines::default();
    loop {
        let read = match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => &buffer[..n],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        kept.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(read);
        let complete = lines.push(read);
        if !complete.is_empty() {
            let _ = chunks.send(Chunk::Lines(stream, complete));
        }
    }
    if let Some(last) = lines.finish() {
        let _ = chunks.send(Chunk::Lines(stream, vec![last]));
    }
}

/// Head and tail of a text of any length.
#[derive(Default)]
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    cut: u64,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        let room = KEEP_HEAD.saturating_sub(self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(KEEP_TAIL);
        self.tail.drain(..over);
        self.cut += over as u64;
    }

    fn text(&self) -> String {
        let (a, b) = self.tail.as_slices();
        if self.cut == 0 {
            let whole = [self.head.as_slice(), a, b].concat();
            return String::from_utf8_lossy(&whole).into_owned();
        }
        format!(
            "{}\n[… {} bytes cut …]\n{}",
            String::from_utf8_lossy(&self.head),
            self.cut,
            String::from_utf8_lossy(&[a, b].concat())
        )
    }
}

/// Splits bytes into lines; an overlong line loses its end, never its start.
#[derive(Default)]
struct Lines {
    pending: Vec<u8>,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut complete = Vec::new();
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            let room = MAX_LINE.saturating_sub(self.pending.len());
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            self.pending
                .extend_from_slice(&text[..room.min(text.len())]);
            if piece.ends_with(b"\n") {
                complete.push(self.take_line());
            }
        }
        complete
    }

    fn take_line(&mut self) -> String {
        let line = std::mem::take(&mut self.pending);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        String::from_utf8_lossy(line).into_owned()
    }

    fn finish(&mut self) -> Option<String> {
        if self.pending.is_empty() {
            return None;
        }
        Some(self.take_line())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_is_kept_whole() {
        let mut kept = Kept::default();
        kept.push(b"one\n");
        kept.push(&vec![b'x'; KEEP_HEAD]);
        assert_eq!(kept.text().len(), KEEP_HEAD + 4);
        assert!(!kept.text().contains("cut"));
    }

    #[test]
    fn a_long_text_keeps_head_and_tail_and_says_how_much_was_cut() {
        let mut kept = Kept::default();
        kept.push(b"first line\n");
        for _ in 0..100 {
            kept.push(&[b'x'; 10_000]);
        }
        kept.push(b"last line\n");
        let text = kept.text();
        let cut = 11 + 1_000_000 + 10 - KEEP_HEAD - KEEP_TAIL;
        assert!(text.starts_with("first line\n"));
        assert!(text.ends_with("last line\n"));
        assert!(text.contains(&format!("[… {cut} bytes cut …]")));
        assert!(kept.tail.capacity() < 2 * (KEEP_TAIL + 10_000));
    }

    #[test]
    fn lines_survive_any_split_of_the_bytes() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"a\r\nb"), ["a"]);
        assert_eq!(lines.push(b"c\n\n\xff"), ["bc", ""]);
        assert_eq!(lines.finish().as_deref(), Some("\u{fffd}"));
        assert_eq!(lines.finish(), None);
    }

    #[test]
    fn an_endless_line_does_not_grow() {
        let mut lines = Lines::default();
        for _ in 0..10 {
            assert!(lines.push(&vec![b'y'; MAX_LINE]).is_empty());
        }
        assert_eq!(lines.push(b"\n")[0].len(), MAX_LINE);
    }
}
