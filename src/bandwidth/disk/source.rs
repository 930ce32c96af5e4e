//! What is read: the model itself where that is honest, else a temporary file that leaves nothing behind.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::bandwidth::steps::{Steps, Stop};

use super::{ALIGN, Aligned, BLOCK, direct};

/// A model of this share of a repetition is read itself: its repetitions are smaller, and that is still its own disk.
const MODEL_SHARE: u64 = 4;
/// Seconds after which a slow disk need not be written any more: what is there is read.
const WRITE_SECS: f64 = 3.0;

/// A file that is read past the page cache, as far as its file system allows.
pub(crate) struct Source {
    file: File,
    /// Bytes that are read, a multiple of [`ALIGN`].
    pub(crate) length: u64,
    /// What the reader of the numbers must know, each a sentence.
    pub(crate) notices: Vec<String>,
    /// The page cache is not in between.
    is_direct: bool,
    /// The file or the folder, for messages.
    place: PathBuf,
}

impl Source {
    /// The file at `path` where it is large enough and all of it is on the disk; else a temporary file of `size`
    /// bytes in its folder, else in `scratch`.
    pub(crate) fn find(
        path: &Path,
        scratch: &Path,
        size: u64,
        seed: u64,
        steps: &Steps,
    ) -> Result<Result<Self, String>, Stop> {
        let mut notices = Vec::new();
        if path.is_file() {
            match Self::model(path, size) {
                Ok(Ok(source)) => return Ok(Ok(source)),
                Ok(Err(why)) => notices.push(why),
                Err(e) => notices.push(format!(
                    "the model cannot be read ({e}): {}",
                    path.display()
                )),
            }
        }
        let own = if path.is_dir() {
            Some(path)
        } else {
            path.parent()
        };
        let own = own.filter(|dir| !dir.as_os_str().is_empty());
        let mut refusals = Vec::new();
        for dir in [own.unwrap_or(Path::new(".")), scratch] {
            match Self::temporary(dir, size, seed, steps)? {
                Ok(mut source) => {
                    notices.append(&mut source.notices);
                    if !refusals.is_empty() {
                        notices.push(format!(
                            "the disk of this folder was measured instead: {}",
                            dir.display()
                        ));
                    }
                    notices.splice(0..0, refusals);
                    source.notices = notices;
                    return Ok(Ok(source));
                }
                Err(e) => refusals.push(format!(
                    "no temporary file can be made there ({e}): {}",
                    dir.display()
                )),
            }
        }
        refusals.dedup();
        Ok(Err(refusals.join("; ")))
    }

    /// The model, or why it would not tell the truth.
    fn model(path: &Path, size: u64) -> io::Result<Result<Self, String>> {
        let file = direct::open(path)?;
        let length = file.metadata()?.len();
        let shown = path.display();
        if length < size / MODEL_SHARE {
            return Ok(Err(format!(
                "the model is too small to measure its disk with, a temporary file was read: {shown}"
            )));
        }
        if direct::has_holes(&file)? {
            return Ok(Err(format!(
                "the model has holes or is compressed by its file system, a temporary file was read: {shown}"
            )));
        }
        Self::of(file, length, path).map(Ok)
    }

    /// A new file of random bytes, which no disk or file system can compress.
    fn temporary(
        dir: &Path,
        size: u64,
        seed: u64,
        steps: &Steps,
    ) -> Result<io::Result<Self>, Stop> {
        let mut file = match direct::temporary(dir) {
            Ok(file) => file,
            Err(e) => return Ok(Err(e)),
        };
        let mut random = fastrand::Rng::with_seed(seed);
        let mut buffer = Aligned::new(BLOCK.min(size).next_multiple_of(ALIGN as u64));
        let start = Instant::now();
        let mut length = 0;
        while length < size && (length == 0 || start.elapsed().as_secs_f64() < WRITE_SECS) {
            steps.check()?;
            random.fill(buffer.get_mut());
            let written = file.write_all(buffer.get()).and_then(|()| file.sync_data());
            if let Err(e) = written {
                return Ok(Err(e));
            }
            length += buffer.get().len() as u64;
        }
        Ok(Self::of(file, length, dir))
    }

    fn of(file: File, length: u64, place: &Path) -> io::Result<Self> {
        let mut source = Self {
            is_direct: direct::bypass(&file).is_ok(),
            length: length / ALIGN as u64 * ALIGN as u64,
            notices: Vec::new(),
            place: place.to_path_buf(),
            file,
        };
        let shown = place.display();
        let mut probe = Aligned::new(ALIGN as u64);
        // Some file systems take the flag and refuse the reads.
        if source.is_direct && source.read(probe.get_mut(), 0).is_err() {
            source.is_direct = false;
            direct::through(&source.file);
            source.read(probe.get_mut(), 0)?;
        }
        if direct::in_memory(&source.file) {
            source.notices.push(format!(
                "this folder is kept in RAM, the numbers are not those of a disk: {shown}"
            ));
        } else if !source.is_direct {
            source.notices.push(format!(
                "this file system does not read past the page cache, which may have helped: {shown}"
            ));
        }
        Ok(source)
    }

    /// The largest block up to `wanted` that direct reads can be made of and that the file holds.
    pub(crate) fn block(&self, wanted: u64) -> u64 {
        let align = ALIGN as u64;
        (wanted.min(self.length) / align * align).max(align)
    }

    /// Fills `buffer` from `offset` on.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        direct::read(&self.file, buffer, offset)
    }

    /// Before a repetition: nothing of the file shall be cached.
    pub(crate) fn forget(&self) {
        if !self.is_direct {
            direct::forget(&self.file);
        }
    }

    /// Lets `work` read through the page cache, of which nothing holds the file before each of its repetitions.
    pub(crate) fn through_cache<T>(&self, work: impl FnOnce(&dyn Fn()) -> T) -> T {
        direct::through(&self.file);
        let done = work(&|| direct::forget(&self.file));
        if self.is_direct {
            // It took the flag before; reads of the next measurement would show that it does not.
            let _ = direct::bypass(&self.file);
        }
        done
    }

    /// A failure to read, in words.
    pub(crate) fn says(&self, error: &io::Error) -> String {
        format!("it cannot be read ({error}): {}", self.place.display())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_takes_no_direct_reads_is_read_through_the_cache_and_says_so() {
        // procfs refuses O_DIRECT.
        let path = Path::new("/proc/self/status");
        let source = Source::of(File::open(path).unwrap(), 10_000, path).unwrap();
        assert_eq!(
            source.notices,
            [
                "this file system does not read past the page cache, which may have helped: /proc/self/status"
            ]
        );
        assert!(!source.is_direct);
        // Whole sectors of 4096 bytes.
        assert_eq!(source.length, 8192);
        source.forget();
    }
}
